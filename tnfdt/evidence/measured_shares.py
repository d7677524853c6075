"""Shares counted in trained networks, by quantity and epsilon, for the claims on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tnfdt.evidence.audits import read_audits
from tnfdt.evidence.results import Results
from tnfdt.files.atomic import read_json
from tnfdt.study.products import measured_cells
from tnfdt.study.schema import UserError

AUTOATTACK = "autoattack_accuracy"


class Share(NamedTuple):
    """The mean of what was counted in the networks of these seeds."""

    value: float
    seeds: tuple[int, ...]


Places = dict[tuple[str, str, str], Share]  # by dataset, model and method
Shares = Mapping[tuple[str, float | None], Places]  # by quantity and epsilon


def read_shares(results: Results) -> Shares:
    """All that was counted in the weights that are there now."""
    left = autoattack_shares(results)
    return {
        ("enlarged_activations", None): activation_shares(results),
        **{(AUTOATTACK, epsilon): places for epsilon, places in left.items()},
    }


def activation_shares(results: Results) -> Places:
    """Of enlarged activations (tnfdt/audit/activations.py); none of weights trained again since."""
    path = results.paths.activations
    if not path.is_file():
        return {}
    cells = _cells(read_json(path))
    if cells is None:
        raise UserError(f"{path} is damaged; delete it and run `tnfdt tables`")
    return {
        cell[:3]: Share(float(cells[cell.path]["share"]), (cell.seed,))
        for cell in measured_cells(results.study)
        if cell in results.trained
        and cells.get(cell.path, {}).get("model_sha256") == results.trained[cell]["model_sha256"]
    }


def _cells(value: Any) -> dict[str, Any] | None:
    """The entries of the file, None if they are not what they should be."""
    cells = value.get("cells") if isinstance(value, dict) else None
    if not isinstance(cells, dict):
        return None
    whole = all(
        isinstance(entry, dict)
        and isinstance(entry.get("share"), float | int)
        and 0 <= entry["share"] <= 1
        and "model_sha256" in entry
        for entry in cells.values()
    )
    return cells if whole else None


def autoattack_shares(results: Results) -> dict[float, Places]:
    """By epsilon, what AutoAttack leaves of each network: the mean over the audited seeds."""
    if results.study.audit.autoattack is None:
        return {}
    judged = read_audits(results).dropna(subset=["autoattack"])
    found: dict[float, Places] = {}
    for key, lines in judged.groupby(["epsilon", "dataset", "model", "method"], sort=False):
        epsilon, dataset, model, method = map(str, key)
        shares = found.setdefault(float(epsilon), {})
        seeds = tuple(sorted({int(seed) for seed in lines["seed"]}))
        left = float(lines["autoattack"].mean()) / 100
        shares[dataset, model, method] = Share(left, seeds)
    return found
