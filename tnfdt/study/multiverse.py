"""Other readings of the paper: the same study under other values of the points it leaves open.

A reading is more methods. `fdt.blend_amount-all` is FDT with that value; a method that a reading
does not touch stays itself, and so do its cells. Where a reading changes only the attack, the
variant is attacked anew and not trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from tnfdt.study.methods import Method
from tnfdt.study.schema import UserError

MOST = 64  # readings of a study


@dataclass(frozen=True)
class Reading:
    """One way to read the paper: switches with other values than the study's."""

    changes: tuple[tuple[str, Any], ...]

    @property
    def name(self) -> str:
        """As in the names of its methods: blend_amount-all."""
        return ".".join(f"{switch}-{_text(value)}" for switch, value in self.changes)

    @property
    def title(self) -> str:
        """For people: blend_amount: all."""
        return ", ".join(f"{switch}: {_text(value)}" for switch, value in self.changes)

    def variant(self, method: str) -> str:
        """The name of a method under this reading."""
        return f"{method}.{self.name}"

    def of(self, method: Method) -> Method:
        """The method under this reading; what a method sets for itself stays."""
        changes = {key: value for key, value in self.changes if key not in method.own}
        series = changes.get("blend_series", method.blend) if method.blend else None
        return replace(method, blend=series, interpretation={**method.interpretation, **changes})


@dataclass(frozen=True, kw_only=True)
class Multiverse:
    """The readings of a study beside its own, and the methods they add by name."""

    include: bool = False  # as a part of `all`
    readings: tuple[Reading, ...] = ()
    methods: Mapping[str, Method] = field(default_factory=dict)
    bases: Mapping[str, str] = field(default_factory=dict)  # whose variant each of them is


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def make_multiverse(
    entry: Mapping[str, Any],
    used: Mapping[str, Method],
    interpretation: Mapping[str, Any],
    where: str,
) -> Multiverse:
    """From the entry `multiverse` of a study file; `used` are the methods of its grid."""
    options = {"include", "all_of"}
    switches = {key: values for key, values in entry.items() if key not in options and values}
    _check(switches, entry["all_of"], used, interpretation, f"{where}: multiverse")
    readings = tuple(_readings(switches, entry["all_of"]))
    if len(readings) > MOST:
        raise UserError(f"{where}: multiverse: {len(readings)} readings are more than {MOST}")
    found = [(reading, name) for reading in readings for name in used]
    pairs = [(r, name) for r, name in found if changed(used[name], r.of(used[name]))]
    return Multiverse(
        include=entry["include"],
        readings=readings,
        methods={r.variant(name): r.of(used[name]) for r, name in pairs},
        bases={r.variant(name): name for r, name in pairs},
    )


def changed(before: Method, after: Method) -> bool:
    """Whether a training or an attack of the two would differ."""
    return (
        before.train_slice() != after.train_slice() or before.attack_slice() != after.attack_slice()
    )


def _readings(switches: Mapping[str, Any], together: list[str]) -> Iterator[Reading]:
    """One change at a time, then all combinations of the switches in `together`."""
    for switch, values in switches.items():
        yield from (Reading(((switch, value),)) for value in values)
    choices = [[None, *switches[switch]] for switch in together]
    for chosen in product(*choices):
        changes = [(s, v) for s, v in zip(together, chosen, strict=True) if v is not None]
        if len(changes) > 1:
            yield Reading(tuple(changes))


def _check(
    switches: Mapping[str, Any],
    together: list[str],
    used: Mapping[str, Method],
    interpretation: Mapping[str, Any],
    where: str,
) -> None:
    for switch in together:
        if switch not in switches:
            raise UserError(f"{where}.all_of: {switch} has no other values; list them as well")
    for switch, values in switches.items():
        for value in values:
            if value == interpretation[switch]:
                raise UserError(f"{where}.{switch}: {_text(value)} is the study's own reading")
            reading = Reading(((switch, value),))
            if not any(changed(method, reading.of(method)) for method in used.values()):
                raise UserError(
                    f"{where}.{switch}: no method of the grid depends on it; leave it out"
                )
