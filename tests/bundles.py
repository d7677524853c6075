"""Small made-up studies with a file, as `tnfdt pack` needs one, and zips as nobody should write."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from tests import synthetic
from tnfdt.bundle.pack import pack
from tnfdt.study.machine import Machine
from tnfdt.study.study import Study, load_study

RAW: dict[str, Any] = {
    "description": "Made up.",
    "grid": {
        "table1": {"datasets": ["c10"], "models": ["resnet34"], "methods": ["vanilla", "tn", "fdt"]}
    },
    "seeds": [0, 1, 2],
    "methods": {name: synthetic.METHODS[name] for name in ("vanilla", "tn", "fdt")},
    "datasets": {"c10": {}},
    "training": {"epochs": 3},
    "attack": {"epsilons": [0.1, 0.01], "steps": 8},
    "audit": {"include": True},
}


class Lab:
    """A study's file and its results, in a folder of their own."""

    def __init__(self, folder: Path, world: synthetic.World | None = None, **changes: Any) -> None:
        self.file = folder / "made_up.yaml"
        folder.mkdir(parents=True, exist_ok=True)
        self.file.write_text(yaml.safe_dump({**RAW, **changes}, sort_keys=False))
        self.study: Study = load_study(str(self.file))
        self.machine: Machine = replace(synthetic.machine(), results_dir=str(folder / "results"))
        world = world or synthetic.World(images=40)
        self.folder = synthetic.write(self.study, folder / "results", world)
        synthetic.write_audits(self.study, self.folder)

    def pack(self, **options: Any) -> Path:
        return pack(str(self.file), self.machine, **options)


def contents(folder: Path, names: Iterable[Path]) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in names}


def rewritten(
    path: Path,
    out: Path,
    change: dict[str, bytes | None] | None = None,
    manifest: dict[str, Any] | None = None,
) -> Path:
    """A copy of a bundle with files put in or (None) left out, and keys of its manifest changed."""
    with zipfile.ZipFile(path) as archive:
        members: dict[str, bytes | None] = {n: archive.read(n) for n in archive.namelist()}
    known = json.loads(members["bundle.json"] or b"")
    members |= {"bundle.json": json.dumps({**known, **(manifest or {})}).encode(), **(change or {})}
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            if content is not None:
                archive.writestr(name, content)
    return out
