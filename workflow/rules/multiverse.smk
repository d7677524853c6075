rule pick_best:
    input:
        best_epoch_of,
    output:
        weights=PATHS.weights(CELL),
        history=PATHS.history(CELL),
        clean=PATHS.clean(CELL),
        record=PATHS.record(CELL),
    log:
        PATHS.log("train", CELL.path),
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
        cell=CELL.path,
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
        variants=variant_files(RECORD, CLEAN),
        activations=PATHS.activations if products.measured_cells(study) else [],
        audit=judged_audits(),
        sources=products.sources(products.AUDIT_PACKAGES),
    output:
        **products.reported(report, PATHS.tables, "html", ["multiverse"]),
        **products.reported(report, PATHS.figures, "png", READINGS),
        texts=multiext(f"{PATHS.tables}/multiverse", ".tex", ".csv", ".md"),
        distances=PATHS.tables / "distances.csv",
        pdf=[PATHS.figures / f"{name}.pdf" for name in READINGS],
    log:
        PATHS.log("tables", "multiverse"),
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
        study=variant_files(*TRAIN_FILES),
    message:
        "target multiverse"
