"""A loss or an objective becomes one form, and what it returns is checked."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import gradviz as gv
from gradviz.errors import LossError, StateTypeError
from gradviz.step.model_state import ModelState
from gradviz.step.objective import Forward, Output, WrappedLoss, as_objective, checked
from gradviz.step.policy import Policy
from gradviz.step.precision import Precision
from gradviz.step.train_step import train_step
from tests.step.nets import GRADIENTS, K0, X, Y, two_layers

SGD = partial(torch.optim.SGD, lr=0.1)


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
    value, output = checked(
        made(Forward(state, Precision(Policy(), model), may_repeat=False), state, inputs, targets), made
    )
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
        forward = Forward(state, Precision(Policy(), norm), may_repeat=True)
        outputs = [forward(state, first), forward(state, second)]
        (outputs[0].prediction.sum() + outputs[1].prediction.sum()).backward()
        forward.settle(outputs[keep])
        assert torch.equal(norm.running_mean, after_one((first, second)[keep]))
        assert norm.num_batches_tracked == 1


def test_forward_takes_another_state_than_the_model_s_own():
    model = nn.Linear(2, 1, bias=False)
    forward = Forward(ModelState(model), Precision(Policy(), model), may_repeat=False)
    assert forward({"weight": torch.zeros(1, 2)}, torch.ones(3, 2)).prediction.tolist() == [[0], [0], [0]]


# In a step -------------------------------------------------------------------------------------------------------


def penalized(forward, model_state, inputs, targets):
    output = forward(model_state, inputs)
    penalty = model_state["dense_0.weight"].square().sum()
    return F.mse_loss(output.prediction, targets) + 1e-3 * penalty, output


@pytest.mark.case("axon-O1")
@pytest.mark.case("axon-O9")
def test_a_penalty_on_a_parameter_that_is_read_directly_is_differentiated():
    step = train_step(two_layers(), penalized, SGD, keep_gradients=True)
    state = step((X, Y), step.init((X, Y)))
    assert state.loss.item() == pytest.approx(2.05391)
    torch.testing.assert_close(state.y_pred, torch.tensor([[-0.34], [0.52]]))
    expected = GRADIENTS["dense_0.weight"] + 2e-3 * K0.T
    torch.testing.assert_close(state.gradients["dense_0.weight"], expected)
    by_hand = torch.tensor([[0.5322, 1.0716], [0.0006, -1.0712], [-1.065, 2.1452]]).T
    torch.testing.assert_close(state.gradients["dense_0.weight"], by_hand)
    for name in ("dense_0.bias", "dense_1.weight", "dense_1.bias"):
        torch.testing.assert_close(state.gradients[name], GRADIENTS[name])


@pytest.mark.case("axon-O2")
@pytest.mark.parametrize("scale", ["identity", "static", "dynamic"])
def test_an_objective_that_is_the_loss_is_the_loss_to_the_bit(scale):
    states, models = [], []
    for loss in ("mean_squared_error", objective):
        models.append(two_layers())
        step = train_step(models[-1], loss, "adam", loss_scale=scale)
        states.append(step.init((X, Y)))
        for _ in range(3):
            states[-1] = step((X, Y), states[-1])
    assert all(map(torch.equal, models[0].parameters(), models[1].parameters()))
    assert torch.equal(states[0].loss, states[1].loss)
    assert states[0].loss_scale_state == states[1].loss_scale_state


@pytest.mark.case("axon-O3")
def test_two_forward_passes_and_a_penalty_learn():
    def two_passes(forward, model_state, inputs, targets):
        output, other = forward(model_state, inputs), forward(model_state, inputs + 0.1)
        apart = (output.prediction - other.prediction).square().mean()
        penalty = model_state["dense_0.weight"].square().sum()
        return F.mse_loss(output.prediction, targets) + apart + 1e-3 * penalty, output

    step = train_step(two_layers(), two_passes, partial(SGD, lr=0.01))
    state, losses = step.init((X, Y)), []
    assert {"i", "y_true", "y_pred", "loss", "model_state", "optimizer_state", "loss_scale_state"} == set(state)
    for _ in range(5):
        state = step((X, Y), state)
        losses.append(state.loss.item())
    assert losses == sorted(losses, reverse=True)
    assert len(set(losses)) == 5


@pytest.mark.case("axon-O4")
def test_a_contrastive_objective_by_hand():
    model = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, 0.5], [0.0, 1.0]]).T)

    def contrastive(forward, model_state, inputs, targets):
        outputs = [forward(model_state, x) for x in inputs]
        anchors, positives = (F.normalize(output.prediction) for output in outputs)
        logits = anchors @ positives.T / 0.2
        return F.cross_entropy(logits, targets), outputs[0]._replace(prediction=logits)

    # The two inputs stand in a tuple, which an objective may read as it likes.
    batch = (torch.eye(2), torch.tensor([[1.0, 0.1], [0.2, 1.0]])), torch.arange(2)
    step = train_step(model, contrastive, SGD, keep_gradients=True)
    state = step(batch, step.init(batch))
    torch.testing.assert_close(state.y_pred, torch.tensor([[4.98527, 3.0], [2.57248, 4.91935]]), rtol=1e-4, atol=1e-4)
    assert state.loss.item() == pytest.approx(0.1100296, abs=1e-6)
    by_hand = torch.tensor([[-0.1307597, 0.3203685], [0.3857483, -0.0294245]]).T
    torch.testing.assert_close(state.gradients["weight"], by_hand, rtol=1e-4, atol=1e-6)


@pytest.mark.case("axon-O5")
def test_an_objective_s_forward_is_the_training_one():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).eval()
    step = train_step(model, objective, SGD)
    state = step.init((X, Y))
    assert torch.equal(model[1].running_mean, torch.zeros(4))
    step((X, Y), state)
    assert not torch.equal(model[1].running_mean, torch.zeros(4))
    assert model[1].num_batches_tracked == 1


def only_the_loss(forward, model_state, inputs, targets):
    return F.mse_loss(forward(model_state, inputs).prediction, targets)


def prediction_instead_of_output(forward, model_state, inputs, targets):
    prediction = forward(model_state, inputs).prediction
    return F.mse_loss(prediction, targets), prediction


def not_reduced(forward, model_state, inputs, targets):
    output = forward(model_state, inputs)
    return (output.prediction - targets).square(), output


def without_a_graph(forward, model_state, inputs, targets):
    output = forward(model_state, inputs)
    return F.mse_loss(output.prediction.detach(), targets), output


@pytest.mark.case("axon-O6")
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (only_the_loss, "must return the loss and the whole output of forward"),
        (prediction_instead_of_output, r"a tuple of \(Tensor, Tensor\)"),
        (not_reduced, r"shape \(2, 1\); a scalar is wanted"),
        (without_a_graph, "has no graph"),
    ],
)
def test_what_is_no_objective_is_refused_at_init_before_anything_moved(wrong, words):
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))
    before, stream = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    step = train_step(model, wrong, "adam")
    with pytest.raises(LossError, match=words):
        step.init((X, Y))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(stream, torch.get_rng_state())
    assert not step.optimizer.state


@pytest.mark.case("axon-O6")
def test_arity_three_is_shown_the_objective_form_by_the_trainer_too():
    with pytest.raises(LossError, match=r"def objective\(forward, model_state, inputs, targets\)"):
        gv.trainer(two_layers(), lambda forward, inputs, targets: None, "sgd")


@pytest.mark.case("axon-O7")
def test_frozen_parameters_stay_to_the_bit_while_others_move():
    model = two_layers()
    gv.ModelState(model).freeze("dense_0")
    step = train_step(model, penalized, partial(SGD, momentum=0.9, weight_decay=0.1))
    state = step.init((X, Y))
    for _ in range(3):
        state = step((X, Y), state)
    fresh = two_layers()
    assert torch.equal(model.dense_0.weight, fresh.dense_0.weight)
    assert torch.equal(model.dense_0.bias, fresh.dense_0.bias)
    assert not torch.equal(model.dense_1.weight, fresh.dense_1.weight)


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.one, self.two = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = torch.tanh(self.body(x))
        return self.one(hidden), self.two(hidden)


@pytest.mark.case("axon-L14")
def test_a_list_of_losses_is_their_weighted_sum_over_the_outputs():
    ones = lambda p, t: F.mse_loss(p, t)  # noqa: E731
    made = as_objective([(ones, 0.5), ("mean_absolute_error", 0.5)])
    targets, predictions = (torch.full((3, 1), 2.0),) * 2, (torch.ones(3, 1),) * 2
    assert made.loss(predictions, targets) == 1.0
    assert as_objective(lambda p, t: torch.tensor(5.0)).loss(0, 0) == 5.0
    torch.manual_seed(0)
    model, x, y = TwoHeads(), torch.randn(6, 3), (torch.tensor([0, 1, 1, 0, 1, 0]), torch.randn(6, 1))
    one, two = model(x)
    expected = F.cross_entropy(one, y[0]) + 0.25 * F.mse_loss(two, y[1])
    step = train_step(model, [("cross_entropy", 1), (nn.MSELoss(), 0.25)], SGD)
    assert torch.equal(step((x, y), step.init((x, y))).loss, expected.detach())


@pytest.mark.parametrize(
    ("losses", "words"),
    [
        ([], "is empty"),
        ([("cross_entropy",)], "is no such pair"),
        (["cross_entropy", "huber"], "is no such pair"),
        ([(objective, 1.0)], "is no such pair"),
        ([("huber", float("nan"))], "is no such pair"),
        ([("hubber", 1.0)], "did you mean 'huber'"),
    ],
)
def test_a_list_that_is_none_of_losses_is_refused(losses, words):
    with pytest.raises(LossError, match=words):
        train_step(TwoHeads(), losses, SGD)


def test_a_list_of_losses_wants_as_many_outputs():
    with pytest.raises(LossError, match=r"2 losses .* take a tuple of as many predictions; got a tensor"):
        train_step(two_layers(), [("huber", 1), ("l1", 1)], SGD).init((X, Y))


# Buffers of passes with other tensors ----------------------------------------------------------------------------


def norm_net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))


def moved_by(change: float) -> dict[str, torch.Tensor]:
    """The statistics after one pass in which the first weight is so many times itself."""
    model = norm_net()
    with torch.no_grad():
        model[0].weight.mul_(change)
    model(torch.linspace(-1, 1, 24).reshape(8, 3))
    return {name: value.clone() for name, value in model[1].named_buffers()}


ORDERS = {
    "own then other": lambda forward, own, other, x: (forward(own, x), forward(other(own), x)),
    "other then own": lambda forward, own, other, x: (forward(other(own), x), forward(own, x)),
    "twice other": lambda forward, own, other, x: (forward(other(own), x), forward(other(own, 1.2), x)),
    "other made before": lambda forward, own, other, x: (lambda made: (forward(own, x), forward(made, x)))(other(own)),
}
FACTORS = {
    "own then other": (1, 1.1),
    "other then own": (1.1, 1),
    "twice other": (1.1, 1.2),
    "other made before": (1, 1.1),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("as_dict", [False, True])
def test_passes_with_other_tensors_start_from_the_first_buffers_and_the_returned_output_s_are_kept(
    order, keep, as_dict
):
    model = norm_net()
    own_mean = model[1].running_mean

    def other(model_state, factor=1.1):
        return {**model_state, "0.weight": model_state["0.weight"] * factor}

    def two_passes(forward, model_state, inputs, targets):
        outputs = ORDERS[order](forward, model_state, other, inputs)
        loss = sum(F.mse_loss(output.prediction, targets) for output in outputs)
        return loss, outputs[keep]

    def with_a_dict(forward, model_state, inputs, targets):
        first = forward(model_state, inputs)
        first = Output(first.prediction, dict(first.state))
        second = forward(model_state, inputs * 3)
        return F.mse_loss(first.prediction + second.prediction, targets), first

    batch = torch.linspace(-1, 1, 24).reshape(8, 3), torch.ones(8, 1)
    step = train_step(model, with_a_dict if as_dict else two_passes, partial(SGD, lr=0.0))
    step(batch, step.init(batch))
    expected = moved_by(1 if as_dict else FACTORS[order][keep])
    for name, value in model[1].named_buffers():
        torch.testing.assert_close(value, expected[name])
    assert model[1].running_mean is own_mean


def fails_late(forward, model_state, inputs, targets):
    forward(model_state, inputs)
    forward(model_state, inputs * 2)
    raise ArithmeticError("late")


def only_sometimes(forward, model_state, inputs, targets):
    outputs = forward(model_state, inputs), forward(model_state, inputs * 2)
    loss = F.mse_loss(outputs[0].prediction, targets)
    return (loss, outputs[0]) if targets.sum() < 10 else loss


@pytest.mark.parametrize("wrong", ["raises", "returns only the loss", "is of another type"])
def test_an_error_in_a_step_leaves_the_buffers_as_they_were(wrong):
    model = norm_net()
    own_mean = model[1].running_mean
    step = train_step(model, only_sometimes, "sgd")
    good = torch.linspace(-1, 1, 24).reshape(8, 3), torch.ones(8, 1)
    state = step(good, step.init(good))
    before = {name: value.clone() for name, value in model[1].named_buffers()}
    if wrong == "raises":
        step.objective = step.evaluate._objective = fails_late
    bad = good[0], torch.full((8, 1), 7.0) if wrong == "returns only the loss" else good[1].double()
    with pytest.raises((ArithmeticError, LossError, StateTypeError)):
        step(bad, state)
    assert model[1].running_mean is own_mean
    assert all(torch.equal(value, before[name]) for name, value in model[1].named_buffers())


def test_an_error_in_an_evaluation_leaves_the_buffers_as_they_were():
    model = norm_net()
    own_mean = model[1].running_mean
    with pytest.raises(ArithmeticError):
        gv.evaluator(model, fails_late).run([(torch.ones(8, 3), torch.ones(8, 1))])
    assert model[1].running_mean is own_mean


KEPT: list[Output] = []


def another_step_s(forward, model_state, inputs, targets):
    output = forward(model_state, inputs)
    KEPT.append(output)
    return F.mse_loss(output.prediction, targets), KEPT[0]


def never_forward(forward, model_state, inputs, targets):
    prediction = model_state["0.weight"].sum(0)
    return prediction.square().sum(), Output(prediction, {})


def with_an_unknown_buffer(forward, model_state, inputs, targets):
    output = forward(model_state, inputs)
    return F.mse_loss(output.prediction, targets), Output(output.prediction, {"1.runing_mean": torch.zeros(4)})


def without_a_state(forward, model_state, inputs, targets):
    output = forward(model_state, inputs)
    return F.mse_loss(output.prediction, targets), Output(output.prediction, None)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (another_step_s, "an output of another step"),
        (never_forward, "never called forward"),
        (with_an_unknown_buffer, "a buffer '1.runing_mean': did you mean '1.running_mean'"),
        (without_a_state, "an output whose state is None"),
    ],
)
def test_an_output_that_is_not_of_this_step_s_forward_is_refused(wrong, words):
    batch = torch.ones(8, 3), torch.ones(8, 1)
    KEPT.clear()
    step = train_step(norm_net(), wrong, "sgd")
    with pytest.raises(LossError, match=words):
        step(batch, step.init(batch))


def test_a_loss_or_prediction_that_is_a_parameter_does_not_move_on_with_it():
    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.w

    def the_parameter(forward, model_state, inputs, targets):
        return model_state["w"][0], forward(model_state, inputs)

    step = train_step(Constant(), the_parameter, partial(SGD, lr=1.0))
    batch = torch.ones(3), torch.zeros(3)
    state = step(batch, step.init(batch))
    assert (state.loss.item(), state.y_pred.tolist()) == (1, [1, 1, 1])
    later = step(batch, state)
    assert (state.loss.item(), state.y_pred.tolist()) == (1, [1, 1, 1])
    assert (later.loss.item(), later.y_pred.tolist()) == (0, [0, 1, 1])
