rule train_cell:
    input:
        data=f"{RESULTS}/data/{{dataset}}/manifest.json",
    output:
        weights=f"{RESULTS}/train/{CELL}/model.safetensors",
        history=f"{RESULTS}/train/{CELL}/history.csv",
        record=f"{RESULTS}/train/{CELL}/record.json",
    params:
        slice=lambda wildcards: tnfdt_workflow.train_digest(study, machine, wildcards),
    log:
        f"{LOGS}/train/{CELL}.log",
    benchmark:
        f"{BENCHMARKS}/train/{CELL}.tsv"
    threads: machine.threads
    resources:
        mem_mb=lambda wildcards, attempt: 6000 * attempt,
        runtime=lambda wildcards, attempt: 1440 * attempt,
        gpu=gpu,
    shell:
        "tnfdt train {RUN} {wildcards.dataset}/{wildcards.model}/{wildcards.method}"
        "/seed{wildcards.seed} --slice {params.slice} &> {log}"


rule train:
    input:
        train_files("record.json", "model.safetensors"),
