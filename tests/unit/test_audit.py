"""The indicators on curves worked out by hand; the attacks where the truth is known."""

import numpy as np
import pytest
import torch
from torch import nn

from tnfdt import audit
from tnfdt.attack import pgd_trajectory
from tnfdt.audit import Outcome


def bits(*rows):
    return np.array([[mark == "1" for mark in row] for row in rows])


def test_the_loss_still_moves_when_the_last_steps_gain_much():
    steps = np.arange(16.0)
    held, broken = bits(*["1"] * 16), bits(*["1"] * 8, *["0"] * 8)
    assert audit.loss_still_moving(held, steps[:, None]) == pytest.approx(2 / 15)
    assert audit.loss_still_moving(held, np.minimum(steps, 10)[:, None]) == 0
    assert audit.loss_still_moving(held, -steps[:, None]) == 0
    assert audit.loss_still_moving(broken, steps[:, None]) == 0
    both, curves = np.hstack([held, broken]), np.stack([steps, 100 - steps], 1)
    assert audit.loss_still_moving(both, curves) == pytest.approx(2 / 15)
    assert audit.loss_still_moving(bits("11"), np.ones((1, 2))) == 0


def test_an_adversarial_is_lost_when_the_last_iterate_is_right_again():
    assert audit.adversarial_lost(bits("1111", "1001", "1011")) == 1 / 4
    assert audit.adversarial_lost(bits("1111", "1011", "1001")) == 0


def test_zero_gradients_count_only_where_the_image_is_still_right():
    clean, correct = bits("1110")[0], bits("1110", "0110")
    norms = np.array([[1.0, 1.0, 0.0, 0.0], [1.0, 1e-30, 0.0, 0.0]])
    assert audit.zero_gradients(correct, clean, norms) == 1 / 4
    assert audit.zero_gradients(correct, clean, norms + 1e-30) == 0
    late = np.array([[1.0, 1.0, 1.0, 1.0], [0.0, 1.0, 1.0, 1.0]])
    assert audit.zero_gradients(bits("1111", "0111"), clean, late) == 1 / 4
    assert audit.zero_gradients(bits("0111", "0111"), clean, late) == 0


def test_what_the_paper_leaves_and_others_break():
    paper = bits("1110", "1111")
    assert audit.gradient_misleads(paper, bits("1111", "0011")) == 1 / 4
    assert audit.gradient_free_wins(paper, [bits("0110"), bits("01")]) == 1 / 4
    assert audit.gradient_free_wins(paper, [bits("0110"), bits("10", "11")]) == 2 / 4
    assert audit.gradient_free_wins(paper, []) == 0


def test_accuracy_has_to_fall_with_epsilon_whatever_the_order():
    assert audit.accuracy_not_falling({0.1: 0.2, 0.001: 0.9, 0.01: 0.5}) == 0
    assert audit.accuracy_not_falling({0.1: 0.6, 0.001: 0.9, 0.01: 0.5}) == pytest.approx(0.1)
    assert audit.accuracy_not_falling({0.1: 0.6}) == 0


def test_chance_is_what_a_blind_guess_gets():
    assert audit.chance_not_reached(bits("1111", "1110"), 4) == 0.5
    assert audit.chance_not_reached(bits("1111", "0000"), 4) == -0.25


def test_the_worst_case_is_right_everywhere_and_before():
    clean = bits("1101")[0]
    found = audit.worst_case(clean, [bits("1111", "1110"), bits("01")])
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
    entry = audit.summarize(clean, {"paper": paper, "exact": exact, "noise": noise})
    assert entry["attacks"]["paper"] == {
        "robust_accuracy": 7 / 8,
        "last_accuracy": 3 / 4,
        "worst_accuracy": 3 / 4,
    }
    assert entry["worst_case"] == 1 / 4
    assert tripped(entry) == {"gradient_misleads", "gradient_free_wins", "stronger_attack"}
    assert entry["indicators"]["stronger_attack"]["value"] == 1 / 2
    assert audit.make_badge([entry["indicators"]]) == (
        "gradient misleads, gradient free wins, stronger attack"
    )


def test_a_sound_cell_says_so():
    paper = outcome(each(5, "1110", "1100", "1100"))
    entry = audit.summarize(each(5, "1111")[0], {"paper": paper, "exact": paper})
    assert audit.make_badge([entry["indicators"]]) == "sound"
    assert entry["worst_case"] == 1 / 2


@pytest.mark.parametrize(("images", "trips"), [(1, False), (2, True)])
def test_a_single_image_is_no_sign(images, trips):
    paper, exact = bits("1" * 50), bits("0" * images + "1" * (50 - images))
    found = {"paper": outcome(paper), "exact": outcome(exact)}
    assert bool(tripped(audit.summarize(paper[0], found))) is trips


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
    entry = audit.summarize(each(10, "11")[0], {"paper": paper, "exact": paper})
    assert audit.make_badge([entry["indicators"]]) == name.replace("_", " ")


class Half(nn.Module):
    """Class 1 where the mean over pixels, weighted, exceeds a threshold: distances are known."""

    def __init__(self, threshold=0.5, sign=1.0):
        super().__init__()
        self.threshold, self.sign = threshold, nn.Parameter(torch.tensor(sign))

    def forward(self, x):
        margin = self.sign * (x.flatten(1).mean(1) - self.threshold)
        return torch.stack([-margin, margin], 1) * 10


def grey(*values):
    return torch.tensor(values).view(-1, 1, 1, 1).expand(-1, 3, 4, 4).contiguous()


def test_a_transfer_follows_one_network_and_is_judged_by_the_other():
    images, labels = grey(0.52, 0.58, 0.48), torch.tensor([1, 1, 0])
    options = {"steps": 40, "rel_stepsize": 0.05}
    own = pgd_trajectory(Half(), images, labels, 0.1, **options)
    assert not own.correct[-1].any()
    stricter = audit.transfer_trajectory(Half(), Half(0.45), images, labels, 0.1, **options)
    torch.testing.assert_close(stricter.adversarial, own.adversarial)
    judged = [(Half(0.45)(own.adversarial).argmax(1) == labels).tolist()]
    assert stricter.correct[-1:].tolist() == judged
    assert stricter.clean.tolist() == [True, True, False]
    opposed = audit.transfer_trajectory(Half(sign=-1.0), Half(), images, labels, 0.1, **options)
    assert opposed.correct.all()


def test_noise_breaks_only_what_lies_at_the_boundary():
    images, labels = grey(0.5001, 0.7, 0.3), torch.tensor([1, 1, 1])

    def run(seed):
        generator = torch.Generator().manual_seed(seed)
        options = {"repeats": 20, "generator": generator}
        return audit.survives_noise(Half(), images, labels, 0.1, **options).tolist()

    assert run(0) == run(0) == [False, True, False]


def test_decisions_alone_find_the_distance_to_the_boundary():
    images, labels = grey(0.6, 0.75, 0.1, 0.3), torch.tensor([1, 1, 0, 1])
    torch.manual_seed(1)
    before = torch.get_rng_state()
    distance = audit.decision_distance(Half(), images, labels, steps=5, seed=0)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    again = audit.decision_distance(Half(), images, labels, steps=5, seed=0)
    assert torch.equal(distance, again)
    true = torch.tensor([0.1, 0.25, 0.4])
    assert (distance[:3] >= true * (1 - 1e-4)).all()  # nothing nearer exists
    assert (distance[:3] <= true * 1.15).all()
    assert distance[3] == 0
    alone = audit.decision_distance(Half(), images[:2], labels[:2], steps=2, seed=0)
    assert alone.isinf().all()


def test_the_nearest_mistake_is_an_image_with_another_prediction():
    images, labels = grey(0.6, 0.7, 0.1, 0.4), torch.tensor([1, 1, 0, 0])
    predictions = torch.tensor([1, 1, 0, 0])
    assert audit.nearest_mistakes(images, predictions, labels).tolist() == [3, 3, 0, 0]
    assert audit.nearest_mistakes(images[:2], predictions[:2], labels[:2]).tolist() == [-1, -1]


def record(**change):
    accuracies = {"robust_accuracy": 0.5, "last_accuracy": 0.25, "worst_accuracy": 0.125}
    attacks = dict.fromkeys(("paper", "exact", "noise"), accuracies)
    entry = {"attacks": attacks, "worst_case": 0.0625, "indicators": {}}
    cell = {"dataset": "d", "model": "m", "method": "tn", "seed": 0}
    base = {**cell, "images": 8, "badge": "sound", "metrics": {"clean_accuracy": 0.75}}
    return {**base, "epsilons": {"0.1": entry, "0.01": entry}, **change}


def test_the_table_has_a_row_per_cell_and_epsilon_in_percent():
    table = audit.audit_table([record(), record(seed=1, badge="zero gradients")])
    assert list(table.columns) == list(audit.COLUMNS)
    assert table[["seed", "epsilon"]].to_numpy().tolist() == [
        [0, 0.1],
        [0, 0.01],
        [1, 0.1],
        [1, 0.01],
    ]
    row = table.iloc[0]
    assert (row.clean, row.paper_eq7, row.exact_eq7) == (75, 50, 50)
    assert (row.paper, row.noise, row.worst_case) == (12.5, 12.5, 6.25)
    assert table[["restarts", "transfer", "black_box"]].isna().all(axis=None)
    assert table.badge.tolist() == ["sound"] * 2 + ["zero gradients"] * 2
    assert audit.audit_table([]).empty
