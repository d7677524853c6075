"""What stage 4 makes of a study, and from what: names only, for the Snakefile.

Imports nothing heavy, as Snakemake reads this at its start and again for every job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tnfdt.study.looks import added_after, run_counts
from tnfdt.study.paths import DATA_FILES, Cell, StudyPaths
from tnfdt.study.schema import ROOT
from tnfdt.study.study import Study

CLAIMS, PUBLISHED = ROOT / "config/claims.yaml", ROOT / "config/published.csv"
PAPER = ROOT / "config/studies/paper.yaml"  # the regime that a verdict on the paper needs

# The packages behind the reviewer's page, the audit's table, and the tables and figures: an edit
# makes them again.
TABLE_PACKAGES = ("evidence", "verdicts", "tables", "study")
AUDIT_PACKAGES = ("evidence", "verdicts", "tables", "figures", "study")
MADE_PACKAGES = ("core", *AUDIT_PACKAGES)

# What `tnfdt tables --only` can name.
PARTS = ("activations", "tables", "figures", "audit", "summary", "multiverse")
READINGS = "readings_"  # begins the names of the specification curves, which end with a claim
PICTURES = ("blend", "activations")  # figures that need images or a network

# What the report calls them.
TITLES = {
    "claims": "Claims and verdicts",
    "evidence": "Evidence behind the verdicts",
    "table1": "Table 1",
    "table2": "Table 2",
    "comparison": "Beside the paper's numbers",
    "summary": "Summary for reviewers",
    "multiverse": "Other readings of the paper",
    "audit": "Audit: is the robustness real?",
    "audit_bars": "Audit: accuracy under each attack",
    "robust_accuracy": "Accuracy over ε",
    "iterations": "Accuracy per PGD iterate",
    "training_curves": "Training curves",
    "forest": "Differences behind the claims",
    "blend": "Full distribution training, with real images",
    "activations": "Activations before and after tensor normalization",
}


def table_pages(study: Study) -> list[str]:
    """The tables that the report shows, as pages of their own."""
    return ["claims", "evidence", *study.grid, "comparison"]


def table_files(study: Study) -> list[str]:
    """The other files of tables/, whatever is there of the study."""
    names = (*study.grid, "comparison")
    drawn = [f"{name}.{kind}" for name in names for kind in ("tex", "csv", "md")]
    paths = StudyPaths(Path())
    others = [path.name for path in (paths.claims, paths.ledger, paths.sources)]
    return [*drawn, "tables.tex", "significance.csv", "claims.md", *others]


def figure_names(study: Study) -> list[str]:
    """The figures of a study: blends and activations only where a method has them."""
    methods = [study.methods[cell.method] for cell in study.cells]
    names = ["robust_accuracy", "iterations", "training_curves", "forest"]
    names += ["blend"] * any(method.blend for method in methods)
    return names + ["activations"] * any(method.tensor_norm for method in methods)


def pictured_dataset(study: Study) -> str:
    """The dataset whose images the blend figure shows: the grid's first."""
    return study.cells[0].dataset


def watched_cell(study: Study) -> Cell | None:
    """The cell whose activations are shown: the grid's first with tensor normalization."""
    cells = (cell for cell in study.cells if study.methods[cell.method].tensor_norm)
    return next(cells, None)


def measured_cells(study: Study) -> list[Cell]:
    """The networks whose activations are counted: Table 1's with TN alone, of the first seed."""
    return [
        cell
        for cell in study.grid.get("table1", ())
        if cell.seed == study.seeds[0]
        and study.methods[cell.method].tensor_norm
        and not study.methods[cell.method].blend
    ]


def measured_files(study: Study, paths: StudyPaths) -> list[Path]:
    """What counting them needs."""
    cells = measured_cells(study)
    data = [paths.manifest(name) for name in dict.fromkeys(c.dataset for c in cells)]
    return [*data, *map(paths.weights, cells), *map(paths.record, cells)]


def pictured_files(study: Study, paths: StudyPaths) -> list[Path]:
    """What the figures with images need beside the records."""
    cell = watched_cell(study)
    datasets = {pictured_dataset(study)} | ({cell.dataset} if cell else set())
    images = [paths.data(dataset) / name for dataset in sorted(datasets) for name in DATA_FILES]
    return [*images, *([paths.weights(cell)] if cell else [])]


def sources(packages: Iterable[str]) -> list[str]:
    """What results of stage 4 depend on beside records: code, the claims, the paper's numbers."""
    folders = [ROOT / "tnfdt" / name for name in packages]
    files = [
        p
        for folder in folders
        for kind in ("py", "jinja")
        for p in sorted(folder.glob(f"*.{kind}"))
    ]
    here = Path.cwd()
    return [
        str(path.relative_to(here) if path.is_relative_to(here) else path)
        for path in (*files, CLAIMS, PUBLISHED, PAPER)
    ]


def reported(
    report: Callable[..., Any], folder: Path, suffix: str, names: Iterable[str]
) -> dict[str, Any]:
    """Outputs of a rule by name, each flagged with Snakemake's `report` for the report.

    The specification curves, one a claim, are many: they have a category of their own.
    """
    kind = folder.name
    found = {}
    for name in names:
        of_reading = name.startswith(READINGS)
        page = name if name in TITLES else "readings" if of_reading else "table"
        found[name] = report(
            f"{folder}/{name}.{suffix}",
            category="Readings" if of_reading else kind.capitalize(),
            caption=f"../report/{page}.rst",
            labels={kind.removesuffix("s"): TITLES.get(name, name.removeprefix(READINGS))},
        )
    return found


def facts(study: Study) -> dict[str, str]:
    """What the report's captions say of a study: runs, images attacked, steps."""
    looks, added = study.looks, added_after(study.looks.seen, len(study.seeds))
    images = "all" if study.attack.limit is None else f"{study.attack.limit:,}"
    runs = run_counts(study.cells)
    return {
        "runs": f"{runs} run{'s' * (runs != '1')}",
        "images": images,
        "steps": str(study.attack.steps),
        "look": f"{looks.look} of {list(looks.planned)} {added}",
    }
