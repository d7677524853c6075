"""How a study attacks its networks: the settings of the paper's PGD and of the audit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tnfdt.study.paths import format_epsilon
from tnfdt.study.schema import UserError

ATTACK_PRECISION = "fp32"  # of attacks whose record is older than the key
REL_STEPSIZE = 0.01 / 0.3  # the paper's alpha / epsilon, and Foolbox's
SOUND_DISTANCE = 0.02  # from the paper's last iterate down to the worst attack on a sound network


@dataclass(frozen=True, kw_only=True)
class Attack:
    epsilons: tuple[float, ...]
    steps: int
    rel_stepsize: float
    limit: int | None
    batch_size: int
    precision: str


@dataclass(frozen=True, kw_only=True)
class AutoAttack:
    images: int | None
    epsilons: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Audit:
    include: bool
    seeds: tuple[int, ...]
    restarts: int
    limit: int | None
    black_box: int
    autoattack: AutoAttack | None

    def epsilons(self, attack: Attack) -> tuple[float, ...]:
        """Those of the attack, and AutoAttack's beside them."""
        more = self.autoattack.epsilons if self.autoattack else ()
        return tuple(dict.fromkeys((*attack.epsilons, *more)))

    def autoattack_slice(self) -> dict[str, Any]:
        """What an audit depends on of AutoAttack: nothing where it is left out."""
        if self.autoattack is None:
            return {}
        epsilons = list(self.autoattack.epsilons)
        return {"autoattack": {"images": self.autoattack.images, "epsilons": epsilons}}


def make_attack(entry: dict[str, Any], where: str) -> Attack:
    """From the entry `attack` of a study file; messages name `where`."""
    epsilons = _epsilons(entry["epsilons"], f"{where}: attack.epsilons")
    rel_stepsize = entry["rel_stepsize"] or REL_STEPSIZE
    return Attack(**entry | {"epsilons": epsilons, "rel_stepsize": rel_stepsize})


def make_audit(entry: dict[str, Any], seeds: Sequence[int], where: str) -> Audit:
    """From the entry `audit` of a study file with these seeds."""
    chosen = entry["autoattack"]
    if chosen:
        epsilons = _epsilons(chosen["epsilons"], f"{where}: audit.autoattack.epsilons")
        chosen = AutoAttack(images=chosen["images"], epsilons=epsilons)
    return Audit(**entry | {"seeds": tuple(entry["seeds"] or seeds), "autoattack": chosen})


def _epsilons(values: list[float], where: str) -> tuple[float, ...]:
    """As floats, so that 1 and 1.0 are the same slice; file names hold each to the last digit."""
    for value in values:
        if float(format_epsilon(value)) != value:
            raise UserError(
                f"{where}: {value!r} has more than six digits; write {format_epsilon(value)}"
            )
    return tuple(float(value) for value in values)


def with_precision(config: dict[str, Any]) -> dict[str, Any]:
    """The slice of an attack or audit with its precision said, also of an older record."""
    return {"precision": ATTACK_PRECISION, **config}
