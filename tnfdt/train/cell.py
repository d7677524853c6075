"""Stage 2 for one cell: its files, its lock, its checkpoints and its device."""

from __future__ import annotations

import contextlib
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tnfdt import devices
from tnfdt.core.tensor_norm import has_fused_kernel
from tnfdt.data.prepared import ImageSet, load
from tnfdt.files.atomic import sha256_file, write_json
from tnfdt.files.locks import exclusive
from tnfdt.files.progress import Progress
from tnfdt.files.provenance import provenance
from tnfdt.files.records import SCHEMA, Record, identity, read_record, require
from tnfdt.study.machine import Machine
from tnfdt.study.paths import (
    BEST_CLEAN,
    BEST_WEIGHTS,
    CHECKPOINT,
    CLEAN,
    HISTORY,
    LOCK,
    RECORD,
    WEIGHTS,
    Cell,
)
from tnfdt.study.schema import UserError
from tnfdt.study.study import Slice, digest
from tnfdt.train import checkpoint
from tnfdt.train.artifacts import write_history, write_network
from tnfdt.train.checkpoint import keep, kept, restore
from tnfdt.train.code_digest import training_code
from tnfdt.train.control_sources import solved
from tnfdt.train.recipe import Row, Trainer

OnEpoch = Callable[[Row], None]

_SOLVED = {"num_classes", "smoothing"}  # what a record says beside its config; see `solved`


def run(
    *,
    study: str,
    cell: Cell,
    out: Path,
    data_dir: Path,
    config: Slice,
    interpretation: dict[str, Any],
    machine: Machine,
    on_epoch: OnEpoch = lambda row: None,
    force: bool = False,
) -> Record:
    """Train one cell into `out`, or go on where it was stopped; the record comes last.

    One process a cell: a second one waits, and then finds the cell done.
    """
    fingerprint = load(data_dir, verify=True).fingerprint
    devices.check(machine.device)
    waiting = f"{out}: another process trains this cell; waiting for it"
    with exclusive(out / LOCK, lambda: print(waiting, file=sys.stderr)):
        job = _Job(study, cell, out, config, fingerprint, machine, on_epoch)
        if not force and (done := job.finished() or job.restored()):
            print(f"{cell.path} is trained already; --force trains it again", file=sys.stderr)
            return done
        devices.set_arithmetic(machine.precision, machine.threads)
        with (
            devices.memory_errors(_memory_advice(cell)),
            devices.acquire(machine.device, machine.gpu_slots) as device,
        ):
            return job.train(load(data_dir, device), device, interpretation)


def _memory_advice(cell: Cell) -> str:
    return (
        f"{cell.path}: out of GPU memory; set gpu_slots: 1, precision: bf16 or a smaller "
        "training.batch_size, or use a larger GPU"
    )


def kernel_of(config: Slice, device: torch.device) -> str:
    """What made the kernels of ReLU and TN on a GPU."""
    if config["compile"]:
        return "inductor"
    return "triton" if has_fused_kernel(torch.empty(1, 1, 1, 1, device=device)) else "torch"


class Clock:
    """Seconds on the wall and of the processor, with those of the tries before this one."""

    def __init__(self, wall: float = 0.0, cpu: float = 0.0) -> None:
        self._wall, self._cpu = wall - time.monotonic(), cpu - time.process_time()

    def read(self) -> tuple[float, float]:
        return self._wall + time.monotonic(), self._cpu + time.process_time()


class _Job:
    """The files and clocks around one training."""

    def __init__(
        self,
        study: str,
        cell: Cell,
        out: Path,
        config: Slice,
        fingerprint: str,
        machine: Machine,
        on_epoch: OnEpoch,
    ) -> None:
        self.study, self.cell, self.out, self.config = study, cell, out, config
        self.fingerprint, self.machine, self.on_epoch = fingerprint, machine, on_epoch
        self.identity = digest({**config, "study": study, "data": fingerprint})
        self.checkpoint = out / CHECKPOINT
        self.keeps_best = "keep_best" in config
        best = (BEST_WEIGHTS, BEST_CLEAN) if self.keeps_best else ()
        self.files = [out / name for name in (WEIGHTS, *best, HISTORY, CLEAN, RECORD)]
        self.started = time.time()

    def finished(self) -> Record | None:
        """The record, if this very training was done before and all its files are there."""
        there = all(path.is_file() for path in self.files)
        return self._whole(lambda path: path) if there else None

    def restored(self) -> Record | None:
        """The record, if this very code finished it and Snakemake deleted it: it is back then.

        A checkpoint means that it is being trained again.
        """
        if self.checkpoint.exists():
            return None
        with contextlib.suppress(UserError):
            record = self._whole(kept)
            if record and record.get("code") == training_code() and restore(*self.files):
                return record
        return None

    def _whole(self, place: Callable[[Path], Path]) -> Record | None:
        """The record, if it and the weights at these places are of this very training."""
        sums = {"model_sha256": WEIGHTS} | (
            {"best_sha256": BEST_WEIGHTS} if self.keeps_best else {}
        )
        path, weights = place(self.out / RECORD), {k: place(self.out / n) for k, n in sums.items()}
        if not all(item.exists() for item in (path, *weights.values())):
            return None
        record = read_record(path, stage="train", study=self.study, cell=self.cell)
        require(path, record, "config", "dataset_fingerprint", "model_sha256")
        made = {key: record["config"][key] for key in record["config"].keys() - _SOLVED}
        same = made == self.config and record["dataset_fingerprint"] == self.fingerprint
        same = same and all(record.get(k) == sha256_file(file) for k, file in weights.items())
        return record if same else None

    def train(
        self, images: ImageSet, device: torch.device, interpretation: dict[str, Any]
    ) -> Record:
        trainer = self._trainer(images, device)
        energy = None if trainer.seen else devices.energy_counter(device)  # counts one try only
        self._loop(trainer)
        used = devices.energy_counter(device)
        joules = used - energy if used is not None and energy is not None else None
        accuracy = self._write(trainer)
        metrics = self._metrics(trainer, accuracy, joules if joules and joules > 0 else None)
        record = self._record(trainer, metrics, interpretation, images.num_classes)
        write_json(self.out / RECORD, record)
        keep(*self.files)
        self.checkpoint.unlink(missing_ok=True)
        return record

    def _trainer(self, images: ImageSet, device: torch.device) -> Trainer:
        """A trainer that stands where the checkpoint was written, else at the beginning."""
        self.clock = Clock()
        trainer = Trainer(self.config, images, device)
        state = checkpoint.load(self.checkpoint, identity=self.identity, code=training_code())
        if state is None:
            return trainer
        try:
            self._resume(trainer, state)
        except Exception as error:  # whatever is wrong with it: a fresh trainer, no half of one
            checkpoint.tell_useless(self.checkpoint, f"cannot be used ({type(error).__name__})")
            return Trainer(self.config, images, device)
        where = f"epoch {trainer.epoch + 1}, step {trainer.step + 1}"
        print(f"{self.cell.path}: going on at {where}", file=sys.stderr, flush=True)
        for row in trainer.history:
            self.on_epoch(row)
        return trainer

    def _resume(self, trainer: Trainer, state: checkpoint.State) -> None:
        wall, cpu, started = map(float, (*state["seconds"], state["started"]))
        if not all(map(math.isfinite, (wall, cpu, started))):
            raise ValueError("its clock is wrong")
        trainer.restore(state["trainer"])
        self.clock, self.started = Clock(wall, cpu), started

    def _loop(self, trainer: Trainer) -> None:
        """Train with progress, checkpoints and stop requests."""
        total = len(trainer.data.train_y) * trainer.recipe["epochs"]
        progress = Progress(self.cell.path, total, trainer.seen)
        saved = begun = time.monotonic()

        def save() -> None:
            nonlocal saved
            seconds = self.clock.read()
            state = {"trainer": trainer.state(), "seconds": seconds, "started": self.started}
            checkpoint.save(self.checkpoint, state, identity=self.identity, code=training_code())
            saved = time.monotonic()

        def after_step() -> None:
            progress.reach(trainer.seen)
            if stop:
                save()
                raise checkpoint.Interrupted(
                    f"{self.cell.path}: stopped in epoch {trainer.epoch + 1} after step "
                    f"{trainer.step}; the state is saved and the same command goes on"
                )
            if time.monotonic() - saved > 60 * self.machine.checkpoint_minutes:
                save()

        def after_epoch(row: Row) -> None:
            nonlocal begun
            save()
            seconds, begun = time.monotonic() - begun, time.monotonic()
            rate = len(trainer.data.train_y) / seconds
            self.on_epoch({**row, "seconds": seconds, "images_per_second": rate})
            progress.report(
                epoch=f"{row['epoch']}/{trainer.recipe['epochs']}",
                loss=f"{row['loss']:.4f}",
                accuracy=f"{100 * row['test_accuracy']:.2f} %",
            )

        with checkpoint.stop_requests() as stop:
            trainer.run(after_step, after_epoch)
        progress.close()

    def _write(self, trainer: Trainer) -> float:
        """Store the epoch that is reported, and the best one beside it where it is kept."""
        if self.config.get("checkpoint") == "best":
            trainer.take_best()
        accuracy = write_network(trainer, self.out / WEIGHTS, self.out / CLEAN)
        if self.keeps_best:
            trainer.take_best()
            write_network(trainer, self.out / BEST_WEIGHTS, self.out / BEST_CLEAN)
        write_history(self.out / HISTORY, trainer.history)
        return accuracy

    def _metrics(self, trainer: Trainer, accuracy: float, joules: float | None) -> Record:
        tested = [row["test_accuracy"] for row in trainer.history]
        (seconds, cpu_seconds), on_cpu = self.clock.read(), trainer.device.type == "cpu"
        seen = len(trainer.data.train_y) * trainer.recipe["epochs"]
        return {
            "accuracy": accuracy,
            "accuracy_best": max(tested),
            "accuracy_median10": statistics.median(tested[-10:]),
            "loss": trainer.history[-1]["loss"],
            "parameters": sum(item.numel() for item in trainer.model.parameters()),
            "images_per_second": seen / seconds,
            "cpu_seconds_per_image": cpu_seconds / seen if on_cpu else None,
            "peak_memory_bytes": devices.peak_memory(trainer.device),
            "energy_joules": joules,
            "duration_seconds": seconds,
        }

    def _record(
        self,
        trainer: Trainer,
        metrics: Record,
        interpretation: dict[str, Any],
        num_classes: int,
    ) -> Record:
        made = {**provenance()}
        device = {"device": devices.describe(trainer.device), "threads": self.machine.threads}
        if trainer.device.type == "cuda" and self.config["tensor_norm"]:
            made["tensor_norm_kernel"] = kernel_of(self.config, trainer.device)
        return {
            "schema": SCHEMA,
            "stage": "train",
            **identity(self.study, self.cell),
            "metrics": metrics,
            "config": self.config | solved(self.config, num_classes),
            "interpretation": interpretation,
            "code": training_code(),
            **made,
            "hardware": {**made["hardware"], **device},
            "dataset_fingerprint": self.fingerprint,
            "model_sha256": sha256_file(self.out / WEIGHTS),
            **({"best_sha256": sha256_file(self.out / BEST_WEIGHTS)} if self.keeps_best else {}),
            "started": self.started,
        }
