"""Accuracy of every usual shape, and averages that neither drift nor get poisoned."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gradviz.errors import MetricError
from gradviz.loop.metrics.accumulators import RunningAverage
from gradviz.loop.metrics.measured import build_metric
from gradviz.loop.metrics.metric import Metric, loss_metric
from gradviz.metrics import METRICS, accuracy
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
    assert (average.value, average.nonfinite) == (3, 2)
    assert math.isnan(RunningAverage().value)


@pytest.mark.case("axon-M1")
def test_a_running_average_and_a_running_sum_by_hand():
    average = RunningAverage()
    average.add(0.5, 1)
    average.add(1.0, 1)
    assert average.value == 0.75

    def true_positives(prediction, targets):
        return ((prediction == 1) & (targets == 1)).sum()

    metric = build_metric(true_positives, None, "running_sum", None)
    metric.running.add(25, 1)
    assert metric(StepState(y_true=torch.tensor([1, 0, 1]), y_pred=torch.tensor([0, 1, 1]))) == 1
    assert metric.value == 26
    metric.start()
    assert math.isnan(metric.value)
    metric.running.add(12, 1)
    metric.running.add(math.nan, 1)
    metric.running.add(1, 1)
    assert metric.value == 13


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (torch.tensor(1.5), np.float32),
        (torch.tensor(1.5, dtype=torch.bfloat16), np.float32),
        (torch.tensor(1.5, dtype=torch.float64), np.float64),
        (torch.tensor(3), np.float32),
        (torch.tensor(True), np.float32),
        (3, np.float32),
        (True, np.float32),
        (1.5, np.float64),
        (np.float32(1.5), np.float32),
        (np.float64(1.5), np.float64),
        (np.int64(3), np.float32),
        (np.array(1.5), np.float64),
    ],
)
def test_a_metric_is_reported_in_the_wider_of_its_own_dtype_and_float32(value, dtype):
    metric = build_metric(lambda p, t: value, "m", "running_average", None)
    assert metric(StepState(y_pred=torch.ones(2), y_true=torch.ones(2))) == value
    assert type(metric.value) is type(metric.shown) is dtype
    assert metric.value == value


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=30))
def test_sums_and_means_are_those_of_float64_whatever_is_reported(values):
    state = StepState(y_pred=torch.ones(2), y_true=torch.ones(2))
    for accumulate, expected in [("running_sum", sum(values)), ("running_average", sum(values) / len(values))]:
        left = iter(values)
        metric = build_metric(lambda p, t, left=left: torch.tensor(next(left)), "m", accumulate, None)
        for _ in values:
            metric(state)
        assert type(metric.value) is np.float32
        assert metric.running.value == pytest.approx(expected, rel=1e-12, abs=1e-9)


def test_a_metric_keeps_its_dtype_from_epoch_to_epoch_and_a_sum_may_leave_float32():
    metric = Metric("m", lambda p: p, ("y_pred",), "running_sum")
    metric(StepState(y_pred=torch.tensor(1.0, dtype=torch.float64), y_true=1))
    metric.start()
    metric(StepState(y_pred=torch.tensor(1.0), y_true=1))
    assert type(metric.value) is np.float64
    single = metric.fresh()
    for _ in range(2):
        single(StepState(y_pred=torch.tensor(3e38), y_true=1))
    assert single.value == np.float32(math.inf)
    assert metric.value == 1


def test_mean_absolute_error_by_hand():
    error = METRICS["mean_absolute_error"]
    assert error(torch.tensor([[0, 1], [0, 0]]), torch.tensor([[1, 1], [1, 0]])) == 0.5
    assert error(torch.tensor([0, 255], dtype=torch.uint8), torch.tensor([1, 0], dtype=torch.uint8)) == 128
    assert error(torch.ones(2, dtype=torch.float64), torch.zeros(2)).dtype == torch.float64
    assert error(torch.ones(2, dtype=torch.float16), torch.zeros(2, dtype=torch.float16)).dtype == torch.float32
    with pytest.raises(MetricError, match=r"tensor of shape \(4, 1\), the targets are a tensor of shape \(4,\)"):
        error(torch.zeros(4, 1), torch.zeros(4))
    with pytest.raises(MetricError, match="the prediction is a dict"):
        error({"a": torch.zeros(4)}, torch.zeros(4))


@pytest.mark.parametrize("name", ["loss", "objective", "skipped", "validation_accuracy"])
def test_names_that_loops_use_themselves_are_refused(name):
    with pytest.raises(MetricError, match="give the metric another name"):
        build_metric(lambda p, t: 1, name, "running_average", None)


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


def test_a_metric_of_other_arguments_is_told_what_it_was_given():
    metric = build_metric(lambda gradients: gradients.norm(), "norm", "running_average", None)
    with pytest.raises(TypeError) as error:
        metric(StepState(y_pred=torch.zeros(2), y_true=torch.zeros(2)))
    assert 'given y_pred, y_true; for others write .metric(..., fields=["gradients"])' in error.value.__notes__[0]


def read_safely(state: dict[str, object]) -> dict[str, object]:
    """What a checkpoint gives back, by torch's safe default."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("accumulate", ["running_average", "running_sum", "last", "max", "min", lambda s, v, n: s - v])
def test_a_metric_goes_on_in_the_middle_of_an_epoch_from_a_file(accumulate):
    def build() -> Metric:
        return build_metric(lambda p, t: p.mean(), "m", accumulate, None)

    def batch(value: float, length: int) -> StepState:
        return StepState(y_pred=torch.full((length,), value, dtype=torch.float64), y_true=torch.ones(length))

    first, second = [batch(1.0, 4), batch(math.nan, 2)], [batch(0.1, 1), batch(3.0, 2)]
    whole, broken, resumed = build(), build(), build()
    for state in first + second:
        whole(state)
    for state in first:
        broken(state)
    resumed.load_state_dict(read_safely(broken.state_dict()))
    assert math.isnan(resumed.shown)
    assert type(resumed.shown) is np.float64
    for state in second:
        resumed(state)
    assert resumed.value == whole.value
    assert repr(resumed.running) == repr(whole.running)


def test_what_was_accumulated_otherwise_is_not_gone_on_with():
    saved = build_metric(len, "n", "running_sum", ["y_pred"]).state_dict()
    other = build_metric(len, "n", "max", ["y_pred"])
    with pytest.raises(MetricError, match="'n' is accumulated by 'max' here, and by 'running_sum' in what was saved"):
        other.load_state_dict(saved)
