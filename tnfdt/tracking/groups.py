"""The run of a group: mean and SD over the seeds of one dataset × model × method.

A group is made of the views of its cells and of nothing else, so it is rebuilt as they are. It
averages the seeds that are trained as the last of them was, and shows a point where each of these
has it: a mean never mixes recipes, nor seeds that are attacked with seeds that are not, or that
are attacked in another way.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

from tnfdt.files.journal import PROVENANCE
from tnfdt.study.paths import Cell
from tnfdt.tracking.points import Point, attack_keys
from tnfdt.tracking.view import CELL_TAG, RunView, group_name, run_tags, span

SD = "sd/"


def group_view(study: str, cells: Sequence[Cell], views: Sequence[RunView]) -> RunView:
    """The parent run of `views`, which are those of `cells`."""
    done = averaged(views)
    return RunView(
        key=cells[0].row,
        name=group_name(cells[0]),
        **span(views),
        params=_shared(done or views),
        tags=_tags(study, cells, done),
        points=tuple(_points(done)),
    )


def averaged(views: Sequence[RunView]) -> list[RunView]:
    """The finished seeds of one recipe, that of the latest: others are of an edited study, and
    its tables leave them out."""
    done = [view for view in views if view.complete]
    latest = max(done, key=lambda view: view.end or 0, default=None)
    return [view for view in done if latest and view.recipe == latest.recipe]


def _shared(views: Sequence[RunView]) -> dict[str, str]:
    """The settings that all seeds have; where they ran is their own."""
    first, *rest = (view.params for view in views)
    return {
        key: value
        for key, value in first.items()
        if key.partition(".")[0] not in (*PROVENANCE, "seed")
        and all(params.get(key) == value for params in rest)
    }


def _tags(study: str, cells: Sequence[Cell], done: Sequence[RunView]) -> dict[str, str]:
    keys = {view.key for view in done}
    seeds = sorted(cell.seed for cell in cells if cell.path in keys)
    own = {key: value for key, value in run_tags(study, cells[0]).items() if key != "seed"}
    named = {CELL_TAG: cells[0].row, "mlflow.source.name": "tnfdt track"}
    return {**own, **named, "seeds": " ".join(map(str, seeds))}


def _points(views: Sequence[RunView]) -> Iterator[Point]:
    """Mean and SD (ddof 1; none of a single seed) of each point that all views have, at the time
    of the last of them."""
    placed = [{(point.key, point.step): point for point in view.points} for view in views]
    first, *rest = placed or [{}]
    mixed = _mixed(views)
    for place in first:
        if place[0] in mixed or not all(place in points for points in rest):
            continue
        same = [points[place] for points in (first, *rest)]
        values, time = [point.value for point in same], max(point.timestamp for point in same)
        yield Point(*place, time, statistics.fmean(values))
        if rest:
            yield Point(SD + place[0], place[1], time, statistics.stdev(values))


def _mixed(views: Sequence[RunView]) -> set[str]:
    """The metrics of those attacks that the seeds do not have with the same settings."""
    made = {attack for view in views for attack in view.attacks.items()}
    count = Counter(stem for stem, _ in made)
    return {key for stem in count if count[stem] > 1 for key in attack_keys(stem)}
