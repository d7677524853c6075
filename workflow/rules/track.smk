rule track:
    log:
        PATHS.logs / "track.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=minutes(30),
        gpu=0,
    message:
        "bring MLflow in line with the records"
    shell:
        "tnfdt track &> {log:q}"
