"""Stage 4 at the edge: which files there are, that they are the same each time, and sources."""

import csv
import json
import shutil
from dataclasses import replace

import pytest

from tests import synthetic
from tnfdt.files.atomic import sha256_file
from tnfdt.study import products
from tnfdt.study.paths import Cell, format_epsilon
from tnfdt.study.schema import UserError
from tnfdt.tables import stage as stage_tables

CELL = Cell("c10", "resnet34", "tn", 0)


@pytest.fixture(scope="module")
def study():
    return synthetic.study(
        grid={
            "table1": {"datasets": ["c10"], "models": ["resnet34"], "methods": ["vanilla", "tn"]},
            "table2": {"datasets": ["c100"], "models": ["wrn28_10"], "methods": ["vanilla", "tn"]},
        },
        training={"epochs": 3},
    )


@pytest.fixture(scope="module")
def whole(study, tmp_path_factory):
    return synthetic.write(study, tmp_path_factory.mktemp("whole"))


def make(study, folder):
    return stage_tables.run(study, folder.parent, synthetic.machine(), parts=("tables",))


def names(paths):
    return sorted(path.name for path in paths)


def expected(study):
    pages = [f"{name}.html" for name in products.table_pages(study)]
    return sorted([*pages, *products.table_files(study)])


def test_the_files_are_those_that_the_workflow_expects(study, whole):
    written = make(study, whole)
    assert names(written) == expected(study)
    assert names((whole / "tables").iterdir()) == expected(study)


def test_the_same_records_give_the_same_bytes(study, whole):
    before = {path.name: sha256_file(path) for path in make(study, whole)}
    assert {path.name: sha256_file(path) for path in make(study, whole)} == before


def test_a_study_without_table_2_has_no_file_of_it(tmp_path):
    study = synthetic.study(
        grid={"table1": {"datasets": ["c10"], "models": ["resnet34"], "methods": ["vanilla"]}}
    )
    written = make(study, synthetic.write(study, tmp_path, attacks=False))
    assert names(written) == expected(study)
    assert not any("table2" in name for name in names(written))


def test_a_study_may_have_tables_of_its_own(tmp_path):
    methods = {"vanilla": {}, "mixup": {"mix": "mixup"}, "smooth": {"label_smoothing": 0.1}}
    block = {"datasets": ["c10"], "models": ["resnet34"], "methods": [*methods]}
    grid = {"what_else": block | {"caption": "What else?"}, "more": block}
    study = synthetic.study(grid=grid, methods=methods)
    written = make(study, synthetic.write(study, tmp_path))
    assert names(written) == expected(study)
    text = (tmp_path / study.name / "tables/what_else.md").read_text()
    assert text.startswith("What else? Baseline is")
    assert "| ResNet-34 & label smoothing |" in text
    more = (tmp_path / study.name / "tables/more.tex").read_text()
    assert "Table more of the study synthetic." in more
    assert "The paper has" not in (tmp_path / study.name / "tables/claims.md").read_text()


def test_tables_of_nothing_are_tables(study, tmp_path):
    written = make(study, tmp_path / study.name)
    assert names(written) == expected(study)
    text = (tmp_path / study.name / "tables" / "table1.md").read_text()
    assert "– not run yet: 10 of 10 numbers." in text
    claims = json.loads((tmp_path / study.name / "tables" / "claims.json").read_text())
    not_run = claims["counts"]["not run"] + claims["counts_ours"]["not run"]
    assert not_run == len(claims["claims"])


def test_part_of_a_grid_shows_the_rest_as_missing(study, tmp_path):
    skipped = tuple(cell for cell in study.cells if cell.method == "tn")
    make(study, synthetic.write(study, tmp_path, skip=skipped))
    rows = list(csv.DictReader((tmp_path / study.name / "tables/table1.csv").open()))
    assert [row["clean"] == "" for row in rows] == [False, True]
    assert [row["eps0.1_seeds"] for row in rows] == ["3", "0"]


def test_the_verdicts_say_on_what_they_rest(study, whole):
    make(study, whole)
    claims = (whole / "tables/claims.md").read_text()
    assert "ResNet-34 (table1), WideResNet-28-10 (table2); all training images" in claims
    assert "at this scale" not in claims


def test_the_verdicts_of_other_networks_say_so(tmp_path):
    study = synthetic.study(
        grid={"table2": {"datasets": ["c100"], "models": ["wrn16_1"], "methods": ["vanilla"]}},
        limit={"train": 5000},
    )
    make(study, synthetic.write(study, tmp_path))
    table = (tmp_path / study.name / "tables/table2.tex").read_text()
    assert "Training images=5,000 per dataset" in table
    for name in ("claims.md", "claims.html", "evidence.html"):
        text = (tmp_path / study.name / "tables" / name).read_text()
        assert "WideResNet-16-1 (table2); 5,000 training images" in text
        assert "The paper has ResNet-152 and WideResNet-28-10 (table2): the verdicts" in text


def test_tables_without_their_records_are_not_emptied(study, tmp_path):
    folder = synthetic.write(study, tmp_path)
    before = {path: path.read_bytes() for path in make(study, folder)}
    for stage in ("train", "attack"):
        shutil.rmtree(folder / stage)
    with pytest.raises(UserError, match="records that are not here"):
        make(study, folder)
    assert {path: path.read_bytes() for path in before} == before


def read_sources(folder):
    return list(csv.DictReader((folder / "tables/sources.csv").open()))


def test_every_number_has_its_sources_with_their_hashes(study, whole):
    make(study, whole)
    rows = read_sources(whole)
    for row in rows:
        assert sha256_file(whole / row["file"]) == row["sha256"]
    places = {tuple(row[key] for key in ("table", "method", "column", "seed")) for row in rows}
    columns = ("clean", "eps0.1", "eps0.01", "eps0.001", "eps0.0001")
    assert len(places) == 2 * 2 * len(columns) * 3


READINGS = {"include": True, "stem": ["imagenet"], "random_start": [True]}


def with_readings(tmp_path, **multiverse):
    grid = {"datasets": ["c10"], "models": ["resnet34"], "methods": ["vanilla", "tn"]}
    study = synthetic.study(grid={"table1": grid}, multiverse=READINGS | multiverse)
    folder = synthetic.write(study, tmp_path)
    make(study, folder)
    return study, folder


def test_numbers_of_other_readings_have_their_sources_too(tmp_path):
    """Also of one that only attacks: the training whose weights it has, and its own attacks."""
    study, folder = with_readings(tmp_path)
    rows = [row for row in read_sources(folder) if row["table"] == "multiverse"]
    assert {row["method"] for row in rows} == {*study.multiverse.bases}
    for row in rows:
        assert sha256_file(folder / row["file"]) == row["sha256"]
    cell = CELL._replace(method="tn.random_start-true")
    found = {
        (row["column"], row["file"])
        for row in rows
        if (row["method"], row["seed"]) == (cell.method, "0")
    }
    trained = {("clean", f"train/{CELL.path}/{name}") for name in ("record.json", "clean.npz")}
    stems = [f"eps{format_epsilon(epsilon)}" for epsilon in study.attack.epsilons]
    attacked = {(s, f"attack/{cell.path}/{s}.{kind}") for s in stems for kind in ("json", "npz")}
    assert found == trained | attacked


def test_readings_that_are_not_included_are_no_source(tmp_path):
    _, folder = with_readings(tmp_path, include=False)
    assert {row["table"] for row in read_sources(folder)} == {"table1"}


def test_a_bad_record_leaves_the_old_tables_alone(study, tmp_path):
    folder = synthetic.write(study, tmp_path)
    before = {path: path.read_bytes() for path in make(study, folder)}
    (folder / "train" / CELL.path / "record.json").write_text("{")
    with pytest.raises(UserError):
        make(study, folder)
    assert {path: path.read_bytes() for path in before} == before


def test_names_are_escaped_in_latex(tmp_path):
    study = synthetic.study(
        grid={"table1": {"datasets": ["my_set"], "models": ["vit_b"], "methods": ["my_way"]}},
        methods={"my_way": {}},
        datasets={"my_set": {}},
    )
    make(study, synthetic.write(study, tmp_path))
    text = (tmp_path / study.name / "tables" / "table1.tex").read_text()
    assert r"{my\_set} & vit\_b \& my\_way &" in text


def test_another_recipe_leaves_the_old_records_out(study, whole):
    other = replace(study, training=replace(study.training, lr=0.5))
    make(other, whole)
    text = (whole / "tables/table1.md").read_text()
    make(study, whole)
    assert "made with other settings, data or weights than the study has now: " in text
