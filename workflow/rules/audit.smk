rule audit_cell:
    input:
        data=f"{RESULTS}/data/{{dataset}}/manifest.json",
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
        runtime=lambda wildcards, attempt: 1440 * attempt,
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
        audit=[f"{RESULTS}/audit/{cell.path}/audit.json" for cell in study.audited()],
        train=train_files("record.json"),
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
        runtime=30,
        gpu=0,
    message:
        "make the table and the figure of the audit"
    shell:
        "tnfdt tables --only audit &> {log:q}"


rule audit:
    input:
        rules.make_audit_tables.output,
    message:
        "target audit"
