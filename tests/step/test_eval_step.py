"""An evaluation sees what plain torch sees in eval mode, and leaves everything as it was."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from gradviz.errors import DataError, InputCastWarning, LossError, ModelError
from gradviz.step.eval_step import EvalStep
from gradviz.step.objective import as_objective


def net() -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))
    model[1].eval()
    return model


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randn(5, 4), torch.randint(0, 3, (5,))


def flags(model: nn.Module) -> list[bool]:
    return [child.training for child in model.modules()]


def test_a_loss_is_that_of_eval_mode_and_nothing_moves():
    model, (inputs, targets) = net(), batch()
    before, training = copy.deepcopy(model.state_dict()), flags(model)
    state = EvalStep(model, as_objective("cross_entropy"))((inputs, targets))
    assert flags(model) == training == [True, True, False, True, True]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    model.eval()
    assert torch.equal(state.loss, F.cross_entropy(model(inputs), targets))
    assert torch.equal(state.y_pred, model(inputs))
    assert list(state) == ["model_state", "y_true", "y_pred", "loss"]


def test_without_an_objective_there_is_a_prediction_and_no_loss():
    step = EvalStep(net(), None)
    state = step(batch())
    assert tuple(state) == step.fields == ("model_state", "y_true", "y_pred")
    assert state.y_pred.shape == (5, 3)


def test_flags_are_restored_after_an_error_which_names_the_batch():
    model = net()
    training = flags(model)
    step = EvalStep(model, as_objective("cross_entropy"))
    with pytest.raises(ValueError, match="batch_size") as error:
        step((torch.zeros(5, 4), torch.zeros(4, dtype=torch.int64)))
    assert error.value.__notes__ == ["In an evaluation, on a batch of inputs (5, 4) float32; targets (4,) int64."]
    assert flags(model) == training


def test_a_plain_loss_builds_no_graph_and_an_objective_may_differentiate_inside():
    seen = []

    def loss(prediction, targets):
        seen.append(prediction.requires_grad)
        return prediction.square().mean()

    def objective(forward, model_state, inputs, targets):
        output = forward(model_state, inputs)
        value = output.prediction.square().mean()
        (gradient,) = torch.autograd.grad(value, model_state["0.weight"], create_graph=True)
        return value + gradient.square().sum(), output

    model = net()
    with torch.no_grad():
        plain = EvalStep(model, as_objective(loss))(batch())
        state = EvalStep(model, objective)(batch())
    assert seen == [False]
    assert state.loss > plain.loss
    assert not state.loss.requires_grad
    assert not state.y_pred.requires_grad
    assert all(p.grad is None for p in model.parameters())


def test_nothing_of_an_evaluation_holds_a_graph():
    inputs, _ = batch()
    targets = torch.randn(5, 3, requires_grad=True)
    state = EvalStep(net(), lambda f, s, x, y: ((f(s, x).prediction - y).mean(), f(s, x)))((inputs, targets))
    assert not any(state[name].requires_grad for name in ("loss", "y_pred", "y_true"))


def test_an_objective_with_several_passes_keeps_the_buffers_the_module_has():
    model = net()
    buffers = {name: (buffer, buffer.clone()) for name, buffer in model.named_buffers()}

    def objective(forward, model_state, inputs, targets):
        output, other = forward(model_state, inputs), forward(model_state, -inputs)
        assert not model.training
        return (output.prediction - other.prediction).square().mean(), output

    EvalStep(model, objective)(batch())
    for name, buffer in model.named_buffers():
        assert buffer is buffers[name][0]
        assert torch.equal(buffer, buffers[name][1])


@pytest.mark.parametrize(
    ("objective", "words"),
    [
        (lambda f, s, x, y: f(s, x).prediction.mean(), "must return the loss and the whole output"),
        (lambda f, s, x, y: (f(s, x).prediction, f(s, x)), r"loss of shape \(5, 3\)"),
    ],
)
def test_what_an_objective_returns_is_checked(objective, words):
    with pytest.raises(LossError, match=words):
        EvalStep(net(), objective)(batch())


def test_a_loss_without_a_graph_is_fine_here():
    state = EvalStep(net(), lambda f, s, x, y: (torch.tensor(5.0), f(s, x)))(batch())
    assert state.loss == 5


def test_batches_are_checked_and_moved_as_in_training():
    step = EvalStep(net(), None)
    with pytest.raises(DataError, match=r"pair \(inputs, targets\)"):
        step(torch.zeros(5, 4))
    with pytest.warns(InputCastWarning, match="float64"):
        step((np.zeros((5, 4)), np.zeros(5, np.int64)))
    state = step((np.zeros((5, 4)), np.zeros(5, np.int64)))  # said once
    assert (state.y_pred.dtype, state.y_true.dtype) == (torch.float32, torch.int64)
    with pytest.raises(ModelError, match="got the class Linear"):
        EvalStep(nn.Linear, None)


def test_a_model_without_parameters_is_evaluated_too():
    state = EvalStep(nn.Softmax(1), as_objective("l1"))((torch.zeros(2, 4), torch.zeros(2, 4)))
    assert state.loss == 0.25


def test_inside_autocast_the_newest_weights_count():
    model = nn.Linear(1, 1, bias=False)
    step = EvalStep(model, None)
    with torch.autocast("cpu", torch.bfloat16):
        for weight in (1.0, 2.0):
            nn.init.constant_(model.weight, weight)
            assert step((torch.ones(1, 1), torch.ones(1, 1))).y_pred.item() == weight
            model(torch.ones(1, 1))  # torch keeps the cast weight until autocast ends
