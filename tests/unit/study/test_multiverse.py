"""Readings of the paper: what they add, what they share, and what is refused."""

import pytest

from tnfdt.study.multiverse import additions
from tnfdt.study.schema import ROOT, UserError, read_yaml
from tnfdt.study.study import load_study, study_from_dict


def demo(**multiverse):
    raw = read_yaml(ROOT / "config/studies/demo.yaml") | {"multiverse": multiverse}
    return study_from_dict(raw, name="demo", where="demo")


def test_the_papers_readings_cost_84_trainings():
    """By hand: 2 datasets x 3 seeds of the methods that each switch touches."""
    study = load_study("readings")
    assert len(study.cells) == 30
    found = {
        title: sum(len(study.variants_of(name)) for name in added.trained)
        for title, added in additions(study.multiverse).items()
    }
    assert found == {
        "tn_backward: exact": 12,  # tn, tn_fdt
        "blend_amount: all": 18,  # ov, fdt, tn_fdt
        "blend_augment: after": 18,
        "ov_target: sampled": 6,
        "stem: imagenet": 30,
        "checkpoint: best": 0,  # kept by the trainings of the study's own reading
        "random_start: true": 0,
        "attack_gradient: exact": 0,
    }
    assert sum(found.values()) == 84


def test_what_a_reading_does_not_touch_is_the_studys_own():
    study = demo(blend_amount=["all"], random_start=[True])
    amount, start = study.multiverse.readings
    names = study.multiverse.names
    assert names[amount, "vanilla"] == "vanilla"
    assert names[amount, "fdt"] == "fdt.blend_amount-all"
    cell = study.cells[0]._replace(method=names[start, "vanilla"])
    assert cell.method == "vanilla.random_start-true"
    assert study.trained_as(cell).method == "vanilla"


def test_a_factorial_trains_nothing_twice():
    study = demo(tn_backward=["exact"], random_start=[True], all_of=["tn_backward", "random_start"])
    both = study.multiverse.readings[-1]
    assert study.multiverse.names[both, "vanilla"] == "vanilla.random_start-true"
    name = study.multiverse.names[both, "tn"]
    assert study.multiverse.sources[name] == "tn.tn_backward-exact"
    added = additions(study.multiverse)
    assert added[both.title].trained == ()
    assert added["tn_backward: exact"].trained == (
        "tn.tn_backward-exact",
        "tn_fdt.tn_backward-exact",
    )
    # Every method of the demo is attacked from a random start, TN's two with both changes.
    assert [len(one.attacked) for one in added.values()] == [2, 5, 2]


def test_the_best_epoch_is_kept_by_the_training_of_the_last():
    study = demo(checkpoint=["best"])
    best = study.multiverse.best_of
    assert best["fdt.checkpoint-best"] == "fdt"
    assert study.multiverse.keeps_best("fdt")
    assert not study.multiverse.keeps_best("fdt.checkpoint-best")
    assert not load_study("demo").multiverse.keeps_best("fdt")


@pytest.mark.parametrize(
    ("multiverse", "words"),
    [
        ({"stem": ["cifar"]}, "multiverse.stem: cifar is the study's own reading"),
        ({"colour": ["red"]}, "unknown key colour"),
        ({"all_of": ["stem"]}, "stem has no other values"),
        (
            {"blend_amount": list(range(1, 10)), "blend_series": ["geometric", "uniform", "random"],
             "stem": ["imagenet"], "all_of": ["blend_amount", "blend_series", "stem"]},
            "more than 64 readings; list fewer values",
        ),
    ],
)  # fmt: skip
def test_bad_readings_are_one_line(multiverse, words):
    with pytest.raises(UserError, match=words) as caught:
        demo(**multiverse)
    assert "\n" not in str(caught.value)


def test_a_switch_that_no_method_uses_is_refused():
    raw = read_yaml(ROOT / "config/studies/demo.yaml") | {"multiverse": {"tn_backward": ["exact"]}}
    raw["grid"] = {"table1": {**raw["grid"]["table1"], "methods": ["vanilla", "fdt"]}}
    with pytest.raises(UserError, match="no method of the grid depends on it"):
        study_from_dict(raw, name="demo", where="demo")


def test_random_factors_have_no_entropy_to_match():
    raw = read_yaml(ROOT / "config/studies/mini_controls.yaml")
    raw |= {"multiverse": {"blend_series": ["random"]}}
    with pytest.raises(UserError, match=r"blend_series: random factors"):
        study_from_dict(raw, name="x", where="x")
    raw["grid"]["controls"]["methods"].remove("smooth")
    assert study_from_dict(raw, name="x", where="x").variants
