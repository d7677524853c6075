rule audit_cell:
    input:
        data=PREPARED,
        weights=PATHS.weights(CELL),
        record=PATHS.record(CELL),
        vanilla=vanilla_of,
    output:
        record=PATHS.audit_record(CELL),
        correct=PATHS.audit_array(CELL),
    log:
        PATHS.log("audit", CELL.path),
    conda:
        "../../environment.yml"
    threads: machine.threads
    resources:
        mem_mb=lambda wildcards, attempt: 6000 * attempt,
        runtime=minutes(1440),
        gpu=gpu,
    params:
        cell=CELL.path,
        slice=lambda wildcards: tnfdt_workflow.audit_digest(study, wildcards),
    message:
        "audit {params.cell}"
    shell:
        "tnfdt audit {params.cell} --slice {params.slice} &> {log:q}"


rule make_audit_tables:
    input:
        data=data_files(MANIFEST),
        train=train_files(RECORD),
        audit=audit_files(AUDIT_RECORD),
        sources=products.sources(products.AUDIT_PACKAGES),
    output:
        **products.reported(report, PATHS.tables, "html", ["audit"]),
        **products.reported(report, PATHS.figures, "png", ["audit_bars"]),
        texts=multiext(f"{PATHS.tables}/audit", ".tex", ".csv", ".md"),
        pdf=PATHS.figures / "audit_bars.pdf",
    log:
        PATHS.log("tables", "audit"),
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=minutes(30),
        gpu=0,
    message:
        "make the table and the figure of the audit"
    shell:
        "tnfdt tables --only audit &> {log:q}"


rule audit:
    input:
        made=rules.make_audit_tables.output,
        study=audit_files(*AUDIT_FILES),
    message:
        "target audit"
