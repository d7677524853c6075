"""The paper's claims as data: config/claims.yaml, read and checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from tnfdt.study.products import READINGS
from tnfdt.study.schema import UserError, read_yaml, validated
from tnfdt.study.study import Study


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What a claim stands or falls by: a value that lies above (side 1) or below a threshold.

    unit "points": the difference a - ratio * b of accuracies, once per ratio, on the datasets it
    names; `against` are those of b where they are others. unit "ratio": the costs of a over those
    of b, on all datasets of the table. unit "share": something counted in networks of a alone.
    """

    table: str
    measure: str  # metric or quantity in claims.yaml
    unit: str
    a: str
    b: str = ""
    side: int = -1
    threshold: float
    margin: float = 0.0  # points
    epsilon: float | None = None
    ratios: tuple[float, ...] = (1.0,)
    datasets: tuple[str, ...] = ()
    against: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence of the paper and the comparisons that it stands or falls by.

    `ours` marks a question of our own, which is never counted with the paper's.
    """

    id: str
    family: str
    title: str
    says: str
    sentence: str
    section: str
    ours: bool = False
    comparisons: tuple[Comparison, ...]

    @property
    def contrasts(self) -> list[Comparison]:
        """Those of accuracies."""
        return [test for test in self.comparisons if test.unit == "points"]


def load_claims(path: Path) -> list[Claim]:
    """Read and check a claims file; a UserError names file, key and what is allowed."""
    families = validated(read_yaml(path), "claims", str(path))["families"]
    claims = [
        _claim(id_, name, family["title"], entry, f"{path}: families.{name}.claims.{id_}")
        for name, family in families.items()
        for id_, entry in family["claims"].items()
    ]
    for id_, count in Counter(claim.id for claim in claims).items():
        if count > 1:
            raise UserError(f"{path}: claim {id_} stands in {count} families; rename one")
    return claims


def reading_figures(claims: Sequence[Claim], study: Study) -> dict[str, str]:
    """Names of the specification curves by claim: of those that the study plans a row of.

    Known before anything is run, as Snakemake needs it.
    """
    known = {cell[:3] for cell in study.cells}
    return {
        claim.id: f"{READINGS}{claim.id}"
        for claim in claims
        if any(_is_planned(test, study, known) for test in claim.contrasts)
    }


def _is_planned(test: Comparison, study: Study, known: set[tuple[str, str, str]]) -> bool:
    """Whether a study has both sides of a contrast on one of its datasets, under its attack."""
    if test.epsilon is not None and test.epsilon not in study.attack.epsilons:
        return False
    models = {cell.model for cell in study.grid.get(test.table, ())}
    return any(
        (dataset, model, test.a) in known and (other or dataset, model, test.b) in known
        for dataset, model, other in product(test.datasets, models, test.against or ("",))
    )


def _claim(id_: str, family: str, title: str, entry: dict[str, Any], where: str) -> Claim:
    if not (entry["contrasts"] or entry["costs"] or entry["measures"]):
        raise UserError(f"{where}: has nothing to test; give it contrasts, costs or measures")
    for number, test in enumerate(entry["contrasts"]):
        _check_contrast(test, f"{where}.contrasts.{number}")
    for number, test in enumerate(entry["measures"]):
        _check_keys(test, _MEASURE_KEYS, f"{where}.measures.{number}")
    return Claim(
        id=id_,
        family=family,
        title=title,
        **{key: entry[key] for key in ("says", "sentence", "section", "ours")},
        comparisons=(
            *map(_contrast, entry["contrasts"]),
            *map(_cost, entry["costs"]),
            *map(_measure, entry["measures"]),
        ),
    )


def _contrast(test: dict[str, Any]) -> Comparison:
    side = 1 if test["direction"] in ("greater", "not_less") else -1
    margin = test.get("margin") or 0.0
    return Comparison(
        **{key: test[key] for key in ("table", "a", "b")},
        measure=test["metric"],
        unit="points",
        side=side,
        threshold=-side * margin if margin else 0.0,
        margin=margin,
        epsilon=test.get("epsilon"),
        ratios=(1.0, test["ratio"]) if "ratio" in test else (1.0,),
        datasets=tuple(test["datasets"]),
        against=tuple(test.get("against", ())),
    )


def _cost(test: dict[str, Any]) -> Comparison:
    names = {key: test[key] for key in ("table", "a", "b")}
    threshold = 1 + test["tolerance"]
    return Comparison(**names, measure=test["quantity"], unit="ratio", threshold=threshold)


def _measure(test: dict[str, Any]) -> Comparison:
    names = {key: test[key] for key in ("table", "a", "epsilon") if key in test}
    return Comparison(**names, measure=test["quantity"], unit="share", threshold=test["at_most"])


_Rules = dict[str, tuple[str, tuple[str, ...], bool]]  # key: with which values of another; needed?
_MEASURE_KEYS: _Rules = {"epsilon": ("quantity", ("autoattack_accuracy",), True)}
_CONTRAST_KEYS: _Rules = {
    "epsilon": ("metric", ("robust",), True),
    "margin": ("direction", ("not_less", "not_greater"), True),
    "ratio": ("direction", ("greater",), False),
}


def _check_contrast(test: dict[str, Any], where: str) -> None:
    """Which optional keys go with which values; nothing is compared with itself."""
    if test["a"] == test["b"] and set(test.get("against", test["datasets"])) & {*test["datasets"]}:
        raise UserError(f"{where}: a and b are both {test['a']}; name two methods")
    _check_keys(test, _CONTRAST_KEYS, where)


def _check_keys(test: dict[str, Any], rules: _Rules, where: str) -> None:
    for key, (other, values, required) in rules.items():
        allowed = test[other] in values
        if key in test and not allowed:
            raise UserError(f"{where}: {key} is only for {other} {' or '.join(values)}")
        if key not in test and allowed and required:
            raise UserError(f"{where}: {other} {test[other]} needs the key {key}")
