"""Stage 4 as Snakemake and the command line run it: records in, tables, figures and audit out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd

from tnfdt.evidence import ledger
from tnfdt.evidence.audits import outdated_audits, read_audits
from tnfdt.evidence.measured_shares import read_shares
from tnfdt.evidence.read import load_results
from tnfdt.evidence.results import Results
from tnfdt.study.machine import Machine
from tnfdt.study.paths import StudyPaths
from tnfdt.study.products import CLAIMS, PARTS, PUBLISHED, measured_cells
from tnfdt.study.schema import UserError, read_yaml
from tnfdt.study.study import Study, find_study, study_from_dict
from tnfdt.tables.audit import audit_texts
from tnfdt.tables.multiverse import multiverse_texts
from tnfdt.tables.paper import left_out
from tnfdt.tables.summary import lab_texts, summary_page, summary_text
from tnfdt.tables.write import table_texts, write
from tnfdt.verdicts.claims import load_claims, reading_figures
from tnfdt.verdicts.distances import distances
from tnfdt.verdicts.judge import Verdict, judge_claims
from tnfdt.verdicts.looks import level
from tnfdt.verdicts.multiverse import NONE, ReadingOutcome, by_claim, outcomes
from tnfdt.verdicts.published import load_published, published_values

_OF_READINGS = {"tables", "summary", "multiverse"}  # parts that other readings have a place in


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
    results = at_complete_look(results)
    return Material(results=results, claims=CLAIMS, published=PUBLISHED, paper=find_study("paper"))


def at_complete_look(results: Results) -> Results:
    """With the study at the last look whose results are all there: its level is what counts."""
    study, looks = results.study, results.study.looks
    if looks.look == 1 or results.is_complete:
        return results
    return replace(results, study=replace(study, looks=replace(looks, look=looks.look - 1)))


def run(
    study: Study, results_dir: Path, machine: Machine, parts: Sequence[str] | None = None
) -> list[Path]:
    """Make what can be made of the records that are there; returns the files written.

    parts: some of PARTS; by default all, the audit only where the study has one, other readings
    only where it includes them.
    """
    parts = parts or _default_parts(study, StudyPaths(results_dir / study.name))
    # The audit's table and the activations need the trainings alone: their rules ask for no attack.
    attacks = not {*parts} <= {"audit", "activations"}
    variants = _has_readings(study, parts)
    material = load(study, results_dir, machine, attacks=attacks, variants=variants)
    _keep_what_is_known(material.results)
    return make(material, parts)


def _default_parts(study: Study, paths: StudyPaths) -> list[str]:
    audited = study.audit.include or paths.audits.is_dir()
    skipped = {"audit": not audited, "multiverse": not study.multiverse.include}
    return [part for part in PARTS if not skipped.get(part)]


def _has_readings(study: Study, parts: Sequence[str]) -> bool:
    """Whether the parts are made from other readings too; their rules then declare them."""
    return "multiverse" in parts or (study.multiverse.include and bool(_OF_READINGS & {*parts}))


def make(material: Material, parts: Sequence[str] | None = None) -> list[Path]:
    """Write tables, figures, audit and summary into the folder of the results."""
    results = material.results.own()
    parts = parts or _default_parts(results.study, results.paths)
    if "multiverse" in parts and not results.study.multiverse.readings:
        raise UserError(
            f"study {results.study.name} has no other readings; list some in `multiverse`"
        )
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
    kept = results.paths.ledger
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


def judge_study(material: Material, *, counted: bool = True) -> tuple[pd.DataFrame, list[Verdict]]:
    """The published numbers, and the verdicts on all claims; no figure needs what is counted."""
    published, paper = load_published(material.published), _paper(material)
    claims, shares = load_claims(material.claims), read_shares(material.results) if counted else {}
    alpha = level(material.results.study.looks)
    return published, judge_claims(claims, material.results, published, paper, shares, alpha)


def _paper(material: Material) -> Study:
    return study_from_dict(read_yaml(material.paper), name="paper", where=str(material.paper))


def _outcomes(material: Material, own: Sequence[Verdict]) -> list[ReadingOutcome]:
    """The claims under every reading; what was counted in networks is of the study's own."""
    return outcomes(
        material.results,
        own,
        lambda one: judge_study(replace(material, results=one), counted=False)[1],
    )


def _write_judged(material: Material, parts: Sequence[str]) -> list[Path]:
    """Tables, figures, summary and other readings, from one judgement of the claims."""
    counted, results = {*parts} != {"figures"}, material.results.own()
    published, verdicts = judge_study(replace(material, results=results), counted=counted)
    found = _outcomes(material, verdicts) if _has_readings(results.study, parts) else []
    readings = by_claim(found) if results.study.multiverse.include else NONE
    written: list[Path] = []
    if "tables" in parts:
        texts = table_texts(material.results, published, verdicts, readings)
        written += write(results.paths.tables, texts | lab_texts(results, material.labs))
    if "figures" in parts:
        from tnfdt.figures import write as figures

        written += figures.write(results, published, verdicts, pictures=material.pictures)
    if "summary" in parts:
        text = summary_text(material.results, _paper(material), verdicts, material.labs, readings)
        written += write(results.folder, {results.paths.summary.name: text})
        written += write(results.paths.tables, {"summary.html": summary_page(text)})
    if "multiverse" in parts:
        written += _write_multiverse(material, found, published)
    return written


def _write_multiverse(
    material: Material, found: Sequence[ReadingOutcome], published: pd.DataFrame
) -> list[Path]:
    """The tables of the readings, and a specification curve for each claim."""
    from tnfdt.figures.readings import specification_curve
    from tnfdt.figures.style import save

    results, paths = material.results, material.results.paths
    apart = distances(results, published_values(published), _paper(material))
    written = write(paths.tables, multiverse_texts(found, apart))
    for claim, name in reading_figures(load_claims(material.claims), results.study).items():
        written += save(specification_curve(claim, found), paths.figures / name)
    return written


def texts(material: Material) -> dict[str, str]:
    """What a study's records say as text, by its place in the study's folder."""
    results = material.results.own()
    published, verdicts = judge_study(replace(material, results=results))
    included = results.study.multiverse.include
    readings = by_claim(_outcomes(material, verdicts)) if included else NONE
    made = table_texts(material.results, published, verdicts, readings)
    made |= _audit_texts(results, read_audits(results))
    page = summary_text(material.results, _paper(material), verdicts, material.labs, readings)
    return {f"tables/{name}": text for name, text in made.items()} | {
        results.paths.summary.name: page
    }


def _audit_texts(results: Results, frame: pd.DataFrame) -> dict[str, str]:
    cells = frame[["dataset", "model", "method", "seed"]].drop_duplicates()
    missing = len(results.study.audited()) - len(cells)
    notes = left_out(results, outdated_audits(results))
    return audit_texts(frame, results.study, missing, notes)


def _write_audit(results: Results, frame: pd.DataFrame) -> list[Path]:
    written = write(results.paths.tables, _audit_texts(results, frame))
    from tnfdt.figures.audit import audit_bars
    from tnfdt.figures.style import save

    return written + save(audit_bars(frame), results.paths.figures / "audit_bars")
