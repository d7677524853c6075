"""A picture of one training for its run's artifacts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tnfdt.tracking.view import RunView

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def history_plot(view: RunView) -> Figure | None:
    """Accuracies and loss over epochs, None for a run without epochs."""
    from matplotlib.figure import Figure

    curves: dict[str, list[tuple[int, float]]] = {}
    for point in view.points:
        curves.setdefault(point.key, []).append((point.step, point.value))
    if "loss" not in curves:
        return None
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for key, label in (("accuracy", "test"), ("train_accuracy", "training")):
        if key in curves:
            left.plot(*zip(*curves[key], strict=True), label=label)
    left.legend()
    left.set(xlabel="epoch", ylabel="accuracy")
    right.plot(*zip(*curves["loss"], strict=True))
    right.set(xlabel="epoch", ylabel="loss")
    figure.suptitle(view.name)
    return figure
