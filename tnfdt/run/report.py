"""Snakemake's own report of a study, made when a run ends.

`--report-after-run` in a profile would be simpler, but it also asks for the report after a
dry run, which fails where nothing is made yet, and its path cannot hold the study's name. So
a run that ended well starts Snakemake once more, with --report. Everything that the page needs
comes with Snakemake's own package: no network is used, then or when it is read.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from tnfdt.study.paths import StudyPaths
from tnfdt.study.schema import ROOT

STYLE = ROOT / "workflow/report/style.css"
FRONT_FIGURE = "robust_accuracy"  # front.rst has figure:robust_accuracy in place of its address


def command(
    snakefile: str,
    out: Path,
    *,
    study: str,
    results_dir: str,
    configfiles: Iterable[str] = (),
    targets: Sequence[str] = ("tables",),
) -> list[str]:
    """The Snakemake call that writes the report of what the targets make to `out`."""
    given = [str(path) for path in configfiles]
    # The run that has just ended still holds the lock of the working folder.
    options = ["--nolock", "--quiet", "all", "--workflow-profile", "none", "--profile", "none"]
    return [
        *(sys.executable, "-m", "snakemake", "--snakefile", snakefile, *options),
        *(("--configfile", *given) if given else ()),
        *("--config", f"study={_quoted(study)}", f"results_dir={_quoted(results_dir)}"),
        *("--report", str(out), "--report-stylesheet", str(STYLE), "--", *targets),
    ]


def _quoted(value: str) -> str:
    """Snakemake strips quotes and reads the rest as YAML, to which `a: b` is a mapping: so the
    quotes are inside of a tag and a comment."""
    return f"!!str {json.dumps(value, ensure_ascii=False)} #"


def make(
    snakefile: str,
    paths: StudyPaths,
    *,
    study: str,
    results_dir: str,
    configfiles: Iterable[str] = (),
) -> Path | None:
    """Write the report of tables and figures; a failure is printed, not raised.

    The audit, the summary and other readings are part of it where they have been made.
    """
    made = {
        "make_audit_tables": "audit.html",
        "pack": "summary.html",
        "make_multiverse": "multiverse.html",
    }
    also = [rule for rule, page in made.items() if (paths.tables / page).is_file()]
    out = paths.report
    written = out.with_name(f".{out.stem}.partial{out.suffix}")  # a killed run leaves no half page
    call = command(
        snakefile,
        written,
        study=study,
        results_dir=results_dir,
        configfiles=configfiles,
        targets=("tables", *also),
    )
    done = subprocess.run(call, capture_output=True, text=True)
    if done.returncode == 0 and written.is_file():
        _embed(written, paths.figures / f"{FRONT_FIGURE}.png")
        return written.replace(out)
    lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
    print(f"tnfdt: the report {out} could not be made: {lines[-1]}", file=sys.stderr)
    return None


def _embed(page: Path, figure: Path) -> None:
    """Put the figure itself into the front page: Snakemake's own directive leaves its path there,
    which means nothing to a reader who has the page alone."""
    if figure.is_file():
        data = base64.b64encode(figure.read_bytes()).decode()
        text = page.read_text(encoding="utf-8")
        text = text.replace(f"figure:{FRONT_FIGURE}", f"data:image/png;base64,{data}")
        page.write_text(text, encoding="utf-8")
