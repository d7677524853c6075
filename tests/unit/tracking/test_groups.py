"""The run above the seeds of a group."""

import math
from dataclasses import replace

import pytest

from tnfdt.study.paths import Cell
from tnfdt.tracking.groups import group_view
from tnfdt.tracking.points import Point
from tnfdt.tracking.view import RunView, run_tags

CELLS = [Cell("c10", "resnet34", "tn_fdt", seed) for seed in (0, 1, 2)]


def view(seed, status="FINISHED", points=(), **params):
    points = tuple(Point(key, step, 1000 + seed, value) for key, step, value in points)
    settings = {"method": "tn_fdt", "seed": str(seed), "training.lr": "0.1", "hardware.cpu": "a"}
    return RunView(
        key=CELLS[seed].path, name="x", start=100 + seed, end=None if status == "RUNNING" else 900,
        status=status, params=settings | params, tags=run_tags("demo", CELLS[seed]), points=points,
    )  # fmt: skip


def values(group):
    return {(point.key, point.step): point.value for point in group.points}


def test_mean_and_sd_of_every_point():
    curves = ([("loss", 1, 4.0), ("robust/eps0.1", 0, x)] for x in (0.1, 0.2, 0.6))
    group = group_view("demo", CELLS, [view(i, points=c) for i, c in enumerate(curves)])
    found = values(group)
    assert found["loss", 1] == 4.0
    assert found["sd/loss", 1] == 0.0
    assert found["robust/eps0.1", 0] == pytest.approx(0.3)
    assert found["sd/robust/eps0.1", 0] == pytest.approx(math.sqrt((0.04 + 0.01 + 0.09) / 2))
    assert {point.timestamp for point in group.points} == {1002}
    assert (group.start, group.end, group.status) == (100, 900, "FINISHED")
    assert group.name == "c10 · resnet34 · TN & FDT"
    assert group.key == group.tags["tnfdt.cell"] == CELLS[0].row == "c10/resnet34/tn_fdt"
    assert group.tags["seeds"] == "0 1 2"
    assert group.params == {"method": "tn_fdt", "training.lr": "0.1"}


def test_one_seed_has_no_sd():
    group = group_view("demo", CELLS[:1], [view(0, points=[("loss", 1, 4.0)])])
    assert values(group) == {("loss", 1): 4.0}


def test_a_mean_is_over_all_finished_seeds_or_not_shown():
    """A seed that still trains counts for nothing; an attack that one seed lacks is not shown."""
    attacked = [("loss", 1, 1.0), ("robust/eps0.1", 0, 0.5)]
    views = [
        view(0, points=attacked),
        view(1, points=[("loss", 1, 3.0)]),
        view(2, status="RUNNING", points=[("loss", 1, 50.0)]),
    ]
    group = group_view("demo", CELLS, views)
    assert set(values(group)) == {("loss", 1), ("sd/loss", 1)}
    assert values(group)["loss", 1] == 2.0
    assert (group.status, group.end, group.tags["seeds"]) == ("RUNNING", None, "0 1")


def test_a_group_without_a_finished_seed_has_no_points():
    assert group_view("demo", CELLS[:1], [view(0, status="RUNNING")]).points == ()


def test_settings_that_seeds_do_not_share_are_left_out():
    other = replace(view(1), params=view(1).params | {"training.lr": "0.2"})
    assert group_view("demo", CELLS[:2], [view(0), other]).params == {"method": "tn_fdt"}


def test_a_mean_is_of_the_latest_recipe_alone():
    """A seed that an edited study leaves out, or has not trained again, is of the old recipe."""
    views = [replace(view(i, points=[("loss", 1, float(i))]), recipe="new") for i in (0, 1)]
    old = replace(view(2, points=[("loss", 1, 50.0)], **{"training.lr": "9"}), end=800)
    group = group_view("demo", CELLS, [*views, old])
    assert values(group)["loss", 1] == 0.5
    assert (group.tags["seeds"], group.params["training.lr"]) == ("0 1", "0.1")
    again = group_view("demo", CELLS, [replace(views[0], end=950, recipe="newer"), views[1], old])
    assert (values(again), again.tags["seeds"]) == ({("loss", 1): 0.0}, "0")


def test_attacks_with_different_settings_are_not_averaged():
    points = [("loss", 1, 1.0), ("clean_accuracy", 0, 0.9)]
    points += [("robust/eps0.1", 0, 0.5), ("robust_curve/eps0.1", 3, 0.4), ("robust/eps0.01", 0, 1)]
    made = [{"eps0.1": "40 steps", "eps0.01": "40 steps"}, {"eps0.1": "20 steps"}]
    both = [replace(view(i, points=points), attacks=made[i]) for i in (0, 1)]
    shown = {key for key, _ in values(group_view("demo", CELLS[:2], both)) if "sd/" not in key}
    assert shown == {"loss", "robust/eps0.01"}
    same = group_view("demo", CELLS[:2], [both[0], replace(both[1], attacks=made[0])])
    assert {key for key, _ in values(same) if "sd/" not in key} == {key for key, *_ in points}
