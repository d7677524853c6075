"""Stage 4 as Snakemake and the command line run it: records in, tables, figures and audit out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from tnfdt.evidence import ledger
from tnfdt.evidence.audits import read_audits
from tnfdt.evidence.read import load_results
from tnfdt.evidence.results import Results
from tnfdt.study.machine import Machine
from tnfdt.study.outputs import CLAIMS, PUBLISHED
from tnfdt.study.schema import UserError
from tnfdt.study.study import Study
from tnfdt.tables.audit import audit_texts
from tnfdt.tables.write import table_texts, write
from tnfdt.verdicts.claims import load_claims
from tnfdt.verdicts.judge import evaluate
from tnfdt.verdicts.published import load_published

PARTS = ("tables", "figures", "audit")


def run(
    study: Study, results_dir: Path, machine: Machine, parts: Sequence[str] | None = None
) -> list[Path]:
    """Make what can be made of the records that are there; returns the files written.

    parts: some of PARTS; by default all, the audit only where the study has one.
    """
    if parts is None:
        audited = study.audit.include or (results_dir / study.name / "audit").is_dir()
        parts = PARTS if audited else PARTS[:2]
    # The audit's table needs the trainings alone: its rule asks for no attack.
    results = load_results(study, results_dir, machine, attacks={*parts} != {"audit"})
    _keep_what_is_known(results)
    # Everything is read and judged before the first file is written: a bad record changes nothing.
    audits = read_audits(results) if "audit" in parts else None
    if "figures" in parts:
        for cell in results.trained:
            results.history(cell)
    written: list[Path] = []
    if {"tables", "figures"} & {*parts}:
        written += _write_judged(results, parts)
    return written + (_write_audit(results, audits) if audits is not None else [])


def _keep_what_is_known(results: Results) -> None:
    """Tables may come without their records, as a committed study's do: they are not emptied."""
    kept = results.folder / ledger.NAME
    if not results.trained and not results.outdated and ledger.cells(kept):
        raise UserError(
            f"{kept.parent} was made from records that are not here; "
            f"run study {results.study.name}, or delete the folder for empty tables"
        )


def _write_judged(results: Results, parts: Sequence[str]) -> list[Path]:
    """Tables and figures, from one judgement of the claims."""
    published = load_published(PUBLISHED)
    verdicts = evaluate(load_claims(CLAIMS), results, published)
    written: list[Path] = []
    if "tables" in parts:
        texts = table_texts(results, published, verdicts)
        written += write(results.folder / "tables", texts)
    if "figures" in parts:
        from tnfdt.figures import write as figures

        written += figures.write(results, published, verdicts)
    return written


def _write_audit(results: Results, frame: pd.DataFrame) -> list[Path]:
    cells = frame[["dataset", "model", "method", "seed"]].drop_duplicates()
    missing = len(results.study.audited()) - len(cells)
    texts = audit_texts(frame, results.study, missing)
    written = write(results.folder / "tables", texts)
    from tnfdt.figures.audit import audit_bars
    from tnfdt.figures.style import save

    return written + save(audit_bars(frame), results.folder / "figures" / "audit_bars")
