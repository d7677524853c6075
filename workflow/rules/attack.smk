rule attack_cell:
    input:
        data=PREPARED,
        weights=trained(WEIGHTS),
        record=trained(RECORD),
        clean=trained(CLEAN),
    output:
        correct=f"{RESULTS}/attack/{CELL}/eps{{epsilon}}.npz",
        record=f"{RESULTS}/attack/{CELL}/eps{{epsilon}}.json",
    log:
        f"{LOGS}/attack/{CELL}/eps{{epsilon}}.log",
    benchmark:
        f"{BENCHMARKS}/attack/{CELL}/eps{{epsilon}}.tsv"
    conda:
        "../../environment.yml"
    threads: machine.threads
    resources:
        mem_mb=lambda wildcards, attempt: 6000 * attempt,
        runtime=minutes(480),
        gpu=gpu,
    params:
        cell=CELL,
        slice=lambda wildcards: ATTACK_DIGESTS[wildcards.epsilon][wildcards.method],
    message:
        "attack {params.cell} with epsilon {wildcards.epsilon}"
    shell:
        "tnfdt attack {params.cell} --epsilon {wildcards.epsilon} --slice {params.slice} &> {log:q}"


rule attack:
    input:
        attack_files,
    message:
        "target attack"
