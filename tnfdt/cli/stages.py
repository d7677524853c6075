"""The verbs of the stages: one dataset, one training, one attack, one audit, by hand or by a rule.

Heavy libraries are imported inside the verbs, so that the command line answers at once.
"""

from __future__ import annotations

import sys

from tnfdt.cli.arguments import Arguments, settings
from tnfdt.run import slurm
from tnfdt.study.machine import Machine, load_machine
from tnfdt.study.methods import VANILLA
from tnfdt.study.paths import Cell, format_epsilon
from tnfdt.study.schema import UserError
from tnfdt.study.study import Slice, Study, digest, load_study, parse_cell


def data(arguments: Arguments) -> None:
    """Find, verify and prepare one dataset."""
    from tnfdt.data.prepare import prepare_for
    from tnfdt.run.snakemake import data_slice

    machine, study = machine_and_known(arguments)
    if arguments.dataset not in study.datasets:
        known = ", ".join(study.datasets)
        raise UserError(f"dataset {arguments.dataset!r} is not in study {study.name}: {known}")
    _check_slice(arguments, data_slice(study, machine, arguments.dataset))
    out = machine.paths(study.name).data(arguments.dataset)
    manifest = prepare_for(study, arguments.dataset, machine, out)
    print(f"{arguments.dataset}: {manifest['fingerprint'][:16]} from {manifest['source']}")


def train(arguments: Arguments) -> int:
    """Train one cell."""
    from tnfdt.files.journal import Journal
    from tnfdt.files.provenance import provenance
    from tnfdt.train import cell as train_cell
    from tnfdt.train.checkpoint import EXIT_INTERRUPTED, Interrupted

    machine, study = machine_and_known(arguments)
    cell = study.trained_as(parse_cell(arguments.cell, study))
    config = study.train_slice(cell, machine)
    _check_slice(arguments, config)
    paths = machine.paths(study.name)
    out = paths.train(cell)
    if source := study.best_of(cell):
        return _pick(machine, study, cell, source)
    params = {"config": config, "interpretation": study.reading(cell.method), **provenance()}
    try:
        with slurm.in_time(out), Journal(out, params, stops=(Interrupted,)) as journal:
            record = train_cell.run(
                study=study.name,
                cell=cell,
                out=out,
                data_dir=paths.data(cell.dataset),
                config=config,
                interpretation=study.reading(cell.method),
                machine=machine,
                on_epoch=journal.log_epoch,
                force=arguments.force,
            )
    except Interrupted as error:
        print(f"tnfdt: {error}", file=sys.stderr)
        return EXIT_INTERRUPTED
    print(f"{cell.path}: accuracy {100 * record['metrics']['accuracy']:.2f} %")
    return 0


def _pick(machine: Machine, study: Study, cell: Cell, source: Cell) -> int:
    """Make a cell that is the best epoch of another's training."""
    from tnfdt.train.best import pick

    paths = machine.paths(study.name)
    pick(
        study=study.name,
        cell=cell,
        out=paths.train(cell),
        source=paths.train(source),
        source_cell=source,
        config=study.train_slice(cell, machine),
        interpretation=study.reading(cell.method),
    )
    print(f"{cell.path}: the best epoch of {source.path}")
    return 0


def attack(arguments: Arguments) -> None:
    """Attack one trained cell at one epsilon."""
    from tnfdt import devices
    from tnfdt.attack import cell as attack_cell
    from tnfdt.files.records import identity

    machine, study = machine_and_known(arguments)
    cell = parse_cell(arguments.cell, study)
    config = study.attack_slice(_epsilon(arguments.epsilon, study), cell.method)
    _check_slice(arguments, config)
    paths = machine.paths(study.name)
    out = paths.attack(cell)
    devices.set_arithmetic(machine.precision, machine.threads)
    with slurm.in_time(out), devices.acquire(machine.device, machine.gpu_slots) as device:
        record = attack_cell.run(
            out=out,
            train_dir=paths.train(study.trained_as(cell)),
            data_dir=paths.data(cell.dataset),
            epsilon=config["epsilon"],
            config=config,
            device=device,
            identity=identity(study.name, cell),
            progress=True,
        )
    robust = 100 * record["metrics"]["robust_accuracy"]
    print(f"{cell.path}: robust accuracy {robust:.2f} % at epsilon {config['epsilon']:g}")


def audit(arguments: Arguments) -> None:
    """Ask whether one cell's robustness is real."""
    from tnfdt import devices
    from tnfdt.audit import cell as audit_cell
    from tnfdt.files.records import identity

    machine, study = machine_and_known(arguments)
    cell = parse_cell(arguments.cell, study)
    config = study.audit_slice(cell.method)
    _check_slice(arguments, config)
    paths, vanilla = machine.paths(study.name), cell._replace(method=VANILLA)
    out = paths.audit(cell)
    devices.set_arithmetic(machine.precision, machine.threads)
    with slurm.in_time(out), devices.acquire(machine.device, machine.gpu_slots) as device:
        record = audit_cell.run(
            out=out,
            train_dir=paths.train(cell),
            data_dir=paths.data(cell.dataset),
            config=config,
            device=device,
            identity=identity(study.name, cell),
            vanilla_dir=paths.train(vanilla) if vanilla in study.cells else None,
            progress=True,
        )
    print(f"{cell.path}: {record['badge']}")


def machine_and_study(arguments: Arguments) -> tuple[Machine, Study]:
    machine = load_machine(overrides=settings(arguments.set))
    return machine, load_study(arguments.study or machine.study, machine.results_dir)


def machine_and_known(arguments: Arguments) -> tuple[Machine, Study]:
    """As above, for what needs the images and networks that the study names."""
    from tnfdt.run.snakemake import check_known

    machine, study = machine_and_study(arguments)
    check_known(study, machine)
    return machine, study


def _check_slice(arguments: Arguments, config: Slice) -> None:
    """A study edited while Snakemake runs must not mix two configurations in one result."""
    if arguments.slice is not None and arguments.slice != digest(config):
        raise UserError(
            f"study {arguments.study} or config/config.yaml has changed since this run was "
            "planned; start Snakemake again"
        )


def _epsilon(text: str, study: Study) -> float:
    known = {format_epsilon(epsilon): epsilon for epsilon in study.attack.epsilons}
    try:
        return known[format_epsilon(float(text))]
    except (ValueError, KeyError):
        raise UserError(
            f"epsilon {text} is not in study {study.name}; it has {', '.join(known)}"
        ) from None
