"""Stage 4 as Snakemake and the command line run it: records in, tables, figures and audit out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd

from tnfdt.evidence import ledger
from tnfdt.evidence.activations import read_shares
from tnfdt.evidence.audits import autoattack_shares, read_audits
from tnfdt.evidence.read import load_results
from tnfdt.evidence.results import Results
from tnfdt.evidence.statistics import ALPHA
from tnfdt.study.machine import Machine
from tnfdt.study.outputs import CLAIMS, PUBLISHED, measured_cells
from tnfdt.study.schema import UserError, read_yaml
from tnfdt.study.study import Study, find_study, study_from_dict
from tnfdt.tables.audit import audit_texts
from tnfdt.tables.multiverse import multiverse_texts
from tnfdt.tables.summary import lab_texts, summary_page, summary_text
from tnfdt.tables.write import table_texts, write
from tnfdt.verdicts.claims import load_claims
from tnfdt.verdicts.costs import Shares
from tnfdt.verdicts.judge import Verdict, evaluate
from tnfdt.verdicts.looks import look_alpha
from tnfdt.verdicts.multiverse import outcomes
from tnfdt.verdicts.published import load_published

PARTS = ("activations", "tables", "figures", "audit", "summary")
MULTIVERSE = "multiverse"  # made only where it is asked for


@dataclass(frozen=True, kw_only=True)
class Material:
    """A study's results and what they are judged by, from its folder or from a bundle."""

    results: Results
    claims: Path
    published: Path
    paper: Path  # the paper's own study, whose regime a verdict on it needs
    labs: Mapping[str, Sequence[str]] = field(default_factory=dict)  # cells by the lab's name
    pictures: bool = True  # images and networks are at hand, for the figures that show them


def load(
    study: Study,
    results_dir: Path,
    machine: Machine,
    *,
    attacks: bool = True,
    variants: bool = False,
) -> Material:
    """What the study's folder has; `attacks` and `variants` as in load_results."""
    results = load_results(study, results_dir, machine, attacks=attacks, variants=variants)
    results = replace(results, study=_at_complete_look(results))
    return Material(results=results, claims=CLAIMS, published=PUBLISHED, paper=find_study("paper"))


def _at_complete_look(results: Results) -> Study:
    """The study at the last look whose results are all there: its level is what counts."""
    study, looks = results.study, results.study.looks
    if looks.look > 1 and not results.is_complete:
        return replace(study, looks=replace(looks, look=looks.look - 1))
    return study


def run(
    study: Study, results_dir: Path, machine: Machine, parts: Sequence[str] | None = None
) -> list[Path]:
    """Make what can be made of the records that are there; returns the files written.

    parts: some of PARTS; by default all, the audit only where the study has one.
    """
    if parts is not None and MULTIVERSE in parts:
        return _write_multiverse(load(study, results_dir, machine, variants=True))
    # The audit's table and the activations need the trainings alone: their rules ask for no attack.
    attacks = parts is None or not {*parts} <= {"audit", "activations"}
    material = load(study, results_dir, machine, attacks=attacks)
    _keep_what_is_known(material.results)
    return make(material, parts)


def make(material: Material, parts: Sequence[str] | None = None) -> list[Path]:
    """Write tables, figures, audit and summary into the folder of the results."""
    results = material.results
    if parts is None:
        audited = results.study.audit.include or results.paths.stage("audit").is_dir()
        parts = [part for part in PARTS if audited or part != "audit"]
    # Everything is read and judged before the first file is written: a bad record changes nothing.
    audits = read_audits(results) if {"audit", "summary"} & {*parts} else pd.DataFrame()
    if "figures" in parts:
        for cell in results.trained:
            results.history(cell)
    judged = {*parts} - {"activations", "audit"}
    if judged:
        load_claims(material.claims)
        load_published(material.published)
    written = _measured(results) if "activations" in parts else []
    if judged:
        written += _write_judged(material, parts)
    return written + (_write_audit(results, audits) if "audit" in parts else [])


def _keep_what_is_known(results: Results) -> None:
    """Tables may come without their records, as a committed study's do: they are not emptied."""
    kept = results.folder / ledger.NAME
    if not results.trained and not results.outdated and ledger.cells(kept):
        raise UserError(
            f"{kept.parent} was made from records that are not here; "
            f"run study {results.study.name}, or delete the folder for empty tables"
        )


def _measured(results: Results) -> list[Path]:
    if not any(results.paths.weights(cell).is_file() for cell in measured_cells(results.study)):
        return []
    from tnfdt.audit.activations import measure

    written = measure(results.study, results.folder)
    return [written] if written else []


def _shares(results: Results) -> Shares:
    """What was counted in trained networks, by quantity and epsilon."""
    return {("enlarged_activations", None): read_shares(results)} | {
        ("autoattack_accuracy", epsilon): places
        for epsilon, places in autoattack_shares(results).items()
    }


def judge(material: Material, *, counted: bool = True) -> tuple[pd.DataFrame, list[Verdict]]:
    """The published numbers, and the verdicts on all claims; no figure needs what is counted."""
    published = load_published(material.published)
    paper = study_from_dict(read_yaml(material.paper), name="paper", where=str(material.paper))
    claims, shares = load_claims(material.claims), _shares(material.results) if counted else {}
    looks = material.results.study.looks
    alpha = look_alpha(looks.planned, looks.seeds) if looks.planned else ALPHA
    return published, evaluate(claims, material.results, published, paper, shares, alpha)


def _write_judged(material: Material, parts: Sequence[str]) -> list[Path]:
    """Tables, figures and summary, from one judgement of the claims."""
    counted = {*parts} != {"figures"}
    results, (published, verdicts) = material.results, judge(material, counted=counted)
    written: list[Path] = []
    if "tables" in parts:
        texts = table_texts(results, published, verdicts) | lab_texts(results, material.labs)
        written += write(results.folder / "tables", texts)
    if "figures" in parts:
        from tnfdt.figures import write as figures

        written += figures.write(results, published, verdicts, pictures=material.pictures)
    if "summary" in parts:
        text = summary_text(results, published, verdicts, material.labs)
        written += write(results.folder, {results.paths.summary.name: text})
        written += write(results.folder / "tables", {"summary.html": summary_page(text)})
    return written


def _write_multiverse(material: Material) -> list[Path]:
    """The table of the readings and their specification curves."""
    from tnfdt.figures.readings import specification_curves
    from tnfdt.figures.style import save

    results = material.results
    found = outcomes(results, lambda one: judge(replace(material, results=one))[1])
    written = write(results.folder / "tables", multiverse_texts(found))
    return written + save(specification_curves(found), results.folder / "figures" / "readings")


def _write_audit(results: Results, frame: pd.DataFrame) -> list[Path]:
    cells = frame[["dataset", "model", "method", "seed"]].drop_duplicates()
    missing = len(results.study.audited()) - len(cells)
    texts = audit_texts(frame, results.study, missing)
    written = write(results.folder / "tables", texts)
    from tnfdt.figures.audit import audit_bars
    from tnfdt.figures.style import save

    return written + save(audit_bars(frame), results.folder / "figures" / "audit_bars")
