rule count_activations:
    input:
        [f"{RESULTS}/{name}" for name in outputs.measured_files(study)],
    output:
        ACTIVATIONS,
    log:
        f"{LOGS}/tables/activations.log",
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


rule make_tables:
    input:
        data=data_files(MANIFEST),
        train=train_files(RECORD, CLEAN),
        attack=attack_files,
        activations=ACTIVATIONS if outputs.measured_cells(study) else [],
        audit=judged_audits(),
        sources=outputs.sources(outputs.TABLE_PACKAGES),
    output:
        **outputs.reported(report, TABLES, "html", outputs.table_pages(study)),
        texts=[f"{TABLES}/{name}" for name in outputs.table_texts(study)],
    log:
        f"{LOGS}/tables/tables.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=minutes(30),
        gpu=0,
    params:
        **outputs.facts(study),
    message:
        "make the tables"
    shell:
        "tnfdt tables --only tables &> {log:q}"


rule draw_figures:
    input:
        data=data_files(MANIFEST),
        train=train_files(RECORD, HISTORY, CLEAN),
        attack=attack_files,
        pictured=[f"{RESULTS}/{name}" for name in outputs.pictured_files(study)],
        sources=outputs.sources(outputs.FIGURE_PACKAGES),
    output:
        **outputs.reported(report, FIGURES, "png", outputs.figure_names(study)),
        pdf=[f"{FIGURES}/{name}.pdf" for name in outputs.figure_names(study)],
    log:
        f"{LOGS}/tables/figures.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=minutes(30),
        gpu=0,
    params:
        **outputs.facts(study),
    message:
        "draw the figures"
    shell:
        "tnfdt tables --only figures &> {log:q}"


rule tables:
    input:
        made=[*rules.make_tables.output, *rules.draw_figures.output],
        study=study_files,
    message:
        "target tables"
