"""Kept gradients: those of the loss itself, of the whole batch, before the optimizer does anything with them."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import gradviz as gv
from gradviz.errors import DataError, LossScaleError
from gradviz.step.train_step import train_step
from tests.step.nets import GRADIENTS, HEAD_NORM, NORM, X, Y, one_weight, two_layers

SCALES = ["identity", "static", "dynamic"]
SGD = partial(torch.optim.SGD, lr=0.1)


@pytest.mark.case("axon-G1")
@pytest.mark.parametrize(
    ("w", "loss", "gradient", "after"), [(0.8, 1.6, 4, 0.4), (-0.5, 0.625, -2.5, -0.25), (2, 10, 10, 1)]
)
def test_the_kept_gradient_is_the_analytic_one_and_what_the_optimizer_received(w, loss, gradient, after):
    model, data = one_weight(w)
    step = train_step(model, "mean_squared_error", SGD, keep_gradients=True)
    state = step(data, step.init(data))
    assert state.loss.item() == pytest.approx(loss)
    assert state.gradients["weight"].item() == pytest.approx(gradient)
    assert model.weight.item() == pytest.approx(after)
    assert (w - model.weight.item()) / 0.1 == pytest.approx(gradient, rel=1e-5)


@pytest.mark.case("axon-G2")
def test_five_steps_by_hand():
    model, data = one_weight(0.8)
    step = train_step(model, "mean_squared_error", SGD, keep_gradients=True)
    state, losses, gradients, weights = step.init(data), [], [], []
    for _ in range(5):
        state = step(data, state)
        losses.append(state.loss.item())
        gradients.append(state.gradients["weight"].item())
        weights.append(model.weight.item())
    assert losses == pytest.approx([1.6, 0.4, 0.1, 0.025, 0.00625])
    assert gradients == pytest.approx([4, 2, 1, 0.5, 0.25])
    assert weights == pytest.approx([0.4, 0.2, 0.1, 0.05, 0.025])
    assert state.i == 5


@pytest.mark.case("axon-G3")
def test_gradients_are_absent_unless_asked_for():
    model, data = one_weight(0.8)
    step = train_step(model, "mean_squared_error", SGD)
    state = step.init(data)
    for each in (state, step(data, state)):
        assert list(each) == [
            "i", "y_true", "y_pred", "loss", "model_state", "optimizer_state", "loss_scale_state"
        ]  # fmt: skip
        assert "gradients" not in state


@pytest.mark.case("axon-G5")
def test_two_layers_by_hand():
    step = train_step(two_layers(), "mean_squared_error", SGD, keep_gradients=True)
    state = step((X, Y), step.init((X, Y)))
    torch.testing.assert_close(state.y_pred, torch.tensor([[-0.34], [0.52]]))
    assert state.loss.item() == pytest.approx(2.053)
    for name, gradient in GRADIENTS.items():
        torch.testing.assert_close(state.gradients[name], gradient)
    assert state.gradients.norm().item() == pytest.approx(NORM, abs=1e-6)
    assert state.gradients["dense_1"].norm().item() == pytest.approx(HEAD_NORM, abs=1e-6)


@pytest.mark.case("axon-G6")
def test_a_frozen_layer_has_no_gradient_and_stays_to_the_bit():
    model = two_layers()
    before = copy.deepcopy(model.dense_0.state_dict())
    gv.ModelState(model).freeze("dense_0")
    step = train_step(model, "mean_squared_error", SGD, keep_gradients=True)
    state = step.init((X, Y))
    assert list(state.gradients) == ["dense_1.weight", "dense_1.bias"]
    state = step((X, Y), state)
    assert list(state.gradients) == ["dense_1.weight", "dense_1.bias"]
    assert state.gradients.norm().item() == pytest.approx(HEAD_NORM, abs=1e-6)
    assert all(torch.equal(value, before[name]) for name, value in model.dense_0.state_dict().items())


@pytest.mark.case("axon-G7")
@pytest.mark.case("L01")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scale", ["static", "dynamic", gv.LossScale.static(1024.0)])
def test_kept_gradients_are_unscaled_and_what_the_optimizer_gets(dtype, scale):
    got = {}
    for loss_scale in ("identity", scale):
        model = two_layers(dtype)
        step = train_step(model, "mean_squared_error", SGD, loss_scale=loss_scale, keep_gradients=True)
        batch = X.to(dtype) / 8, Y.to(dtype) / 8  # float16 holds the gradient times 2**15
        optimized = {}
        step.optimizer.register_step_pre_hook(
            lambda optimizer, *_, into=optimized: into.update(
                enumerate(p.grad.clone() for group in optimizer.param_groups for p in group["params"])
            )
        )
        got[loss_scale] = step(batch, step.init(batch)).gradients
        assert all(map(torch.equal, got[loss_scale].values(), optimized.values()))
    exact = dtype is not torch.float16  # where scaling by a power of two loses nothing; it gains digits in float16
    for one, other in zip(*(grad.values() for grad in got.values()), strict=True):
        assert one.dtype == other.dtype == (torch.float32 if dtype.itemsize == 2 else dtype)
        torch.testing.assert_close(one, other, rtol=0 if exact else 2e-3, atol=0 if exact else 1e-5)


@pytest.mark.parametrize("scale", ["static", "dynamic"])
def test_a_float16_gradient_that_its_scale_makes_infinite_skips_the_step_and_is_shown(scale):
    model, _ = one_weight(1.0, torch.float16)
    batch = torch.ones(1, 1, dtype=torch.float16), torch.zeros(1)
    step = train_step(model, lambda p, t: (4 * p).sum(), SGD, loss_scale=scale, keep_gradients=True)
    state = step(batch, step.init(batch))  # 4 x 2**15 is above 65504
    assert step.report.skipped
    assert step.report.loss_scale == 2**15
    assert state.gradients["weight"].item() == float("inf")
    assert model.weight.item() == 1
    plain = train_step(model, lambda p, t: (4 * p).sum(), SGD, keep_gradients=True)
    assert plain(batch, plain.init(batch)).gradients["weight"].item() == 4


@pytest.mark.case("axon-G8")
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_under_a_16_bit_policy_parameters_are_narrow_and_gradients_float32(dtype, scale):
    model = two_layers()
    step = train_step(
        model,
        "mean_squared_error",
        SGD,
        policy=gv.Policy(params=dtype, compute=dtype, output=torch.float32),
        loss_scale=scale,
        keep_gradients=True,
    )
    state = step.init((X / 8, Y / 8))
    assert all(p.dtype == dtype for p in model.parameters())
    for each in (state, step((X / 8, Y / 8), state)):
        assert {g.dtype for g in each.gradients.values()} == {torch.float32}
        assert each.loss.dtype == torch.float32
    assert not step.report.skipped


@pytest.mark.case("axon-G9")
def test_clipping_decay_and_momentum_come_after_what_is_kept():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, weight_decay=0.0)
    step = train_step(model, lambda p, t: (p * t).sum(), optimizer, keep_gradients=True, clip=1.0)
    with torch.no_grad():
        model.weight.zero_(), model.bias.zero_()
    batch = torch.tensor([[0.75, 0.0]]), torch.tensor([[4.0]])  # gradients (3, 0) and (4)
    state = step(batch, step.init(batch))
    assert state.gradients["weight"].tolist() == [[3, 0]]
    assert state.gradients["bias"].tolist() == [4]
    assert state.gradients.norm() == 5
    torch.testing.assert_close(model.weight.detach(), torch.tensor([[-0.6, 0.0]]))
    torch.testing.assert_close(model.bias.detach(), torch.tensor([-0.8]))


def test_weight_decay_and_momentum_do_not_show_in_what_is_kept():
    kept = []
    for options in ({}, {"weight_decay": 0.5, "momentum": 0.9}):
        model = two_layers()
        step = train_step(model, "mean_squared_error", partial(SGD, **options), keep_gradients=True)
        kept.append(step((X, Y), step.init((X, Y))).gradients)
    assert all(map(torch.equal, kept[0].values(), kept[1].values()))


def test_a_kept_gradient_is_never_rewritten():
    model = two_layers()
    step = train_step(model, "mean_squared_error", partial(SGD, momentum=0.9), keep_gradients=True, clip=("value", 0.1))
    state = step((X, Y), step.init((X, Y)))
    first, before = state.gradients, state.gradients.clone()
    for _ in range(3):
        state = step((X, Y), state)
    assert all(map(torch.equal, first.values(), before.values()))
    assert not any(map(torch.equal, first.values(), state.gradients.values()))


@pytest.mark.case("L29")
def test_a_tied_weight_has_the_exact_sum_and_is_scaled_once():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
            self.second.weight = self.first.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(torch.tanh(self.first(x))) + 0.25 * self.first(x)

    torch.manual_seed(0)
    model, x, y = Tied(), torch.randn(4, 3), torch.randn(4, 3)
    apart = copy.deepcopy(model)
    apart.second.weight = nn.Parameter(apart.first.weight.detach().clone())
    F.mse_loss(apart(x), y).backward()
    expected = apart.first.weight.grad + apart.second.weight.grad
    for scale in SCALES:
        step = train_step(copy.deepcopy(model), "mean_squared_error", SGD, loss_scale=scale, keep_gradients=True)
        kept = step((x, y), step.init((x, y))).gradients
        assert list(kept) == ["first.weight"]
        torch.testing.assert_close(kept["first.weight"], expected, rtol=1e-6, atol=1e-7)


def test_checkpointing_under_a_policy_says_what_to_write_instead():
    class Saving(nn.Sequential):
        def forward(self, x):
            return checkpoint(super().forward, x, use_reentrant=False)

    def net() -> nn.Module:
        torch.manual_seed(0)
        return Saving(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    with pytest.raises(RuntimeError) as error:
        train_step(net(), "mean_squared_error", SGD, policy=gv.Policy(compute="bfloat16")).init((X, Y))
    assert any("torch.autocast around the run" in note for note in error.value.__notes__)
    step = train_step(net(), "mean_squared_error", SGD, keep_gradients=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        state = step((X, Y), step.init((X, Y)))
    assert state.gradients["0.weight"].any()


# Micro-batches ---------------------------------------------------------------------------------------------------


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 4)).double()


def joined_gradient(loss, x, y):
    model = net()
    value = loss(model(x), y)
    return value, torch.autograd.grad(value, list(model.parameters()))


@settings(max_examples=25)
@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4), kind=st.sampled_from(range(7)))
def test_micro_batches_of_any_sizes_give_the_joined_batch_s_loss_and_gradient(sizes, kind):
    torch.manual_seed(sum(sizes))
    x, classes = torch.randn(sum(sizes), 3).double(), torch.randint(0, 4, (sum(sizes),))
    ignoring = torch.where(torch.rand(sum(sizes)) < 0.5, -100, classes)
    ignoring[0] = classes[0]
    weight = torch.tensor([1.0, 2.0, 0.5, 3.0]).double()
    loss, y = [
        (F.mse_loss, torch.randn(sum(sizes), 4).double()),
        (F.cross_entropy, classes),
        (F.cross_entropy, ignoring),
        (partial(F.cross_entropy, ignore_index=2), torch.cat((torch.zeros(1).long(), classes[1:]))),
        (nn.CrossEntropyLoss(weight=weight), ignoring),
        (nn.MSELoss(reduction="sum"), torch.randn(sum(sizes), 4).double()),
        (partial(F.l1_loss, reduction="sum"), torch.randn(sum(sizes), 4).double()),
    ][kind]
    expected_loss, expected = joined_gradient(loss, x, y)
    step = train_step(net(), loss, SGD, keep_gradients=True, accumulate=4)
    group = list(zip(x.split(sizes), y.split(sizes), strict=True))
    state = step(group, step.init(group))
    torch.testing.assert_close(state.loss, expected_loss.detach(), rtol=1e-6, atol=1e-9)
    for kept, joined in zip(state.gradients.values(), expected, strict=True):
        torch.testing.assert_close(kept, joined, rtol=1e-6, atol=1e-9)
    assert torch.equal(state.y_true, y)
    assert state.y_pred.shape == (sum(sizes), 4)


def test_a_micro_batch_without_a_target_counts_nothing():
    x, y = torch.randn(4, 3).double(), torch.tensor([1, 2, -100, -100])
    expected_loss, expected = joined_gradient(F.cross_entropy, x, y)
    step = train_step(net(), "cross_entropy", SGD, keep_gradients=True, accumulate=2)
    group = [(x[:2], y[:2]), (x[2:], y[2:])]
    state = step(group, step.init(group))
    assert state.loss.item() == pytest.approx(expected_loss.item())
    torch.testing.assert_close(state.gradients["0.weight"], expected[0])


def test_an_objective_s_micro_batches_move_batch_norm_one_after_the_other():
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    theirs, x, y = copy.deepcopy(ours), torch.randn(8, 3), torch.randn(8, 1)

    def objective(forward, model_state, inputs, targets):
        output = forward(model_state, inputs)
        penalty = model_state["0.weight"].square().sum()
        return F.mse_loss(output.prediction, targets) + 0.1 * penalty, output

    step = train_step(ours, objective, SGD, keep_gradients=True, accumulate=2)
    group = [(x[:6], y[:6]), (x[6:], y[6:])]
    state = step(group, step.init(group))
    for share, (inputs, targets) in zip((0.75, 0.25), group, strict=True):
        loss = F.mse_loss(theirs(inputs), targets) + 0.1 * theirs[0].weight.square().sum()
        (share * loss).backward()
    for p, kept in zip(theirs.parameters(), state.gradients.values(), strict=True):
        torch.testing.assert_close(kept, p.grad)
    assert torch.equal(ours[1].running_mean, theirs[1].running_mean)
    assert ours[1].num_batches_tracked == 2


@pytest.mark.parametrize("batches", [(X, Y), [], [(X, Y)] * 3, [X, Y], ((X, Y), (X, Y))])
def test_a_group_that_is_none_shows_the_line_to_write(batches):
    step = train_step(two_layers(), "mean_squared_error", SGD, accumulate=2)
    with pytest.raises(DataError, match=r"a list of 1 to 2 batches.*step\(\[batch_1, batch_2"):
        step.init(batches)


def test_predictions_that_do_not_fit_together_stay_apart():
    model = nn.Linear(2, 2)
    step = train_step(model, "mean_squared_error", SGD, accumulate=2)
    group = [(torch.ones(2, 3, 2), torch.zeros(2, 3, 2)), (torch.ones(2, 5, 2), torch.zeros(2, 5, 2))]
    state = step(group, step.init(group))
    assert [part.shape for part in state.y_pred] == [(2, 3, 2), (2, 5, 2)]


# A loss scale of one's own ---------------------------------------------------------------------------------------


class Halving:
    """Twice the loss at every step, by numbers of its own."""

    def init(self):
        return {"factor": torch.tensor(2.0), "steps": 0}

    def scale(self, value, state):
        return value * state["factor"]

    def unscale(self, gradients, state):
        factor = state["factor"]
        return {name: g / factor for name, g in gradients.items()}, {"factor": factor * 2, "steps": state["steps"] + 1}


def test_a_loss_scale_of_one_s_own():
    step = train_step(two_layers(), "mean_squared_error", SGD, loss_scale=Halving(), keep_gradients=True)
    state = step.init((X, Y))
    for used in (2.0, 4.0, 8.0):
        state = step((X, Y), state)
        assert step.report.loss_scale == used
    assert state.loss_scale_state == {"factor": torch.tensor(16.0), "steps": 3}
    plain = train_step(two_layers(), "mean_squared_error", SGD, keep_gradients=True)
    other = plain.init((X, Y))
    for _ in range(3):
        other = plain((X, Y), other)
    assert all(map(torch.equal, state.gradients.values(), other.gradients.values()))


def test_a_loss_scale_that_loses_gradients_is_told_so_before_anything_moves():
    class Forgetful(Halving):
        def unscale(self, gradients, state):
            return [g / 2 for g in gradients.values()], state

    model = two_layers()
    with pytest.raises(LossScaleError, match="returned a list instead of the gradients by name"):
        train_step(model, "mean_squared_error", SGD, loss_scale=Forgetful()).init((X, Y))
    assert torch.equal(model.dense_0.weight, two_layers().dense_0.weight)


class Own:
    """A loss scale that a case makes wrong."""

    def init(self):
        return {"s": torch.tensor(8.0)}

    def scale(self, value, state):
        return value * state["s"]

    def unscale(self, gradients, state):
        return gradients / state["s"], state


def writes_its_state(gradients, state):
    unscaled = gradients / state["s"]
    state["s"].mul_(2)
    return unscaled, state


def test_a_loss_scale_that_writes_into_its_state_is_reported_as_it_was_used():
    scale = Own()
    scale.unscale = writes_its_state
    step = train_step(two_layers(), "mean_squared_error", SGD, loss_scale=scale)
    state, used = step.init((X, Y)), []
    assert state.loss_scale_state["s"] == 8
    for _ in range(3):
        state = step((X, Y), state)
        used.append(step.report.loss_scale)
    assert used == [8, 16, 32]


@pytest.mark.parametrize(
    ("name", "wrong", "words"),
    [
        ("unscale", lambda g, s: g / s["s"], "returned a Grad; the gradients and the next state are wanted"),
        ("unscale", lambda g, s: None, "returned None; the gradients and the next state"),
        ("unscale", lambda g, s: (dict.fromkeys(g), s), "returned None for 'dense_0.weight'"),
        ("unscale", lambda g, s: ({n: v.sum() for n, v in g.items()}, s), r"returned a tensor of shape \(\) for"),
        ("scale", lambda v, s: 3.0, r"scale\(loss, state\) returned a float"),
        ("scale", lambda v, s: v.detach(), "with its graph"),
    ],
)
def test_a_loss_scale_that_gives_something_else_back_is_told_the_line_to_write(name, wrong, words):
    scale = Own()
    setattr(scale, name, wrong)
    with pytest.raises(LossScaleError, match=words):
        train_step(two_layers(), "mean_squared_error", SGD, loss_scale=scale).init((X, Y))


def test_several_losses_of_micro_batches_are_the_joined_batch_s():
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.one, self.two = nn.Linear(3, 3).double(), nn.Linear(3, 2).double()

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.one(x), self.two(x)

    x, y = torch.randn(6, 3).double(), (torch.tensor([0, -100, -100, 1, 2, 0]), torch.randn(6, 2).double())
    losses = [("cross_entropy", 1.0), ("mean_squared_error", 0.5)]
    states = []
    for cuts in ([slice(0, 6)], [slice(0, 3), slice(3, 6)], [slice(0, 1), slice(1, 3), slice(3, 6)]):
        step = train_step(Two(), losses, SGD, keep_gradients=True, accumulate=3)
        group = [(x[cut], tuple(part[cut] for part in y)) for cut in cuts]
        states.append(step(group, step.init(group)))
    for state in states[1:]:
        torch.testing.assert_close(state.loss, states[0].loss)
        for name, gradient in state.gradients.items():
            torch.testing.assert_close(gradient, states[0].gradients[name])


def test_one_batch_where_a_list_is_wanted_is_told_to_be_one():
    step = train_step(two_layers(), "mean_squared_error", SGD, accumulate=2)
    for batch in ((X, Y), [X, Y]):
        with pytest.raises(DataError, match=r"got one batch, of inputs \(2, 3\) float32.*: write \[batch\]"):
            step.init(batch)


def test_what_fails_in_a_step_names_its_batch_and_an_objective_s_form():
    step = train_step(two_layers(), "mean_squared_error", SGD)
    state = step.init((X, Y))
    with pytest.raises(RuntimeError) as error:
        step((torch.ones(2, 7), Y), state)
    assert "In a step, on a batch of inputs (2, 7) float32; targets (2, 1) float32." in error.value.__notes__[-1]

    def without_a_state(forward, model_state, inputs, targets):
        return F.mse_loss(forward(inputs).prediction, targets), forward(inputs)

    with pytest.raises(TypeError) as mistake:
        train_step(two_layers(), without_a_state, SGD).init((X, Y))
    assert any("output = forward(model_state, inputs)" in note for note in mistake.value.__notes__)
