import atexit
import gc
import sys
from itertools import chain
from pathlib import Path

from tnfdt.plan.workload import reading_lines
from tnfdt.run import lifeline, slurm, space
from tnfdt.run import report as tnfdt_report
from tnfdt.run import snakemake as tnfdt_workflow
from tnfdt.status import stalls
from tnfdt.study import products
from tnfdt.study.methods import VANILLA
from tnfdt.study.paths import (
    AUDIT_FILES,
    AUDIT_RECORD,
    CLEAN,
    DATA_FILES,
    HISTORY,
    MANIFEST,
)
from tnfdt.study.paths import BEST_CLEAN, BEST_WEIGHTS, RECORD, TRAIN_FILES, WEIGHTS
from tnfdt.study.paths import Cell, attack_job, attack_names
from tnfdt.study.study import UserError

try:
    machine, study = tnfdt_workflow.load(config)
    tnfdt_workflow.export(config)
    space.require(".", machine.results_dir)
    READINGS = tnfdt_workflow.reading_figures(study)
except UserError as error:
    sys.exit(f"tnfdt: {error}")

lifeline.take_part(
    workflow.is_main_process, lambda: stalls.is_left_over(study, machine)
)
tnfdt_workflow.limit_gpus(workflow, machine)

PATHS = machine.paths(study.name)
CELL = Cell("{dataset}", "{model}", "{method}", "{seed}")  # its paths are patterns
TRAINED = frozenset(study.cells)
# To a cell the manifest stands for the arrays, whose checksums it holds and every job compares:
# four more inputs of 50,000 jobs would be another 240 MiB and 8 s of a dry run.
PREPARED = PATHS.manifest("{dataset}")
ATTACK_DIGESTS = tnfdt_workflow.attack_digests(study)
ATTACK_FILES = [name for epsilon in ATTACK_DIGESTS for name in attack_names(epsilon)]

# The jobs of a large grid all stay: to look through them for garbage is a fifth of a dry run.
gc.set_threshold(50_000, 20, 100)


wildcard_constraints:
    **tnfdt_workflow.constraints(study),


def files_of(folder, items, names):
    """The named files in the folder of each cell or dataset."""
    return [f"{place}/{name}" for place in map(folder, items) for name in names]


# The files of a large grid are input functions: as lists every rule would hold a copy of them,
# whether it is used or not.
def train_files(*names):
    """The named files of every training."""
    return lambda wildcards: files_of(PATHS.train, study.cells, names)


def trained(name):
    """A file of the training that a cell is attacked on: of another cell where a reading changes
    the attack alone. A pattern where there are no readings, which is read faster."""
    if not study.multiverse.readings:
        return PATHS.train(CELL) / name
    return lambda wildcards: str(
        PATHS.train(study.trained_as(tnfdt_workflow.cell(wildcards))) / name
    )


def best_epoch_of(wildcards):
    """The files of the training that kept the best epoch."""
    cell = study.best_of(tnfdt_workflow.cell(wildcards))
    names = (BEST_WEIGHTS, BEST_CLEAN, RECORD, HISTORY)
    return files_of(PATHS.train, [cell], names)


def attack_files(wildcards):
    """The record and the array of every attack."""
    return files_of(PATHS.attack, study.cells, ATTACK_FILES)


def variant_files(*names):
    """What other readings of the paper add: the named files of their trainings, and attacks."""
    cells = dict.fromkeys(map(study.trained_as, study.variants))
    return lambda wildcards: [
        *files_of(PATHS.train, cells, names),
        *files_of(PATHS.attack, study.variants, ATTACK_FILES),
    ]


def included_variants(*names):
    """The same where the study includes its other readings in all that is made of it."""
    return variant_files(*names) if study.multiverse.include else []


def audit_files(*names):
    """The named files of every audit."""
    return lambda wildcards: files_of(PATHS.audit, study.audited(), names)


def judged_audits():
    """The audits that a verdict rests on: those with AutoAttack."""
    judged = study.audit.include and study.audit.autoattack
    return audit_files(AUDIT_RECORD) if judged else []


def data_files(*names):
    """The named files of every prepared dataset."""
    return files_of(PATHS.data, study.grid_datasets, names)


def study_files(wildcards):
    """What the targets ask for beside the tables: Snakemake does not make a missing intermediate
    file again while what was made from it is there. What the tables ask for themselves is left
    out: a file declared once more by every cell is what a dry run of a large grid costs. Prepared
    images may be deleted to save space."""
    jobs = chain(
        (files_of(PATHS.train, [cell], TRAIN_FILES) for cell in study.cells),
        (
            files_of(PATHS.attack, [cell], attack_names(epsilon))
            for cell in study.cells
            for epsilon in ATTACK_DIGESTS
        ),
    )
    return list(tnfdt_workflow.missing(jobs, made=has_tables()))


def vanilla_of(wildcards):
    """The vanilla network of the same dataset, model and seed, where the study has one."""
    cell = tnfdt_workflow.cell(wildcards)._replace(method=VANILLA)
    return files_of(PATHS.train, [cell] if cell in TRAINED else [], (WEIGHTS, RECORD))


def minutes(most):
    """The time that a job asks for: what it needs at most, within the machine's limit. A
    training, an attack or an audit that needs more is queued again and goes on."""
    return min(most, machine.time_limit)


def gpu(wildcards):
    return tnfdt_workflow.gpus(machine)


def begin_run():
    cluster = workflow.non_local_exec
    if cluster:
        slurm.answer_for_sacct()
    jobs = None if cluster else tnfdt_workflow.at_once(workflow, machine)
    try:
        stalls.mark_unfinished(PATHS.unfinished, cluster)
        print(tnfdt_workflow.begin(machine, study, jobs), file=sys.stderr)
    except UserError as error:
        sys.exit(f"tnfdt: {error}")


def end_run(failed=False):
    """Make the report; if that fails, the mark stays and the same command tries again."""
    reported = failed or not has_tables()
    if not reported:
        reported = tnfdt_report.make(
            str(workflow.main_snakefile),
            PATHS,
            study=machine.study,
            results_dir=machine.results_dir,
            configfiles=workflow.overwrite_configfiles or (),
        )
    print(tnfdt_workflow.end(machine, study, failed), file=sys.stderr)
    if failed and (hint := space.hint(machine.results_dir)):
        print(hint, file=sys.stderr)
    if reported:
        PATHS.unfinished.unlink(missing_ok=True)


@atexit.register
def show_readings():
    """What each other reading of the paper costs, below the jobs of a dry run."""
    if workflow.is_main_process and workflow.executor_plugin and workflow.dryrun:
        for line in reading_lines(study):
            print(line, file=sys.stderr)


@atexit.register
def end_killed_run():
    """Make up for the end of a run that was killed after its last job: Snakemake then has
    nothing to do and calls no handler."""
    runs = workflow.is_main_process and workflow.executor_plugin and not workflow.dryrun
    if runs and PATHS.unfinished.exists() and all_done():
        end_run()


def all_done():
    """The DAG was built, nothing of it is left to do, and the study has its tables."""
    built = any(True for _ in workflow.dag.jobs) and len(workflow.dag) == 0
    return built and has_tables()


def has_tables():
    return all(Path(path).is_file() for path in rules.tables.input.made)
