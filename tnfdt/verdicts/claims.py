"""The paper's claims as data: config/claims.yaml, read and checked."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tnfdt.study.schema import UserError, read_yaml, validated


@dataclass(frozen=True, kw_only=True)
class ContrastTest:
    """A comparison of accuracies; the keys are those of claims.yaml, margin in points.

    `against` are the datasets of b where they are others than a's.
    """

    table: str
    datasets: tuple[str, ...]
    metric: str
    a: str
    b: str
    direction: str
    epsilon: float | None = None
    margin: float | None = None
    ratio: float | None = None
    against: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CostTest:
    """A comparison of costs; the keys are those of claims.yaml."""

    table: str
    quantity: str
    a: str
    b: str
    tolerance: float


@dataclass(frozen=True, kw_only=True)
class MeasureTest:
    """Something counted in trained networks that may not exceed a value."""

    table: str
    quantity: str
    a: str
    at_most: float
    epsilon: float | None = None


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence of the paper and the tests that it stands or falls by.

    `ours` marks a question of our own, which is never counted with the paper's.
    """

    id: str
    family: str
    title: str
    says: str
    sentence: str
    section: str
    ours: bool = False
    contrasts: tuple[ContrastTest, ...] = ()
    costs: tuple[CostTest, ...] = ()
    measures: tuple[MeasureTest, ...] = ()


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


def _claim(id_: str, family: str, title: str, entry: dict[str, Any], where: str) -> Claim:
    if not (entry["contrasts"] or entry["costs"] or entry["measures"]):
        raise UserError(f"{where}: has nothing to test; give it contrasts, costs or measures")
    for number, test in enumerate(entry["contrasts"]):
        _check_contrast(test, f"{where}.contrasts.{number}")
    return Claim(
        id=id_,
        family=family,
        title=title,
        **{key: entry[key] for key in ("says", "sentence", "section", "ours")},
        contrasts=tuple(_contrast(test) for test in entry["contrasts"]),
        costs=tuple(CostTest(**test) for test in entry["costs"]),
        measures=tuple(MeasureTest(**test) for test in entry["measures"]),
    )


def _contrast(test: dict[str, Any]) -> ContrastTest:
    lists = {"datasets": tuple(test["datasets"]), "against": tuple(test.get("against", ()))}
    return ContrastTest(**{**test, **lists})


def _check_contrast(test: dict[str, Any], where: str) -> None:
    """Which optional keys go with which values; nothing is compared with itself."""
    if test["a"] == test["b"] and set(test.get("against", test["datasets"])) & {*test["datasets"]}:
        raise UserError(f"{where}: a and b are both {test['a']}; name two methods")
    rules = {
        "epsilon": ("metric", ("robust",), True),
        "margin": ("direction", ("not_less", "not_greater"), True),
        "ratio": ("direction", ("greater",), False),
    }
    for key, (other, values, required) in rules.items():
        allowed = test[other] in values
        if key in test and not allowed:
            raise UserError(f"{where}: {key} is only for {other} {' or '.join(values)}")
        if key not in test and allowed and required:
            raise UserError(f"{where}: {other} {test[other]} needs the key {key}")
