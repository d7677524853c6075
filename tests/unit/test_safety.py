"""Nothing that is read can run code, leave its folder or tell a secret: each is tried for real."""

import ast
import json
import os
import pickle
import re
import shlex
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.data.miniature import Miniature
from tnfdt.attack import batches as partial
from tnfdt.attack import cell as attack_cell
from tnfdt.data import official
from tnfdt.data.arrays import Arrays
from tnfdt.data.npz import read_npz
from tnfdt.data.prepare import prepare
from tnfdt.data.prepared import load
from tnfdt.files import atomic
from tnfdt.run import snakemake as workflow
from tnfdt.study.machine import load_machine, machine_from_dict
from tnfdt.study.schema import ROOT, UserError, read_yaml
from tnfdt.study.study import load_study, study_from_dict
from tnfdt.train import checkpoint

# What the source may not call

SOURCES = sorted(ROOT.glob("tnfdt/**/*.py"))
RULES = [ROOT / "Snakefile", *sorted(ROOT.glob("workflow/rules/*.smk"))]
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
CALLS = {
    "eval", "exec", "compile", "__import__", "os.system", "os.popen", "subprocess.getoutput",
    "yaml.load", "yaml.full_load", "yaml.unsafe_load", "pd.read_pickle", "pandas.read_pickle",
}  # fmt: skip
NEEDED = {  # keyword that a call must have, and its value
    "torch.load": ("weights_only", True),
    "np.load": ("allow_pickle", False),
    "np.lib.npyio.NpzFile": ("allow_pickle", False),
}
FILLED = {"log:q", "params.cell", "params.slice", "wildcards.epsilon", "wildcards.dataset"}


def forbidden(source: str) -> list[str]:
    """What a Python source does that could run foreign code."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] + [getattr(node, "module", "") or ""]
            found += [name for name in names if name.partition(".")[0] in MODULES]
        if isinstance(node, ast.Call):
            found += _forbidden_call(node)
    return found


def _forbidden_call(node: ast.Call) -> list[str]:
    name = ast.unparse(node.func)
    given = {word.arg: getattr(word.value, "value", word) for word in node.keywords}
    key, value = NEEDED.get(name, (None, None))
    unsafe = name in CALLS or given.get("shell", False) is not False
    return [ast.unparse(node)] if unsafe or (key and given.get(key) is not value) else []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_source_calls_nothing_that_runs_foreign_code(path):
    assert not forbidden(path.read_text())


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "eval('1')",
        "exec(text)",
        "os.system('ls')",
        "subprocess.run('ls', shell=True)",
        "subprocess.run('ls', shell=flag)",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "yaml.load(text, Loader=yaml.Loader)",
    ],
)
def test_the_scan_finds_what_it_looks_for(source):
    assert forbidden(source)
    assert not forbidden("model.eval(); torch.load(p, weights_only=True); yaml.safe_load(t)")


def shell_commands() -> list[str]:
    texts = [path.read_text() for path in RULES]
    return [text for rules in texts for text in re.findall(r'shell:\s*"([^"\n]*)"', rules)]


def test_shell_commands_are_filled_with_checked_names_and_quoted_paths_only():
    commands = shell_commands()
    assert len(commands) == sum(path.read_text().count("shell:") for path in RULES) > 5
    assert {field for text in commands for field in re.findall(r"{([^}]*)}", text)} <= FILLED


def test_rules_run_no_python_of_their_own():
    for path in RULES:
        text = path.read_text()
        assert not re.search(r"^\s*(run|script|notebook|wrapper):", text, re.MULTILINE), path
        assert not re.search(r"\b(eval|exec|shell)\(|pickle|os\.system", text), path


# Names and settings that reach a path or a shell

EVIL = [
    "a b", "a;b", "$(touch x)", "`x`", "a\nb", "x\n", "..", "../x", "/x", "a/b", "-x", ".x", "",
    "a'b", 'a"b', "a&b", "a|b", "a>b", "a*b", "{x}", "a\\b", "a\0b", "é", "~", "#x", "x" * 65,
]  # fmt: skip


def renamed(kind: str, name: str) -> dict:
    """The demo with a dataset, model or method of this name."""
    raw = yaml.safe_load((ROOT / "config/studies/demo.yaml").read_text())
    raw["grid"]["table1"][kind] = [name]
    if kind != "models":
        raw[kind] = {name: {}}
    return raw


@pytest.mark.parametrize("kind", ["datasets", "models", "methods"])
@pytest.mark.parametrize("name", EVIL)
def test_a_name_that_is_unsafe_in_a_path_or_shell_is_refused_in_one_line(kind, name):
    with pytest.raises(UserError) as caught:
        study_from_dict(renamed(kind, name), name="mine", where="mine.yaml")
    assert "\n" not in str(caught.value)
    assert study_from_dict(renamed(kind, "wrn10_1"), name="mine", where="mine.yaml")


@given(name=st.text(st.characters(codec="ascii"), max_size=8))
def test_any_name_is_refused_or_safe(name):
    try:
        study = study_from_dict(renamed("methods", name), name=name, where="mine.yaml")
    except UserError:
        return
    path = f"{study.name}/{study.cells[0].path}"
    assert shlex.quote(path) == path
    assert Path("/results", path).resolve().is_relative_to("/results")
    assert len(Path(path).parts) == 5


@pytest.mark.parametrize("value", [["0; ls"], ["$(ls)"], [True], [-1], ["../1"]])
@pytest.mark.parametrize("key", ["seeds", "epsilons"])
def test_seeds_and_epsilons_are_numbers(key, value):
    raw = yaml.safe_load((ROOT / "config/studies/demo.yaml").read_text())
    (raw if key == "seeds" else raw["attack"])[key] = value
    with pytest.raises(UserError, match=key):
        study_from_dict(raw, name="mine", where="mine.yaml")


@pytest.mark.parametrize("end", ["\n", "\nb", "\0", "\x1b[2J", "\x85", "\u2028x"])
@pytest.mark.parametrize(
    "key", ["study", "data_dir", "sample_dir", "results_dir", "tracking_uri", "device"]
)
def test_a_setting_is_one_line(key, end):
    value = {"device": "cpu", "tracking_uri": "http://x"}.get(key, "x")
    assert machine_from_dict({key: value})
    with pytest.raises(UserError, match=key) as caught:
        machine_from_dict({key: value + end})
    assert str(caught.value).isprintable()


def test_braces_in_the_results_folder_are_refused():
    with pytest.raises(UserError, match="braces"):
        machine_from_dict({"results_dir": "a{b}"})


@pytest.mark.parametrize(
    "value", ["007", "a: b", "yes", "[x]", "a #b", "x=y", "'", '"', "\\n", "é😀"]
)
def test_settings_reach_the_jobs_of_a_run_as_they_are(value, monkeypatch):
    from tnfdt.cli import arguments

    for key in ("PATH", "TNFDT_STUDY", "TNFDT_SET"):
        monkeypatch.setenv(key, os.environ.get(key, ""))
    workflow.export({"study": "demo", "results_dir": value, "threads": 2})
    pairs = os.environ["TNFDT_SET"].splitlines()
    assert arguments.settings(pairs) == {"study": "demo", "results_dir": value, "threads": 2}


# Files that would run code if they were trusted


class Trap:
    """Pickled, it leaves a trace where it is read."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self):
        return (Path(self.trace).touch, ())


@pytest.fixture
def trap(tmp_path):
    """A trap that works, checked at the end: otherwise its tests would show nothing."""
    trace = tmp_path / "sprung"
    yield Trap(trace)
    assert not trace.exists(), "foreign code was run"
    pickle.loads(pickle.dumps(Trap(trace)))
    assert trace.exists()


def test_a_checkpoint_cannot_run_code(tmp_path, trap, capsys):
    path = tmp_path / "checkpoint.pt"
    torch.save({"identity": "me", "state": {"x": trap}}, path)
    assert checkpoint.load(path, identity="me", code={}) is None
    assert "cannot be read" in capsys.readouterr().err


def test_weights_that_are_a_pickle_are_refused(tmp_path, trap):
    torch.save({"x": trap}, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=r"model.safetensors cannot be read"):
        attack_cell._read_weights(tmp_path / "model.safetensors")


READERS = {
    "own.npz": read_npz,
    "eps0.1.partial": partial.read_arrays,
    "eps0.1.npz": atomic.read_arrays,
}


@pytest.mark.parametrize("name", READERS)
def test_an_npz_with_objects_is_refused(name, tmp_path, trap):
    keys = ("train_x", "train_y", "test_x", "test_y", "correct")
    with (tmp_path / name).open("wb") as file:
        np.savez(file, **{key: np.array([trap], object) for key in keys})
    with pytest.raises(UserError) as caught:
        READERS[name](tmp_path / name)
    assert "\n" not in str(caught.value)


def test_prepared_data_with_objects_is_refused(tmp_path, trap):
    prepare("digits", tmp_path / "digits", data_dir=tmp_path)
    np.save(tmp_path / "digits/train_x.npy", np.array([trap], object))
    with pytest.raises(UserError, match=r"train_x.npy is unreadable"):
        load(tmp_path / "digits")


@pytest.mark.parametrize("tag", ["object/apply:os.getcwd []", "name:os.system ''"])
def test_yaml_cannot_make_objects(tmp_path, tag):
    path = tmp_path / "mine.yaml"
    path.write_text(f"seeds: !!python/{tag}")
    with pytest.raises(UserError, match="not valid YAML"):
        load_study(str(path))


@pytest.mark.parametrize("place", ["folder", "archive"])
def test_a_cifar_pickle_is_verified_before_it_is_read(place, tmp_path, monkeypatch, trap):
    c10 = Miniature("c10", tmp_path, monkeypatch)
    name, evil = "cifar-10-batches-py/data_batch_1", pickle.dumps(trap)
    if place == "folder":
        c10.unpack_cifar()
        c10.write(name, evil)
    else:  # the archive's own checksum is right, its member is not the official one
        c10.members[name] = evil
        c10.write_tar()
    with pytest.raises(UserError, match=r"data_batch_1: MD5 is .*, the official file has"):
        c10.prepare()


# Paths that lead elsewhere


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    """64 MiB of zeros in 64 kB, where a limit of a megabyte stands for the memory of a machine."""
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, **dict.fromkeys(Arrays._fields, np.zeros(1 << 24, np.uint8)))
    assert path.stat().st_size < 1 << 17
    unpacked = []
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_, **__: unpacked.append(1))
    monkeypatch.setattr(atomic, "NPZ_BYTES", 1 << 20)
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=1 << 20))
    for reader in (read_npz, atomic.read_arrays):
        with pytest.raises(UserError, match="it unpacks to 64 MiB, more than 1"):
            reader(path)
    assert not unpacked


def test_members_of_an_npz_are_never_written(tmp_path):
    path = tmp_path / "in/own.npz"
    path.parent.mkdir()
    pixels = {f"{split}_x": np.zeros((4, 8, 8), np.uint8) for split in ("train", "test")}
    labels = {f"{split}_y": np.arange(4) % 2 for split in ("train", "test")}
    np.savez(path, **pixels, **labels)
    with zipfile.ZipFile(path, "a") as archive:
        for name in ("../evil.npy", str(tmp_path / "evil.npy")):
            archive.writestr(name, b"x")
    assert len(read_npz(path).train_y) == 4
    assert not list(tmp_path.rglob("evil*"))


def test_a_link_in_data_dir_is_replaced_and_not_written_through(tmp_path, monkeypatch):
    svhn = Miniature("svhn", tmp_path, monkeypatch)
    data, file = (tmp_path / "test_32x32.mat").read_bytes(), official.Official("x.mat", "", "u:")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "x.mat").symlink_to(tmp_path / "elsewhere/x.mat")

    def fetch(url, root, name, md5):
        Path(root).mkdir()
        Path(root, name).write_bytes(data)

    monkeypatch.setattr("torchvision.datasets.utils.download_url", fetch)
    official.download((file,), tmp_path)
    assert (tmp_path / "x.mat").read_bytes() == data
    assert not (tmp_path / "x.mat").is_symlink()
    assert not list((tmp_path / "elsewhere").iterdir())
    svhn.check()


def test_a_link_in_place_of_the_work_folder_is_refused(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/kept").touch()
    (tmp_path / ".digits.partial").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=r"digits.partial: File exists"):
        prepare("digits", tmp_path / "digits", data_dir=tmp_path)
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["kept"]


# Secrets

SECRET = "hush%40hush"
URI = f"http://me:{SECRET}@127.0.0.1:9"


@pytest.mark.parametrize(
    "text",
    [
        f"tracking_uri: {URI}: x",  # YAML would quote the line that it cannot read,
        f"tracking_uri: {URI}{'/x' * 6}: x",  # and only its end
        f"tracking_uri: [{URI}]",
        f"tracking_uri: [http://me:{SECRET * 50}@127.0.0.1:9]",  # longer than a message
        f'tracking_uri: "{URI}\\n"',
        f"study: {URI}",
        f"tracking_uri: bad{URI}",
    ],
)
def test_no_message_shows_the_password_of_an_address(text, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        machine = load_machine(path)
        load_study(machine.study)
        from tnfdt.tracking import resolve_uri

        resolve_uri(machine.tracking_uri)
    assert "hush" not in str(caught.value)


def test_a_password_on_the_command_line_of_snakemake_is_refused(monkeypatch):
    settings = {"study": "demo", "tracking_uri": URI}
    assert workflow.load(settings)  # from config/config.yaml: nobody sees it
    monkeypatch.setattr("sys.argv", ["snakemake", "--config", f"tracking_uri={URI}"])
    with pytest.raises(UserError, match="MLFLOW_TRACKING_PASSWORD") as caught:
        workflow.load(settings)
    assert SECRET not in str(caught.value)
    harmless = {"study": "demo", "tracking_uri": "http://127.0.0.1:9"}
    monkeypatch.setattr("sys.argv", ["snakemake", "--config", "tracking_uri=http://127.0.0.1:9"])
    assert workflow.load(harmless)


def test_records_hold_nothing_of_the_environment(monkeypatch):
    from tnfdt.files.provenance import provenance

    for key in ("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(key, SECRET)
    provenance.cache_clear()
    made = json.dumps(provenance())
    assert SECRET not in made
    assert set(provenance()) == {"commit", "versions", "hardware"}


# The page of guarantees


def test_every_test_that_the_guarantees_name_exists():
    page = (ROOT / "docs/guarantees.md").read_text()
    named = re.findall(r"(?<=`)(tests/[\w/]+\.py)::(\w+)(?=`)", page)
    assert len(named) > 20
    for path, name in named:
        assert re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.MULTILINE), name
    assert page.count("tests/") == len(named)  # none is written in another form


def test_yaml_is_read_as_the_safe_loader_does(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text("a: {b: [1, 0.5, null, text]}")
    assert read_yaml(path) == yaml.safe_load(path.read_text())
