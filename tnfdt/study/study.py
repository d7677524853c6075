"""What a study is: the science of a study file and the settings of a machine, validated.

The JSON schemas in workflow/schemas say which keys exist and hold every default; this module
fills the defaults in, checks what a schema cannot say, and cuts a study into the narrow
slices that each stage depends on.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from tnfdt.study.attack_settings import Attack, Audit, make_attack, make_audit
from tnfdt.study.looks import Looks, read_looks
from tnfdt.study.machine import Machine
from tnfdt.study.methods import Method, check_references, make_method
from tnfdt.study.multiverse import Multiverse, make_multiverse
from tnfdt.study.paths import NO_GRIDS, NO_STUDIES, Cell
from tnfdt.study.schema import ROOT, UserError, read_yaml, shown, validated

Slice = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Augment:
    shift: int
    flip: bool


@dataclass(frozen=True, kw_only=True)
class Dataset:
    path: str | None
    sample: str | None
    augment: Augment
    mean: tuple[float, float, float]


@dataclass(frozen=True, kw_only=True)
class Limit:
    train: int | None
    test: int | None


@dataclass(frozen=True, kw_only=True)
class Training:
    optimizer: str
    lr: float
    momentum: float
    weight_decay: float
    batch_size: int
    epochs: int
    lr_drop_every: int
    lr_drop_factor: float


@dataclass(frozen=True, kw_only=True)
class Study:
    """A study: its grid, its recipe, and how the paper's open points are read."""

    name: str
    description: str
    grid: dict[str, tuple[Cell, ...]]
    captions: dict[str, str]
    seeds: tuple[int, ...]
    looks: Looks
    methods: dict[str, Method]
    datasets: dict[str, Dataset]
    limit: Limit
    training: Training
    attack: Attack
    audit: Audit
    interpretation: dict[str, Any]
    multiverse: Multiverse

    @property
    def cells(self) -> list[Cell]:
        """All cells of all tables, each once, in the order of the tables."""
        return list(dict.fromkeys(cell for block in self.grid.values() for cell in block))

    @property
    def grid_datasets(self) -> list[str]:
        """The datasets of the grid, each once."""
        return list(dict.fromkeys(cell.dataset for cell in self.cells))

    @property
    def variants(self) -> list[Cell]:
        """The cells that other readings of the paper add to be attacked."""
        bases = self.multiverse.bases.items()
        return [
            c._replace(method=name) for c in self.cells for name, base in bases if base == c.method
        ]

    def variants_of(self, method: str) -> list[Cell]:
        """The cells of a method that another reading adds."""
        base = self.multiverse.bases[method]
        return [cell._replace(method=method) for cell in self.cells if cell.method == base]

    def trained_as(self, cell: Cell) -> Cell:
        """The cell whose training a cell has: its own, or that of another reading's."""
        return cell._replace(method=self.multiverse.sources.get(cell.method, cell.method))

    def best_of(self, cell: Cell) -> Cell | None:
        """The cell of whose training this one is the best epoch; None if it has its own."""
        name = self.multiverse.best_of.get(cell.method)
        return cell._replace(method=name) if name else None

    def audited(self) -> list[Cell]:
        """The cells that the audit looks at."""
        return [cell for cell in self.cells if cell.seed in self.audit.seeds]

    def data_slice(self, dataset: str, machine: Machine) -> Slice:
        """What the prepared copy of a dataset depends on."""
        positions = self.sample_positions(dataset, machine)
        return {
            "name": dataset,
            "path": self.dataset_path(dataset, machine),
            "limit": asdict(self.limit),
        } | ({"positions": positions.name} if positions else {})

    def dataset_path(self, dataset: str, machine: Machine) -> str | None:
        """The .npz a dataset is read from, or None for the registered complete set."""
        entry = self.datasets[dataset]
        sample = Path(machine.sample_dir, entry.sample) if entry.sample else None
        return str(sample) if sample and sample.is_file() else entry.path

    def sample_positions(self, dataset: str, machine: Machine) -> Path | None:
        """The file with the positions of a sample's images in the complete set; None where
        there is no such file, or no need as the sample itself is there."""
        sample = self.datasets[dataset].sample
        if sample is None or self.dataset_path(dataset, machine):
            return None
        path = ROOT / "config/samples" / f"{Path(sample).stem}.json"
        return path if path.is_file() else None

    def train_slice(self, cell: Cell, machine: Machine) -> Slice:
        """What a training depends on, and nothing else."""
        dataset = self.datasets[cell.dataset]
        return {
            "model": cell.model,
            "mean": list(dataset.mean),
            "augment": asdict(dataset.augment),
            "seed": cell.seed,
            "training": asdict(self.training),
            "precision": machine.precision,
            "compile": machine.compile,
            **self.methods[cell.method].train_slice(),
            **({"keep_best": True} if self.multiverse.keeps_best(cell.method) else {}),
        }

    def reading(self, method: str | None) -> dict[str, Any]:
        """The paper's open points as a method reads them; without one, as the study does."""
        return self.interpretation if method is None else self.methods[method].interpretation

    def attack_slice(self, epsilon: float, method: str | None = None) -> Slice:
        """What an attack depends on beside its model and its test images."""
        config = asdict(self.attack)
        del config["epsilons"]
        own = {"random_start": self.interpretation["random_start"]}
        if method is not None:
            own = self.methods[method].attack_slice()
        return {"epsilon": epsilon, **own, **config}

    def audit_slice(self, method: str | None = None) -> Slice:
        """What an audit depends on beside its model and its test images."""
        return {
            "epsilons": list(self.audit.epsilons(self.attack)),
            "steps": self.attack.steps,
            "rel_stepsize": self.attack.rel_stepsize,
            "random_start": self.reading(method)["random_start"],
            "restarts": self.audit.restarts,
            "black_box": self.audit.black_box,
            "limit": self.audit.limit,
            "batch_size": self.attack.batch_size,
            "precision": self.attack.precision,
            **self.audit.autoattack_slice(),
        }


def digest(config: Slice) -> str:
    """A short name for a slice: equal slices, and only those, have equal digests."""
    text = json.dumps(config, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def parse_cell(text: str, study: Study) -> Cell:
    """A cell from its path, for example digits/wrn10_1/tn/seed0."""
    for cell in (*study.cells, *study.variants):
        if cell.path == text.strip("/"):
            return cell
    example = study.cells[0].path
    raise UserError(f"cell {text!r} is not in study {study.name}; cells look like {example}")


def find_study(value: str) -> Path:
    """The file of a study given by name or by path."""
    builtin = sorted(path.stem for path in (ROOT / "config/studies").glob("*.yaml"))
    if value in builtin:
        return ROOT / "config/studies" / f"{value}.yaml"
    path = Path(value)
    with contextlib.suppress(OSError):  # such as a name that is too long
        if path.suffix in (".yaml", ".yml") and path.is_file():
            return path
    raise UserError(
        f"study {shown(value)} is neither one of {', '.join(builtin)} nor the path of a .yaml file"
    )


def load_study(value: str, results_dir: str | None = None) -> Study:
    """Read, validate and complete a study given by name or by path.

    With the folder of its results it is at the look that it has come to, else at its first.
    """
    path = find_study(value)
    folder = Path(results_dir, path.stem) if results_dir is not None else None
    return study_from_dict(read_yaml(path), name=path.stem, where=str(value), folder=folder)


def study_from_dict(
    raw: dict[str, Any], *, name: str, where: str, folder: Path | None = None
) -> Study:
    """A study from the mapping of its file; messages name `where`, `folder` has results."""
    config = validated(raw, "study", where)
    planned = config["seeds"]["looks"] if isinstance(config["seeds"], dict) else ()
    looks = read_looks(planned, folder, where)
    if planned:
        config["seeds"] = list(range(looks.seeds))
    _check_names(config, name, where)
    methods = {
        key: make_method(switches, config["interpretation"], f"{where}: methods.{key}")
        for key, switches in config["methods"].items()
    }
    check_references(config["grid"], methods, where)
    used = {name: methods[name] for block in config["grid"].values() for name in block["methods"]}
    multiverse = make_multiverse(config["multiverse"], used, config["interpretation"], where)
    return Study(
        name=name,
        description=config["description"],
        grid={
            table: _cells(block, config["seeds"], looks) for table, block in config["grid"].items()
        },
        captions={table: block["caption"] for table, block in config["grid"].items()},
        seeds=tuple(config["seeds"]),
        looks=looks,
        methods={**methods, **multiverse.methods},
        datasets={key: _dataset(entry) for key, entry in config["datasets"].items()},
        limit=Limit(**config["limit"]),
        training=Training(**config["training"]),
        attack=make_attack(config["attack"], where),
        audit=make_audit(config["audit"], config["seeds"], where),
        interpretation=config["interpretation"],
        multiverse=multiverse,
    )


def _cells(block: dict[str, list[str]], seeds: list[int], looks: Looks) -> tuple[Cell, ...]:
    rows = product(block["datasets"], block["models"], block["methods"], seeds)
    cells = (Cell(*row) for row in rows)
    return tuple(c for c in cells if not looks.planned or c.seed < looks.row_seeds(c.row))


def _dataset(entry: dict[str, Any]) -> Dataset:
    return Dataset(**entry | {"augment": Augment(**entry["augment"]), "mean": tuple(entry["mean"])})


def _check_names(config: dict[str, Any], name: str, where: str) -> None:
    """What a schema cannot say: each name used is defined, and names are safe in paths."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise UserError(f"{where}: a study's file name may hold only letters, digits, _ . -")
    if name in NO_STUDIES:
        raise UserError(f"{where}: a study cannot be named {name}; rename the file")
    for table, block in config["grid"].items():
        if table in NO_GRIDS:
            raise UserError(f"{where}: grid.{table}: another file has this name; choose another")
        for kind in ("datasets", "methods"):
            for item in block[kind]:
                if item not in config[kind]:
                    known = ", ".join(config[kind])
                    raise UserError(
                        f"{where}: grid.{table}.{kind}: {item} is not defined under {kind}: {known}"
                    )
    extra = set(config["audit"]["seeds"] or ()) - set(config["seeds"])
    if extra:
        raise UserError(f"{where}: audit.seeds: {min(extra)} is not one of seeds {config['seeds']}")
    written = [entry["blend"] for entry in config["methods"].values()]
    series = config["interpretation"]["blend_series"]
    if series not in ("harmonic", *written) and True not in written:
        raise UserError(
            f"{where}: interpretation.blend_series: {series} has no effect, every method names "
            "its own series; write `blend: true` in the methods that should follow it"
        )
