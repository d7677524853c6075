"""The audit with its files: all attacks on one trained cell.

Every attack at every epsilon is a unit of its own with a partial file, so that a killed audit
goes on where it was.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from tnfdt.attack.batches import Attack, Partial, in_batches
from tnfdt.attack.cell import ARRAYS, Target, load_target, made_from, make_record, to_arrays
from tnfdt.attack.pgd import Bits, check_epsilon
from tnfdt.attack.trajectory import pgd_trajectory
from tnfdt.audit import attacks, indicators
from tnfdt.audit.autoattack import FLAGS, autoattack, is_installed
from tnfdt.audit.indicators import LARGE_EPSILON, Outcome, Sign
from tnfdt.core.seeding import derive, generator
from tnfdt.files.atomic import Arrays, write_json, write_npz
from tnfdt.files.records import SCHEMA, Record, cell_of
from tnfdt.models import set_backward
from tnfdt.study.attack_settings import with_precision
from tnfdt.study.paths import AUDIT_ARRAY, AUDIT_RECORD, PARTIAL, epsilon_stem, format_epsilon
from tnfdt.study.study import Slice, digest

BLACK_BOX_STEPS = 10  # of HopSkipJump: some 2,500 forward passes an image


def run(
    *,
    out: Path,
    train_dir: Path,
    data_dir: Path,
    config: Slice,
    device: torch.device,
    identity: Record,
    vanilla_dir: Path | None,
    progress: bool,
) -> Record:
    """Audit one cell into `out`; the record comes last. `vanilla_dir` is the transfer's source."""
    for epsilon in config["epsilons"]:
        check_epsilon(epsilon)
    config = with_precision(config)
    target = load_target(train_dir, data_dir, config, device)
    source = None
    if vanilla_dir is not None and vanilla_dir.resolve() != train_dir.resolve():
        source = load_target(vanilla_dir, data_dir, config, device)
    cell = _Cell(out, target, source, config, identity, progress)
    started, outcomes = time.time(), {eps: cell.outcomes(eps) for eps in config["epsilons"]}
    large = cell.large()
    record = cell.record(outcomes, large, started)
    write_npz(out / AUDIT_ARRAY, cell.stored(outcomes))
    write_json(out / AUDIT_RECORD, record)
    for path in cell.partials:
        path.unlink(missing_ok=True)
    return record


@dataclass
class _Cell:
    """One cell, its attacks and their partial files."""

    out: Path
    target: Target
    source: Target | None
    config: Slice
    identity: Record
    progress: bool

    def __post_init__(self) -> None:
        self.partials: list[Path] = []
        self.seconds = 0.0
        self.clean = np.zeros(0, dtype=np.bool_)
        self.autoattack: Slice = self.config.get("autoattack") or {"epsilons": [], "images": 0}
        if self.autoattack["epsilons"] and not is_installed():
            print("the audit leaves AutoAttack out: pip install pyautoattack", file=sys.stderr)
        self.trained: str = self.target.record["config"]["tensor_norm"] or "exact"

    def outcomes(self, epsilon: float) -> dict[str, Outcome]:
        """Every attack at one epsilon.

        The first half of the doubled attack is the exact attack, and, without a pass-through
        error, the paper's as well: they are read off, not run again.
        """
        steps, name = self.config["steps"], epsilon_stem(epsilon)
        doubled = self._run(f"{name}.steps_x2", self._pgd(epsilon, "exact", 2 * steps))
        self.clean = doubled["predictions"] == self.target.labels.numpy(force=True)
        correct, loss, norm = (doubled[key][:steps] for key in ARRAYS[:3])
        exact = Outcome(correct, loss, norm)
        found = {"paper": exact, "exact": exact}
        if self.trained == "paper":
            arrays = self._run(f"{name}.paper", self._pgd(epsilon, "paper", steps))
            found["paper"] = Outcome(arrays["correct"], arrays["loss"], arrays["gradient_norm"])
        if self.config["restarts"]:
            found["restarts"] = Outcome(self._restarts(epsilon, name))
        found["steps_x2"] = Outcome(doubled["correct"])
        found |= {key: Outcome(bits) for key, bits in self._gradient_free(epsilon, name)}
        if epsilon in self.autoattack["epsilons"] and is_installed():
            arrays = self._run(
                f"{name}.autoattack",
                self._autoattack(epsilon, name),
                self.autoattack["images"],
                ("correct", "flags"),
            )
            shares = arrays["flags"].mean(1).tolist()
            flags = dict(zip(FLAGS, shares, strict=True))
            found["autoattack"] = Outcome(arrays["correct"], flags=flags)
        return found

    def large(self) -> Bits:
        """The paper's attack with a ball so large that nothing can be left."""
        attack = self._pgd(LARGE_EPSILON, self.trained, self.config["steps"])
        correct: Bits = self._run("large", attack)["correct"]
        return correct

    def _restarts(self, epsilon: float, name: str) -> Bits:
        """Right after random start r = 1..R at each iterate, [T, N]: the pointwise worst."""
        steps = self.config["steps"]
        runs = [
            self._run(f"{name}.restart{r}", self._pgd(epsilon, "exact", steps, f"{name}/{r}"))
            for r in range(self.config["restarts"])
        ]
        return indicators.survivors(np.stack([arrays["correct"] for arrays in runs]))

    def _gradient_free(self, epsilon: float, name: str) -> Iterator[tuple[str, Bits]]:
        """Attacks that do not use the network's gradient."""
        if self.source is not None:
            yield "transfer", self._run(f"{name}.transfer", self._transfer(epsilon))["correct"]
        noise = self._run(f"{name}.noise", self._noise(epsilon, name), arrays=("correct",))
        yield "noise", noise["correct"]
        if count := self.config["black_box"]:
            distance = self._run("black_box", self._black_box, count, ("distance",))["distance"]
            yield "black_box", distance > epsilon

    def _pgd(self, epsilon: float, backward: str, steps: int, start: str | None = None) -> Attack:
        """PGD with one of the two backward passes; from a random point if `start` names one."""

        def attack(images: Tensor, labels: Tensor, first: int) -> Arrays:
            random = start is not None or self.config["random_start"]
            stream = f"audit/{start}" if start else f"attack/{epsilon_stem(epsilon)}"
            return to_arrays(
                pgd_trajectory(
                    self._model(backward),
                    images,
                    labels,
                    epsilon,
                    steps=steps,
                    rel_stepsize=self.config["rel_stepsize"],
                    random_start=random,
                    generator=generator(self.identity["seed"], f"{stream}/{first}"),
                )
            )

        return attack

    def _transfer(self, epsilon: float) -> Attack:
        assert self.source is not None
        transfer = partial(
            attacks.transfer_trajectory,
            set_backward(self.source.model, "exact"),
            self.target.model,
            epsilon=epsilon,
            steps=self.config["steps"],
            rel_stepsize=self.config["rel_stepsize"],
        )
        return lambda images, labels, first: to_arrays(transfer(images, labels))

    def _noise(self, epsilon: float, name: str) -> Attack:
        """As many draws as PGD has steps."""

        def attack(images: Tensor, labels: Tensor, first: int) -> Arrays:
            stream = generator(self.identity["seed"], f"audit/noise/{name}/{first}")
            right = attacks.survives_noise(
                self.target.model,
                images,
                labels,
                epsilon,
                repeats=self.config["steps"],
                generator=stream,
            )
            return {"correct": right.numpy(force=True)[None]}

        return attack

    def _black_box(self, images: Tensor, labels: Tensor, first: int) -> Arrays:
        seed = derive(self.identity["seed"], f"audit/black_box/{first}")
        distance = attacks.decision_distance(
            self.target.model, images, labels, steps=BLACK_BOX_STEPS, seed=seed
        )
        return {"distance": distance.numpy(force=True)[None]}

    def _autoattack(self, epsilon: float, name: str) -> Attack:
        """On the exact gradient; a flag is of all images of its batch."""

        def attack(images: Tensor, labels: Tensor, first: int) -> Arrays:
            correct, flags = autoattack(
                self._model("exact"),
                images,
                labels,
                epsilon,
                num_classes=self.target.num_classes,
                seed=derive(self.identity["seed"], f"audit/autoattack/{name}/{first}"),
            )
            raised = np.array([[flags[key]] for key in FLAGS]).repeat(len(labels), 1)
            return {"correct": correct.numpy(force=True), "flags": raised}

        return attack

    def _model(self, backward: str) -> nn.Module:
        return set_backward(self.target.model, backward)  # type: ignore[arg-type]

    def _run(
        self, unit: str, attack: Attack, count: int | None = None, arrays: Sequence[str] = ARRAYS
    ) -> Arrays:
        """One unit over the images (the first `count`), kept on disk until the audit is whole."""
        source = self.source and made_from(self.source)
        key = {**self.config, **self.identity, **made_from(self.target), "source": source}
        done = Partial(self.out / f"{unit}{PARTIAL}", digest({**key, "unit": unit}), arrays)
        title = f"{cell_of(self.identity).path} {unit}" if self.progress else None
        images = min(count or len(self.target.labels), len(self.target.labels))
        in_batches(attack, self.target.batch, images, self.config["batch_size"], done, title)
        done.save()
        if done.path not in self.partials:  # the black box is asked for by every epsilon
            self.partials.append(done.path)
            self.seconds += done.seconds
        return done.arrays

    def record(
        self, outcomes: dict[float, dict[str, Outcome]], large: Bits, started: float
    ) -> Record:
        entries = {eps: indicators.summarize(self.clean, found) for eps, found in outcomes.items()}
        robust = {eps: e["attacks"]["paper"]["robust_accuracy"] for eps, e in entries.items()}
        found = {
            "accuracy_not_falling": indicators.accuracy_not_falling(robust),
            "chance_not_reached": indicators.chance_not_reached(large, self.target.num_classes),
        }
        signs = {name: Sign(value, len(self.clean)) for name, value in found.items()}
        judged = indicators.against_limits(signs)
        parts = [judged, *(entry["indicators"] for entry in entries.values())]
        for epsilon, entry in entries.items():
            entry["badge"] = indicators.make_badge([judged, entry["indicators"]])
            if epsilon in self.autoattack["epsilons"] and not is_installed():
                entry["not_run"] = {"autoattack": "not installed"}
        metrics = {"clean_accuracy": float(self.clean.mean()), "duration_seconds": self.seconds}
        return {
            "schema": SCHEMA,
            "stage": "audit",
            **self.identity,
            "badge": indicators.make_badge(parts),
            "indicators": judged,
            "epsilons": {format_epsilon(epsilon): entry for epsilon, entry in entries.items()},
            "transfer_source": self.source and self.source.record["model_sha256"],
            **make_record(self.target, self.config, metrics, started),
        }

    def stored(self, outcomes: dict[float, dict[str, Outcome]]) -> Arrays:
        """Per image what the record's numbers were computed from."""
        arrays: Arrays = {"indices": self.target.indices.numpy(), "clean": self.clean}
        for epsilon, found in outcomes.items():
            for name, outcome in found.items():
                head = f"{epsilon_stem(epsilon)}_{name}"
                arrays[f"{head}_correct"] = outcome.correct
                if name == "paper" and outcome.loss is not None:
                    arrays[f"{head}_loss"] = outcome.loss
                    arrays[f"{head}_gradient_norm"] = np.asarray(outcome.gradient_norm)
        return arrays
