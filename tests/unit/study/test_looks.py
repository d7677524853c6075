"""Declared looks: what a study has at each, how it goes on, and seeds that nobody declared."""

import json

import pytest
from matplotlib.figure import Figure

from tests import synthetic
from tnfdt.plan import looks
from tnfdt.run.snakemake import note_look
from tnfdt.study import products
from tnfdt.study.looks import added_after
from tnfdt.study.paths import StudyPaths
from tnfdt.study.schema import UserError
from tnfdt.study.study import load_study
from tnfdt.tables import stage

LOOKS = """
grid: {table1: {datasets: [c10, fmnist], models: [wrn10_1], methods: [vanilla, tn, fdt]}}
seeds: {looks: [3, 5, 8]}
methods:
  vanilla: {}
  tn: {tensor_norm: true}
  fdt: {blend: harmonic, target: distribution}
datasets: {c10: {}, fmnist: {}}
attack: {epsilons: [0.1]}
"""


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """A study of three looks at its first, with results; its file, machine and a loader."""
    path = tmp_path / "looked.yaml"
    path.write_text(LOOKS)
    machine = synthetic.load_machine(overrides={"results_dir": str(tmp_path / "results")})
    monkeypatch.setattr(looks, "hours", lambda *_, **__: 60.0)

    def load():
        return load_study(str(path), machine.results_dir)

    synthetic.write(load(), tmp_path / "results")
    return load, machine, tmp_path / "results/looked"


def test_the_first_look_has_its_seeds_in_every_row(begun):
    load, _, _ = begun
    assert load().seeds == (0, 1, 2)
    assert len(load().cells) == 2 * 3 * 3


def test_next_extends_the_rows_that_can_still_change_a_verdict(begun):
    load, machine, folder = begun
    text = looks.next_look(load(), machine, None)
    state = json.loads((folder / "looks.json").read_text())
    assert state["look"] == 2
    assert set(state["rows"].values()) == {5}
    assert "look 2 of 3" in text
    study = load()
    assert study.seeds == (0, 1, 2, 3, 4)
    seeds = {(c.dataset, c.method): 0 for c in study.cells}
    for cell in study.cells:
        seeds[cell.dataset, cell.method] += 1
    extended = {tuple(row.split("/")[::2]) for row in state["rows"]}
    assert {key for key, count in seeds.items() if count == 5} == extended
    with pytest.raises(UserError, match="run snakemake first"):
        looks.next_look(study, machine, None)


def test_tables_name_the_look_and_use_its_level(begun):
    load, machine, folder = begun
    stage.run(load(), folder.parent, machine, ["tables"])
    claims = json.loads((folder / "tables/claims.json").read_text())
    assert claims["look"].startswith("Look 1 of 3, at a level of 0.0005")
    assert claims["alpha"] == pytest.approx(0.000504, abs=1e-5)
    assert "Look 1 of 3" in (folder / "tables/claims.md").read_text()


def test_texts_say_how_many_runs_rows_have_where_a_look_extends_only_some(begun):
    load, machine, folder = begun
    rows = {cell.row: 5 for cell in load().cells if cell.method == "tn"}
    state = json.dumps({"look": 2, "rows": rows, "seen": []})
    (folder / "looks.json").write_text(state)
    study, results = load(), folder.parent
    partial = tuple(c for c in study.cells if c.seed == 4 and c.dataset == "c10")
    synthetic.write(study, results, skip=partial)
    stage.run(study, results, machine, ["tables"])
    table = (folder / "tables/table1.md").read_text()
    assert "the average over 3 to 5 runs (the .csv says how many), and ±" in table
    assert "† from fewer runs than planned so far: 2 of 12." in table
    assert "3 to 5 seeds" in (folder / "tables/claims.md").read_text()
    assert products.facts(study)["runs"] == "3 to 5 runs"


def test_texts_name_the_level_that_was_used(begun, monkeypatch):
    load, machine, folder = begun
    legends = []
    monkeypatch.setattr(Figure, "legend", lambda _, handles, **__: legends.append(handles))
    stage.run(load(), folder.parent, machine, ["tables", "figures"])
    for name in ("claims.md", "claims.html", "evidence.html"):
        text = (folder / "tables" / name).read_text()
        assert "all of its rows below 0.0005, for which" in text
    labels = [handle.get_label() for handles in legends for handle in handles]
    assert [label for label in labels if "p <" in label] == [
        "supported (p < 0.0005)",
        "the other way (Holm p < 0.0005)",
    ]


def test_the_last_look_adds_nothing(begun):
    load, machine, folder = begun
    for _ in range(2):
        looks.next_look(load(), machine, None)
        synthetic.write(load(), folder.parent)
    assert "nothing to add" in looks.next_look(load(), machine, None)


def test_seeds_that_were_not_declared_are_labelled(tmp_path):
    path, results = tmp_path / "plain.yaml", tmp_path / "results"
    machine = synthetic.load_machine(overrides={"results_dir": str(results)})
    for seeds in ("[0, 1, 2]", "[0, 1, 2, 3]"):
        path.write_text(LOOKS.replace("{looks: [3, 5, 8]}", seeds))
        study = load_study(str(path), str(results))
        synthetic.write(study, results)
        stage.run(study, results, machine, ["tables"])
        text = (results / "plain/tables/claims.md").read_text()
        assert ("seeds added after a look at 3" in text) == (len(study.seeds) == 4)
        note_look(study, StudyPaths(results / "plain"))
    assert added_after([3, 4], 4) == "seeds added after a look at 3"
    assert added_after([4], 4) == ""


@pytest.mark.parametrize(
    "state",
    [
        "{",
        "[]",
        "[" * 100_000,
        '{"look": 9, "rows": {}, "seen": []}',
        '{"look": 1, "rows": {"a": 4}, "seen": []}',
        '{"look": 1.5, "rows": {}, "seen": []}',
        '{"look": true, "rows": {}, "seen": []}',
        '{"look": 1, "rows": {}, "seen": [1e400]}',
    ],
)
def test_a_damaged_state_is_one_line(begun, state):
    load, _, folder = begun
    (folder / "looks.json").write_text(state)
    with pytest.raises(UserError, match="does not fit the study's looks"):
        load()


def test_looks_that_do_not_grow_are_refused(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text(LOOKS.replace("[3, 5, 8]", "[3, 3]"))
    with pytest.raises(UserError, match="must grow"):
        load_study(str(path))
    path.write_text(LOOKS.replace("{}, fmnist", "{path: x.npz}, fmnist"))
    with pytest.raises(UserError, match="declares no looks"):
        looks.next_look(load_study("demo"), synthetic.machine(), None)
