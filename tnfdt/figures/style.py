"""How figures look and how they are saved.

Each method has its colour and also a marker of its own, so that a print in grey can be read.
Drawn without pyplot and saved without dates: the same results give the same bytes.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tnfdt.files.atomic import atomic_path
from tnfdt.study.names import METHODS, dataset_name, method_name, model_name

WIDTH = 7.2  # inches: two columns of a journal
DPI = 150
CLAIMED = "#DCEBF5"  # the side of an axis that a claim is on
STYLE = {
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e5e5e5",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "lines.linewidth": 1.3,
    "lines.markersize": 4.5,
    "pdf.fonttype": 42,
}
_SPARE = [("#CC79A7", "P"), ("#56B4E9", "X"), ("#7F7F7F", "*"), ("#8C6D31", "h")]

_METADATA: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}

Block = tuple[str, str]  # dataset, model
MarkerStyle = tuple[str, str]  # colour, marker


@contextlib.contextmanager
def style(**changes: Any) -> Iterator[None]:
    """Draw in this style, whatever a user's own matplotlibrc says."""
    with mpl.rc_context():
        mpl.rcdefaults()
        params: Any = {**STYLE, **changes}  # its keys are literals to a type checker
        mpl.rcParams.update(params)
        yield


def marker_styles(methods: Iterable[str]) -> dict[str, MarkerStyle]:
    """Colour and marker of each method; methods of a user's own take the spare ones in turn."""
    spare = itertools.cycle(_SPARE)
    return {name: METHODS[name][1:] if name in METHODS else next(spare) for name in methods}


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as PNG and PDF, without dates or versions in them."""
    paths = [stem.with_suffix(f".{kind}") for kind in _METADATA]
    for path in paths:
        kind = path.suffix[1:]
        with atomic_path(path) as temporary, style():
            figure.savefig(temporary, format=kind, dpi=DPI, metadata=_METADATA[kind])
        figure.set_layout_engine("none")  # the first drawing found the places; keep them
    return paths


def new_figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout="constrained")


def panels(blocks: Sequence[Block], ylabel: str, *, height: float) -> tuple[Figure, list[Axes]]:
    """A figure with one panel per dataset and model, two or three side by side."""
    columns = min(len(blocks), 3 if len(blocks) % 3 == 0 else 2)
    rows = -(-len(blocks) // columns)
    figure = new_figure(WIDTH if columns > 1 else 0.65 * WIDTH, height * rows + 0.4)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axis, (dataset, model) in zip(axes, blocks, strict=False):
        axis.set_title(f"{dataset_name(dataset)}, {model_name(model)}")
    for axis in axes[::columns]:
        axis.set_ylabel(ylabel)
    for axis in axes[len(blocks) :]:
        axis.set_visible(False)
    return figure, axes[: len(blocks)]


def legend(
    figure: Figure, methods: Mapping[str, MarkerStyle], extra: Sequence[Line2D] = ()
) -> None:
    """The methods and what else needs a word, below all panels."""
    handles = [
        Line2D([], [], color=colour, marker=marker, label=method_name(method))
        for method, (colour, marker) in methods.items()
    ] + list(extra)
    lines = math.ceil(len(handles) / round(figure.get_figwidth()))
    columns = math.ceil(len(handles) / lines)  # lines of about the same length
    figure.legend(handles=handles, loc="outside lower center", ncols=columns)


def empty(message: str) -> Figure:
    """What is drawn in a figure's place while there is nothing to draw yet."""
    figure = new_figure(WIDTH, 1.2)
    figure.text(0.5, 0.5, message, ha="center", va="center", color="#555555")
    return figure
