"""Stage 2: the paper's recipe. A method is a set of switches, not a code path of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tnfdt.core.controls import adversarial_images, batch_statistics
from tnfdt.core.losses import log_losses
from tnfdt.core.seeding import derive
from tnfdt.data.prepared import ImageSet
from tnfdt.devices import autocast, memory_format
from tnfdt.models import create_model, size_refused, takes_no_such_size
from tnfdt.study.schema import UserError
from tnfdt.train.batch_sources import Config, make_source
from tnfdt.train.feed import Batch, batches

Row = dict[str, float]

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


@torch.inference_mode()
def predictions(model: nn.Module, images: Tensor) -> Tensor:
    """The classes [N] that the model gives to uint8 `images` [N, C, H, W]."""
    model.eval()
    parts = torch.split(images, _EVALUATION_BATCH)
    return torch.cat([model(pixels.float() / 255).argmax(1) for pixels in parts])


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Share of uint8 `images` [N, C, H, W] that the model classifies right."""
    return int((predictions(model, images) == labels).sum()) / len(labels)


def _losses(logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """The loss that trains, Alg. 3 or Alg. 4, and the soft cross-entropy for the curve.

    Nothing looks at the values: a look would make the host wait. `check_finite` looks later.
    """
    if batch.table is not None:
        return log_losses(logits, batch.table)
    loss = nn.functional.cross_entropy(logits, batch.classes)
    return loss, loss.detach()


def _compiled(model: nn.Module) -> nn.Module:
    """The model through torch.compile, with kernels that are not chosen by measuring them."""
    from torch._inductor import config

    if hasattr(config, "deterministic"):
        config.deterministic = True
    return torch.compile(model)  # type: ignore[return-value]


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
        self._forward = _compiled(self.model) if config["compile"] else self.model
        self.optimizer = torch.optim.SGD(
            self.model.parameters(),
            lr=recipe["lr"],
            momentum=recipe["momentum"],
            weight_decay=recipe["weight_decay"],
        )
        self.source = make_source(config, data, layout)
        self.steps = self.source.steps
        self.epoch, self.step = 0, 0
        self.stats = torch.zeros(self.steps, 3, device=device)
        self.history: list[Row] = []
        self._keeps_best = bool(config.get("keep_best")) or config.get("checkpoint") == "best"
        self.best: dict[str, Tensor] = {}  # weights of the first epoch of the largest accuracy

    @property
    def seen(self) -> int:
        """Images trained on so far, over all epochs."""
        count, size = len(self.data.train_y), int(self.recipe["batch_size"])
        return self.epoch * count + (count if self.step == self.steps else self.step * size)

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
            for batch in batches(self.source, self.epoch, self.step, self.device):
                self._learn(batch)
                after_step()
            after_epoch(self._end_epoch())

    def _learn(self, batch: Batch) -> None:
        """One step of SGD on the loss of Alg. 3 (one class) or Alg. 4 (a distribution)."""
        self.optimizer.zero_grad(set_to_none=True)  # first: activations may use the memory
        if batch.noise is not None:
            batch = batch._replace(images=self._attacked(batch, batch.noise))
        logits = self._logits(batch.images)
        loss, soft = _losses(logits, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        right = (logits.detach().argmax(1) == batch.classes).float().mean()
        sums = torch.stack([loss.detach(), soft, right]) * len(batch.classes)
        self.stats[self.step] = sums
        self.step += 1

    def _attacked(self, batch: Batch, noise: Tensor) -> Tensor:
        """What PGD makes of the images, in training mode and against the loss that trains."""
        with batch_statistics(self.model):
            return adversarial_images(
                lambda images: _losses(self._logits(images), batch)[0],
                batch.images,
                noise,
                **self.config["adversarial"],
            )

    def _logits(self, images: Tensor) -> Tensor:
        try:
            with autocast(self.device, self.config["precision"]):
                logits: Tensor = self._forward(images)
                return logits.float()
        except (AssertionError, RuntimeError) as error:
            if not takes_no_such_size(error):
                raise
            raise UserError(size_refused(self.config["model"], images.shape, error)) from None
        except ValueError as error:  # of batch normalization: one image, 1×1 feature maps
            raise UserError(
                f"network {self.config['model']}: {error}; it cannot learn from {len(images)} "
                "image at a time: set a larger training.batch_size or limit.train"
            ) from None

    def _diverged(self, what: str, step: int) -> UserError:
        """Bad training is not a result: what is wrong, where, and what to do."""
        return UserError(
            f"training diverged: {what} in epoch {self.epoch + 1}, step {step} of "
            f"{self.steps}, learning rate {self.lr:g}; no result was written; "
            "lower training.lr or check the data"
        )

    def check_finite(self) -> None:
        """Raise if a loss of this epoch or a weight is NaN or infinite, naming the first step."""
        bad = (~self.stats[: self.step].isfinite().all(1)).nonzero()
        if len(bad):
            raise self._diverged("the loss is NaN or infinite", int(bad[0]) + 1)
        finite = [item.isfinite().all() for item in self.model.state_dict().values()]
        if not bool(torch.stack(finite).all()):
            raise self._diverged("a weight is NaN or infinite", self.step)

    def _end_epoch(self) -> Row:
        self.check_finite()
        loss, soft, right = (self.stats.cpu().double().sum(0) / len(self.data.train_y)).tolist()
        test = accuracy(self.model, self.data.test_x, self.data.test_y)
        values = (self.epoch + 1, self.lr, loss, soft, right, test)
        row = dict(zip(HISTORY, values, strict=True))
        if self._keeps_best and all(test > before["test_accuracy"] for before in self.history):
            self.best = {key: item.clone() for key, item in self.model.state_dict().items()}
        self.history.append(row)
        self.epoch, self.step = self.epoch + 1, 0
        self.stats.zero_()
        return row

    def take_best(self) -> None:
        """Go back to the weights of the best epoch."""
        self.model.load_state_dict(self.best)

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
            "best": self.best,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.epoch, self.step = state["epoch"], state["step"]
        self.stats.copy_(state["stats"])
        self.history = [{key: row[key] for key in HISTORY} for row in state["history"]]
        self.best = state["best"]
        self.check_finite()
        whole = 0 <= self.epoch <= self.recipe["epochs"] and 0 <= self.step <= self.steps
        best = bool(self.best) == (self._keeps_best and self.epoch > 0)
        if not whole or not best or len(self.history) != self.epoch:
            raise ValueError("epoch, step, history and best do not belong together")
