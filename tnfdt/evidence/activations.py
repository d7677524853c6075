"""The shares counted in trained networks (tnfdt/audit/activations.py), read and checked."""

from __future__ import annotations

from typing import Any

from tnfdt.evidence.results import Results
from tnfdt.files.atomic import read_json
from tnfdt.study.outputs import measured_cells
from tnfdt.study.schema import UserError

Place = tuple[str, str, str]  # dataset, model, method


def read_shares(results: Results) -> dict[Place, float]:
    """By network; what was counted in weights that were trained again since is left out."""
    path = results.paths.activations
    if not path.is_file():
        return {}
    cells = _cells(read_json(path))
    if cells is None:
        raise UserError(f"{path} is damaged; delete it and run `tnfdt tables`")
    return {
        (cell.dataset, cell.model, cell.method): float(cells[cell.path]["share"])
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
