"""Stage 2: the paper's recipe. A method is a set of switches, not a code path of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from tnfdt.core.augment import ShiftFlip
from tnfdt.core.full_distribution import FullDistribution
from tnfdt.core.losses import multi_class_log_loss, multi_label_log_loss, soft_cross_entropy
from tnfdt.core.seeding import derive
from tnfdt.data.prepared import ImageSet
from tnfdt.devices import autocast, memory_format
from tnfdt.models import create_model
from tnfdt.study.schema import UserError
from tnfdt.train.feed import epoch_batches

Config = dict[str, Any]
Row = dict[str, float]
Batch = tuple[Tensor, Tensor, Tensor | None]  # images in [0, 1], classes [B], targets [B, C]

HISTORY = ("epoch", "lr", "loss", "soft_cross_entropy", "train_accuracy", "test_accuracy")
_EVALUATION_BATCH = 500


def build_model(config: Config, num_classes: int) -> nn.Module:
    """The cell's network; its initial weights depend on the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(config["seed"], "init"))
        try:
            return create_model(
                config["model"],
                num_classes,
                stem=config["stem"],
                tensor_norm=config["tensor_norm"],
                mean=tuple(config["mean"]),
            )
        except ValueError as error:
            raise UserError(f"network {config['model']}: {error}") from None


def make_batches(config: Config, data: ImageSet) -> Callable[[int, int], Iterator[Batch]]:
    """A function (epoch, first step) -> batches: single images, or blends of them."""
    seed, size, blend = config["seed"], config["training"]["batch_size"], config["blend"]
    images, labels = data.train_x, data.train_y
    augment = _augment(config["augment"], images)
    if blend is None:

        def single(epoch: int, start: int) -> Iterator[Batch]:
            order = {"batch_size": size, "seed": seed, "epoch": epoch, "start": start}
            for pixels, classes in epoch_batches(images, labels, augment=augment, **order):
                yield pixels.float() / 255, classes, None

        return single

    generator = torch.Generator()
    source = FullDistribution(
        images,
        labels,
        data.num_classes,
        series=blend["series"],
        amount=blend["amount"],
        augment=augment,
        augment_when=blend["augment"],
        generator=generator,
    )

    def blended(epoch: int, start: int) -> Iterator[Batch]:
        for step in range(start, math.ceil(len(labels) / size)):
            generator.manual_seed(derive(seed, f"blend/{epoch}/{step}"))
            drawn = source.batch(min(size, len(labels) - step * size))
            targets = drawn.targets if blend["target"] == "distribution" else None
            yield drawn.images / 255, drawn.dominant, targets

    return blended


def _augment(settings: Config, images: Tensor) -> ShiftFlip | None:
    """The augmentation, if any; a shift that leaves nothing of the images is refused."""
    if not any(settings.values()):
        return None
    try:
        augment = ShiftFlip(**settings)
        augment.check(images)
    except ValueError as error:
        raise UserError(str(error)) from None
    return augment


@torch.inference_mode()
def predictions(model: nn.Module, images: Tensor) -> Tensor:
    """The classes [N] that the model gives to uint8 `images` [N, C, H, W]."""
    model.eval()
    parts = torch.split(images, _EVALUATION_BATCH)
    return torch.cat([model(pixels.float() / 255).argmax(1) for pixels in parts])


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Share of uint8 `images` [N, C, H, W] that the model classifies right."""
    return int((predictions(model, images) == labels).sum()) / len(labels)


def _losses(logits: Tensor, classes: Tensor, targets: Tensor | None) -> tuple[Tensor, Tensor]:
    """The loss that trains, Alg. 3 or Alg. 4, and the soft cross-entropy for the curve."""
    if targets is None:
        loss = multi_class_log_loss(logits, classes)
        return loss, loss.detach()
    return multi_label_log_loss(logits, targets), soft_cross_entropy(logits.detach(), targets)


class Trainer:
    """One training, which can stop and go on between any two steps.

    `epoch` and `step` are the next to do; `stats` [steps, 3] holds each step's sums over its
    images of the loss, the soft cross-entropy and the right answers.
    """

    def __init__(self, config: Config, data: ImageSet, device: torch.device) -> None:
        recipe = config["training"]
        self.config, self.data, self.device, self.recipe = config, data, device, recipe
        layout = memory_format(device, config["precision"])
        self.model = build_model(config, data.num_classes).to(device, memory_format=layout)  # type: ignore[call-overload]
        self._forward = torch.compile(self.model) if config["compile"] else self.model
        self.optimizer = torch.optim.SGD(
            self.model.parameters(),
            lr=recipe["lr"],
            momentum=recipe["momentum"],
            weight_decay=recipe["weight_decay"],
        )
        self.steps = math.ceil(len(data.train_y) / recipe["batch_size"])
        self.epoch, self.step = 0, 0
        self.stats = torch.zeros(self.steps, 3, device=device)
        self.history: list[Row] = []
        self._batches = make_batches(config, data)

    @property
    def seen(self) -> int:
        """Images trained on so far, over all epochs."""
        count, size = len(self.data.train_y), int(self.recipe["batch_size"])
        return self.epoch * count + min(self.step * size, count)

    @property
    def lr(self) -> float:
        """Learning rate of the current epoch: reduced after each `lr_drop_every` epochs."""
        drops = self.epoch // self.recipe["lr_drop_every"]
        return float(self.recipe["lr"] * self.recipe["lr_drop_factor"] ** drops)

    def run(self, after_step: Callable[[], None], after_epoch: Callable[[Row], None]) -> None:
        """Train to the last epoch, from wherever this trainer stands."""
        while self.epoch < self.recipe["epochs"]:
            self.model.train()
            for group in self.optimizer.param_groups:
                group["lr"] = self.lr
            for images, classes, targets in self._batches(self.epoch, self.step):
                self._learn(images, classes, targets)
                after_step()
            after_epoch(self._end_epoch())

    def _learn(self, images: Tensor, classes: Tensor, targets: Tensor | None) -> None:
        """One step of SGD on the loss of Alg. 3 (one class) or Alg. 4 (a distribution)."""
        layout = memory_format(self.device, self.config["precision"])
        with autocast(self.device, self.config["precision"]):
            logits = self._forward(images.contiguous(memory_format=layout)).float()
        try:
            loss, soft = _losses(logits, classes, targets)
        except ValueError as error:
            raise self._diverged(str(error)) from None
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        right = (logits.detach().argmax(1) == classes).float().mean()
        self.stats[self.step] = torch.stack([loss.detach(), soft, right]) * len(classes)
        self.step += 1

    def _diverged(self, what: str) -> UserError:
        """Bad training is not a result: what is wrong, where, and what to do."""
        return UserError(
            f"training diverged: {what} in epoch {self.epoch + 1}, step {self.step + 1} of "
            f"{self.steps}, learning rate {self.lr:g}; no result was written; "
            "lower training.lr or check the data"
        )

    def check_finite(self) -> None:
        """Raise if a weight is NaN or infinite, which the next loss would show."""
        finite = [item.isfinite().all() for item in self.model.state_dict().values()]
        if not bool(torch.stack(finite).all()):
            raise self._diverged("a weight is NaN or infinite")

    def _end_epoch(self) -> Row:
        self.check_finite()
        loss, soft, right = (self.stats.double().sum(0) / len(self.data.train_y)).tolist()
        test = accuracy(self.model, self.data.test_x, self.data.test_y)
        values = (self.epoch + 1, self.lr, loss, soft, right, test)
        row = dict(zip(HISTORY, values, strict=True))
        self.history.append(row)
        self.epoch, self.step = self.epoch + 1, 0
        self.stats.zero_()
        return row

    def state(self) -> dict[str, Any]:
        """Everything that a resumed training needs; loadable with weights_only."""
        self.check_finite()
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "epoch": self.epoch,
            "step": self.step,
            "stats": self.stats,
            "history": self.history,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.epoch, self.step = state["epoch"], state["step"]
        self.stats.copy_(state["stats"])
        self.history = [{key: row[key] for key in HISTORY} for row in state["history"]]
        self.check_finite()
        whole = 0 <= self.epoch <= self.recipe["epochs"] and 0 <= self.step <= self.steps
        if not whole or len(self.history) != self.epoch:
            raise ValueError("epoch, step and history do not belong together")
