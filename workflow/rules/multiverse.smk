rule pick_best:
    input:
        best_epoch_of,
    output:
        weights=f"{RESULTS}/train/{CELL}/model.safetensors",
        history=f"{RESULTS}/train/{CELL}/history.csv",
        clean=f"{RESULTS}/train/{CELL}/clean.npz",
        record=f"{RESULTS}/train/{CELL}/record.json",
    log:
        f"{LOGS}/train/{CELL}.log",
    wildcard_constraints:
        method=tnfdt_workflow.one_of(study.multiverse.best_of) or "(?!)",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=minutes(30),
        gpu=0,
    params:
        cell=CELL,
        slice=lambda wildcards: tnfdt_workflow.train_digest(study, machine, wildcards),
    message:
        "take the best epoch for {params.cell}"
    shell:
        "tnfdt train {params.cell} --slice {params.slice} &> {log:q}"


rule make_multiverse:
    input:
        data=data_files(MANIFEST),
        train=train_files(RECORD, CLEAN),
        attack=attack_files,
        variants=variant_files,
        sources=outputs.sources(outputs.FIGURE_PACKAGES),
    output:
        **outputs.reported(report, TABLES, "html", ["multiverse"]),
        **outputs.reported(report, FIGURES, "png", ["readings"]),
        texts=multiext(f"{TABLES}/multiverse", ".tex", ".csv", ".md"),
        pdf=f"{FIGURES}/readings.pdf",
    log:
        f"{LOGS}/tables/multiverse.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=minutes(30),
        gpu=0,
    message:
        "compare the readings of the paper"
    shell:
        "tnfdt tables --only multiverse &> {log:q}"


rule multiverse:
    input:
        made=rules.make_multiverse.output,
        study=variant_files,
    message:
        "target multiverse"
