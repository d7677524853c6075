"""The embedded store, one SQLite file: created once, by one process; and MLflow's page on it."""

from __future__ import annotations

import logging
import os
import socket
import sqlite3
import sys
import warnings
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from filelock import FileLock

from tnfdt.files.atomic import atomic_path
from tnfdt.study.schema import UserError
from tnfdt.tracking.address import SQLITE, artifact_root, mask_uri, resolve_uri, sqlite_path
from tnfdt.tracking.columns import runs_page

QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # the URL may hold a password
}


def import_mlflow() -> Any:
    """The module, which takes seconds to import; without telemetry, and it prints nothing."""
    os.environ.update(QUIET)
    warnings.simplefilter("ignore")
    mlflow = import_module("mlflow")
    for name in ("mlflow", "alembic", "sqlalchemy", "urllib3"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return mlflow


def init_store(uri: str) -> None:
    """Create the embedded store if it is not there; a server has one of its own.

    Processes that open a fresh SQLite store at once race in its creation and can damage it
    for good. So it is created under a lock, and appears under its name when it is whole.
    """
    path = sqlite_path(resolve_uri(uri))
    if path is None or _is_database(path):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.lock")):
        if not _is_database(path):
            _create(path)


def _create(path: Path) -> None:
    import_mlflow()
    store: Any = import_module("mlflow.store.tracking.sqlalchemy_store")
    logging.disable(logging.CRITICAL)  # its migrations set levels of their own
    try:
        with atomic_path(path) as temporary:
            made = store.SqlAlchemyStore(f"{SQLITE}{temporary}", str(artifact_root(path)))
            made.engine.dispose()
    finally:
        logging.disable(logging.NOTSET)


def _is_database(path: Path) -> bool:
    """Whether the file is there; what is no database stays as it is, and is refused."""
    if path.is_dir():
        raise UserError(f"{path} is a folder, not an MLflow store; move it away and try again")
    if not path.exists() or path.stat().st_size == 0:
        return False
    with path.open("rb") as file:
        if file.read(16) != b"SQLite format 3\0":
            raise UserError(f"{path} is not an MLflow store; move it away and try again")
    return True


def ui(uri: str, port: int) -> NoReturn:
    """Become MLflow's server on the embedded store, reachable from this machine only."""
    uri = resolve_uri(uri)
    path = sqlite_path(uri)
    if path is None:
        raise UserError(f"the tracking store is a server: open {mask_uri(uri)} in a browser")
    init_store(uri)
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
    """For each study of the store the page that lists its runs with their accuracies."""
    query = "SELECT name, experiment_id FROM experiments WHERE name LIKE 'tnfdt/%' ORDER BY name"
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            found = database.execute(query).fetchall()
    except sqlite3.Error:
        return []
    return [(name, f"http://127.0.0.1:{port}/{runs_page(number)}") for name, number in found]
