rule train_cell:
    input:
        data=PREPARED,
    output:
        weights=PATHS.weights(CELL),
        history=PATHS.history(CELL),
        clean=PATHS.clean(CELL),
        record=PATHS.record(CELL),
        best=[
            PATHS.train(CELL) / name
            for name in (BEST_WEIGHTS, BEST_CLEAN)
            if study.multiverse.best_of
        ],
    log:
        PATHS.log("train", CELL.path),
    benchmark:
        PATHS.benchmark("train", CELL.path)
    wildcard_constraints:
        method=tnfdt_workflow.trained_methods(study),
    conda:
        "../../environment.yml"
    threads: machine.threads
    resources:
        mem_mb=lambda wildcards, attempt: 6000 * attempt,
        runtime=minutes(1440),
        gpu=gpu,
    params:
        cell=CELL.path,
        slice=lambda wildcards: tnfdt_workflow.train_digest(study, machine, wildcards),
    message:
        "train {params.cell}"
    shell:
        "tnfdt train {params.cell} --slice {params.slice} &> {log:q}"


rule train:
    input:
        train_files(*TRAIN_FILES),
    message:
        "target train"
