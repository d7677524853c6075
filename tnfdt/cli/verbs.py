"""The verbs beside the stages: bundles, plans, status, checks and tracking.

Heavy libraries are imported inside the verbs, so that the command line answers at once.
"""

from __future__ import annotations

from pathlib import Path

from tnfdt.cli.arguments import Arguments, settings
from tnfdt.cli.stages import machine_and_known, machine_and_study
from tnfdt.study.machine import Machine, load_machine, tracking_uri
from tnfdt.study.schema import UserError


def tables(arguments: Arguments) -> None:
    """Make tables, claims and figures from what there is."""
    from tnfdt.bundle.rebuild import rebuild
    from tnfdt.tables import stage

    if bool(arguments.evidence) != bool(arguments.out):
        raise UserError("--evidence FILE and --out DIR go together: from a bundle, into a folder")
    if arguments.evidence:
        made = rebuild(Path(arguments.evidence), Path(arguments.out), arguments.only)
    else:
        machine, study = machine_and_study(arguments)
        made = stage.run(study, Path(machine.results_dir), machine, arguments.only)
    for path in made:
        print(path)


def pack(arguments: Arguments) -> None:
    """Write a study's evidence into one file."""
    from tnfdt.bundle import pack as packing

    machine, _ = machine_and_study(arguments)
    study = arguments.study or machine.study
    print(packing.pack(study, machine, lab=arguments.lab, weights=arguments.weights))


def merge(arguments: Arguments) -> None:
    """Unite the evidence of several parts of one study."""
    from tnfdt.bundle import merge as merging

    print(merging.merge([Path(path) for path in arguments.bundles], Path(arguments.out)))


def plan(arguments: Arguments) -> None:
    """Say what a study will cost, or, with --power, what it can show."""
    from tnfdt.plan import forecast
    from tnfdt.plan.power import power

    machine, study = machine_and_known(arguments)
    if (arguments.figure and not arguments.power) or (arguments.gpus and arguments.power):
        raise UserError("--figure goes with --power, --gpus without: power is shown for one device")
    if arguments.power:
        print(power(study, machine, arguments.gpu, arguments.figure))
    else:
        print(forecast.run(study, machine, gpus=arguments.gpus, gpu=arguments.gpu))


def next_look(arguments: Arguments) -> None:
    """Go on to the next declared look at the results."""
    from tnfdt.plan.looks import next_look

    machine, study = machine_and_known(arguments)
    print(next_look(study, machine, arguments.gpu))


def doctor(arguments: Arguments) -> int:
    """Say what this machine lacks, and with --device test a device for a minute."""
    from tnfdt.doctor import checks

    machine, study = machine_and_known(arguments)
    return checks.run(study, machine, arguments.device)


def status(arguments: Arguments) -> int:
    """Show the grid: done, running, failed, waiting."""
    from tnfdt.status import mismatches, state

    machine, study = machine_and_study(arguments)
    if arguments.check and (arguments.watch or arguments.json):
        raise UserError("--check prints its findings once, as text: without --watch and --json")
    if arguments.check:
        return mismatches.run(study, machine)
    return state.run(study, machine, watch=arguments.watch, as_json=arguments.json)


def verify(arguments: Arguments) -> int:
    """Re-run one recorded cell and compare every number."""
    from tnfdt import verify as verifying

    machine = load_machine(overrides=settings(arguments.set))
    if bool(arguments.folder) == bool(arguments.evidence):
        raise UserError("name a folder such as results/demo, or a bundle with --evidence")
    run = verifying.run_bundle if arguments.evidence else verifying.run
    place = Path(arguments.evidence or arguments.folder)
    return run(place, arguments.cell, machine, attack_only=arguments.attack_only)


def track(arguments: Arguments) -> None:
    """Bring MLflow in line with the records on disk."""
    from tnfdt import tracking

    machine, study = machine_and_study(arguments)
    results, store = Path(machine.results_dir), _store(machine)
    cells = {cell: study.trained_as(cell) for cell in (*study.cells, *study.variants)}
    track_all = tracking.follow_run if arguments.follow else tracking.track
    print(track_all(results, study.name, store, cells))


def ui(arguments: Arguments) -> None:
    """Open the MLflow UI on 127.0.0.1."""
    from tnfdt import tracking

    machine = load_machine(overrides=settings(arguments.set))
    tracking.ui(_store(machine), arguments.port)


def _store(machine: Machine) -> str:
    uri = tracking_uri(machine)
    if uri is None:
        raise UserError("tracking is none; set tracking_uri to a store or a server")
    return uri
