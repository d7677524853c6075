rule train_cell:
    input:
        data=PREPARED,
    output:
        weights=f"{RESULTS}/train/{CELL}/model.safetensors",
        history=f"{RESULTS}/train/{CELL}/history.csv",
        clean=f"{RESULTS}/train/{CELL}/clean.npz",
        record=f"{RESULTS}/train/{CELL}/record.json",
        best=[
            f"{RESULTS}/train/{CELL}/{name}"
            for name in (BEST_WEIGHTS, BEST_CLEAN)
            if study.multiverse.best_of
        ],
    log:
        f"{LOGS}/train/{CELL}.log",
    benchmark:
        f"{BENCHMARKS}/train/{CELL}.tsv"
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
        cell=CELL,
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
