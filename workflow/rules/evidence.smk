rule write_summary:
    input:
        data=data_files(MANIFEST),
        train=train_files(RECORD, CLEAN),
        attack=attack_files,
        activations=ACTIVATIONS if outputs.measured_cells(study) else [],
        audit=audit_files("audit.json") if study.audit.include else [],
        sources=outputs.sources(outputs.TABLE_PACKAGES),
    output:
        **outputs.reported(report, TABLES, "html", ["summary"]),
        page=f"{RESULTS}/summary.md",
    log:
        f"{LOGS}/tables/summary.log",
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
        "write the reviewer's page"
    shell:
        "tnfdt tables --only summary &> {log:q}"


rule pack:
    input:
        data=data_files(MANIFEST),
        train=train_files(*TRAIN_FILES),
        attack=attack_files,
        activations=ACTIVATIONS if outputs.measured_cells(study) else [],
        audit=audit_files(*AUDIT_FILES) if study.audit.include else [],
        claims=f"{TABLES}/claims.json",
    output:
        evidence=f"{RESULTS}/evidence.zip",
    log:
        f"{LOGS}/tables/pack.log",
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
