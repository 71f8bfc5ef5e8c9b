"""A loss or an objective becomes one form, and what it returns is checked."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from gradviz.errors import LossError
from gradviz.step.model_state import ModelState
from gradviz.step.objective import Forward, Output, WrappedLoss, as_objective, checked


def objective(forward, model_state, inputs, targets):
    output = forward(model_state, inputs)
    return F.mse_loss(output.prediction, targets), output


class OwnLoss:
    def __call__(self, prediction, targets):
        return (prediction - targets).square().mean()


@pytest.mark.parametrize(
    "loss", ["mean_squared_error", F.mse_loss, nn.MSELoss(), OwnLoss(), lambda p, t: (p - t).square().mean()]
)
def test_losses_of_every_kind_become_the_same_objective(loss):
    model = nn.Linear(2, 1)
    made = as_objective(loss)
    assert isinstance(made, WrappedLoss)
    inputs, targets = torch.ones(3, 2), torch.zeros(3, 1)
    state = ModelState(model)
    value, output = checked(made(Forward(state, may_repeat=False), state, inputs, targets), made)
    assert torch.equal(value, F.mse_loss(model(inputs), targets))
    assert torch.equal(output.prediction, model(inputs))


def test_four_arguments_make_an_objective():
    assert as_objective(objective) is objective
    assert as_objective(None, objective) is objective


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        ("cros_entropy", "did you mean 'cross_entropy'"),
        (lambda a, b, c: a, "takes 3 required positional arguments"),
        (lambda a: a, "takes 1 required"),
        (3, 'got an int. Write "cross_entropy"'),
        (torch.max, "Wrap a loss, lambda prediction, targets: max"),
    ],
)
def test_what_is_neither_is_refused_with_the_form_to_write(loss, words):
    with pytest.raises(LossError, match=words):
        as_objective(loss)


def test_three_arguments_are_shown_the_objective_form():
    with pytest.raises(LossError, match=r"def objective\(forward, model_state, inputs, targets\)"):
        as_objective(lambda forward, inputs, targets: None)


def test_a_loss_and_an_objective_together_are_refused():
    with pytest.raises(LossError, match="not both"):
        as_objective("huber", objective)


LEAF = torch.ones(3, requires_grad=True)


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (LEAF.sum(), r"returned a tensor of shape \(\); it must return the loss and the whole output"),
        ((LEAF.sum(), LEAF), r"returned a tuple of \(Tensor, Tensor\)"),
        ((1.5, Output(LEAF, {})), "returned a float as the loss"),
        ((LEAF * 2, Output(LEAF, {})), r"loss of shape \(3,\); a scalar is wanted"),
        ((LEAF.sum().reshape(1), Output(LEAF, {})), r"loss of shape \(1,\)"),
        ((torch.tensor(3), Output(LEAF, {})), "loss of torch.int64"),
        ((LEAF.sum().detach(), Output(LEAF, {})), "has no graph"),
    ],
)
def test_what_an_objective_returned_is_named(result, words):
    with pytest.raises(LossError, match=words):
        checked(result, objective)


def test_each_forward_starts_from_the_same_buffers_and_the_returned_output_s_are_kept():
    first, second = torch.randn(8, 3), torch.randn(8, 3) + 5

    def after_one(inputs: torch.Tensor) -> torch.Tensor:
        norm = nn.BatchNorm1d(3)
        norm(inputs)
        return norm.running_mean

    for keep in (0, 1):
        norm = nn.BatchNorm1d(3)
        state = ModelState(norm)
        forward = Forward(state, may_repeat=True)
        outputs = [forward(state, first), forward(state, second)]
        (outputs[0].prediction.sum() + outputs[1].prediction.sum()).backward()
        forward.settle(outputs[keep])
        assert torch.equal(norm.running_mean, after_one((first, second)[keep]))
        assert norm.num_batches_tracked == 1


def test_forward_takes_another_state_than_the_model_s_own():
    model = nn.Linear(2, 1, bias=False)
    forward = Forward(ModelState(model), may_repeat=False)
    assert forward({"weight": torch.zeros(1, 2)}, torch.ones(3, 2)).prediction.tolist() == [[0], [0], [0]]
