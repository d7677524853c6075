rule attack_cell:
    input:
        data=f"{RESULTS}/data/{{dataset}}/manifest.json",
        weights=f"{RESULTS}/train/{CELL}/model.safetensors",
        record=f"{RESULTS}/train/{CELL}/record.json",
    output:
        correct=f"{RESULTS}/attack/{CELL}/eps{{epsilon}}.npz",
        record=f"{RESULTS}/attack/{CELL}/eps{{epsilon}}.json",
    params:
        slice=lambda wildcards: tnfdt_workflow.attack_digest(study, wildcards),
    log:
        f"{LOGS}/attack/{CELL}/eps{{epsilon}}.log",
    benchmark:
        f"{BENCHMARKS}/attack/{CELL}/eps{{epsilon}}.tsv"
    threads: machine.threads
    resources:
        mem_mb=lambda wildcards, attempt: 6000 * attempt,
        runtime=lambda wildcards, attempt: 480 * attempt,
        gpu=gpu,
    shell:
        "tnfdt attack {RUN} {wildcards.dataset}/{wildcards.model}/{wildcards.method}"
        "/seed{wildcards.seed} --epsilon {wildcards.epsilon} --slice {params.slice} &> {log}"


rule attack:
    input:
        attack_files("json"),
        attack_files("npz"),
