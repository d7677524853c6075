"""How likely a study is to reproduce each claim, if the paper is right, and what that costs."""

from __future__ import annotations

from pathlib import Path

from tnfdt.plan.forecast import hours
from tnfdt.study.machine import Machine
from tnfdt.study.products import CLAIMS, PUBLISHED
from tnfdt.study.study import Study
from tnfdt.verdicts.claims import load_claims
from tnfdt.verdicts.power import SEEDS, study_power
from tnfdt.verdicts.published import load_published, published_values

_IMAGES = 10_000  # test images of the paper's datasets; SVHN has more


def power(study: Study, machine: Machine, gpu: str | None, figure: Path | None) -> str:
    """Claim by claim, the chance to reproduce it if the paper is right, and what it costs."""
    published = published_values(load_published(PUBLISHED))
    images = study.attack.limit or _IMAGES
    powers = study_power(load_claims(CLAIMS), published, images)
    costs = {seeds: hours(study, machine, seeds, gpu=gpu) for seeds in SEEDS}
    if figure is not None:
        from tnfdt.figures.power import power_over_hours
        from tnfdt.figures.style import save

        save(power_over_hours(powers, costs), figure.with_suffix(""))
    head = f"P(reproduced) at the paper's effects and SDs, {images:,} test images; in brackets the"
    lines = [f"{head} smallest effect seen with 80 % power, in points", ""]
    lines.append(f"{'seeds':22}" + "".join(f"{seeds:>15}" for seeds in SEEDS))
    lines.append(f"{'hours of one device':22}" + "".join(f"{costs[n]:>15,.3g}" for n in SEEDS))
    for claim in dict.fromkeys(power.claim for power in powers):
        found = [power for power in powers if power.claim == claim]
        cells = (f"{100 * p.reproduced:.0f} % ({p.smallest:.2f})" for p in found)
        lines.append(f"{claim:22}" + "".join(f"{cell:>15}" for cell in cells))
    return "\n".join(lines)
