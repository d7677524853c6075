"""The embedded store, one SQLite file: made once, by one process; and MLflow's page on it."""

from __future__ import annotations

import logging
import os
import socket
import sqlite3
import subprocess
import sys
import zlib
from contextlib import closing
from importlib import metadata
from pathlib import Path
from typing import NoReturn

from filelock import FileLock, Timeout

from tnfdt.study.schema import UserError
from tnfdt.tracking.address import (
    SERVERS,
    SQLITE,
    artifact_root,
    mask_text,
    mask_uri,
    resolve_uri,
    sqlite_path,
)

VIEW = "tnfdt"  # the key under which a study's columns are stored with its experiment
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # the URL may hold a password
}
_PATIENCE = 120  # seconds to wait for another process that makes the store

log = logging.getLogger(__name__)


def init_store(uri: str) -> None:
    """Make or migrate the store before any cell starts; milliseconds if it is done already.

    Processes that open a fresh SQLite store at once race in its migration and can spoil it for
    good. So one child makes it under a lock, and it appears under its name when it is whole. A
    store that cannot be made is a warning: cells train, and `tnfdt track` sends them later.
    """
    if reason := _made(resolve_uri(uri)):
        log.warning(
            "tracking: no store at %s (%s); cells run without it, `tnfdt track` fills it later",
            mask_uri(uri), reason,
        )  # fmt: skip


def require_store(uri: str) -> None:
    """Make the store if need be, or say that there is none: MLflow's client must never find an
    unmade one, as it would make it itself."""
    if reason := _made(resolve_uri(uri)):
        raise UserError(
            f"{mask_uri(uri)} is not a usable MLflow store ({reason}); move it away and try again"
        )


def _made(uri: str) -> str:
    """Empty once there is a store, or the reason why there is none."""
    path = sqlite_path(uri)
    if uri.partition(":")[0] in SERVERS or (path and is_ready(path)):
        return ""
    try:
        _make(uri, path)
    except (OSError, subprocess.SubprocessError, Timeout, UserError) as error:
        reason = getattr(error, "stderr", "") or str(error)
        return mask_text(reason, uri)[-300:] or "no reason given"
    return ""


def _make(uri: str, path: Path | None) -> None:
    if path is None:
        return _create(uri)
    _check_database(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.lock"), timeout=_PATIENCE):
        return None if is_ready(path) else _create(uri)


def _check_database(path: Path) -> None:
    """What is there and is no database stays as it is, and nothing is put beside it."""
    if path.is_dir():
        raise UserError("it is a folder")
    if path.is_file() and path.stat().st_size and _head(path) != b"SQLite format 3\0":
        raise UserError("it is not a database")


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(16)


def _create(uri: str) -> None:
    """In a process of its own: mlflow stays out of this one."""
    command = [sys.executable, "-m", "tnfdt.tracking.create"]
    env = {**os.environ, **QUIET}
    subprocess.run(
        command, input=uri, env=env, check=True, text=True, capture_output=True, timeout=_PATIENCE
    )


def is_ready(path: Path) -> bool:
    """Whether the store was made or migrated by the MLflow that is installed."""
    if not path.exists():
        return False
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=1)) as database:
            (found,) = database.execute("PRAGMA user_version").fetchone()
    except sqlite3.Error as error:
        return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY  # in use: it is
    return bool(found == stamp())


def stamp() -> int:
    """A number for the installed MLflow, kept in the database's own header: it goes where the
    file goes, and is gone when the file is."""
    return zlib.crc32(metadata.version("mlflow").encode()) & 0x7FFFFFFF


def ui(uri: str, port: int) -> NoReturn:
    """Become MLflow's server on the embedded store, reachable from this machine only."""
    uri = resolve_uri(uri)
    path = sqlite_path(uri)
    if path is None:
        raise UserError(f"the tracking store is a server: open {mask_uri(uri)} in a browser")
    require_store(uri)
    _check_port(port)
    for name, link in links(path, port):
        print(f"{name}: {link}", flush=True)
    os.chdir(path.parent)  # the server leaves nothing in the working directory
    os.execve(sys.executable, server_command(path, port), {**os.environ, **server_settings()})


def _check_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise UserError(f"--port {port}: {error.strerror}; name another port") from None


def server_command(path: Path, port: int) -> list[str]:
    """One worker is plenty for one reader, and starts four times faster than four."""
    return [
        sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port),
        "--workers", "1", "--backend-store-uri", f"{SQLITE}{path}",
        "--default-artifact-root", str(artifact_root(path)),
    ]  # fmt: skip


def server_settings() -> dict[str, str]:
    """No telemetry, and none of the seven idle processes that serve MLflow's GenAI jobs."""
    return {**QUIET, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}


def links(path: Path, port: int) -> list[tuple[str, str]]:
    """For each study of the store the page that lists its cells with their accuracies."""
    query = "SELECT name, experiment_id FROM experiments WHERE name LIKE 'tnfdt/%' ORDER BY name"
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            found = database.execute(query).fetchall()
    except sqlite3.Error:
        return []
    return [(name, f"http://127.0.0.1:{port}/{runs_page(number)}") for name, number in found]


def runs_page(experiment_id: str) -> str:
    """The table of an experiment's runs, with the columns stored by `store`."""
    return (
        f"#/experiments/{experiment_id}/runs?viewStateShareKey={VIEW}&workflowType=machine_learning"
    )
