"""The forest plot: every comparison behind a claim, with its interval and the claimed side."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from tnfdt.evidence.statistics import ALPHA
from tnfdt.figures.style import CLAIMED, empty, style
from tnfdt.study.names import dataset_name, method_name, model_name
from tnfdt.verdicts.accuracy_rows import NO_ROOM
from tnfdt.verdicts.headline import contrast_label
from tnfdt.verdicts.hypotheses import ClaimRow
from tnfdt.verdicts.judge import Verdict

ROW = 0.155  # inches
_COLUMN, _LABELS = 3.6, 1.4  # inches: a column of the page, and the labels in it
_FOOT, _LEGEND = 0.45, 0.15  # inches: under an axis, and a line of the legend
_WRAP = 60  # characters of a claim in a column
_VERDICT_COLOURS = {
    "reproduced": "#00734F",
    "direction only": "#3A7CA5",
    "inconclusive": "#7A6200",
    "contradicted": "#B03A00",
    "not run": "#666666",
    "holds here": "#00734F",
    "undecided here": "#7A6200",
    "fails here": "#B03A00",
}
_MEAN = "mean"  # the status of a claim's headline, drawn as a square
_FACES = {
    "supported": "#000000",
    "opposed": "#D55E00",
    "undecided": "#ffffff",
    NO_ROOM: "#bbbbbb",
    _MEAN: "#0072B2",
}
_AXES = {
    "clean": "difference in clean accuracy (points)",
    "robust": "difference in robust accuracy (points)",
    "cost": "cost ratio",
}
_COSTS = {"peak_memory_bytes": "memory", "seconds_per_image": "time", "parameters": "size"}


@dataclass(frozen=True)
class Line:
    """A comparison with its label, or without one a line of a claim's own text."""

    text: str
    colour: str = "black"
    row: ClaimRow | None = None


def forest(verdicts: Sequence[Verdict], alpha: float = ALPHA) -> Figure:
    """Clean accuracy on the left, robust accuracy and costs on the right, a row each.

    alpha: the level that the verdicts were judged at.
    """
    lines = {kind: found for kind in _AXES if (found := _lines(verdicts, kind))}
    if not lines:
        return empty("no claim of the paper has results in this study yet")
    columns = [[kind for kind in side if kind in lines] for side in (["clean"], ["robust", "cost"])]
    columns = [column for column in columns if column]
    tall = max(sum(ROW * len(lines[kind]) + _FOOT for kind in column) for column in columns)
    rows = [line.row for found in lines.values() for line in found if line.row]
    handles, wide = _handles(rows, alpha), 5 if len(columns) > 1 else 2
    room = 0.1 + _LEGEND * math.ceil(len(handles) / wide)
    with style(**{"font.size": 6.5, "axes.labelsize": 7}):
        figure = Figure(figsize=(_COLUMN * len(columns), tall + room))
        for place, column in enumerate(columns):
            top = tall + room - 0.05
            for kind in column:
                height = ROW * len(lines[kind])
                _draw(_axes(figure, place, top - height, height), lines[kind], kind)
                top -= height + _FOOT
        figure.legend(handles=handles, loc="lower center", ncols=min(len(handles), wide))
    return figure


def _axes(figure: Figure, place: int, bottom: float, height: float) -> Axes:
    """Axes at a place given in inches: labels and claims need the same room in all of them."""
    width, tall = figure.get_size_inches()
    left = place * _COLUMN + _LABELS
    size = _COLUMN - _LABELS - 0.12
    return figure.add_axes((left / width, bottom / tall, size / width, height / tall))


def _kind(row: ClaimRow) -> str:
    """Which axis a row is on; shares, which have no interval, are on none."""
    return "cost" if row.unit == "ratio" else row.measure


def _lines(verdicts: Sequence[Verdict], kind: str) -> list[Line]:
    lines: list[Line] = []
    for verdict in verdicts:
        rows = [row for row in verdict.evidence if _kind(row) == kind and row.status != "missing"]
        if rows:
            text = f"{verdict.claim.says} [{verdict.verdict}]"
            colour = _VERDICT_COLOURS[verdict.verdict]
            lines += [Line(line, colour) for line in textwrap.wrap(text, _WRAP)]
            lines += [Line(_label(row, rows), row=row) for row in rows]
            lines += _means(verdict, rows)
    return lines


def _means(verdict: Verdict, rows: Sequence[ClaimRow]) -> list[Line]:
    """The headline of each contrast that has more than one row, under its rows."""
    first = {contrast_label(row): row for row in reversed(rows) if row.role == "claim"}
    chosen = [one for one in verdict.headlines if one.rows > 1 and one.label in first]
    lines = []
    for one in chosen:
        row = first[one.label]
        names = f", {method_name(row.a)} − {method_name(row.b)}" if len(chosen) > 1 else ""
        shown = ("estimate", "low", "high", "published")
        mean = replace(row, **{key: getattr(one, key) for key in shown}, status=_MEAN)
        lines.append(Line(f"mean{names}", row=mean))
    return lines


def _label(row: ClaimRow, rows: Sequence[ClaimRow]) -> str:
    """The dataset, and as much more as tells the rows of one claim apart."""
    label = dataset_name(row.dataset)
    if len({other.model for other in rows}) > 1:
        label += f", {model_name(row.model)}"
    if row.unit == "ratio":
        label += f", {_COSTS.get(row.measure, row.measure)}"
    elif len({(other.a, other.b) for other in rows}) > 1:
        label += f", {method_name(row.a)} − {method_name(row.b)}"
    if row.against:
        label += f" − {dataset_name(row.against)}"
    return label + (f" ({row.ratio:g}×)" if row.role == "size" else "")


def _draw(axis: Axes, lines: Sequence[Line], kind: str) -> None:
    limits = _limits([line.row for line in lines if line.row], kind)
    axis.set(xlim=limits, ylim=(len(lines) - 0.5, -0.5), xlabel=_AXES[kind])
    axis.axvline(1.0 if kind == "cost" else 0.0, color="#444444", lw=0.7, zorder=1)
    axis.grid(axis="y", visible=False)
    axis.spines["left"].set_visible(False)
    axis.set_yticks(range(len(lines)), [line.text if line.row else "" for line in lines])
    axis.tick_params(axis="y", length=0)
    for place, line in enumerate(lines):
        if line.row:
            _draw_row(axis, place, line.row, limits)
        else:
            _draw_text(axis, place, line)


def _draw_text(axis: Axes, place: int, line: Line) -> None:
    """A claim's words across the labels and the axis, on white so that no line crosses them."""
    axis.annotate(
        line.text, (0, place), xycoords=("axes fraction", "data"),
        xytext=(-72 * (_LABELS - 0.05), 0), textcoords="offset points", va="center",
        color=line.colour, fontweight="bold", zorder=5,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8}, annotation_clip=False,
    )  # fmt: skip


def _draw_row(axis: Axes, place: int, row: ClaimRow, limits: tuple[float, float]) -> None:
    start, end = (row.threshold, limits[1]) if row.side > 0 else (limits[0], row.threshold)
    axis.barh(place, end - start, left=start, height=0.86, color=CLAIMED, zorder=0)
    if math.isfinite(row.low):
        axis.plot([row.low, row.high], [place, place], color="black", lw=1.1, zorder=2)
    if math.isfinite(row.published):
        axis.plot(row.published, place, marker="D", ms=3.2, mfc="none", mec="#CC79A7", zorder=3)
    axis.plot(
        row.estimate, place, marker="s" if row.status == _MEAN else "o", ms=3.6,
        mfc=_FACES[row.status], mec="black", mew=0.8, zorder=4, clip_on=True,
    )  # fmt: skip


def _limits(rows: Sequence[ClaimRow], kind: str) -> tuple[float, float]:
    """All estimates and the paper's differences; intervals may run out of the picture."""
    centre = 1.0 if kind == "cost" else 0.0
    values = [v for row in rows for v in (row.estimate, row.threshold, row.published)]
    ends = [v for row in rows for v in (row.low, row.high)]
    reach = max((abs(v - centre) for v in values if math.isfinite(v)), default=1.0)
    wide = max((abs(v - centre) for v in ends if math.isfinite(v)), default=0.0)
    reach = max(1.15 * reach, min(1.05 * wide, 2 * reach), 1e-3)
    return max(centre - reach, 0.0) if kind == "cost" else centre - reach, centre + reach


def _handles(rows: Sequence[ClaimRow], alpha: float) -> list[Line2D | Patch]:
    """The legend: of what is drawn only where there is some of it."""

    def dot(status: str, label: str, marker: str = "o") -> Line2D:
        face = _FACES[status]
        return Line2D([], [], color="black", marker=marker, ms=4, mfc=face, lw=1.1, label=label)

    statuses = {row.status for row in rows}
    handles: list[Line2D | Patch] = [
        dot("supported", f"supported (p < {alpha:.2g})"),
        dot("undecided", "undecided"),
        dot("opposed", f"the other way (Holm p < {alpha:.2g})"),
    ]
    if NO_ROOM in statuses:
        handles.append(dot(NO_ROOM, NO_ROOM))
    if _MEAN in statuses:
        handles.append(dot(_MEAN, "mean of the rows", "s"))
    if any(math.isfinite(row.published) for row in rows):
        handles.append(
            Line2D([], [], ls="", marker="D", ms=4, mfc="none", mec="#CC79A7", label="paper")
        )
    return [*handles, Patch(color=CLAIMED, label="claimed side")]
