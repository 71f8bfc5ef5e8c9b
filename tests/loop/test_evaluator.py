"""An evaluation weighs examples, goes by names of its own, and trains nothing."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import gradviz as gv
from gradviz.errors import DataError, LossError, MetricError, MetricWarning, ModelError, UnknownKeywordError


def scaled(weight: float = 0.4) -> nn.Linear:
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, weight)
    return model


DATA = [(torch.tensor([[1.0], [2.0]]), torch.ones(2, 1))]
RAGGED = [(torch.zeros(4, 1), torch.full((4, 1), 1.0)), (torch.zeros(1, 1), torch.full((1, 1), 9.0))]


def objective(forward, model_state, inputs, targets):
    output = forward(model_state, inputs)
    return F.mse_loss(output.prediction, targets) + model_state["weight"].square().sum(), output


def test_by_hand():
    state = gv.evaluator(scaled(), "mean_squared_error").metric("mean_absolute_error").run(DATA)
    assert state.metrics == pytest.approx({"loss": 0.2, "mean_absolute_error": 0.4})
    assert (state.status, state.iteration) == ("completed", 1)
    assert state.step_state.y_pred.tolist() == [[pytest.approx(0.4)], [pytest.approx(0.8)]]


def test_an_evaluator_without_a_loss_has_the_metrics_it_was_given():
    model = nn.Linear(1, 2)
    nn.init.zeros_(model.weight)
    model.bias.data = torch.tensor([1.0, 0.0])
    data = [(torch.zeros(4, 1), torch.tensor([0, 0, 0, 1]))]
    assert gv.evaluator(model).metric("accuracy").run(data).metrics == {"accuracy": 0.75}
    assert gv.evaluator(model).run(data).metrics == {}


@pytest.mark.parametrize(
    ("make", "value"),
    [
        (lambda: gv.evaluator(scaled(2.0), objective), 4.2),
        (lambda: gv.evaluator(scaled(2.0), objective=lambda *arguments: objective(*arguments)), 4.2),
    ],
)
def test_an_objective_goes_by_its_own_name(make, value):
    data = [(torch.zeros(4, 1), torch.zeros(4, 1)), (torch.zeros(1, 1), torch.ones(1, 1))]
    metrics = make().run(data).metrics
    assert list(metrics) == ["objective"]
    assert metrics["objective"] == pytest.approx(value)


def test_examples_weigh_the_same_in_ragged_batches_and_sums_know_no_weights():
    evaluator = gv.evaluator(scaled(), "l1").metric(lambda p, t: len(t), "n", "running_sum")
    evaluator.metric(lambda p, t: t.mean(), "targets")
    assert evaluator.run(RAGGED).metrics == pytest.approx({"loss": 2.6, "n": 5, "targets": 2.6})


def test_each_run_begins_anew():
    evaluator = gv.evaluator(scaled(), "l1").metric(lambda p, t: len(t), "n", "running_sum")
    first = evaluator.run(RAGGED)
    assert evaluator.run(lambda epoch: iter(RAGGED)).metrics == first.metrics
    assert evaluator.run(iter(RAGGED)).metrics == first.metrics


def test_metrics_are_in_the_model_s_type():
    data = [(torch.ones(2, 1, dtype=torch.float64), torch.ones(2, 1, dtype=torch.float64))]
    state = gv.evaluator(scaled().double(), "l1").metric("mean_absolute_error").run(data)
    assert {type(value) for value in state.metrics.values()} == {np.float64}


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: gv.evaluator(scaled(), "l1").run([]), DataError, "no batch"),
        (lambda: gv.evaluator(scaled(), "l1").run([torch.zeros(2, 1)]), DataError, "pair"),
        (lambda: gv.evaluator(scaled(), "hubr"), LossError, "did you mean 'huber'"),
        (lambda: gv.evaluator(nn.Linear), ModelError, "the class Linear"),
        (lambda: gv.evaluator(scaled(), los="l1"), UnknownKeywordError, "did you mean 'loss'"),
        (lambda: gv.evaluator(scaled()).metric("accurcy"), MetricError, "did you mean 'accuracy'"),
        (lambda: gv.evaluator(scaled()).metric("accuracy", field=["y"]), UnknownKeywordError, "'fields'"),
        (
            lambda: gv.evaluator(scaled()).metric(len, "n", fields=["gradients"]),
            MetricError,
            "asks for .gradients., which the step state does not have: known: model_state, y_pred, y_true",
        ),
    ],
)
def test_a_slip_is_answered_in_words(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_a_metric_s_error_names_it_and_the_batch():
    def fails(prediction, targets):
        if len(targets) == 1:
            raise ValueError("too few")
        return 1.0

    model = scaled()
    with pytest.raises(ValueError, match="too few") as error:
        gv.evaluator(model).metric(fails).run(RAGGED)
    assert error.value.__notes__[-1] == "In the metric 'fails', at batch 1 of an evaluation."
    assert model.training


def test_a_metric_of_the_same_name_takes_the_other_s_place_with_a_word():
    evaluator = gv.evaluator(scaled()).metric("accuracy", "m").metric("accuracy", "m")
    with pytest.warns(MetricWarning, match="'m' was there already"):
        evaluator.metric("mean_absolute_error", "m")
    with pytest.warns(MetricWarning, match="'m' was there already"):
        evaluator.metric("mean_absolute_error", "m", "running_sum")
    assert repr(evaluator) == "Evaluator of Linear: m"
    assert evaluator.run(DATA).metrics == {"m": pytest.approx(0.4)}


def test_a_batch_that_is_not_finite_shows_in_what_an_evaluation_came_to():
    model = nn.Linear(3, 1)
    good, bad = (torch.ones(4, 3), torch.ones(4, 1)), (torch.full((4, 3), float("nan")), torch.ones(4, 1))
    metrics = gv.evaluator(model, "mean_squared_error").metric("mean_absolute_error").run([good, bad, good]).metrics
    assert np.isnan(metrics["loss"])
    assert np.isnan(metrics["mean_absolute_error"])
    infinite = gv.evaluator(model).metric(lambda p, y: float("inf"), "worst").run([good]).metrics
    assert infinite["worst"] == float("inf")
    loop = gv.trainer(model, "mean_squared_error", "sgd").validate([good, bad])
    assert np.isnan(loop.run([good], display=None).metrics["validation_loss"])


def test_micro_batches_that_do_not_fit_together_are_measured_one_by_one():
    model = nn.Linear(2, 1)
    data = [(torch.randn(2, length, 2), torch.randn(2, length, 1)) for length in (3, 5, 4)]
    loop = gv.trainer(model, "mean_squared_error", partial(torch.optim.SGD, lr=0.0), accumulate=2)
    loop.metric("mean_absolute_error").metric(lambda p, y: 1.0, "count", "running_sum")
    state = loop.run(data, display=None)
    each = [(model(x) - y).abs().mean().item() for x, y in data]
    assert state.metrics["mean_absolute_error"] == pytest.approx(sum(each) / 3)
    assert loop.history.metrics["mean_absolute_error"].tolist() == pytest.approx([(each[0] + each[1]) / 2, each[2]])
    assert state.metrics["count"] == 3


def test_an_objective_that_differentiates_leaves_no_grad_behind():
    def objective(forward, model_state, inputs, targets):
        output = forward(model_state, inputs)
        loss = (output.prediction - targets).square().mean()
        loss.backward(retain_graph=True)
        return loss, output

    model = nn.Linear(3, 1)
    gv.evaluator(model, objective).run([(torch.ones(4, 3), torch.ones(4, 1))])
    assert model.weight.grad is None


def test_what_is_no_model_is_told_so_under_a_policy_too():
    with pytest.raises(ModelError, match=r"A model is a torch\.nn\.Module; got an int"):
        gv.evaluator(3, policy=gv.Policy(compute=torch.bfloat16))


@pytest.mark.parametrize("weight", [None, torch.tensor([1.0, 4.0, 0.5])])
def test_a_loss_that_ignores_targets_is_the_mean_over_those_it_does_not(weight):
    torch.manual_seed(0)
    model, x = nn.Linear(2, 3), torch.randn(12, 2)
    y = torch.tensor([0, 1, 2, -100, 1, -100, -100, -100, -100, -100, -100, -100])
    loss = nn.CrossEntropyLoss(weight=weight)
    data = list(zip(x.split(4), y.split(4), strict=True))  # nothing of the last batch counts
    whole = loss(model(x), y).item()
    loop = gv.trainer(model, loss, partial(torch.optim.SGD, lr=0.0)).validate(data)
    metrics = loop.run(data, display=None).metrics
    assert metrics["loss"] == pytest.approx(whole)
    assert metrics["validation_loss"] == pytest.approx(whole)
    assert np.isnan(loop.history.metrics["loss"].iloc[-1])
    assert loop.history.epochs["nonfinite"].tolist() == [1]
    assert np.isnan(gv.evaluator(model, loss).run(data[2:]).metrics["loss"])
