"""Alg. 3 and Alg. 4 written down loop for loop in float64, and the fast code held against them."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tnfdt.core.losses import multi_class_log_loss, multi_label_log_loss, soft_cross_entropy


def naive_softmax(row: list[float]) -> list[float]:
    """The softmax of one prediction."""
    exponentials = [math.exp(value - max(row)) for value in row]
    return [value / sum(exponentials) for value in exponentials]


def naive_multi_class(predictions: Tensor, classes: list[int]) -> tuple[float, Tensor]:
    """Alg. 3: loss L and error E."""
    p_s = [naive_softmax(row) for row in predictions.tolist()]
    scale, loss = 1 / len(p_s), 0.0
    for b in range(len(p_s)):
        for y in range(len(p_s[b])):
            if y == classes[b]:
                loss += scale * -math.log(p_s[b][y])
                p_s[b][y] = scale * (p_s[b][y] - 1)
            else:
                p_s[b][y] = scale * p_s[b][y]
    return loss, torch.tensor(p_s, dtype=torch.float64)


def naive_multi_label(predictions: Tensor, truth: Tensor, eps: float) -> tuple[float, Tensor]:
    """Alg. 4: loss L and error E."""
    p_s, gt = [naive_softmax(row) for row in predictions.tolist()], truth.tolist()
    scale, loss = 1 / len(p_s), 0.0
    for b in range(len(p_s)):
        for y in range(len(p_s[b])):
            if gt[b][y] > eps:
                loss += scale * -math.log(p_s[b][y])
                p_s[b][y] = scale * (p_s[b][y] - gt[b][y])
            else:
                p_s[b][y] = scale * p_s[b][y]
    return loss, torch.tensor(p_s, dtype=torch.float64)


def random_case(seed: int, size: int, classes: int) -> tuple[Tensor, Tensor]:
    """Logits, and targets in which about half of the classes are active."""
    generator = torch.Generator().manual_seed(seed)
    logits = 5 * torch.randn(size, classes, dtype=torch.float64, generator=generator)
    targets = torch.rand(size, classes, dtype=torch.float64, generator=generator)
    targets = targets * (torch.rand(size, classes, generator=generator) < 0.5)
    targets[:, 0] += 0.1
    return logits, targets / targets.sum(1, keepdim=True)


CASES = {
    "seed": st.integers(0, 2**31),
    "size": st.integers(1, 6),
    "classes": st.integers(1, 12),
}


@settings(max_examples=40, deadline=None)
@given(**CASES, eps=st.sampled_from([1e-8, 0.05, 0.2]))
def test_multi_label_is_alg_4(seed: int, size: int, classes: int, eps: float) -> None:
    logits, targets = random_case(seed, size, classes)
    value, error = naive_multi_label(logits, targets, eps)
    logits.requires_grad_()
    loss = multi_label_log_loss(logits, targets, eps)
    loss.backward()
    assert loss.item() == pytest.approx(value, abs=1e-9)
    torch.testing.assert_close(logits.grad, error, rtol=0, atol=1e-9)


@settings(max_examples=20, deadline=None)
@given(**CASES)
def test_multi_class_is_alg_3(seed: int, size: int, classes: int) -> None:
    logits, targets = random_case(seed, size, classes)
    labels = targets.argmax(1)
    value, error = naive_multi_class(logits, labels.tolist())
    logits.requires_grad_()
    loss = multi_class_log_loss(logits, labels)
    loss.backward()
    assert loss.item() == pytest.approx(value, abs=1e-9)
    torch.testing.assert_close(logits.grad, error, rtol=0, atol=1e-9)


def test_one_class_makes_alg_4_into_alg_3() -> None:
    logits, targets = random_case(0, 5, 7)
    labels = targets.argmax(1)
    one_hot = torch.nn.functional.one_hot(labels, 7).double()
    a, b = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    losses = multi_label_log_loss(a, one_hot), multi_class_log_loss(b, labels)
    torch.testing.assert_close(*losses)
    for loss in losses:
        loss.backward()
    torch.testing.assert_close(a.grad, b.grad)


def test_error_is_the_gradient_of_soft_cross_entropy_and_not_of_the_value() -> None:
    logits, targets = random_case(1, 5, 7)
    paper, soft = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    multi_label_log_loss(paper, targets).backward()
    curve = soft_cross_entropy(soft, targets)
    curve.backward()
    torch.testing.assert_close(paper.grad, soft.grad)
    expected = -(targets * logits.log_softmax(1)).sum() / 5
    assert curve.item() == pytest.approx(expected.item(), abs=1e-12)
    value = logits.clone().requires_grad_()
    (-(value.log_softmax(1) * (targets > 1e-8)).sum() / 5).backward()
    assert not torch.allclose(paper.grad, value.grad)  # type: ignore[arg-type]


def test_hand_worked_value() -> None:
    """p = (1/2, 1/4, 1/4), GT = (2/3, 1/3, 0): L = log 2 + log 4, E = (−1/6, −1/12, 1/4)."""
    logits = torch.tensor([[2.0, 1.0, 1.0]]).log().requires_grad_()
    loss = multi_label_log_loss(logits, torch.tensor([[2 / 3, 1 / 3, 0.0]]))
    loss.backward()
    assert loss.item() == pytest.approx(math.log(8), abs=1e-6)
    torch.testing.assert_close(logits.grad, torch.tensor([[-1 / 6, -1 / 12, 1 / 4]]))


def test_scaled_loss_scales_the_error() -> None:
    logits, targets = random_case(2, 4, 3)
    a, b = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    multi_label_log_loss(a, targets).backward()
    (1024 * multi_label_log_loss(b, targets)).backward()
    torch.testing.assert_close(1024 * a.grad, b.grad)  # type: ignore[operator]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_error_has_the_type_of_the_logits(dtype: torch.dtype) -> None:
    logits, targets = random_case(3, 4, 3)
    leaf = logits.to(dtype).requires_grad_()
    multi_label_log_loss(leaf, targets.float()).backward()
    assert leaf.grad is not None
    assert leaf.grad.dtype == dtype
    assert torch.isfinite(leaf.grad).all()


def test_huge_logits_stay_finite() -> None:
    logits = torch.tensor([[1e4, -1e4]], requires_grad=True)
    loss = multi_label_log_loss(logits, torch.tensor([[0.5, 0.5]]))
    loss.backward()
    assert loss.item() == pytest.approx(2e4)
    torch.testing.assert_close(logits.grad, torch.tensor([[0.5, -0.5]]))


def test_compiles_without_graph_break() -> None:
    logits, targets = random_case(4, 5, 7)
    compiled = torch.compile(multi_label_log_loss, backend="aot_eager", fullgraph=True)
    leaf = logits.clone().requires_grad_()
    loss = compiled(leaf, targets)
    loss.backward()
    torch.testing.assert_close(loss, multi_label_log_loss(logits, targets))
    torch.testing.assert_close(leaf.grad, naive_multi_label(logits, targets, 1e-8)[1])


GOOD = torch.zeros(2, 3)
HALF = torch.tensor([[0.5, 0.5, 0.0]] * 2)
NAN = torch.tensor([[0.0, float("nan"), 0.0]] * 2)
LABELS = torch.tensor([0, 2])
BAD: list[tuple[Callable[[], object], str]] = [
    (lambda: multi_class_log_loss(GOOD[0], LABELS), r"logits: expected .*\[B, C\]"),
    (lambda: multi_class_log_loss(GOOD.long(), LABELS), "logits: expected floating point"),
    (lambda: multi_class_log_loss(NAN, LABELS), "logits: .*NaN"),
    (lambda: multi_class_log_loss(GOOD + float("inf"), LABELS), "logits: .*NaN or infinity"),
    (lambda: multi_class_log_loss(GOOD, LABELS[:1]), r"classes: expected torch.int64 \[2\]"),
    (lambda: multi_class_log_loss(GOOD, LABELS.float()), "classes: expected torch.int64"),
    (lambda: multi_class_log_loss(GOOD, LABELS + 1), r"classes: expected 0\.\.2"),
    (lambda: multi_class_log_loss(GOOD, LABELS - 1), r"classes: expected 0\.\.2"),
    (lambda: multi_label_log_loss(NAN, HALF), "logits: .*NaN"),
    (lambda: multi_label_log_loss(GOOD, HALF[:1]), r"targets: expected .*\[2, 3\].*\[1, 3\]"),
    (lambda: multi_label_log_loss(GOOD, LABELS), "targets: expected floating point"),
    (lambda: multi_label_log_loss(GOOD, HALF * 1.01), "targets: .*sum to 1"),
    (lambda: multi_label_log_loss(GOOD, HALF * NAN), "targets: .*sum to 1"),
    (lambda: multi_label_log_loss(GOOD, 3 * HALF - 2 / 3), "targets: "),
    (lambda: soft_cross_entropy(GOOD, 2 * HALF), "targets: .*sum to 1"),
    (lambda: soft_cross_entropy(NAN, HALF), "logits: .*NaN"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
