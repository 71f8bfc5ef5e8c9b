"""Accuracy of every usual shape, and among the k best."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch.nn import functional as F

from gradviz.errors import MetricError
from gradviz.metrics import accuracy, top_k_accuracy


@pytest.mark.parametrize(
    ("prediction", "targets", "share"),
    [
        ([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]], [1, 0, 0, 0], 3 / 4),
        ([[0.1, 0.9, 0.0], [0.8, 0.1, 0.1], [0.2, 0.3, 0.5]], [[0, 1, 0], [1, 0, 0], [1, 0, 0]], 2 / 3),
        ([[2.0], [1.0], [3.0]], [[1], [0], [0]], 1 / 3),
        ([2.0, -1.0], [1, 0], 1),
        ([[2.0], [-1.0]], [1, 1], 1 / 2),
    ],
)
def test_accuracy_by_hand(prediction, targets, share):
    value = accuracy(torch.tensor(prediction), torch.tensor(targets))
    assert value.item() == pytest.approx(share)
    assert value.dtype == torch.float32


def test_accuracy_of_every_pixel():
    scores, targets = torch.randn(2, 5, 3, 3), torch.randint(0, 5, (2, 3, 3))
    assert accuracy(scores, targets) == (scores.argmax(1) == targets).float().mean()


def test_accuracy_of_what_has_no_single_class_is_refused_and_of_nan_is_nan():
    with pytest.raises(MetricError, match="one class for each example"):
        accuracy(torch.randn(2, 3), torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]))
    assert accuracy(torch.tensor([[math.nan, 1.0]]), torch.tensor([0])).isnan()


def test_targets_that_are_no_classes_are_refused():
    with pytest.raises(MetricError, match="neither class indices nor 0 and 1"):
        accuracy(torch.tensor([0.3, 2.0]), torch.tensor([0.25, 1.75]))


def test_shapes_that_cannot_be_compared_are_named():
    with pytest.raises(MetricError, match=r"\(4, 3\) with targets of shape \(5,\)"):
        accuracy(torch.zeros(4, 3), torch.zeros(5))


@pytest.mark.case("axon-M2")
@pytest.mark.parametrize(
    ("prediction", "targets", "share"),
    [
        ([[1.0], [1.0], [1.0]], [[1], [0], [0]], 1 / 3),
        ([[0, 1, 0], [1, 0, 0], [0, 0, 1]], [[0, 1, 0], [1, 0, 0], [0, 1, 0]], 2 / 3),
        ([[0.0], [1.0]], [[1], [1]], 1 / 2),
    ],
)
def test_accuracy_of_two_classes_and_of_one_hot_targets(prediction, targets, share):
    assert accuracy(torch.tensor(prediction), torch.tensor(targets)).item() == pytest.approx(share)


def test_accuracy_of_probabilities_has_a_threshold():
    prediction, targets = torch.tensor([0.8, 0.4, 0.2]), torch.tensor([1, 0, 0])
    assert accuracy(prediction, targets, threshold=0.5) == 1
    assert accuracy(prediction, targets).item() == pytest.approx(1 / 3)


@pytest.mark.case("axon-M5")
@pytest.mark.parametrize(
    ("prediction", "targets", "share"),
    [
        ([[0.1, 0.4, 0.3, 0.7, 0.1]], [[0, 1, 0, 0, 0]], 1.0),
        ([[0.1, 0.4, 0.7]] * 2, [[0, 1, 0], [1, 0, 0]], 0.5),
        ([[0.1, 0.4, 0.7]] * 2, [0, 2], 0.5),
    ],
)
def test_the_class_is_among_the_two_best(prediction, targets, share):
    assert top_k_accuracy(torch.tensor(prediction), torch.tensor(targets), k=2) == share


def test_among_the_k_best_of_every_pixel_and_of_one_is_accuracy():
    scores, targets = torch.randn(2, 5, 3, 3), torch.randint(0, 5, (2, 3, 3))
    assert top_k_accuracy(scores, targets, k=1) == accuracy(scores, targets)
    assert top_k_accuracy(scores, targets, k=5) == 1
    assert top_k_accuracy(scores.fill_(math.nan), targets).isnan()


ACCURACIES = [accuracy, partial(top_k_accuracy, k=2)]


@pytest.mark.parametrize("metric", ACCURACIES)
@pytest.mark.parametrize("shape", [(12,), (4, 3), (2, 3, 2)])
def test_what_the_loss_ignores_does_not_count(metric, shape):
    scores, targets = torch.randn(shape[0], 5, *shape[1:]), torch.randint(0, 5, shape)
    is_padding = torch.rand(shape) < 0.4
    is_padding.view(-1)[:2] = torch.tensor([True, False])
    kept = scores.movedim(1, -1)[~is_padding], targets[~is_padding]
    assert metric(scores, targets.masked_fill(is_padding, -100)) == metric(*kept)
    ignoring = partial(metric, ignore_index=9)
    assert ignoring(scores, targets.masked_fill(is_padding, 9)) == metric(*kept)
    # as torch's own mean does, which asks nothing of the predictions of what it ignores either
    scores.movedim(1, -1)[is_padding] = math.nan
    targets[is_padding] = -100
    assert metric(scores, targets) == metric(*kept)
    assert F.cross_entropy(scores, targets) == pytest.approx(F.cross_entropy(*kept).item())
    targets[:] = -100
    assert metric(scores, targets).isnan()
    assert F.cross_entropy(scores, targets).isnan()


@pytest.mark.parametrize("metric", ACCURACIES)
def test_a_class_is_not_ignored_for_what_it_would_be_with_a_sign(metric):
    scores, targets = torch.zeros(2, 200), torch.tensor([156, 3], dtype=torch.uint8)
    scores[0, 156] = 1.0
    scores[1, 4:6] = 1.0
    assert metric(scores, targets) == 0.5


@pytest.mark.parametrize(
    ("prediction", "targets", "k", "words"),
    [
        (
            torch.zeros(4, 3),
            torch.zeros(4),
            5,
            "no top_k_accuracy with k=5 of 3 classes; k is 5 if not said otherwise",
        ),
        (torch.zeros(4, 3), torch.zeros(4), 0, "k=0"),
        (torch.zeros(4), torch.zeros(4), 1, r"prediction is a tensor of shape \(4,\), the targets are a tensor of"),
        (torch.zeros(4, 3), torch.zeros(5), 1, r"targets are a tensor of shape \(5,\)"),
        (torch.zeros(4, 3), torch.zeros(4, 3), 1, "neither one-hot nor shares"),
        ((torch.zeros(4, 3),), torch.zeros(4), 1, "compares tensors; the prediction is a tuple"),
    ],
)
def test_what_has_no_k_best_is_told_so(prediction, targets, k, words):
    with pytest.raises(MetricError, match=words):
        top_k_accuracy(prediction, targets, k=k)


def test_accuracy_of_several_outputs_is_told_to_take_one():
    with pytest.raises(
        MetricError, match=r"prediction is a tuple.*lambda p, y: gv\.metrics\.accuracy\(p\[0\], y\[0\]\)"
    ):
        accuracy((torch.zeros(2, 3), torch.zeros(2)), torch.zeros(2))
