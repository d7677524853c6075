rule write_summary:
    input:
        data=data_files(MANIFEST),
        train=train_files(RECORD, CLEAN),
        attack=attack_files,
        variants=included_variants(RECORD, CLEAN),
        activations=PATHS.activations if products.measured_cells(study) else [],
        audit=audit_files(AUDIT_RECORD) if study.audit.include else [],
        sources=products.sources(products.TABLE_PACKAGES),
    output:
        **products.reported(report, PATHS.tables, "html", ["summary"]),
        page=PATHS.summary,
    log:
        PATHS.log("tables", "summary"),
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=minutes(30),
        gpu=0,
    params:
        **products.facts(study),
    message:
        "write the reviewer's page"
    shell:
        "tnfdt tables --only summary &> {log:q}"


rule pack:
    input:
        data=data_files(MANIFEST),
        train=train_files(*TRAIN_FILES),
        attack=attack_files,
        variants=included_variants(*TRAIN_FILES),
        activations=PATHS.activations if products.measured_cells(study) else [],
        audit=audit_files(*AUDIT_FILES) if study.audit.include else [],
        claims=PATHS.claims,
    output:
        evidence=PATHS.evidence,
    log:
        PATHS.log("tables", "pack"),
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=minutes(60),
        gpu=0,
    message:
        "pack the evidence into one file"
    shell:
        "tnfdt pack &> {log:q}"
