"""What a result is: files written whole or not at all, and where they came from.

A record is JSON with the identity of its cell, its metrics, the exact config slice, the
interpretation, and the commit, versions and hardware it was made with. Every file of a
result is written to a temporary name in its own folder, flushed to disk and renamed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import platform
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from tnfdt.config import ROOT, Cell, UserError
from tnfdt.lifeline import namespace
from tnfdt.validation import shown

SCHEMA = 1
_UNKNOWN, _CHANGED = "unknown", "+changes"  # no git; behind the commit of a tree that differs
Record = dict[str, Any]

_IDENTITY = ("study", "dataset", "model", "method", "seed")
_PACKAGES = (
    "tnfdt", "torch", "torchvision", "timm", "foolbox", "mlflow", "snakemake", "scipy", "numpy",
)  # fmt: skip
# Of a temporary file: a number of a process counts on one machine and in one container.
_OWNER = f".{platform.node()}-{namespace().strip('pid:[]')}."


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, renamed to it on success and removed on an error."""
    temporary = path.with_name(f".{path.name}{_OWNER}{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path.parent)
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}; "
            "free space or fix the folder, then run again"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """Remove the temporary files that killed processes of this machine have left in a folder."""
    for left in folder.glob(f".*{_OWNER}*.tmp"):
        pid = left.name.removesuffix(".tmp").rpartition(_OWNER)[2]
        if pid.isdigit() and not _is_alive(int(pid)):
            left.unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        pass
    return True


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically; NaN and infinity are refused, they are never a result."""
    try:
        text = json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    except ValueError as error:
        raise UserError(f"{path}: a value is NaN or infinite, nothing was written") from error
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def read_json(path: Path) -> Any:
    """Read JSON; one clear line when it is missing, torn or holds NaN."""
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_constant)
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; run the stage that makes it") from None
    except (ValueError, OSError, RecursionError) as error:
        raise UserError(
            f"{path} is not a valid JSON record ({error}); delete it and run again"
        ) from None


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def identity(study: str, cell: Cell) -> Record:
    """The keys that say which cell a record is of."""
    return dict(zip(_IDENTITY, (study, *cell), strict=True))


def read_record(path: Path, *, stage: str, study: str, cell: Cell) -> Record:
    """Read a record and make sure it is what its path says it is."""
    record = read_json(path)
    if not isinstance(record, dict):
        raise UserError(f"{path} is not a record (a JSON object); delete it and run again")
    expected = {"schema": SCHEMA, "stage": stage, **identity(study, cell)}
    for key, value in expected.items():
        if record.get(key) != value:
            raise UserError(
                f"{path}: {key} is {shown(record.get(key))}, expected {value!r}; "
                "move it away or delete it and run again"
            )
    if not isinstance(record.get("config", {}), dict):
        raise UserError(f"{path}: 'config' is no mapping; delete it and run again")
    _check_metrics(path, record.get("metrics"))
    return record


def require(path: Path, record: Record, *keys: str) -> None:
    """Raise unless the record has all these keys."""
    for key in keys:
        if record.get(key) is None:
            raise UserError(f"{path}: {key!r} is missing; move it away or delete it and run again")


def _check_metrics(path: Path, metrics: Any) -> None:
    if not isinstance(metrics, dict):
        raise UserError(f"{path}: 'metrics' is missing; delete the file and run again")
    for key, value in metrics.items():
        for number in value if isinstance(value, list) else [value]:
            if number is None or isinstance(number, bool | str):
                continue
            if not is_finite(number):
                raise UserError(
                    f"{path}: metric {key} is {shown(number)}, expected finite numbers; "
                    "delete it and run again"
                )


def is_finite(value: Any) -> bool:
    """Whether a value is a number that floating point holds."""
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:
        return False


@cache
def provenance() -> Record:
    """Commit, versions and hardware of this process: recorded with every result."""
    return {"commit": _commit(), "versions": _versions(), "hardware": _hardware()}


def _commit() -> str:
    """The commit of the code that runs, with '+changes' if the tree differs from it."""
    head = _git("rev-parse", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", "tnfdt", "workflow")
    return (head or _UNKNOWN) + (_CHANGED if changed else "")


def is_exact(commit: str) -> bool:
    """Whether a recorded commit tells all of the code that ran."""
    return commit != _UNKNOWN and not commit.endswith(_CHANGED)


def _git(*args: str) -> str:
    command = ["git", "-C", str(ROOT), *args]
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def _hardware() -> Record:
    import psutil

    return {
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "cpu": _cpu_name(),
        "cores": psutil.cpu_count(logical=True),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
    }


def _cpu_name() -> str:
    """Name and numbers of the processor: virtual machines call many generations by one name."""
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text()
        facts = dict(re.findall(r"^(.+?)\s*: (.+)$", text, re.MULTILINE))
        if name := facts.get("model name"):
            numbers = (facts.get(key, "?") for key in ("cpu family", "model", "stepping"))
            return f"{name} {'/'.join(numbers)}"
    return platform.processor() or "unknown"
