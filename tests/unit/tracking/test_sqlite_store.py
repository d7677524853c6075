"""The embedded store and MLflow's page on it; without MLflow, but for what creates a store."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from tnfdt.study.schema import UserError
from tnfdt.tracking import columns, sqlite_store


def store_file(path):
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE experiments (name TEXT, experiment_id INTEGER)")
        database.execute("INSERT INTO experiments VALUES ('Default', 0), ('tnfdt/demo', 3)")
        database.commit()


@pytest.mark.parametrize("content", [None, b""])
def test_a_store_that_is_not_there_is_created_once(tmp_path, monkeypatch, content):
    path, made = tmp_path / "new" / "m.db", []
    if content is not None:
        path.parent.mkdir()
        path.write_bytes(content)
    monkeypatch.setattr(sqlite_store, "_create", lambda path: (made.append(path), store_file(path)))
    for _ in range(2):
        sqlite_store.init_store(f"sqlite:///{path}")
    sqlite_store.init_store("http://nobody:5000")
    assert made == [path]


def test_a_creation_that_is_cut_off_leaves_no_store(tmp_path, monkeypatch):
    class Cut:
        def __init__(self, uri, artifacts):
            store_file(uri.removeprefix("sqlite:///"))
            raise KeyboardInterrupt

    modules = {
        "mlflow.store.tracking.sqlalchemy_store": type("module", (), {"SqlAlchemyStore": Cut})
    }
    monkeypatch.setattr(sqlite_store, "import_module", modules.get)
    monkeypatch.setattr(sqlite_store, "import_mlflow", lambda: None)
    with pytest.raises(KeyboardInterrupt):
        sqlite_store.init_store(f"sqlite:///{tmp_path}/m.db")
    assert [path.name for path in tmp_path.iterdir() if "lock" not in path.name] == []


def test_what_is_no_store_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "m.db"
    path.write_text("a text that is long enough")
    with pytest.raises(UserError, match=r"m\.db is not an MLflow store; move it away"):
        sqlite_store.init_store(f"sqlite:///{path}")
    assert path.read_text() == "a text that is long enough"
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match="folder, not an MLflow store; move it away"):
        sqlite_store.init_store(f"sqlite:///{tmp_path}/folder")


def test_the_server_listens_on_this_machine_only(tmp_path, monkeypatch, capsys):
    path, became = tmp_path / "m.db", []
    store_file(path)
    monkeypatch.setattr(sqlite_store.os, "execve", lambda *args: became.append(args))
    monkeypatch.chdir(tmp_path)
    sqlite_store.ui("sqlite:///m.db", 5123)
    ((_, command, environment),) = became
    assert command[command.index("--host") + 1] == "127.0.0.1"
    assert command[command.index("--backend-store-uri") + 1] == f"sqlite:///{path}"
    assert environment["MLFLOW_DISABLE_TELEMETRY"] == "true"
    link = "http://127.0.0.1:5123/#/experiments/3/runs?viewStateShareKey=tnfdt"
    assert capsys.readouterr().out.startswith(f"tnfdt/demo: {link}")
    with pytest.raises(UserError, match=r"open http://\*\*\*@host:5000"):
        sqlite_store.ui("http://me:secret@host:5000", 5123)


def test_the_page_shows_robust_accuracy_by_falling_epsilon():
    keys = ["robust/eps0.001", "loss", "robust/eps0.1", "robust_curve/eps0.1", "robust/eps1e-05"]
    _, text = columns.view_tag(filter(columns.is_shown, keys))
    shown = ["accuracy", "robust/eps0.1", "robust/eps0.001", "robust/eps1e-05"]
    metrics = [f"metrics.`{prefix}{key}`" for key in shown for prefix in ("", "sd/")]
    assert json.loads(text)["selectedColumns"] == ["tags.`seeds`", *metrics, "tags.`audit`"]


def test_importing_tracking_imports_neither_mlflow_nor_torch():
    code = "import sys, tnfdt.tracking; print({'mlflow', 'torch', 'pandas'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_telemetry_is_off_before_mlflow_is_imported(tmp_path):
    code = """
import os, sys
from pathlib import Path
from tnfdt.tracking import track

class Spy:
    def find_spec(self, name, *args):
        if name == "mlflow":
            sys.exit(os.environ.get("MLFLOW_DISABLE_TELEMETRY"))

sys.meta_path.insert(0, Spy())
track(Path(), ".", "http://x")
"""
    env = {key: os.environ[key] for key in os.environ if not key.startswith("MLFLOW")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.stderr.strip() == "true"
