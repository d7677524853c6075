import atexit
import gc
import sys
from pathlib import Path

from tnfdt.run import lifeline
from tnfdt.study import outputs
from tnfdt.run import space
from tnfdt.run import stalls
from tnfdt.run import report as tnfdt_report
from tnfdt.run import slurm
from tnfdt.run import snakemake as tnfdt_workflow
from tnfdt.study.paths import AUDIT_FILES, CLEAN, DATA_FILES, HISTORY, MANIFEST
from tnfdt.study.paths import BEST_CLEAN, BEST_WEIGHTS, RECORD, TRAIN_FILES, WEIGHTS
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
DATA = [f"{RESULTS}/data/{{dataset}}/{name}" for name in DATA_FILES]
# To a cell the manifest stands for the arrays, whose checksums it holds and every job compares:
# four more inputs of 50,000 jobs would be another 240 MiB and 8 s of a dry run.
PREPARED = DATA[0]
ATTACK_DIGESTS = tnfdt_workflow.attack_digests(study)
EPSILONS = list(ATTACK_DIGESTS)

# The jobs of a large grid all stay: to look through them for garbage is a fifth of a dry run.
gc.set_threshold(50_000, 20, 100)


wildcard_constraints:
    **tnfdt_workflow.constraints(study),


def cell_of(wildcards):
    return tnfdt_workflow.cell(wildcards)


# The files of a large grid are input functions: as lists every rule would hold a copy of them,
# whether it is used or not.
def train_files(*names):
    """The named files of every training."""
    return lambda wildcards: [
        f"{RESULTS}/train/{cell.path}/{name}" for cell in study.cells for name in names
    ]


def trained(name):
    """A file of the training that a cell is attacked on: of another cell where a reading changes
    the attack alone. A pattern where there are no readings, which is read faster."""
    if not study.multiverse.readings:
        return f"{RESULTS}/train/{CELL}/{name}"
    return lambda wildcards: (
        f"{RESULTS}/train/{study.trained_as(cell_of(wildcards)).path}/{name}"
    )


def best_epoch_of(wildcards):
    """The files of the training that kept the best epoch."""
    cell = study.best_of(cell_of(wildcards))
    names = (BEST_WEIGHTS, BEST_CLEAN, RECORD, HISTORY)
    return [f"{RESULTS}/train/{cell.path}/{name}" for name in names]


def variant_files(wildcards):
    """What other readings of the paper add: trainings of their own, and attacks."""
    cells = dict.fromkeys(map(study.trained_as, study.variants))
    train = [f"{RESULTS}/train/{c.path}/{name}" for c in cells for name in TRAIN_FILES]
    return train + [
        f"{RESULTS}/attack/{cell.path}/eps{epsilon}.{suffix}"
        for cell in study.variants
        for epsilon in EPSILONS
        for suffix in ("json", "npz")
    ]


def attack_files(wildcards):
    """The record and the array of every attack."""
    return [
        f"{RESULTS}/attack/{cell.path}/eps{epsilon}.{suffix}"
        for cell in study.cells
        for epsilon in EPSILONS
        for suffix in ("json", "npz")
    ]


def audit_files(*names):
    """The named files of every audit."""
    return lambda wildcards: [
        f"{RESULTS}/audit/{cell.path}/{name}"
        for cell in study.audited()
        for name in names
    ]


def judged_audits():
    """The audits that a verdict rests on: those with AutoAttack."""
    judged = study.audit.include and study.audit.autoattack
    return audit_files("audit.json") if judged else []


def data_files(*names):
    """The named files of every prepared dataset."""
    datasets = tnfdt_workflow.datasets(study)
    return [
        f"{RESULTS}/data/{dataset}/{name}" for dataset in datasets for name in names
    ]


def study_files(wildcards):
    """All that the tables rest on. The targets ask for it by itself: Snakemake does not make a
    missing intermediate file again while what was made from it is there. Prepared images are
    the exception: they may be deleted to save space."""
    return train_files(*TRAIN_FILES)(wildcards) + attack_files(wildcards)


def vanilla_of(wildcards):
    """The vanilla network of the same dataset, model and seed, where the study has one."""
    cell = cell_of(wildcards)._replace(method="vanilla")
    names = (WEIGHTS, RECORD) if cell in TRAINED else ()
    return [f"{RESULTS}/train/{cell.path}/{name}" for name in names]


def minutes(most):
    """The time that a job asks for: what it needs at most, within the machine's limit. A
    training, an attack or an audit that needs more is queued again and goes on."""
    return min(most, machine.time_limit)


def gpu(wildcards):
    return tnfdt_workflow.gpus(machine)


UNFINISHED = Path(RESULTS, ".unfinished")  # while a run has not come to its end


def begin_run():
    cluster = workflow.non_local_exec
    if cluster:
        slurm.answer_for_sacct()
    jobs = None if cluster else tnfdt_workflow.at_once(workflow, machine)
    try:
        stalls.begin(UNFINISHED, cluster)
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
            needed=rules.tables.input.made,
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
    return built and all(Path(path).exists() for path in rules.tables.input.made)
