"""The audit's table and bars from made-up audits."""

import json

import pandas as pd
import pytest

from tests import synthetic
from tnfdt.figures.audit import audit_bars
from tnfdt.study.names import AUDIT_ATTACKS
from tnfdt.study.schema import UserError
from tnfdt.tables import stage as stage_tables
from tnfdt.tables.audit import audit_grid
from tnfdt.tables.latex import table as latex_table

COLUMNS = ["dataset", "model", "method", "seed", "epsilon", "images", "clean", "paper_eq7",
           "paper_last", "paper", "exact", "black_box", "worst_case", "badge"]  # fmt: skip
GRID = {"datasets": ["c10"], "models": ["resnet34"], "methods": ["vanilla", "tn"]}
FRAME = pd.DataFrame(
    [
        ("c10", "resnet34", "vanilla", 0, 0.1, 50, 90.0, 20.0, 20.0, 10.0, 10.0, None, 8.0,
         "sound"),
        ("c10", "resnet34", "tn", 0, 0.1, 50, 92.0, 40.0, 32.0, 30.0, 12.0, None, 9.0,
         "stronger attack, gradient misleads"),
        ("c10", "resnet34", "tn", 1, 0.1, 50, 94.0, 42.0, 34.0, 32.0, 14.0, None, 11.0, "sound"),
        ("c10", "resnet34", "tn", 0, 0.01, 50, 92.0, 80.0, 80.0, 70.0, 70.0, None, 60.0, "sound"),
    ],
    columns=COLUMNS,
)  # fmt: skip


def test_rows_are_means_over_seeds_at_one_epsilon():
    grid = audit_grid(FRAME, 0.1)
    assert [item.value for item in grid.rows[1][2:-1]] == [
        "93.00", "41.00", "33.00", "31.00", "13.00", "10.00",
    ]  # fmt: skip
    assert grid.blocks == [2]
    assert "mean over 2 seeds" in grid.caption[0]
    assert "50 test images" in grid.caption[0]


@pytest.mark.parametrize(("count", "told"), [(20, True), (50, False), (0, False)])
def test_the_caption_tells_of_a_black_box_for_some_images_only(count, told):
    frame = FRAME.assign(black_box=1.0)
    caption = audit_grid(frame, 0.1, few={"black_box": count, "autoattack": 3}).caption[0]
    assert ("; of them, Black box the first 20. " in caption) == told


def test_a_table_has_the_papers_attack_in_three_readings_and_all_others():
    frame = FRAME.assign(**dict.fromkeys(AUDIT_ATTACKS, 1.0))
    assert audit_grid(frame, 0.1).header == (
        "Dataset", "Model", "Clean", "Eq. 7", "Last iterate", "Worst iterate", "Exact", "Restarts",
        "2× steps", "Transfer", "Noise", "Black box", "AutoAttack", "Worst case", "Badge",
    )  # fmt: skip


def test_the_column_of_an_attack_that_is_not_installed_says_so():
    frame = FRAME.assign(autoattack=None, not_run="autoattack not installed")
    grid = audit_grid(frame, 0.1)
    place = grid.header.index("AutoAttack")
    assert [row[place] for row in grid.rows] == ["not installed"] * 2
    assert "not installed" in latex_table(grid)
    assert "AutoAttack" not in audit_grid(FRAME.assign(autoattack=None, not_run=""), 0.1).header


def test_an_attack_that_was_not_run_has_no_column():
    assert "Black box" not in audit_grid(FRAME, 0.1).header
    assert "Worst case" in audit_grid(FRAME, 0.1).header


def test_a_badge_collects_what_trips_on_any_seed():
    grid = audit_grid(FRAME, 0.1)
    assert [row[-1] for row in grid.rows] == ["sound", "G S"]
    assert "G gradient misleads" in grid.notes[0]


def test_a_sign_that_is_new_is_written_out():
    frame = FRAME.assign(badge="something new")
    assert audit_grid(frame, 0.1).rows[0][-1] == "something new"


def test_bars_have_a_panel_per_block_and_epsilon():
    titles = [axis.get_title() for axis in audit_bars(FRAME).axes]
    assert titles == ["C10, ResNet-34, ε=10⁻¹", "C10, ResNet-34, ε=10⁻²"]
    (first, _) = audit_bars(FRAME).axes
    heights = [patch.get_height() for patch in first.patches]
    assert heights == [20.0, 41.0, 20.0, 33.0, 10.0, 31.0, 10.0, 13.0, 8.0, 10.0]


def test_bars_show_the_epsilons_of_autoattack_first():
    frame = pd.concat([FRAME, FRAME.assign(epsilon=0.03137), FRAME.assign(epsilon=0.5)])
    frame["autoattack"] = [1.0 if epsilon == 0.03137 else None for epsilon in frame["epsilon"]]
    titles = [axis.get_title() for axis in audit_bars(frame).axes]
    assert titles == ["C10, ResNet-34, ε=0.5", "C10, ResNet-34, ε=8/255"]


def test_the_legend_of_all_attacks_fits_into_the_figure():
    figure = audit_bars(FRAME.assign(**dict.fromkeys(AUDIT_ATTACKS, 1.0)))
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert len(legend.get_texts()) == len(AUDIT_ATTACKS)
    box = legend.get_window_extent()
    assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1


def test_nothing_is_said_to_be_nothing():
    grid = audit_grid(FRAME.iloc[:0], 0.1, missing=3)
    assert "not run yet" in latex_table(grid)
    assert grid.notes[-1] == "– not run yet: 3 cells."
    assert "not run yet" in audit_bars(FRAME.iloc[:0]).texts[0].get_text()


@pytest.fixture
def audited(tmp_path):
    study = synthetic.study(
        grid={
            "table1": {"datasets": ["c10"], "models": ["resnet34"], "methods": ["vanilla", "tn"]}
        },
        attack={"epsilons": [0.1]},
        training={"epochs": 3},
        audit={"include": True, "seeds": [0, 1]},
    )
    folder = synthetic.write(study, tmp_path)
    synthetic.write_audits(study, folder)
    return study, folder


def make(study, folder):
    return stage_tables.run(study, folder.parent, synthetic.machine(), parts=("audit",))


def test_the_files_of_an_audit(audited):
    written = make(*audited)
    assert [path.name for path in written] == [
        "audit.tex", "audit.md", "audit.html", "audit.csv", "audit_bars.png", "audit_bars.pdf",
    ]  # fmt: skip
    frame = pd.read_csv(audited[1] / "tables/audit.csv")
    assert len(frame) == 4
    assert frame["exact"].tolist() == [14.0] * 4


def edit(folder, **changes):
    path = folder / "audit/c10/resnet34/tn/seed0/audit.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("changes", [{"model_sha256": "0"}, {"config": {}}])
def test_an_audit_of_other_weights_or_settings_is_left_out_and_reported(audited, changes):
    make(*audited)
    assert "Left out" not in (audited[1] / "tables/audit.md").read_text()
    edit(audited[1], **changes)
    make(*audited)
    assert len(pd.read_csv(audited[1] / "tables/audit.csv")) == 3
    text = (audited[1] / "tables/audit.md").read_text()
    assert "not run yet: 1 cells" in text
    (line,) = [line for line in text.splitlines() if "other settings, data or weights" in line]
    assert "1 records, the first is audit/c10/resnet34/tn/seed0/audit.json" in line


def test_an_audit_whose_training_is_gone_is_reported(audited):
    (audited[1] / "train/c10/resnet34/tn/seed0/record.json").unlink()
    make(*audited)
    assert "the first is audit/c10/resnet34/tn/seed0" in (
        (audited[1] / "tables/audit.md").read_text()
    )


@pytest.mark.parametrize("changes", [{"epsilons": None}, {"stage": "x"}, {"epsilons": {"a": {}}}])
def test_a_file_that_is_no_audit_is_named(audited, changes):
    edit(audited[1], **changes)
    with pytest.raises(UserError, match=r"seed0/audit\.json"):
        make(*audited)
