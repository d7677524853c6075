rule attack_cell:
    input:
        data=PREPARED,
        weights=trained(WEIGHTS),
        record=trained(RECORD),
        clean=trained(CLEAN),
    output:
        correct=PATHS.attack_array(CELL, "{epsilon}"),
        record=PATHS.attack_record(CELL, "{epsilon}"),
    log:
        PATHS.log("attack", attack_job(CELL, "{epsilon}")),
    benchmark:
        PATHS.benchmark("attack", attack_job(CELL, "{epsilon}"))
    conda:
        "../../environment.yml"
    threads: machine.threads
    resources:
        mem_mb=lambda wildcards, attempt: 6000 * attempt,
        runtime=minutes(480),
        gpu=gpu,
    params:
        cell=CELL.path,
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
