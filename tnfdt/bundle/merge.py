"""Merging bundles: parts of one study that several labs ran become the whole of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tnfdt.bundle import archive
from tnfdt.bundle.archive import CRATE, STUDY, WORKFLOW, Manifest
from tnfdt.bundle.pack import Raw, check_weights, write_bundle
from tnfdt.bundle.rebuild import make_material, opened, read_raw, scratch_folder
from tnfdt.files.atomic import read_json, write_json
from tnfdt.study.paths import StudyPaths
from tnfdt.study.schema import UserError


def merge(paths: Sequence[Path], out: Path) -> Path:
    """One bundle of several parts of a study; what differs between them is one line."""
    if out.exists():  # `--out a.zip b.zip` would replace the evidence of a lab
        raise UserError(f"{out} exists; name another file, or move it away")
    with scratch_folder(out) as scratch:
        found: list[tuple[Path, Manifest, Raw]] = []
        counted: Raw = {}
        looked: Raw = {"look": 1, "rows": {}, "seen": []}
        for path in paths:
            with opened(path):  # each alone has to be sound
                pass
            manifest = archive.unpack(path, scratch)
            unpacked = StudyPaths(scratch / manifest.study)
            counted = _counted(unpacked.activations, counted)
            looked = _looked(unpacked.looks, looked)
            part = (path, manifest, read_raw(scratch, manifest))
            for other in found:
                _refuse_difference(other, part)
            found.append(part)
        folder, manifests = scratch / found[0][1].study, [manifest for _, manifest, _ in found]
        raw = _united([raw for _, _, raw in found])
        material = make_material(folder, manifests, raw)
        weights = any(manifest.has_weights for manifest in manifests)
        check_weights(material.results, required=False)
        write_bundle(out, material, raw, folder / WORKFLOW, weights=weights)
    return out


def _counted(path: Path, before: Raw) -> Raw:
    """What was counted in activations, united in the file that every part is unpacked to."""
    if not path.is_file():
        return before
    now = read_json(path)
    cells = {**before.get("cells", {}), **now["cells"]}
    united = {**now, "cells": {name: cells[name] for name in sorted(cells)}}
    write_json(path, united)
    return united


def _looked(path: Path, before: Raw) -> Raw:
    """The looks of all parts: the furthest that a row has come, and all that was seen."""
    if not path.is_file():
        return before
    now = read_json(path)
    seeds = {row: max(before["rows"].get(row, 0), count) for row, count in now["rows"].items()}
    rows = {**before["rows"], **seeds}
    united = {
        **now,
        "look": max(before["look"], now["look"]),
        "rows": {row: rows[row] for row in sorted(rows)},
        "seen": sorted({*before["seen"], *now["seen"]}),
    }
    write_json(path, united)
    return united


def _refuse_difference(a: tuple[Path, Manifest, Raw], b: tuple[Path, Manifest, Raw]) -> None:
    (first, one, raw), (second, two, other) = a, b
    kinds = {
        "study": ({"name": one.study}, {"name": two.study}),
        "study's": (_without_seeds(raw), _without_seeds(other)),
        "data of": (one.data, two.data),
        "version of": (one.code, two.code),
        "file": (_comparable(one), _comparable(two)),
    }
    for kind, (left, right) in kinds.items():
        for key in sorted(left.keys() & right.keys()):
            if json.dumps(left[key]) != json.dumps(right[key]):  # an order counts, too
                name, ours, theirs = _innermost(key, left[key], right[key])
                raise UserError(
                    f"{first} and {second} differ in {kind} {name}: {ours!s:.60} and "
                    f"{theirs!s:.60}; only parts of one study, made by the same code, merge"
                )


def _innermost(name: str, a: Any, b: Any) -> tuple[str, Any, Any]:
    """The key within a mapping that differs, with its two values."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted({*a, *b}):
            if a.get(key) != b.get(key):
                return _innermost(f"{name}.{key}", a.get(key), b.get(key))
    return name, a, b


def _without_seeds(raw: Raw) -> Raw:
    audit = {key: value for key, value in raw["audit"].items() if key != "seeds"}
    seeds = raw["seeds"] if not isinstance(raw["seeds"], list) else None  # declared looks
    return {**raw, "seeds": seeds, "audit": audit}


def _comparable(manifest: Manifest) -> Mapping[str, Any]:
    """The files of a bundle except those that a merge makes again."""
    members = StudyPaths(Path())
    united = (STUDY, CRATE, str(members.activations), str(members.looks))
    return {
        name: f"{entry['sha256']} {entry.get('source', '')}"
        for name, entry in manifest.files.items()
        if name not in united
    }


def _united(raws: Sequence[Raw]) -> Raw:
    """The study whose seeds are those of all parts."""
    first = raws[0]
    if not isinstance(first["seeds"], list):
        return first
    seeds = sorted({seed for raw in raws for seed in raw["seeds"]})
    audited = sorted({seed for raw in raws for seed in raw["audit"]["seeds"] or raw["seeds"]})
    every = all(raw["audit"]["seeds"] is None for raw in raws)
    return {
        **first,
        "seeds": seeds,
        "audit": {**first["audit"], "seeds": None if every else audited},
    }
