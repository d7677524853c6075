rule write_summary:
    input:
        train=train_files("record.json", "clean.npz"),
        attack=attack_files("json"),
        correct=attack_files("npz"),
        audit=audit_files(),
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
        runtime=30,
        gpu=0,
    message:
        "write the reviewer's page"
    shell:
        "tnfdt tables --only summary &> {log:q}"


rule pack:
    input:
        train=train_files(
            "record.json", "clean.npz", "history.csv", "model.safetensors"
        ),
        audit=audit_files(),
        attack=attack_files("json"),
        correct=attack_files("npz"),
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
        runtime=60,
        gpu=0,
    message:
        "pack the evidence into one file"
    shell:
        "tnfdt pack &> {log:q}"
