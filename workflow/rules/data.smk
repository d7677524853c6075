rule prepare_data:
    output:
        files_of(PATHS.data, ["{dataset}"], DATA_FILES),
    log:
        PATHS.log("data", "{dataset}"),
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=minutes(60),
        gpu=0,
    params:
        slice=lambda wildcards: tnfdt_workflow.data_digest(study, machine, wildcards),
    message:
        "prepare {wildcards.dataset}"
    shell:
        "tnfdt data {wildcards.dataset} --slice {params.slice} &> {log:q}"


rule data:
    input:
        data_files(*DATA_FILES),
    message:
        "target data"
