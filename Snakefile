from snakemake.utils import min_version

min_version("9.0")


configfile: f"{workflow.basedir}/config/config.yaml"


report: "workflow/report/front.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/attack.smk"
include: "workflow/rules/audit.smk"
include: "workflow/rules/multiverse.smk"
include: "workflow/rules/tables.smk"
include: "workflow/rules/bundle.smk"
include: "workflow/rules/track.smk"


rule all:
    default_target: True
    input:
        rules.tables.input,
        rules.audit.input if study.audit.include else [],
        rules.multiverse.input if study.multiverse.include else [],
        rules.pack.output,
    message:
        "target all"


onstart:
    begin_run()


onsuccess:
    end_run()


onerror:
    end_run(failed=True)
