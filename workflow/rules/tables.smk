rule count_activations:
    input:
        products.measured_files(study, PATHS),
    output:
        PATHS.activations,
    log:
        PATHS.log("tables", "activations"),
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=minutes(30),
        gpu=0,
    message:
        "count the activations that TN makes larger"
    shell:
        "tnfdt tables --only activations &> {log:q}"


# Tables and figures by one rule: see `pack`.
rule make_tables:
    input:
        data=data_files(MANIFEST),
        train=train_files(RECORD, HISTORY, CLEAN),
        attack=attack_files,
        variants=included_variants(RECORD, CLEAN),
        activations=PATHS.activations if products.measured_cells(study) else [],
        audit=judged_audits(),
        pictured=products.pictured_files(study, PATHS),
        sources=products.sources(products.MADE_PACKAGES),
    output:
        **products.reported(report, PATHS.tables, "html", products.table_pages(study)),
        texts=[PATHS.tables / name for name in products.table_files(study)],
        png=products.reported(
            report, PATHS.figures, "png", products.figure_names(study)
        ).values(),
        pdf=[PATHS.figures / f"{name}.pdf" for name in products.figure_names(study)],
    log:
        PATHS.log("tables", "tables"),
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=minutes(60),
        gpu=0,
    params:
        **products.facts(study),
    message:
        "make the tables and draw the figures"
    shell:
        "tnfdt tables --only tables --only figures &> {log:q}"


rule tables:
    input:
        made=rules.make_tables.output,
        study=study_files,
    message:
        "target tables"
