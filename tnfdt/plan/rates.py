"""How fast a device works: measured here with the study's own trainings and attacks, or, for a
GPU that is not here, its peak throughput times a stated utilisation.
"""

from __future__ import annotations

import contextlib
import csv
import re
import statistics
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tnfdt.data.registry import Images
from tnfdt.files.atomic import read_json, write_json
from tnfdt.plan.workload import Passes, cost_of, images_of
from tnfdt.study.machine import Machine
from tnfdt.study.paths import CALIBRATION, Cell
from tnfdt.study.schema import ROOT, UserError
from tnfdt.study.study import Study, digest

if TYPE_CHECKING:
    import torch

    from tnfdt.data.prepared import ImageSet

_STEP_OPERATIONS = 2e10  # of a measured step on a CPU, but no fewer images than:
_BATCH = 25  # ResNet-34 takes 1.5 times as long an image in batches of 4 as of 100, of 25 the same
_SHARE = {"fp32": 0.45, "tf32": 0.25, "bf16": 0.20}  # of a GPU's peak, small images, batches of 100
_LAUNCHES = Passes(0.8, 2.3, 2.3)  # kernels a layer: ResNet-34 has 142, and 330 in a step
_LAUNCH_SECONDS = 1e-5  # of the host, for each
_CPU_WATTS, _GPU_WATTS = 12.0, 300.0  # of a thread, of a GPU without a data sheet here

Kind = tuple[str, ...]


class Speed(NamedTuple):
    """Seconds per image of kinds of cells on a device, and the power it draws."""

    device: str
    seconds: dict[Kind, Passes]
    watts: float
    basis: str  # for people: what the numbers rest on

    def of(self, kind: Kind) -> Passes:
        """The seconds of a kind, or of the most similar one that was measured, by operations."""
        near = max(self.seconds, key=lambda other: [*map(str.__eq__, kind, other)])
        ratio = float(kind[-1]) / float(near[-1])
        return Passes(*(ratio * seconds for seconds in self.seconds[near]))


def kinds(study: Study, machine: Machine) -> dict[Kind, Cell]:
    """A cell of each kind, cheapest first, but every method before any method twice."""
    alike = {cell[:3]: cell for cell in study.cells}.values()
    found = {kind_of(study, machine, cell): cell for cell in alike}
    cheap = sorted(found, key=lambda kind: float(kind[-1]))
    first = {kind[0]: kind for kind in reversed(cheap)}.values()
    return {kind: found[kind] for kind in sorted(cheap, key=lambda kind: kind not in first)}


def kind_of(study: Study, machine: Machine, cell: Cell) -> Kind:
    """What decides the speed of a cell: its method, network, classes and operations per image."""
    config, classes = study.train_slice(cell, machine), images_of(study, machine, cell.dataset)[-1]
    switches = {key: config.get(key) for key in ("tensor_norm", "blend", "augment", "mix")}
    operations = cost_of(study, machine, cell).operations.learn
    return digest(switches), cell.model, str(classes), str(operations)


def of_gpu(name: str, study: Study, machine: Machine) -> Speed:
    """The speed of a GPU that is not here, from its data sheet; attacks and tests are fp32."""
    sheets = _data_sheets()
    if (key := _plain(name)) not in sheets:
        raise UserError(f"--gpu {name}: not one of {', '.join(sheets)}")
    rates = {p: 1e12 * share * float(sheets[key][p]) for p, share in _SHARE.items()}
    fp32, learn = rates["fp32"], max(rates["fp32"], rates[machine.precision])
    batches = (500, study.training.batch_size, study.attack.batch_size)
    launches, seconds = list(zip(_LAUNCHES, batches, strict=True)), {}
    for kind, cell in kinds(study, machine).items():
        cost = cost_of(study, machine, cell)
        host = (cost.layers * n * _LAUNCH_SECONDS / b for n, b in launches)
        gpu = map(float.__truediv__, cost.operations, (fp32, learn, fp32))
        seconds[kind] = Passes(*map(max, host, gpu))  # of the two that work side by side
    basis = f"{learn / 1e12:.3g} TFLOP/s in training, {fp32 / 1e12:.3g} in attacks"
    watts = float(sheets[key]["watts"])
    return Speed(key, seconds, watts, f"{basis}: assumed, not measured")


def _data_sheets() -> dict[str, dict[str, str]]:
    """Dense peaks of GPUs in 10^12 operations per second by precision, and their watts."""
    with (ROOT / "config/gpus.csv").open() as file:
        return {row["name"]: row for row in csv.DictReader(file)}


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]|nvidia|geforce|tesla", "", name.lower())


def measure(study: Study, machine: Machine, *, budget: float, again: bool = True) -> Speed:
    """Calibrate on the device at hand: a few steps of each kind of cell, in about `budget` s.

    What was measured before lies beside the results; it serves for the kinds that are not
    reached and, unless they should be measured `again`, for all.
    """
    import torch

    from tnfdt import devices

    device = torch.device(devices.resolve(machine.device))
    devices.set_arithmetic(machine.precision, machine.threads)
    name, path = devices.describe(device), Path(machine.results_dir, CALIBRATION)
    key = f"{name}, {machine.precision}, threads {machine.threads}"
    stored = _stored(path)
    seconds = stored.setdefault(key, {})
    _fill(seconds, study, machine, device, budget, again)
    rows = {name: [[*k, *s] for k, s in known.items()] for name, known in stored.items()}
    with contextlib.suppress(UserError):  # it only saves time
        write_json(path, rows)
    rate = statistics.median(float(kind[-1]) / found.learn for kind, found in seconds.items())
    gpu = float(_data_sheets().get(_plain(name), {}).get("watts", _GPU_WATTS))
    watts = _CPU_WATTS * machine.threads if device.type == "cpu" else gpu
    return Speed(name, seconds, watts, f"{rate / 1e9:,.3g} GFLOP/s in training, measured here")


def _fill(
    seconds: dict[Kind, Passes],
    study: Study,
    machine: Machine,
    device: torch.device,
    budget: float,
    again: bool,
) -> None:
    begin = time.perf_counter()
    for kind, cell in kinds(study, machine).items():
        in_time = not seconds or time.perf_counter() - begin < budget
        if in_time and (again or kind not in seconds):
            seconds[kind] = _measure(study, machine, cell, device)


def _stored(path: Path) -> dict[str, dict[Kind, Passes]]:
    """What was measured before, by device and settings; nothing if the file is damaged."""
    with contextlib.suppress(UserError, AttributeError, TypeError, ValueError):
        return {key: dict(map(_parsed, rows)) for key, rows in read_json(path).items()}
    return {}


def _parsed(row: list[Any]) -> tuple[Kind, Passes]:
    method, model, classes, operations, *seconds = row
    if min(float(operations), *map(float, seconds)) <= 0:
        raise ValueError("not a time")
    return (str(method), str(model), str(classes), str(operations)), Passes(*map(float, seconds))


def _measure(study: Study, machine: Machine, cell: Cell, device: torch.device) -> Passes:
    """Seconds per image of an epoch and an attack on a few random images of the right shape."""
    import torch

    from tnfdt import devices
    from tnfdt.attack.trajectory import pgd_trajectory
    from tnfdt.train.recipe import Trainer

    batch, steps = study.training.batch_size, 12
    few = max(int(_STEP_OPERATIONS // cost_of(study, machine, cell).operations.learn), _BATCH)
    if device.type == "cpu" and few < batch:
        batch, steps = few, 3
    recipe = replace(study.training, batch_size=batch, epochs=1)
    config = replace(study, training=recipe).train_slice(cell, machine) | {"compile": False}
    data, times = _noise(images_of(study, machine, cell.dataset), batch, steps, device), []
    trainer = Trainer(config, data, device)

    def clock(*_: object) -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter())

    devices.set_precision(machine.precision)
    trainer.run(clock, clock)
    devices.set_precision(study.attack.precision)
    layout = devices.memory_format(device, study.attack.precision)
    model = trainer.model.to(memory_format=layout)
    pixels = (data.test_x / 255).contiguous(memory_format=layout)
    for _ in range(2):
        pgd_trajectory(model, pixels, data.test_y, 0.01, steps=2)
        clock()
    *learned, tested, _, attacked = (b - a for a, b in pairwise(times))
    # An attack of two steps ends with a last look, half as long as a step.
    return Passes(tested / batch, statistics.median(learned) / batch, attacked / 2.5 / batch)


def _noise(images: Images, batch: int, steps: int, device: torch.device) -> ImageSet:
    """Random images for some steps, with every class among them, and a batch for tests."""
    import torch

    from tnfdt.data.prepared import ImageSet

    count = max(images.classes, batch * steps)
    pixels = torch.randint(256, (count, 3, images.height, images.width), dtype=torch.uint8)
    x, y = pixels.to(device), (torch.arange(count) % images.classes).to(device)
    few = {"test_x": x[:batch], "test_y": y[:batch]}
    return ImageSet(train_x=x, train_y=y, **few, num_classes=images.classes, fingerprint="noise")
