"""The paper's claims as data: config/claims.yaml, read and checked."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tnfdt.study.schema import UserError, read_yaml, validated


@dataclass(frozen=True, kw_only=True)
class ContrastTest:
    """A comparison of accuracies; the keys are those of claims.yaml, margin in points."""

    table: str
    datasets: tuple[str, ...]
    metric: str
    a: str
    b: str
    direction: str
    epsilon: float | None = None
    margin: float | None = None
    ratio: float | None = None


@dataclass(frozen=True, kw_only=True)
class CostTest:
    """A comparison of costs; the keys are those of claims.yaml."""

    table: str
    quantity: str
    a: str
    b: str
    tolerance: float


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence of the paper and the tests that it stands or falls by."""

    id: str
    family: str
    title: str
    says: str
    sentence: str
    section: str
    contrasts: tuple[ContrastTest, ...] = ()
    costs: tuple[CostTest, ...] = ()


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
    if not entry["contrasts"] and not entry["costs"]:
        raise UserError(f"{where}: has nothing to test; give it contrasts or costs")
    for number, test in enumerate(entry["contrasts"]):
        _check_contrast(test, f"{where}.contrasts.{number}")
    contrasts = [ContrastTest(**t | {"datasets": tuple(t["datasets"])}) for t in entry["contrasts"]]
    costs = [CostTest(**test) for test in entry["costs"]]
    texts = {key: entry[key] for key in ("says", "sentence", "section")}
    return Claim(
        id=id_, family=family, title=title, **texts, contrasts=tuple(contrasts), costs=tuple(costs)
    )


def _check_contrast(test: dict[str, Any], where: str) -> None:
    """Which optional keys go with which values; nothing is compared with itself."""
    if test["a"] == test["b"]:
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
