"""The files of tables/: the content of each, and how they are written.

Every file is written whole and depends on the records alone: the same records give the same
bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path

import pandas as pd

from tnfdt.evidence import ledger
from tnfdt.evidence.contrasts import significance
from tnfdt.evidence.results import Results
from tnfdt.files.atomic import atomic_path
from tnfdt.study.paths import Cell
from tnfdt.study.study import Study
from tnfdt.tables import latex
from tnfdt.tables.claims import claims_json, claims_markdown, claims_page, evidence_page, setting
from tnfdt.tables.comparison import comparison_frame, comparison_grid
from tnfdt.tables.grid import html_page, markdown
from tnfdt.tables.paper import column, csv_text, table_frame, table_grid
from tnfdt.verdicts.judge import Verdict
from tnfdt.verdicts.looks import level
from tnfdt.verdicts.multiverse import NONE, Readings

SMALL = "scriptsize"  # wide tables on a landscape page

Texts = dict[str, str]  # file name: content


def table_texts(
    everything: Results,
    published: pd.DataFrame,
    verdicts: Sequence[Verdict],
    readings: Readings = NONE,
) -> Texts:
    """The content of every file in tables/, from all records there are; `readings` is what other
    readings of the paper say of the claims."""
    results = everything.own()
    tested = significance(results)
    compared = comparison_frame(results, published)
    grids = {table: table_grid(results, table, tested) for table in results.grid}
    beside = [comparison_grid(compared, table, results.epsilons) for table in results.grid]
    frames = {table: table_frame(results, table) for table in results.grid}
    tex = {table: latex.table(grid) for table, grid in grids.items()}
    tex["comparison"] = "\n".join(latex.table(g, size=SMALL, stretch=1.0) for g in beside)
    sources = pd.DataFrame(list(_sources(everything)), columns=SOURCES)
    return {
        **{f"{name}.tex": text for name, text in tex.items()},
        **{f"{table}.md": markdown(grid) for table, grid in grids.items()},
        **{f"{table}.html": html_page(grid) for table, grid in grids.items()},
        **{f"{table}.csv": csv_text(frame) for table, frame in frames.items()},
        "comparison.md": "\n".join(map(markdown, beside)),
        "comparison.html": html_page(*beside),
        "comparison.csv": csv_text(compared),
        "significance.csv": csv_text(_readable(tested), decimals=6),
        "tables.tex": latex.document(list(tex.values()), also=_also(results.study)),
        **_claim_texts(verdicts, results, published, readings),
        results.paths.ledger.name: ledger.text(results),
        results.paths.sources.name: csv_text(sources),
    }


def _also(study: Study) -> list[str]:
    """Tables of other rules that the document takes in where they are made."""
    return ["audit.tex", *(["multiverse.tex"] if study.multiverse.include else [])]


def _readable(tested: pd.DataFrame) -> pd.DataFrame:
    """Epsilons as they are written everywhere else, not with six decimals."""
    names = ["" if pd.isna(epsilon) else f"{epsilon:g}" for epsilon in tested["epsilon"]]
    return tested.assign(epsilon=names)


def _claim_texts(
    verdicts: Sequence[Verdict], results: Results, published: pd.DataFrame, readings: Readings
) -> Texts:
    study, scale = results.study, setting(results.study, published)
    values, alpha = claims_json(verdicts, study, readings), level(study.looks)
    title = f"Claims: study {study.name}"
    return {
        "claims.md": claims_markdown(verdicts, title, scale, readings, alpha),
        results.paths.claims.name: json.dumps(values, indent=2, ensure_ascii=False) + "\n",
        "claims.html": claims_page(verdicts, study.name, scale, readings, alpha),
        "evidence.html": evidence_page(verdicts, scale, alpha),
    }


SOURCES = ["table", "dataset", "model", "method", "column", "seed", "file", "sha256"]
_READINGS = "multiverse"  # the table whose numbers those of other readings are behind


def _sources(results: Results) -> Iterator[Mapping[str, object]]:
    """Which files every number of a table comes from, with their hashes."""
    sha256 = cache(results.sha256)  # readings share trainings
    for (table, cell), epsilon in product(_placed(results), (None, *results.epsilons)):
        network = results.study.trained_as(cell) if epsilon is None else cell
        for path in results.sources(network, epsilon):
            place = (table, *cell[:3], column(epsilon), cell.seed)
            name = path.relative_to(results.folder).as_posix()
            yield dict(zip(SOURCES, (*place, name, sha256(path)), strict=True))


def _placed(results: Results) -> Iterator[tuple[str, Cell]]:
    """The cells of each table; those of other readings where the study includes them."""
    study = results.study
    yield from ((table, cell) for table, cells in study.grid.items() for cell in cells)
    yield from ((_READINGS, cell) for cell in study.variants if study.multiverse.include)


def write(folder: Path, texts: Texts) -> list[Path]:
    for name, text in texts.items():
        with atomic_path(folder / name) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return [folder / name for name in texts]
