"""The signs of a failed attack, on arrays made by hand."""

import numpy as np
import pytest

from tnfdt.audit import indicators
from tnfdt.audit.indicators import Outcome


def bits(*rows):
    return np.array([[mark == "1" for mark in row] for row in rows])


def test_the_loss_still_moves_when_the_last_steps_gain_much():
    steps = np.arange(16.0)
    held, broken = bits(*["1"] * 16), bits(*["1"] * 8, *["0"] * 8)
    assert indicators.loss_still_moving(held, steps[:, None]) == pytest.approx(2 / 15)
    assert indicators.loss_still_moving(held, np.minimum(steps, 10)[:, None]) == 0
    assert indicators.loss_still_moving(held, -steps[:, None]) == 0
    assert indicators.loss_still_moving(broken, steps[:, None]) == 0
    both, curves = np.hstack([held, broken]), np.stack([steps, 100 - steps], 1)
    assert indicators.loss_still_moving(both, curves) == pytest.approx(2 / 15)
    assert indicators.loss_still_moving(bits("11"), np.ones((1, 2))) == 0


def test_an_adversarial_is_lost_when_the_last_iterate_is_right_again():
    assert indicators.adversarial_lost(bits("1111", "1001", "1011")) == 1 / 4
    assert indicators.adversarial_lost(bits("1111", "1011", "1001")) == 0


def test_zero_gradients_count_only_where_the_image_is_still_right():
    clean, correct = bits("1110")[0], bits("1110", "0110")
    norms = np.array([[1.0, 1.0, 0.0, 0.0], [1.0, 1e-30, 0.0, 0.0]])
    assert indicators.zero_gradients(correct, clean, norms) == 1 / 4
    assert indicators.zero_gradients(correct, clean, norms + 1e-30) == 0
    late = np.array([[1.0, 1.0, 1.0, 1.0], [0.0, 1.0, 1.0, 1.0]])
    assert indicators.zero_gradients(bits("1111", "0111"), clean, late) == 1 / 4
    assert indicators.zero_gradients(bits("0111", "0111"), clean, late) == 0


def test_what_the_paper_leaves_and_others_break():
    paper = bits("1110", "1111")
    assert indicators.gradient_misleads(paper, bits("1111", "0011")) == 1 / 4
    assert indicators.gradient_free_wins(paper, [bits("0110"), bits("01")]) == 1 / 4
    assert indicators.gradient_free_wins(paper, [bits("0110"), bits("10", "11")]) == 2 / 4
    assert indicators.gradient_free_wins(paper, []) == 0


def test_accuracy_has_to_fall_with_epsilon_whatever_the_order():
    assert indicators.accuracy_not_falling({0.1: 0.2, 0.001: 0.9, 0.01: 0.5}) == 0
    assert indicators.accuracy_not_falling({0.1: 0.6, 0.001: 0.9, 0.01: 0.5}) == pytest.approx(0.1)
    assert indicators.accuracy_not_falling({0.1: 0.6}) == 0


def test_chance_is_what_a_blind_guess_gets():
    assert indicators.chance_not_reached(bits("1111", "1110"), 4) == 0.5
    assert indicators.chance_not_reached(bits("1111", "0000"), 4) == -0.25


def test_the_worst_case_is_right_everywhere_and_before():
    clean = bits("1101")[0]
    found = indicators.worst_case(clean, [bits("1111", "1110"), bits("01")])
    assert found.tolist() == [False, True, False, False]
    assert clean.tolist() == [True, True, False, True]


def outcome(correct, loss=None, norm=1.0):
    loss = np.ones(correct.shape) if loss is None else loss
    return Outcome(correct, loss, np.full(correct.shape, norm))


def each(times, *rows):
    """Every image of `rows` so many times."""
    return bits(*rows).repeat(times, axis=1)


def tripped(entry):
    return {name for name, value in entry["indicators"].items() if value["tripped"]}


def test_one_epsilon_in_numbers():
    paper, exact = outcome(each(5, "1111", "1101")), outcome(each(5, "1111", "1001"))
    clean, noise = each(5, "1111")[0], Outcome(each(5, "0111"))
    entry = indicators.summarize(clean, {"paper": paper, "exact": exact, "noise": noise})
    assert entry["attacks"]["paper"] == {
        "robust_accuracy": 7 / 8,
        "last_accuracy": 3 / 4,
        "worst_accuracy": 3 / 4,
    }
    assert entry["worst_case"] == 1 / 4
    assert tripped(entry) == {"gradient_misleads", "gradient_free_wins", "stronger_attack"}
    assert entry["indicators"]["stronger_attack"]["value"] == 1 / 2
    assert indicators.make_badge([entry["indicators"]]) == (
        "gradient misleads, gradient free wins, stronger attack"
    )


def test_a_sound_cell_says_so():
    paper = outcome(each(5, "1110", "1100", "1100"))
    entry = indicators.summarize(each(5, "1111")[0], {"paper": paper, "exact": paper})
    assert indicators.make_badge([entry["indicators"]]) == "sound"
    assert entry["worst_case"] == 1 / 2


def test_sound_is_measured_from_the_papers_last_iterate_to_the_worst_of_all():
    """Eq. 7 may be far above; an attack on few images is compared on those."""
    clean, paper = each(25, "1111")[0], outcome(each(25, "1111", "1110", "1110"))
    same = indicators.summarize(clean, {"paper": paper, "exact": paper})
    assert same["indicators"]["stronger_attack"]["value"] == 0
    few = Outcome(bits("0011" + "1" * 16), flags={})
    entry = indicators.summarize(clean, {"paper": paper, "exact": paper, "black_box": few})
    found = entry["indicators"]["stronger_attack"]
    assert found == {"value": pytest.approx(2 / 20), "limit": 1 / 20, "tripped": True}
    one = Outcome(bits("0111" + "1" * 16))
    entry = indicators.summarize(clean, {"paper": paper, "exact": paper, "black_box": one})
    assert not entry["indicators"]["stronger_attack"]["tripped"]
    assert indicators.LIMITS["stronger_attack"] == 0.02


def test_autoattacks_flags_are_indicators():
    clean, paper = each(25, "1111")[0], outcome(each(25, "1111"))
    flags = {"randomized": 0.0, "dynamic": 0.0, "probabilities": 1.0, "apgd_zero_gradients": 0.5}
    found = {"paper": paper, "exact": paper}
    found["autoattack"] = Outcome(each(5, "1111", "1101"), flags=flags)
    entry = indicators.summarize(clean, found)
    assert tripped(entry) == {
        "stronger_attack", "square_wins", "probabilities", "apgd_zero_gradients",
    }  # fmt: skip
    assert entry["indicators"]["square_wins"]["value"] == 1 / 4
    assert indicators.make_badge([entry["indicators"]]) == (
        "stronger attack, square wins, probabilities, apgd zero gradients"
    )


@pytest.mark.parametrize(("images", "trips"), [(1, False), (2, True)])
def test_a_single_image_is_no_sign(images, trips):
    paper, exact = bits("1" * 50), bits("0" * images + "1" * (50 - images))
    found = {"paper": outcome(paper), "exact": outcome(exact)}
    assert bool(tripped(indicators.summarize(paper[0], found))) is trips


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("loss_still_moving", {"loss": np.arange(16.0)[:, None].repeat(20, 1)}),
        ("adversarial_lost", {"correct": each(10, "11", "10", *["11"] * 14)}),
        ("zero_gradients", {"norm": 0.0}),
    ],
)
def test_each_indicator_can_spoil_the_badge(name, change):
    paper = outcome(**{"correct": each(10, *["11"] * 16), **change})
    entry = indicators.summarize(each(10, "11")[0], {"paper": paper, "exact": paper})
    badge = indicators.make_badge([entry["indicators"]])
    assert badge.split(", ")[0] == name.replace("_", " ")
    assert ("stronger attack" in badge) is (name == "adversarial_lost")  # as the last is no worst
