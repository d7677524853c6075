rule prepare_data:
    output:
        manifest=f"{RESULTS}/data/{{dataset}}/manifest.json",
    params:
        slice=lambda wildcards: tnfdt_workflow.data_digest(study, machine, wildcards),
    log:
        f"{LOGS}/data/{{dataset}}.log",
    threads: 1
    resources:
        mem_mb=4000,
        runtime=60,
        gpu=0,
    shell:
        "tnfdt data {RUN} {wildcards.dataset} --slice {params.slice} &> {log}"


rule data:
    input:
        [f"{RESULTS}/data/{dataset}/manifest.json" for dataset in tnfdt_workflow.datasets(study)],
