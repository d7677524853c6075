"""The RO-Crate of a bundle: what it is, what made it, and the verdicts, as linked data.

A Workflow Run Crate (w3id.org/ro/wfrun/workflow/0.5): the Snakefile is the workflow, the study its
input, and the run that made the records is one action. Each verdict is a schema.org ClaimReview.
The same facts give the same bytes: no clock is read and no identifier is drawn.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tnfdt.bundle.archive import CLAIMS, FOLDERS, MANIFEST, PAPER, PUBLISHED, STUDY, WORKFLOW

VERSION = "1.1"  # of RO-Crate; the one that the profiles below are made for
PROFILES = (
    "https://w3id.org/ro/wfrun/process/0.5",
    "https://w3id.org/ro/wfrun/workflow/0.5",
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0",
)
_FILES = {
    STUDY: ("The study: grid, recipe, and how the paper's open points are read", "text/yaml"),
    CLAIMS: ("The paper's claims, and the comparisons that decide each", "text/yaml"),
    PUBLISHED: ("The numbers of the paper's tables", "text/csv"),
    PAPER: ("The study of the paper itself, whose regime a verdict on it needs", "text/yaml"),
    MANIFEST: ("Every file of this bundle with its SHA-256", "application/json"),
}

_LAST = 253402300799  # seconds to the end of the year 9999, the last that has a name
_NO_PACKAGE = ("python", "tnfdt")  # among the versions, but in no index of packages

Entity = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the crate says about a study."""

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

    crate = ROCrate(version=VERSION)
    workflow = crate.add_workflow(dest_path=WORKFLOW, main=True, lang="snakemake")
    for name, (title, kind) in _FILES.items():
        crate.add_file(dest_path=name, properties={"name": title, "encodingFormat": kind})
    folders = [top for top in FOLDERS if any(name.startswith(f"{top}/") for name in facts.names)]
    for top in folders:
        crate.add_dataset(dest_path=top, properties={"name": f"Evidence of stage {top}"})
    entities = {entity["@id"]: entity for entity in _entities(facts, folders)}
    for entity in entities.values():
        crate.add_or_update_jsonld(entity)
    crate.update_jsonld({"@id": workflow.id, **_workflow(facts)})
    crate.update_jsonld({"@id": "./", **_root(facts, entities)})
    text = json.dumps(crate.metadata.generate(), indent=1, sort_keys=True, ensure_ascii=False)
    return f"{text}\n".encode()


def _root(facts: Facts, entities: Mapping[str, Entity]) -> Entity:
    mentioned = [
        id_ for id_, e in entities.items() if e["@type"] in ("CreateAction", "ClaimReview")
    ]
    return {
        "name": f"Evidence of study {facts.study}",
        "description": f"{facts.description or facts.study} Records and per-image results, from "
        "which all tables and verdicts are rebuilt: tnfdt tables --evidence FILE --out DIR",
        "license": "https://spdx.org/licenses/MIT",
        "datePublished": _time(facts.ended),
        "conformsTo": _references(PROFILES),
        "mentions": _references(mentioned),
    }


def _workflow(facts: Facts) -> Entity:
    needed = _references(_package(name) for name in facts.versions)
    commits = ", ".join(facts.commits)
    return {"name": "tnfdt", "version": commits} | (
        {"softwareRequirements": needed} if needed else {}
    )


def _entities(facts: Facts, folders: Sequence[str]) -> Iterator[Entity]:
    for url in PROFILES:
        _, name, version = url.rsplit("/", 2)
        yield {"@id": url, "@type": "CreativeWork", "name": name, "version": version}
    for name, found in facts.versions.items():
        known = {"name": name, "url": _package(name), "softwareVersion": ", ".join(found)}
        yield {"@id": _package(name), "@type": "SoftwareApplication", **known}
    labs = {f"#lab-{place}": name for place, name in enumerate(facts.labs)}
    for id_, name in labs.items():
        yield {"@id": id_, "@type": "Organization", "name": name}
    yield {
        "@id": "#run",
        "@type": "CreateAction",
        "name": f"Run of study {facts.study}",
        "instrument": {"@id": WORKFLOW},
        "object": {"@id": STUDY},
        "result": _references(f"{top}/" for top in folders if top != "data"),
        "startTime": _time(facts.started),
        "endTime": _time(facts.ended),
    } | ({"agent": _references(labs)} if labs else {})
    for verdict in facts.verdicts:
        rating = f"#{verdict['verdict'].replace(' ', '-')}"
        yield {"@id": rating, "@type": "Rating", "alternateName": verdict["verdict"]}
        yield {
            "@id": f"#claim-{verdict['id']}",
            "@type": "ClaimReview",
            "name": verdict["says"],
            "claimReviewed": verdict["sentence"],
            "reviewBody": verdict["reason"],
            "reviewRating": {"@id": rating},
        }


def _references(ids: Any) -> list[Entity]:
    return [{"@id": id_} for id_ in ids]


def _package(name: str) -> str:
    """A package URL (purl) of what the versions name."""
    return f"pkg:{'generic' if name in _NO_PACKAGE else 'pypi'}/{name}"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(int(min(max(seconds, 0), _LAST)), UTC).isoformat()
