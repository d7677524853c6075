"""`python -m tnfdt.tracking.create`, the address on standard input: make or migrate a store.

Only `init_store` starts this, under its lock.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import sys
import threading
import time
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

from tnfdt.tracking.address import SQLITE, artifact_root, sqlite_path
from tnfdt.tracking.embedded import stamp


def main() -> int:
    threading.Thread(target=_end_with, args=[os.getppid()], daemon=True).start()
    logging.disable(logging.CRITICAL)
    try:
        make(sys.stdin.read())
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


def _end_with(parent: int) -> None:
    """Whoever wanted the store is gone: leave nothing running behind."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def make(uri: str) -> None:
    path = sqlite_path(uri)
    if path is None:
        _migrate(uri, "mlflow-artifacts:/")
    elif path.exists() and _is_current(uri):
        _mark(path)
    else:
        _replace(path)


def _replace(path: Path) -> None:
    """Migrate a copy and put it in place: a kill half-way leaves the store as it was."""
    copy = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    _remove_copies(path)
    try:
        if path.exists():
            with closing(sqlite3.connect(path)) as old, closing(sqlite3.connect(copy)) as new:
                old.backup(new)
        _migrate(f"{SQLITE}{copy}", str(artifact_root(path)))
        _mark(copy)
        copy.replace(path)
    finally:
        _remove_copies(path)


def _remove_copies(path: Path) -> None:
    for left in path.parent.glob(f".{path.name}.*.tmp*"):
        left.unlink(missing_ok=True)


def _migrate(uri: str, artifacts: str) -> None:
    path = sqlite_path(uri)
    if path and path.exists():
        database: Any = import_module("mlflow.store.db.utils")
        engine = database.create_sqlalchemy_engine(uri)
        database._upgrade_db(engine)
        engine.dispose()
    store: Any = import_module("mlflow.store.tracking.sqlalchemy_store")
    store.SqlAlchemyStore(uri, artifacts).engine.dispose()


def _is_current(uri: str) -> bool:
    database: Any = import_module("mlflow.store.db.utils")
    engine = database.create_sqlalchemy_engine(uri)
    try:
        return bool(database._get_schema_version(engine) == database._get_latest_schema_revision())
    finally:
        engine.dispose()


def _mark(path: Path) -> None:
    with closing(sqlite3.connect(path, timeout=30)) as database:
        database.execute(f"PRAGMA user_version = {stamp()}")


if __name__ == "__main__":
    sys.exit(main())
