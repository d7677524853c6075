"""Packing: what a bundle of a study holds, and in what form."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tnfdt.bundle import archive
from tnfdt.bundle.archive import CLAIMS, CRATE, PACKED, PAPER, PUBLISHED, STUDY, WORKFLOW
from tnfdt.bundle.crate import Facts, crate_text
from tnfdt.evidence.audits import current_audits
from tnfdt.evidence.results import Results, number
from tnfdt.files.atomic import read_json, sha256_file
from tnfdt.study.looks import as_json
from tnfdt.study.machine import Machine
from tnfdt.study.paths import WEIGHTS, array_of
from tnfdt.study.schema import ROOT, UserError, read_yaml, validated
from tnfdt.study.study import find_study, load_study
from tnfdt.tables import stage
from tnfdt.tables.stage import Material

_DECIDING = ("commit", "torch", "torchvision", "timm", "foolbox", "numpy")  # versions that count
_DATA = ("schema", "name", "arrays", "fingerprint", "num_classes")  # of a dataset's manifest

Raw = dict[str, Any]


def pack(value: str, machine: Machine, *, lab: str | None = None, weights: bool = False) -> Path:
    """Write the bundle of a study given by name or path; returns its path."""
    study = load_study(value, machine.results_dir)
    raw = validated(read_yaml(find_study(value)), "study", value)
    included = study.multiverse.include  # what the claims hold, the bundle holds
    material = stage.load(study, Path(machine.results_dir), machine, variants=included)
    results = material.results
    if not results.trained:
        raise UserError(f"{results.folder} has no finished training to pack; run the study first")
    check_current(results)
    check_weights(results, required=weights)
    labs = {lab: sorted(cell.path for cell in results.trained)} if lab else {}
    out = results.paths.evidence
    write_bundle(out, replace(material, labs=labs), raw, ROOT / WORKFLOW, weights=weights)
    return out


def check_current(results: Results) -> None:
    """A bundle is of one study: nothing in it was made with other settings or other weights."""
    if results.outdated:
        raise UserError(
            f"{results.outdated[0]} was made with other settings, data or weights than the study "
            "has now; run the study, or delete it"
        )


def check_weights(results: Results, *, required: bool) -> None:
    for cell, record in results.trained.items():
        path = results.paths.weights(cell)
        if path.is_file():
            if sha256_file(path) != record.get("model_sha256"):
                raise UserError(f"{path} is not the file its record.json is of; train again")
        elif required:
            raise UserError(f"{path} does not exist; train the cell, or pack without --weights")


def write_bundle(out: Path, material: Material, raw: Raw, workflow: Path, *, weights: bool) -> None:
    results = material.results
    members: dict[str, archive.Content] = {
        STUDY: _yaml(raw),
        CLAIMS: material.claims.read_bytes(),
        PUBLISHED: material.published.read_bytes(),
        PAPER: material.paper.read_bytes(),
        WORKFLOW: workflow.read_bytes(),
        **{_name(results, path): content for path, content in _manifests(results)},
        **_looks(results),
    }
    entries: dict[str, dict[str, Any]] = {}
    for path in _files(results, weights=weights):
        name = _name(results, path)
        if path.suffix == ".npz":
            name = name.removesuffix(".npz") + PACKED
            members[name], entries[name] = archive.pack_arrays(path, results.sha256(path))
        else:
            members[name] = path if path.name == WEIGHTS else path.read_bytes()
    members[CRATE] = crate_text(_facts(material, [*members]))
    facts = {"study": results.study.name, "labs": dict(material.labs)}
    facts |= {"data": _fingerprints(results), "code": _code(results)}
    archive.write(out, members, entries, facts)


def _looks(results: Results) -> dict[str, bytes]:
    """Which look the study has begun, as far as a verdict depends on it; mostly nothing.

    Whoever opens the bundle steps back from a look without all its results, as we do; from the
    look before it, its rows could not have the seeds that they have.
    """
    study, looks = results.study, results.study.looks
    seen = tuple(count for count in looks.seen if count < len(study.seeds))
    state = replace(looks, look=looks.begun, seen=seen)
    if state.look == 1 and not seen:
        return {}
    return {results.paths.looks.name: json.dumps(as_json(state), sort_keys=True).encode()}


def _yaml(raw: Raw) -> bytes:
    import yaml

    # The order within a key is that of the tables; that of the keys means nothing.
    ordered = {key: raw[key] for key in sorted(raw)}
    text: str = yaml.safe_dump(ordered, sort_keys=False, allow_unicode=True)
    return text.encode()


def _name(results: Results, path: Path) -> str:
    return path.relative_to(results.folder).as_posix()


def _manifests(results: Results) -> Iterator[tuple[Path, bytes]]:
    """Of each dataset what its arrays are, without the places that it was read from."""
    for dataset in _fingerprints(results):
        path = results.paths.manifest(dataset)
        if path.is_file():
            manifest = read_json(path)  # a mapping: it has the fingerprint of the records
            known = {key: manifest[key] for key in _DATA if key in manifest}
            yield path, json.dumps(known, sort_keys=True).encode()


def _files(results: Results, *, weights: bool) -> Iterator[Path]:
    """The files behind the tables and figures, that is all that counts of the study."""
    paths = results.paths
    if paths.activations.is_file():
        yield paths.activations
    for cell in results.trained:
        yield from results.sources(cell)
        found = [paths.history(cell), *([paths.weights(cell)] if weights else [])]
        yield from (path for path in found if path.is_file())
    for cell, epsilon in results.attacked:
        yield from results.sources(cell, epsilon)
    for path, _ in current_audits(results):
        array = array_of(path)
        yield from (path, *([array] if array.is_file() else []))


def _fingerprints(results: Results) -> dict[str, str]:
    return {c.dataset: str(r.get("dataset_fingerprint")) for c, r in results.trained.items()}


def _code(results: Results) -> dict[str, list[str]]:
    """The commits and versions that decide a cell's numbers."""
    return {key: found for key, found in results.made_with().items() if key in _DECIDING}


def _facts(material: Material, names: Sequence[str]) -> Facts:
    results, records, code = material.results, material.results.records, _code(material.results)
    started = [number(record.get("started")) for record in records]
    lasted = [number(record["metrics"].get("duration_seconds")) for record in records]
    _, verdicts = stage.judge_study(material)
    return Facts(
        study=results.study.name,
        description=results.study.description,
        started=min(started),
        ended=max(map(sum, zip(started, lasted, strict=True))),
        commits=code.pop("commit"),
        versions=code,
        labs=sorted(material.labs),
        names=names,
        verdicts=[
            {key: getattr(v.claim, key) for key in ("id", "says", "sentence")}
            | {"verdict": v.verdict, "reason": v.reason}
            for v in verdicts
        ],
    )
