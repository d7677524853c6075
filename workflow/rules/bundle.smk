# One rule for both: each reads the whole study, and a file declared once more by every cell is
# what a dry run of a large grid costs.
rule pack:
    input:
        data=data_files(MANIFEST),
        train=train_files(*TRAIN_FILES),
        attack=attack_files,
        variants=included_variants(*TRAIN_FILES),
        activations=PATHS.activations if products.measured_cells(study) else [],
        audit=audit_files(*AUDIT_FILES) if study.audit.include else [],
        claims=PATHS.claims,
        sources=products.sources(products.TABLE_PACKAGES),
    output:
        **products.reported(report, PATHS.tables, "html", ["summary"]),
        page=PATHS.summary,
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
    params:
        **products.facts(study),
    message:
        "write the reviewer's page and pack the evidence into one file"
    shell:
        "(tnfdt tables --only summary && tnfdt pack) &> {log:q}"
