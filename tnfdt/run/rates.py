"""How fast a device works: measured here with the study's own trainings and attacks, or, for a
GPU that is not here, its peak throughput times a stated utilisation.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from tnfdt.data.registry import Images
from tnfdt.run.workload import ModelCost, Work, cost_of
from tnfdt.study.machine import Machine
from tnfdt.study.paths import Cell
from tnfdt.study.schema import UserError
from tnfdt.study.study import Study

if TYPE_CHECKING:
    import torch

    from tnfdt.data.prepared import ImageSet

_STEP_OPERATIONS = 2e10  # of a measured step on a CPU: half a second on one core
_KIND_SECONDS = 0.3  # spent on each measurement, after one step to warm up


class Rates(NamedTuple):
    """Operations per second in forward passes, in steps of SGD and in steps of PGD."""

    forward: float
    learn: float
    attack: float

    def seconds(self, work: Work) -> float:
        return sum(part / rate for part, rate in zip(work, self, strict=True))


class Kind(NamedTuple):
    """What decides the speed of a cell."""

    method: tuple[Any, ...]  # tensor norm, blend, augmentation
    classes: int
    model: str
    operations: float  # of a step of SGD, per image


@dataclass(frozen=True, kw_only=True)
class Speed:
    """The rates of every kind of cell on a device, and the power it draws."""

    device: str
    rates: dict[Kind, Rates]
    watts: float
    basis: str  # for people: what the numbers rest on

    def of(self, kind: Kind) -> Rates:
        """The rates of a kind, or of the nearest one that was measured."""

        def distance(other: Kind) -> tuple[float, ...]:
            other_kind = [a != b for a, b in zip(other[:3], kind[:3], strict=True)]
            return *other_kind, abs(math.log(other.operations / kind.operations))

        return self.rates.get(kind) or self.rates[min(self.rates, key=distance)]


class Gpu(NamedTuple):
    """Dense peak throughput in 10^12 operations per second by precision, and board power."""

    fp32: float
    tf32: float
    bf16: float
    watts: float


# From the makers' data sheets; where a precision is missing, that of the fastest it has.
GPUS = {
    "gtx1080ti": Gpu(11.3, 11.3, 11.3, 250),
    "rtx2080ti": Gpu(13.4, 13.4, 13.4, 250),
    "rtx3090": Gpu(35.6, 35.6, 71.0, 350),
    "rtx4090": Gpu(82.6, 82.6, 165.2, 450),
    "rtx5090": Gpu(104.8, 104.8, 209.5, 575),
    "rtxa6000": Gpu(38.7, 77.4, 154.8, 300),
    "t4": Gpu(8.1, 8.1, 8.1, 70),
    "v100": Gpu(15.7, 15.7, 15.7, 300),
    "a10": Gpu(31.2, 62.5, 125.0, 150),
    "a40": Gpu(37.4, 74.8, 149.7, 300),
    "a100": Gpu(19.5, 156.0, 312.0, 400),
    "l4": Gpu(30.3, 60.0, 121.0, 72),
    "l40s": Gpu(91.6, 183.0, 362.0, 350),
    "h100": Gpu(66.9, 494.7, 989.4, 700),
    "h200": Gpu(66.9, 494.7, 989.4, 700),
}
UTILISATION = {"fp32": 0.45, "tf32": 0.25, "bf16": 0.20}  # of small images in batches of 100
CPU_OPERATIONS = 30e9  # per second and thread
CPU_WATTS = 12.0  # per core, where the processor does not count its energy


def kind_of(study: Study, cell: Cell, images: Images, cost: ModelCost) -> Kind:
    method, augment = study.methods[cell.method], study.datasets[cell.dataset].augment
    switches = (method.tensor_norm, method.blend, augment.shift > 0, augment.flip)
    return Kind(switches, images.classes, cell.model, cost.learn)


def of_gpu(name: str, precision: str) -> Speed:
    """The speed of a GPU that is not here, from its data sheet."""
    key = re.sub(r"[^a-z0-9]|nvidia|geforce|tesla", "", name.lower())
    if key not in GPUS:
        raise UserError(f"--gpu {name}: not one of {', '.join(GPUS)}")
    peak, share = getattr(GPUS[key], precision), UTILISATION[precision]
    basis = f"{share:.0%} of its {precision} peak of {peak:g} TFLOP/s"
    return _assumed(key, peak * share * 1e12, GPUS[key].watts, basis)


def of_cpu(threads: int) -> Speed:
    """The speed of a CPU that nobody has measured."""
    basis = f"{CPU_OPERATIONS / 1e9:g} GFLOP/s a thread"
    return _assumed("cpu", CPU_OPERATIONS * threads, CPU_WATTS * threads, basis)


def _assumed(device: str, rate: float, watts: float, basis: str) -> Speed:
    rates = {Kind((), 0, "", 1.0): Rates(rate, rate, rate)}
    return Speed(device=device, rates=rates, watts=watts, basis=f"{basis}: assumed, not measured")


def measure(study: Study, machine: Machine, *, budget: float) -> Speed:
    """Calibrate on the device at hand: a few steps of each kind of cell, in about `budget` s."""
    from tnfdt import devices

    device, kinds = _device(machine.device), _in_order(study, machine)
    devices.set_arithmetic(machine.precision, machine.threads)
    begin, before = time.perf_counter(), devices.energy_counter(device)
    rates: dict[Kind, Rates] = {}
    for kind, (cell, images, cost) in kinds.items():
        rates[kind] = _measure(study, machine, cell, images, cost, device)
        if time.perf_counter() - begin > budget:
            break
    elapsed, after = time.perf_counter() - begin, devices.energy_counter(device)
    watts = (after - before) / elapsed if after is not None and before is not None else 0.0
    typical = statistics.median(rate.learn for rate in rates.values()) / 1e9
    return Speed(
        device=devices.describe(device),
        rates=rates,
        watts=watts or (CPU_WATTS * machine.threads if device.type == "cpu" else 300.0),
        basis=f"{typical:,.3g} GFLOP/s in training, measured here in {elapsed:.0f} s",
    )


def _device(setting: str) -> torch.device:
    import torch

    from tnfdt import devices

    try:
        devices.check(setting)
    except UserError as error:
        raise UserError(f"{error}, or name the GPU you mean, like --gpu a100") from None
    cuda = torch.cuda.is_available()
    return torch.device(("cuda" if cuda else "cpu") if setting == "auto" else setting)


def _in_order(study: Study, machine: Machine) -> dict[Kind, tuple[Cell, Images, ModelCost]]:
    """A cell of each kind, cheapest first, but every method before any method twice."""
    kinds: dict[Kind, tuple[Cell, Images, ModelCost]] = {}
    for cell in {(c.dataset, c.model, c.method): c for c in study.cells}.values():
        images, cost = cost_of(study, machine, cell)
        kinds.setdefault(kind_of(study, cell, images, cost), (cell, images, cost))
    cheap = sorted(kinds, key=lambda kind: kinds[kind][2].learn)
    first = {kind.method[:2]: kind for kind in reversed(cheap)}.values()
    return {kind: kinds[kind] for kind in sorted(cheap, key=lambda kind: kind not in first)}


def _measure(
    study: Study,
    machine: Machine,
    cell: Cell,
    images: Images,
    cost: ModelCost,
    device: torch.device,
) -> Rates:
    """Seconds of real steps on random images of the right shape, as operations per second."""
    from tnfdt.attack.pgd import pgd_trajectory
    from tnfdt.train.recipe import Trainer, accuracy

    limit = max(int(_STEP_OPERATIONS // cost.learn), 4) if device.type == "cpu" else 10**6
    recipe = replace(study.training, batch_size=min(study.training.batch_size, limit))
    config = {**replace(study, training=recipe).train_slice(cell, machine), "compile": False}
    data = _random_images(images, recipe.batch_size, device)
    trainer = Trainer(config, data, device)
    learn = _step_seconds(trainer, device) / recipe.batch_size
    count = min(len(data.test_y), 2 * limit)
    tested = _timed(lambda: accuracy(trainer.model, data.test_x[:count], data.test_y[:count]))
    few = min(study.attack.batch_size, limit, len(data.test_y))
    pixels, labels = data.test_x[:few].float() / 255, data.test_y[:few]
    attacked = _timed(lambda: pgd_trajectory(trainer.model, pixels, labels, 0.01, steps=2))
    return Rates(
        forward=count * cost.forward / tested,
        learn=cost.learn / learn,
        attack=few * (2 * cost.attack + cost.forward) / attacked,
    )


def _random_images(images: Images, batch: int, device: torch.device) -> ImageSet:
    """A small set of noise: enough for a dozen steps, with every class in it."""
    import torch

    from tnfdt.core.seeding import generator
    from tnfdt.data.prepared import ImageSet

    count, chance = max(12 * batch, images.classes), generator(0, "calibration")
    shape = (count, 3, images.height, images.width)
    pixels = torch.randint(256, shape, generator=chance, dtype=torch.uint8).to(device)
    labels = (torch.arange(count) % images.classes).to(device)
    return ImageSet(
        train_x=pixels,
        train_y=labels,
        test_x=pixels[:500],
        test_y=labels[:500],
        num_classes=images.classes,
        fingerprint="noise",
    )


class _EnoughError(Exception):
    """The training has been measured for long enough."""


def _step_seconds(trainer: Any, device: torch.device) -> float:
    """The median time of a step, batch and all, without the first."""
    times: list[float] = []

    def after_step() -> None:
        _wait_for(device)
        times.append(time.perf_counter())
        if len(times) > 2 and times[-1] - times[0] > _KIND_SECONDS:
            raise _EnoughError

    with contextlib.suppress(_EnoughError):
        trainer.run(after_step, lambda row: None)
    return statistics.median(b - a for a, b in itertools.pairwise(times))


def _timed(call: Callable[[], Any]) -> float:
    """The median time of a call whose result is back on the CPU, without the first."""
    times: list[float] = []
    while len(times) < 2 or (sum(times) < _KIND_SECONDS and len(times) < 5):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:])


def _wait_for(device: torch.device) -> None:
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)
