"""Other readings of the paper: the same study under other values of the points it leaves open.

A reading is more methods. `fdt.blend_amount-all` is FDT with that value; a method that a reading
does not touch stays itself, and so do its cells. Where a reading changes only the attack, the
variant is attacked again and not trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice, product
from typing import Any

from tnfdt.study.methods import Method
from tnfdt.study.schema import UserError

MOST = 64  # readings of a study

Slice = dict[str, Any]


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
    """The readings of a study beside its own, and the methods they add by name.

    `names` has, by reading and method, what the method is called there: its own name where the
    reading does not touch it. `sources` and `best_of` are by added method: whose weights it has,
    and whose best epoch they are where that is why they need no training.
    """

    include: bool = False  # as a part of `all`
    readings: tuple[Reading, ...] = ()
    methods: Mapping[str, Method] = field(default_factory=dict)
    bases: Mapping[str, str] = field(default_factory=dict)  # whose variant each of them is
    names: Mapping[tuple[Reading, str], str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    best_of: Mapping[str, str] = field(default_factory=dict)

    def keeps_best(self, method: str) -> bool:
        """Whether a training keeps its best epoch: all do as soon as one reading reports it."""
        return bool(self.best_of) and method not in self.best_of


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
    readings = tuple(islice(_readings(switches, entry["all_of"]), MOST + 1))
    if entry["include"] and not readings:
        raise UserError(f"{where}: multiverse.include: there are no other readings; list some")
    if len(readings) > MOST:
        raise UserError(f"{where}: multiverse: more than {MOST} readings; list fewer values")
    found = Multiverse(include=entry["include"], readings=readings)
    for name, method in used.items():
        found = _with_variants(found, name, method)
    return found


@dataclass(frozen=True)
class Addition:
    """The methods that a reading is the first to train, and the first to attack."""

    trained: tuple[str, ...]
    attacked: tuple[str, ...]


def additions(multiverse: Multiverse) -> dict[str, Addition]:
    """By the title of each reading. A best epoch is kept by a training, not trained."""
    found: dict[str, Addition] = {}
    known = {*multiverse.bases.values()}
    trained = known | {*multiverse.best_of}
    for reading in multiverse.readings:
        names = [name for (of, _), name in multiverse.names.items() if of == reading]
        attacked = tuple(name for name in names if name in multiverse.bases and name not in known)
        sources = (multiverse.sources[name] for name in attacked)
        added = tuple(name for name in sources if name not in trained)
        found[reading.title] = Addition(added, attacked)
        known |= {*attacked}
        trained |= {*added}
    return found


def _with_variants(before: Multiverse, base: str, method: Method) -> Multiverse:
    """With what the readings make of one method, each variant once under its first name."""
    known, names = {base: method}, {}
    for reading in before.readings:
        after = reading.of(method)
        same = [name for name, other in known.items() if not changed(other, after)]
        names[reading, base] = name = [*same, reading.variant(base)][0]
        known.setdefault(name, after)
    slices = {name: variant.train_slice() for name, variant in known.items()}
    del known[base]
    sources = {name: _first(slices, slices[name]) for name in known}
    best = {name: _first(slices, _of_last(slices[name])) for name in known if sources[name] == name}
    return replace(
        before,
        methods={**before.methods, **known},
        bases={**before.bases, **dict.fromkeys(known, base)},
        names={**before.names, **names},
        sources={**before.sources, **sources},
        best_of={**before.best_of, **{n: s for n, s in best.items() if s not in ("", n)}},
    )


def _first(slices: Mapping[str, Slice], wanted: Slice) -> str:
    return next((name for name, found in slices.items() if found == wanted), "")


def _of_last(found: Slice) -> Slice:
    """The same training, of which the last epoch is taken."""
    return {key: value for key, value in found.items() if key != "checkpoint"}


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
            if value == "random" and any(reading.of(m).lacks_entropy for m in used.values()):
                raise UserError(
                    f"{where}.{switch}: random factors have no entropy in closed form, which "
                    "`label_smoothing: matched` needs; leave it out"
                )
