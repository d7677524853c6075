"""The RO-Crate of a bundle: what it is, what made it, and the verdicts, as linked data.

A Workflow Run Crate (w3id.org/ro/wfrun/workflow/0.5): the Snakefile is the workflow, the study its
input, and the run that made the records is one action. Each verdict is a schema.org ClaimReview.
The same facts give the same bytes: no clock is read and no identifier is drawn.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tnfdt.evidence.bundle import CLAIMS, MANIFEST, PUBLISHED, STUDY, WORKFLOW

VERSION = "1.1"  # of RO-Crate; the one that the profiles below are made for
PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": ("Process Run Crate", "0.5"),
    "https://w3id.org/ro/wfrun/workflow/0.5": ("Workflow Run Crate", "0.5"),
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": ("Workflow RO-Crate", "1.0"),
}
LICENSE = "https://spdx.org/licenses/MIT"
_FILES = {
    STUDY: ("The study: grid, recipe, and how the paper's open points are read", "text/yaml"),
    CLAIMS: ("The paper's claims, and the comparisons that decide each", "text/yaml"),
    PUBLISHED: ("The numbers of the paper's tables", "text/csv"),
    MANIFEST: ("Every file of this bundle with its SHA-256", "application/json"),
}
_FOLDERS = {
    "data": "Fingerprints of the datasets",
    "train": "A record, a history and the clean results of each training",
    "attack": "A record and the per-image results of each attack",
    "audit": "A record and the per-image results of each audit",
}
_INPUTS, _RESULTS = (STUDY,), ("train", "attack", "audit")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the crate tells of a study."""

    study: str
    description: str
    started: float  # of the first record, and the end of the last, in seconds since 1970
    ended: float
    commits: Sequence[str]
    versions: Mapping[str, Sequence[str]]  # of libraries
    labs: Sequence[str]
    names: Sequence[str]  # of the bundle's files
    verdicts: Sequence[Mapping[str, str]]  # id, says, sentence, verdict, reason


def crate_text(facts: Facts) -> bytes:
    """The content of ro-crate-metadata.json."""
    from rocrate.rocrate import ROCrate  # type: ignore[import-untyped]

    crate = ROCrate(version=VERSION, gen_preview=False)
    _describe_root(crate, facts)
    workflow = crate.add_workflow(dest_path=WORKFLOW, main=True, lang="snakemake")
    workflow["name"], workflow["version"] = "tnfdt", ", ".join(facts.commits)
    if facts.versions:
        workflow["softwareRequirements"] = [_add(crate, *item) for item in _software(facts)]
    parts = {
        name: crate.add_file(dest_path=name, properties=_file(*_FILES[name])) for name in _FILES
    }
    for name in _FOLDERS:
        if any(file.startswith(f"{name}/") for file in facts.names):
            parts[name] = crate.add_dataset(dest_path=name, properties={"name": _FOLDERS[name]})
    crate.root_dataset["conformsTo"] = [_add(crate, *item) for item in _profiles()]
    crate.root_dataset["mentions"] = [
        _add_run(crate, workflow, parts, facts),
        *(_add_review(crate, verdict) for verdict in facts.verdicts),
    ]
    text = json.dumps(crate.metadata.generate(), indent=1, sort_keys=True, ensure_ascii=False)
    return f"{text}\n".encode()


def _describe_root(crate: Any, facts: Facts) -> None:
    crate.name = f"Evidence of study {facts.study}"
    crate.description = (
        f"{facts.description or facts.study} Records and per-image results from which all tables "
        "and verdicts of the study are rebuilt: tnfdt tables --evidence FILE --out DIR"
    )
    crate.license = _add(crate, LICENSE, "CreativeWork", {"name": "MIT License"})
    crate.datePublished = _time(facts.ended)


def _add(crate: Any, id_: str, type_: str, properties: Mapping[str, Any]) -> Any:
    from rocrate.model.contextentity import ContextEntity  # type: ignore[import-untyped]

    return crate.add(ContextEntity(crate, id_, properties={"@type": type_, **properties}))


def _profiles() -> list[tuple[str, str, dict[str, str]]]:
    return [
        (url, "CreativeWork", {"name": name, "version": version})
        for url, (name, version) in PROFILES.items()
    ]


def _software(facts: Facts) -> list[tuple[str, str, dict[str, str]]]:
    return [
        (
            url,
            "SoftwareApplication",
            {"name": name, "url": url, "softwareVersion": ", ".join(found)},
        )
        for name, found in sorted(facts.versions.items())
        for url in [f"https://pypi.org/project/{name}/"]
    ]


def _file(name: str, kind: str) -> dict[str, str]:
    return {"name": name, "encodingFormat": kind}


def _add_run(crate: Any, workflow: Any, parts: Mapping[str, Any], facts: Facts) -> Any:
    labs = [
        _add(crate, f"#lab-{place}", "Organization", {"name": name})
        for place, name in enumerate(sorted(facts.labs))
    ]
    run = crate.add_action(
        workflow,
        identifier="#run",
        object=[parts[name] for name in _INPUTS],
        result=[parts[name] for name in _RESULTS if name in parts],
        properties={"name": f"Run of study {facts.study}", "endTime": _time(facts.ended)},
    )
    run["startTime"] = _time(facts.started)
    if labs:
        run["agent"] = labs
    return run


def _add_review(crate: Any, verdict: Mapping[str, str]) -> Any:
    word = verdict["verdict"]
    rating = _add(crate, f"#{word.replace(' ', '-')}", "Rating", {"alternateName": word})
    properties = {
        "name": verdict["says"],
        "claimReviewed": verdict["sentence"],
        "reviewBody": verdict["reason"],
        "reviewRating": {"@id": rating.id},
    }
    return _add(crate, f"#claim-{verdict['id']}", "ClaimReview", properties)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).isoformat()
