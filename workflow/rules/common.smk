import atexit
import gc
import sys
from pathlib import Path

from tnfdt.run import lifeline
from tnfdt.study import outputs
from tnfdt.run import space
from tnfdt.run import stalls
from tnfdt.run import report as tnfdt_report
from tnfdt.run import snakemake as tnfdt_workflow
from tnfdt.study.study import UserError

try:
    machine, study = tnfdt_workflow.load(config)
    tnfdt_workflow.export(config)
    space.require(".", machine.results_dir)
except UserError as error:
    sys.exit(f"tnfdt: {error}")

lifeline.begin_run(
    workflow.is_main_process, lambda: stalls.is_left_over(study, machine)
)
tnfdt_workflow.limit_gpus(workflow, machine)

RESULTS = f"{machine.results_dir}/{study.name}"
LOGS = f"{machine.results_dir}/{study.name}/logs"
BENCHMARKS = f"{machine.results_dir}/{study.name}/benchmarks"
TABLES, FIGURES = f"{RESULTS}/tables", f"{RESULTS}/figures"
ACTIVATIONS = f"{RESULTS}/activations.json"
TRAINED = frozenset(study.cells)
CELL = "{dataset}/{model}/{method}/seed{seed}"
ATTACK_DIGESTS = tnfdt_workflow.attack_digests(study)
EPSILONS = list(ATTACK_DIGESTS)

# The jobs of a large grid all stay: to look through them for garbage is a fifth of a dry run.
gc.set_threshold(50_000, 20, 100)


wildcard_constraints:
    **tnfdt_workflow.constraints(study),


def cell_of(wildcards):
    return tnfdt_workflow.cell(wildcards)


def train_files(*names):
    """The named files of every training."""
    return [
        f"{RESULTS}/train/{cell.path}/{name}" for cell in study.cells for name in names
    ]


def attack_files(suffix):
    """The files with this suffix of every attack."""
    return [
        f"{RESULTS}/attack/{cell.path}/eps{epsilon}.{suffix}"
        for cell in study.cells
        for epsilon in EPSILONS
    ]


def audit_files():
    """The records of the audits, where they are part of the study."""
    cells = study.audited() if study.audit.include else []
    return [f"{RESULTS}/audit/{cell.path}/audit.json" for cell in cells]


def vanilla_of(wildcards):
    """The vanilla network of the same dataset, model and seed, where the study has one."""
    cell = cell_of(wildcards)._replace(method="vanilla")
    return f"{RESULTS}/train/{cell.path}/record.json" if cell in TRAINED else []


def gpu(wildcards):
    return tnfdt_workflow.gpus(machine)


UNFINISHED = Path(RESULTS, ".unfinished")  # while a run has not come to its end


def begin_run():
    cluster = workflow.non_local_exec
    UNFINISHED.parent.mkdir(parents=True, exist_ok=True)
    UNFINISHED.write_text(stalls.CLUSTER if cluster else "")
    jobs = None if cluster else tnfdt_workflow.at_once(workflow, machine)
    try:
        print(tnfdt_workflow.begin(machine, study, jobs), file=sys.stderr)
    except UserError as error:
        sys.exit(f"tnfdt: {error}")


def end_run(failed=False):
    if not failed:
        tnfdt_report.make(
            str(workflow.main_snakefile),
            Path(RESULTS, "report.html"),
            study=machine.study,
            results_dir=machine.results_dir,
            needed=rules.tables.input,
            configfiles=workflow.overwrite_configfiles or (),
        )
    print(tnfdt_workflow.end(machine, study, failed), file=sys.stderr)
    if failed and (hint := space.hint(machine.results_dir)):
        print(hint, file=sys.stderr)
    UNFINISHED.unlink(missing_ok=True)


@atexit.register
def end_killed_run():
    """Make up for the end of a run that was killed after its last job: Snakemake then has
    nothing to do and calls no handler."""
    runs = workflow.is_main_process and workflow.executor_plugin and not workflow.dryrun
    if runs and UNFINISHED.exists() and all_done():
        end_run()


def all_done():
    """The DAG was built, nothing of it is left to do, and the study has its tables."""
    built = any(True for _ in workflow.dag.jobs) and len(workflow.dag) == 0
    return built and all(Path(path).exists() for path in rules.tables.input)
