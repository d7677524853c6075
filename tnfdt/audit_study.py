"""The audit's table and bars at the edge: records in, files out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from tnfdt import latex
from tnfdt.audit_tables import audit_bars, audit_grid
from tnfdt.config import Study, UserError
from tnfdt.layout import html_page, markdown
from tnfdt.plotting import save
from tnfdt.records import read_record
from tnfdt.results import Results
from tnfdt.tables import csv_text

Texts = dict[str, str]


def read_audits(results: Results) -> pd.DataFrame:
    """All audits that are there and belong to the weights that are there now."""
    from tnfdt.audit import COLUMNS

    frames = list(_frames(results))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=[*COLUMNS])


def _frames(results: Results) -> Iterator[pd.DataFrame]:
    from tnfdt.audit import audit_table

    for cell in results.study.audited():
        path, training = results.folder / "audit" / cell.path / "audit.json", results.record(cell)
        if training is None or not path.is_file():
            continue
        record = read_record(path, stage="audit", study=results.study.name, cell=cell)
        if record.get("config") != results.study.audit_slice():
            continue
        if record.get("model_sha256") != training.get("model_sha256"):
            continue
        try:
            yield _numbers(audit_table([record]))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise UserError(f"{path} is not an audit ({error!r}); delete it, audit again") from None


def _numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """All columns but names as floats; raises where one is no number."""
    names = ("dataset", "model", "method", "badge")
    frame["images"] = frame["images"].astype(int)
    return frame.astype({key: float for key in frame.columns if key not in names})


def audit_texts(frame: pd.DataFrame, study: Study, missing: int) -> Texts:
    """audit.tex, .md and .html with a table per epsilon, and audit.csv with every cell."""
    epsilons, black_box = sorted(study.attack.epsilons, reverse=True), study.audit.black_box
    grids = [audit_grid(frame, epsilon, missing, black_box) for epsilon in epsilons]
    readable = frame.assign(epsilon=[f"{epsilon:g}" for epsilon in frame["epsilon"]])
    return {
        "audit.tex": "\n".join(latex.table(grid, size="footnotesize") for grid in grids),
        "audit.md": "\n".join(map(markdown, grids)),
        "audit.html": html_page(*grids),
        "audit.csv": csv_text(readable),
    }


def write_figure(frame: pd.DataFrame, folder: Path) -> list[Path]:
    return save(audit_bars(frame), folder / "audit_bars")
