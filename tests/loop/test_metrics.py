"""Accuracy of every usual shape, and averages that neither drift nor get poisoned."""

from __future__ import annotations

import math

import pytest
import torch

from gradviz.errors import MetricError
from gradviz.loop.metrics import Metric, RunningAverage, accuracy, build_metric, loss_metric
from gradviz.step.train_step import StepState


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


def test_the_weight_is_the_batch_s_length():
    state = StepState(
        y_pred=torch.zeros(5, 2), y_true={"meta": torch.zeros(3), "y": torch.zeros(5)}, loss=torch.ones(())
    )
    assert Metric("m", len, ("y_pred",)).weight(state) == 5
    assert Metric("m", len, ("loss",)).weight(state) == 1
    assert loss_metric().weight(state) == 5


def test_targets_that_are_no_classes_are_refused():
    with pytest.raises(MetricError, match="neither class indices nor 0 and 1"):
        accuracy(torch.tensor([0.3, 2.0]), torch.tensor([0.25, 1.75]))


def test_shapes_that_cannot_be_compared_are_named():
    with pytest.raises(MetricError, match=r"\(4, 3\) with targets of shape \(5,\)"):
        accuracy(torch.zeros(4, 3), torch.zeros(5))


def test_a_non_finite_value_shows_once_and_the_mean_goes_on():
    average = RunningAverage()
    for value, shown in [(1, 1), (math.nan, math.nan), (3, 2), (math.inf, math.inf), (5, 3)]:
        average.add(value, 1)
        assert average.shown == shown or (math.isnan(average.shown) and math.isnan(shown))
    assert (average.mean, average.nonfinite) == (3, 2)
    assert math.isnan(RunningAverage().mean)


def test_fields_are_the_arguments_in_their_order():
    state = StepState(y_pred=torch.ones(2), y_true=torch.zeros(2), loss=torch.tensor(4.0))
    assert build_metric(lambda p, t: (p - t).sum(), "m", "running_average", None)(state) == 2
    assert build_metric(lambda loss, t: loss + t.sum(), "m", "running_average", ["loss", "y_true"])(state) == 4


def test_what_a_metric_returns_is_one_number():
    state = StepState(y_pred=torch.ones(2), y_true=torch.zeros(2))
    assert Metric("m", lambda p, t: p.bool().any(), ("y_pred", "y_true"))(state) == 1.0
    with pytest.raises(MetricError, match=r"'m' returned a tensor of shape \(2,\)"):
        Metric("m", lambda p, t: p, ("y_pred", "y_true"))(state)
    with pytest.raises(MetricError, match="'m' returned None"):
        Metric("m", lambda p, t: None, ("y_pred", "y_true"))(state)


def test_an_unknown_field_is_named():
    with pytest.raises(MetricError, match="'y_hat'"):
        Metric("m", len, ("y_hat",))(StepState(y_pred=1))
