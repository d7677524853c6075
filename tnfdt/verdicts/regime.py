"""Is a row measured in the paper's regime? A matter of design, never of outcome.

The paper's regime is its network, the complete dataset, its recipe and its attack as they are
in config/studies/paper.yaml. How the paper's open points are read (`interpretation`) is no part
of it, nor are the machine, the seeds, or the set of epsilons.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from tnfdt.study.names import dataset_name, model_name
from tnfdt.study.study import Study
from tnfdt.verdicts.hypotheses import ClaimRow

PAPER, SCALED, ANY = "paper", "scaled", "any"

_INTERPRETED = ("interpretation", "own", "target")  # of a method
_ATTACK = ("steps", "rel_stepsize", "limit")
_IMAGES = {"train": "training images", "test": "test images"}


def regime(row: ClaimRow, study: Study, paper: Study | None) -> tuple[str, tuple[str, ...]]:
    """The regime of a row, "" if it is not planned, and in words what is not as in the paper."""
    if not row.planned:
        return "", ()
    if row.measure == "parameters":
        return ANY, ()  # a count is the same in every regime
    if paper is None:
        return SCALED, ()
    found = tuple(_differences(row, study, paper))
    return (SCALED if found else PAPER), found


def study_differences(study: Study, paper: Study) -> list[str]:
    """In words, what is not as in the paper anywhere in a study."""
    found = [
        f"{table}: {text}"
        for table, cells in study.grid.items()
        for model in dict.fromkeys(cell.model for cell in cells)
        for text in _model(table, model, paper)
    ]
    for dataset in study.grid_datasets:
        found += _dataset(dataset, study, paper)
    for method in study.methods:
        found += _method(method, study, paper)
    found += [*_changed(asdict(study.training), asdict(paper.training)), *_attack(study, paper)]
    return list(dict.fromkeys(found))


def _differences(row: ClaimRow, study: Study, paper: Study) -> Iterator[str]:
    yield from _model(row.table, row.model, paper)
    for dataset in filter(None, (row.dataset, row.against)):
        yield from _dataset(dataset, study, paper)
    yield from _changed(asdict(study.training), asdict(paper.training))
    for method in filter(None, (row.a, row.b)):
        yield from _method(method, study, paper)
    if row.measure == "robust":
        yield from _attack(study, paper)


def _model(table: str, model: str, paper: Study) -> Iterator[str]:
    names = {cell.model for cell in paper.grid.get(table, ())}
    if model not in names:
        yield f"{model_name(model)} (the paper: {_joined(names)})"


def _attack(study: Study, paper: Study) -> Iterator[str]:
    pair = [{key: asdict(s.attack)[key] for key in _ATTACK} for s in (study, paper)]
    limits = [f"{one.pop('limit') or 'all'}" for one in pair]
    if limits[0] != limits[1]:
        yield f"{limits[0]} images attacked (the paper: {limits[1]})"
    yield from _changed(*pair)


def _joined(models: set[str]) -> str:
    return " and ".join(map(model_name, sorted(models))) or "no such table"


def _dataset(name: str, study: Study, paper: Study) -> Iterator[str]:
    if name not in paper.datasets:
        yield f"{dataset_name(name)} (not in the paper)"
        return
    ours, papers = study.datasets[name], paper.datasets[name]
    for split, text in _IMAGES.items():
        count, complete = getattr(study.limit, split), getattr(paper.limit, split)
        if count != complete:
            yield f"{count or 'all':,} {text} (the paper: {complete or 'all'})"
    if ours.path or ours.sample:
        yield f"{'a sample' if ours.sample else 'a file'} of {dataset_name(name)}"
    if (ours.augment, ours.mean) != (papers.augment, papers.mean):
        yield f"other augmentation or mean of {dataset_name(name)}"


def _method(name: str, study: Study, paper: Study) -> Iterator[str]:
    """The paper's methods by their switches; those the paper does not have cannot differ."""
    if name not in paper.methods:
        return
    ours, papers = (
        {
            key: bool(value) if key == "blend" else value
            for key, value in asdict(s.methods[name]).items()
            if key not in _INTERPRETED
        }
        | {"distribution": s.methods[name].target == "distribution"}
        for s in (study, paper)
    )
    if ours != papers:
        yield f"another {name}"


def _changed(ours: dict[str, object], papers: dict[str, object]) -> Iterator[str]:
    for key, value in papers.items():
        if ours.get(key) != value:
            yield f"{key.replace('_', ' ')} {ours.get(key)} (the paper: {value})"
