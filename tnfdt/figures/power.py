"""What certainty costs: the chance to reproduce each claim, over the hours of its seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from tnfdt.figures.style import WIDTH, new_figure, style
from tnfdt.verdicts.power import Power

_ALREADY = 0.95  # at the fewest seeds: a line along the top tells nothing


def power_over_hours(powers: Sequence[Power], hours: Mapping[int, float]) -> Figure:
    """A line per claim that more seeds can still help, labelled at its end."""
    lines: dict[str, list[Power]] = {}
    for power in powers:
        lines.setdefault(power.claim, []).append(power)
    shown = {name: points for name, points in lines.items() if points[0].reproduced < _ALREADY}
    with style():
        figure = new_figure(WIDTH, 3.6)
        axis = figure.subplots()
        for number, (name, points) in enumerate(shown.items()):
            at, chances = [hours[p.seeds] for p in points], [p.reproduced for p in points]
            marker, line = "os^Dv"[number % 5], "-" if number < 10 else "--"
            axis.plot(at, chances, line, marker=marker, label=name)
        axis.set_xticks([*hours.values()], [f"{h:.3g} h\n{n} seeds" for n, h in hours.items()])
        axis.set_ylim(-0.02, 1.02)
        axis.set_ylabel("P(reproduced) if the paper is right")
        axis.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=7)
    return figure
