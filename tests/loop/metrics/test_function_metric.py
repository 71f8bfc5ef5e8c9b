"""Functions of each batch: what they are given, how much a batch weighs, and what an epoch comes to."""

from __future__ import annotations

import io
import itertools
import math
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import gradviz as gv
from gradviz.errors import MetricError
from gradviz.loop.metrics.function_metric import FunctionMetric, LossMetric
from gradviz.loop.metrics.measured import build_metric
from gradviz.step.train_step import StepState


def test_the_weight_is_the_batch_s_length():
    state = StepState(
        y_pred=torch.zeros(5, 2), y_true={"meta": torch.zeros(3), "y": torch.zeros(5)}, loss=torch.ones(())
    )
    assert FunctionMetric("m", len, ("y_pred",)).weight(state) == 5
    assert FunctionMetric("m", len, ("loss",)).weight(state) == 1
    assert LossMetric().weight(state) == 5


@pytest.mark.case("axon-M1")
def test_a_running_average_and_a_running_sum_by_hand():
    average = build_metric(lambda p: p, "m", fields=["y_pred"])
    for value in (0.5, 1.0):
        average(StepState(y_pred=torch.tensor(value), y_true=torch.tensor(1)))
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
    metric = FunctionMetric("m", lambda p: p, ("y_pred",), "running_sum")
    metric(StepState(y_pred=torch.tensor(1.0, dtype=torch.float64), y_true=1))
    metric.start()
    metric(StepState(y_pred=torch.tensor(1.0), y_true=1))
    assert type(metric.value) is np.float64
    single = metric.fresh()
    for _ in range(2):
        single(StepState(y_pred=torch.tensor(3e38), y_true=1))
    assert single.value == np.float32(math.inf)
    assert metric.value == 1


@pytest.mark.parametrize(
    "name", ["loss", "objective", "attempt", "optimizer", "skipped", "validation_accuracy", "i", "y_pred", "gradients"]
)
def test_names_that_loops_use_themselves_are_refused(name):
    with pytest.raises(MetricError, match="give the metric another name"):
        build_metric(lambda p, t: 1, name, "running_average", None)


def test_fields_are_the_arguments_in_their_order():
    state = StepState(y_pred=torch.ones(2), y_true=torch.zeros(2), loss=torch.tensor(4.0))
    assert build_metric(lambda p, t: (p - t).sum(), "m", "running_average", None)(state) == 2
    assert build_metric(lambda loss, t: loss + t.sum(), "m", "running_average", ["loss", "y_true"])(state) == 4


def test_what_a_metric_returns_is_one_number():
    state = StepState(y_pred=torch.ones(2), y_true=torch.zeros(2))
    assert FunctionMetric("m", lambda p, t: p.bool().any(), ("y_pred", "y_true"))(state) == 1.0
    with pytest.raises(MetricError, match=r"'m' returned a tensor of shape \(2,\)"):
        FunctionMetric("m", lambda p, t: p, ("y_pred", "y_true"))(state)
    with pytest.raises(MetricError, match="'m' returned None"):
        FunctionMetric("m", lambda p, t: None, ("y_pred", "y_true"))(state)


def test_an_unknown_field_is_named():
    with pytest.raises(MetricError, match="'y_hat'"):
        FunctionMetric("m", len, ("y_hat",))(StepState(y_pred=1))


def test_a_metric_of_other_arguments_is_told_what_it_was_given():
    with pytest.raises(
        MetricError, match=r"is given y_pred, y_true, and takes something else: .*fields=\[\"y_pred\"\]"
    ):
        build_metric(lambda gradients: gradients.norm(), "norm", "running_average", None)
    metric = build_metric(lambda *given: given[2], "third")
    with pytest.raises(IndexError) as error:
        metric(StepState(y_pred=torch.zeros(2), y_true=torch.zeros(2, 1)))
    assert error.value.__notes__ == ["It was given y_pred, a tensor of shape (2,), y_true, a tensor of shape (2, 1)."]


def read_safely(state: dict[str, object]) -> dict[str, object]:
    """What a checkpoint gives back, by torch's safe default."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("accumulate", ["running_average", "running_sum", "last", "max", "min", lambda s, v, n: s - v])
def test_a_metric_goes_on_in_the_middle_of_an_epoch_from_a_file(accumulate):
    def build() -> FunctionMetric:
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


def batch_of(prediction: torch.Tensor, targets: torch.Tensor) -> StepState:
    return StepState(y_pred=prediction, y_true=targets)


def at_rest(**options) -> gv.Loop:
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 1.0)
    return gv.trainer(model, "mean_squared_error", torch.optim.SGD(model.parameters(), lr=0.0), **options)


@pytest.mark.parametrize(
    "metric",
    [
        ("accuracy", None),
        ("mean_absolute_error", None),
        ("mean_squared_error", None),
        ("precision", None),
        ("recall", None),
        ("sensitivity", None),
        ("specificity", None),
        ("true_positives", None),
        ("false_positives", "running_sum"),
        ("true_negatives", None),
        ("false_negatives", None),
        (partial(gv.metrics.precision, threshold=0.5), None),
        (partial(partial(gv.metrics.false_positives, threshold=0.5)), None),
        (lambda p, y: p.sum(), "running_sum"),
        (lambda p, y: p.max(), "max"),
        (lambda p, y: y.min(), "min"),
        (lambda p, y: p[-1], "last"),
        (lambda p, y: len(p), lambda so_far, value, n: so_far + value),
    ],
)
@given(
    examples=st.lists(st.tuples(st.floats(-3, 3, width=32), st.integers(0, 1)), min_size=1, max_size=12),
    cuts=st.lists(st.integers(1, 11), max_size=4),
)
def test_however_the_examples_are_split_into_batches_they_come_to_the_same(metric, examples, cuts):
    function, accumulate = metric
    prediction, targets = (torch.tensor(column) for column in zip(*examples, strict=True))
    whole, split = (build_metric(function, "m", accumulate) for _ in range(2))
    value = whole(batch_of(prediction, targets))
    places = sorted({0, len(examples), *(cut for cut in cuts if cut < len(examples))})
    for start, end in itertools.pairwise(places):
        split(batch_of(prediction[start:end], targets[start:end]))
    assert float(split.value) == pytest.approx(value, rel=1e-5, abs=1e-5, nan_ok=True)
    assert float(split.complete) == pytest.approx(value, rel=1e-5, abs=1e-5, nan_ok=True)


def test_a_ratio_of_nothing_is_nan_at_its_own_batch_and_leaves_the_epoch_alone():
    metric, shown = build_metric("precision"), []
    for prediction, targets in [([1.0, 1.0], [1, 0]), ([-1.0], [1]), ([1.0, -1.0], [1, 1])]:
        metric(batch_of(torch.tensor(prediction), torch.tensor(targets)))
        shown.append(float(metric.shown))
    assert shown == pytest.approx([1 / 2, math.nan, 2 / 3], nan_ok=True)
    assert metric.value == metric.complete == pytest.approx(2 / 3)
    metric(batch_of(torch.tensor([math.nan]), torch.tensor([1])))
    assert metric.value == pytest.approx(2 / 3)
    assert math.isnan(metric.complete)


@pytest.mark.parametrize("name", ["accuracy", partial(gv.metrics.top_k_accuracy, k=1)])
def test_what_the_loss_ignores_weighs_nothing_in_the_epoch(name):
    metric, shown = build_metric(name), []
    scores = torch.eye(2)[[0, 0, 0, 0]]
    for targets in ([0, -100, -100, -100], [-100] * 4, [0, 1, 1, 1]):
        metric(batch_of(scores, torch.tensor(targets)))
        shown.append(float(metric.shown))
    assert shown == pytest.approx([1, math.nan, 2 / 5], nan_ok=True)
    assert metric.value == metric.complete == pytest.approx(2 / 5)


def test_a_validation_leaves_out_what_its_loss_ignores():
    model = nn.Linear(2, 2, bias=False)
    nn.init.eye_(model.weight)
    batches = [(torch.eye(2)[[0] * 4], torch.tensor(targets)) for targets in ([0, -100, -100, -100], [0, 1, 1, 1])]
    metrics = gv.evaluator(model, "cross_entropy").metric("accuracy").run(batches).metrics
    assert metrics["accuracy"] == pytest.approx(2 / 5)


def test_counts_add_up_if_nothing_else_is_said_and_their_mean_is_that_of_the_batches():
    batches = [(torch.ones(n), torch.ones(n)) for n in (3, 1)]
    total, mean, own = (
        build_metric("true_positives"),
        build_metric("true_positives", None, "running_average"),
        build_metric(lambda p, y: gv.metrics.true_positives(p, y), "own", "running_sum"),
    )
    for prediction, targets in batches:
        for metric in (total, mean, own):
            metric(batch_of(prediction, targets))
    assert (total.value, mean.value, own.value) == (4, 2, 4)
    assert type(total.value) is np.float32


def test_a_function_with_arguments_goes_by_its_own_name():
    assert build_metric(partial(partial(gv.metrics.precision), threshold=0.5)).name == "precision"
    assert build_metric(F.l1_loss).name == "l1_loss"
    with pytest.raises(MetricError, match="needs a name"):
        build_metric(partial(lambda p, y: 1))
    with pytest.raises(MetricError, match="object with update, compute and reset; got an int"):
        build_metric(3)


@pytest.mark.case("axon-M6")
def test_the_loss_of_an_epoch_is_its_own_mean_and_the_current_batch_is_in_it():
    def loss(prediction, targets):
        return prediction.sum() * 0 + targets.mean()

    data = {0: (4, 2, 6), 1: (1, 1, 1)}
    loop, shown, metric = gv.trainer(nn.Linear(1, 1), loss, "sgd"), [], []
    loop.metric(lambda loss: loss, "the same", fields=["loss"])
    loop.handle_event("iteration_completed", lambda state: shown.append(float(state.metrics["loss"])))
    loop.handle_event("iteration_completed", lambda state: metric.append(float(state.metrics["the same"])))
    loop.run(
        lambda epoch: [(torch.ones(1, 1), torch.full((1, 1), float(each))) for each in data[epoch]],
        epochs=2,
        display=None,
    )
    assert shown == metric == [4, 3, 4, 1, 1, 1]
    assert loop.history.epochs["loss"].tolist() == [4.0, 1.0]
    assert loop.history.metrics["loss"].tolist() == [4, 2, 6, 1, 1, 1]


@pytest.mark.case("L20")
def test_a_loop_has_every_accumulator_and_one_nan_batch_costs_one_iteration():
    accumulate = {"mean": None, "sum": "running_sum", "last": "last", "max": "max", "min": "min"}
    accumulate["smoothed"] = lambda so_far, value, n: (so_far + value) / 2
    loop, shown = at_rest(), []
    for name, each in accumulate.items():
        loop.metric(lambda p, y: y.mean(), name, each)
    loop.handle_event("iteration_completed", lambda state: shown.append([float(state.metrics[n]) for n in accumulate]))
    data = [(torch.ones(1, 1), torch.full((1, 1), value)) for value in (4.0, 2.0, math.nan, 3.0)]
    state = loop.run(data, epochs=2, display=None)
    finite = {"mean": 3, "sum": 9, "last": 3, "max": 4, "min": 2, "smoothed": 3}
    assert all(map(math.isnan, shown[2]))
    assert shown[3] == shown[7] == list(finite.values())
    assert {name: state.metrics[name] for name in finite} == finite
    assert loop.history.epochs[list(finite)].to_dict("records") == [finite, finite]
    assert loop.history.metrics["max"].tolist() == pytest.approx([4, 2, math.nan, 3] * 2, nan_ok=True)


def test_metrics_see_the_new_state_and_what_the_model_said_before_the_update():
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 1.0)
    loop = gv.trainer(model, "mean_squared_error", partial(torch.optim.SGD, lr=0.25))
    loop.metric(lambda p: p, "prediction", "last", fields=["y_pred"])
    loop.metric(lambda state: state["weight"], "weight", "last", fields=["model_state"])
    loop.metric(lambda i: i, "steps", "last", fields=["i"])
    loop.run([(torch.ones(1, 1), torch.zeros(1, 1))] * 2, display=None)
    assert loop.history.metrics["prediction"].tolist() == [1, 0.5]
    assert loop.history.metrics["weight"].tolist() == [0.5, 0.25]
    assert loop.history.metrics["steps"].tolist() == [1, 2]


def test_a_function_defined_anew_is_the_same_metric_and_another_accumulator_is_not():
    def fold(n):
        return lambda so_far, value, count: so_far + n * value

    metric = build_metric(len, "n", fold(1), ["y_pred"])
    assert metric.is_same(build_metric(len, "n", fold(1), ["y_pred"]))
    assert not metric.is_same(build_metric(len, "n", fold(2), ["y_pred"]))
    assert not metric.is_same(build_metric(len, "n", "max", ["y_pred"]))
    assert not metric.is_same(build_metric(len, "n", fold(1), ["y_true"]))


@pytest.mark.parametrize("metric", ["accuracy", partial(gv.metrics.precision, threshold=0.5)])
def test_a_metric_of_ours_that_does_not_fit_the_data_is_told_before_anything_moves(metric):
    model = nn.Linear(2, 3)
    before = model.weight.clone()
    loop = gv.trainer(model, "mean_squared_error", "sgd").metric(metric)
    with pytest.raises(MetricError) as error:
        loop.run([(torch.ones(4, 2), torch.full((4, 3), 0.5))])
    assert "In a trial step, before anything moved" in error.value.__notes__[-1]
    assert "In the metric" in error.value.__notes__[0]
    assert torch.equal(model.weight, before)
    assert len(loop.history) == 0


def test_a_function_of_the_user_s_is_called_once_for_each_step_and_no_more():
    calls = []
    loop = gv.trainer(nn.Linear(2, 1), "mean_squared_error", "sgd").metric(lambda p, y: calls.append(p) or 1.0, "m")
    loop.run([(torch.ones(4, 2), torch.ones(4, 1))] * 3)
    assert len(calls) == 3


def test_fields_that_are_never_there_are_told_before_anything_moves():
    data = [(torch.ones(4, 2), torch.ones(4, 1))]
    loop = gv.trainer(nn.Linear(2, 1), "mean_squared_error", "sgd")
    with pytest.raises(
        MetricError, match=r"'norm' asks for 'gradients', and this loop keeps none\. Write gv\.trainer\("
    ):
        loop.metric(gv.norm, "norm", fields=["gradients"])
    loop.metric(len, "n", fields=["y_pre"])
    with pytest.raises(
        MetricError, match="asks for 'y_pre', which the step state does not have: did you mean 'y_pred'"
    ):
        loop.run(data)
    assert len(loop.history) == 0
    loop.handle_event("iteration_started", lambda state: state.step_state.update(y_pre=[1, 2]))
    assert float(loop.run(data).metrics["n"]) == 2, "a handler may put more into the state"
