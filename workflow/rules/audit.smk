rule audit_cell:
    input:
        data=PREPARED,
        weights=f"{RESULTS}/train/{CELL}/model.safetensors",
        record=f"{RESULTS}/train/{CELL}/record.json",
        vanilla=vanilla_of,
    output:
        record=f"{RESULTS}/audit/{CELL}/audit.json",
        correct=f"{RESULTS}/audit/{CELL}/audit.npz",
    log:
        f"{LOGS}/audit/{CELL}.log",
    conda:
        "../../environment.yml"
    threads: machine.threads
    resources:
        mem_mb=lambda wildcards, attempt: 6000 * attempt,
        runtime=minutes(1440),
        gpu=gpu,
    params:
        cell=CELL,
        slice=lambda wildcards: tnfdt_workflow.audit_digest(study, wildcards),
    message:
        "audit {params.cell}"
    shell:
        "tnfdt audit {params.cell} --slice {params.slice} &> {log:q}"


rule make_audit_tables:
    input:
        data=data_files(MANIFEST),
        train=train_files(RECORD),
        audit=audit_files("audit.json"),
        sources=outputs.sources(outputs.AUDIT_PACKAGES),
    output:
        **outputs.reported(report, TABLES, "html", ["audit"]),
        **outputs.reported(report, FIGURES, "png", ["audit_bars"]),
        texts=multiext(f"{TABLES}/audit", ".tex", ".csv", ".md"),
        pdf=f"{FIGURES}/audit_bars.pdf",
    log:
        f"{LOGS}/tables/audit.log",
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
