"""The state after init is leaf by leaf what a step makes of it: in structure, shape and dtype."""

from __future__ import annotations

import copy
import random
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_map

import gradviz as gv
from gradviz.errors import StateTypeError
from gradviz.step.step_state import StepState, joined
from gradviz.step.train_step import train_step
from tests.step.nets import X, Y, one_weight, two_layers

SCALES = ["identity", "static", "dynamic"]
DENSE = {
    name: kind
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type)
    and issubclass(kind, torch.optim.Optimizer)
    and name not in ("Optimizer", "SparseAdam", "LBFGS")
}
POLICIES = {
    "float64": gv.Policy(params=torch.float64, compute=torch.float64, output=torch.float64),
    "float32": gv.Policy(params=torch.float32, compute=torch.float32, output=torch.float32),
    "float16": gv.Policy(params=torch.float16, compute=torch.float16, output=torch.float32),
    "bfloat16": gv.Policy(params=torch.bfloat16, compute=torch.bfloat16, output=torch.float32),
}


def types(state: StepState) -> dict[str, object]:
    leaves, _ = tree_flatten_with_path(state)
    return {
        keystr(path): (leaf.dtype, leaf.shape) if isinstance(leaf, torch.Tensor) else type(leaf)
        for path, leaf in leaves
    }


def small(kind: type) -> tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    if kind.__name__ == "Muon":  # takes matrices only
        model = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False))
    else:
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Dropout(0.2), nn.Linear(4, 2))
    return model, (torch.randn(6, 3), torch.randn(6, 2))


@pytest.mark.case("axon-G4")
@pytest.mark.case("axon-T1")
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", DENSE)
def test_types_hold_for_every_policy_loss_scale_and_optimizer(name, policy, scale):
    model, batch = small(DENSE[name])
    step = train_step(
        model, "mean_squared_error", DENSE[name], policy=POLICIES[policy], loss_scale=scale, keep_gradients=True
    )
    state = step.init(batch)
    assert state.loss == 0
    assert not any(g.any() for g in state.gradients.values())
    before = types(state)
    for _ in range(3):
        state = step(batch, state)
        assert types(state) == before
        assert not step.report.skipped


@pytest.mark.case("axon-T1")
@pytest.mark.case("L23")
@pytest.mark.parametrize("scale", SCALES)
def test_under_a_float64_policy_loss_and_moments_are_float64_from_init_on(scale):
    model = two_layers()
    step = train_step(model, "mean_squared_error", "adam", policy=POLICIES["float64"], loss_scale=scale)
    state = step.init((X, Y))
    for _ in range(2):  # after init, and after a step: the live parts are what they are now
        assert state.loss.dtype == state.y_pred.dtype == torch.float64
        for name in ("dense_0.weight", "dense_1.bias"):
            assert state["optimizer_state"][name]["exp_avg"].dtype == torch.float64
            assert state["optimizer_state"][name]["exp_avg_sq"].dtype == torch.float64
            assert state["model_state"][name].dtype == torch.float64
        state = step((X, Y), state)


@pytest.mark.case("axon-T2")
@pytest.mark.parametrize("scale", SCALES)
def test_under_a_float16_policy_loss_and_moments_are_float32_and_nothing_is_cast_down(scale):
    step = train_step(two_layers(), "mean_squared_error", "adam", policy=POLICIES["float16"], loss_scale=scale)
    batch = X / 8, Y / 8
    state = step.init(batch)
    for _ in range(2):  # after init, and after a step: the live parts are what they are now
        assert state.loss.dtype == torch.float32
        assert state["model_state"]["dense_0.weight"].dtype == torch.float16
        assert state["optimizer_state"]["dense_0.weight"]["exp_avg"].dtype == torch.float32
        if scale != "identity":
            assert state["loss_scale_state"]["loss_scale"].dtype == torch.float32
        state = step(batch, state)


@pytest.mark.case("axon-T4")
@pytest.mark.case("L23")
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_float64_targets_on_a_float32_model_make_a_float64_loss(optimizer):
    model = two_layers()
    step = train_step(model, "mean_squared_error", optimizer, keep_gradients=True)
    batch = X, Y.double()
    state = step.init(batch)
    before = types(state)
    for _ in range(3):
        state = step(batch, state)
        assert types(state) == before
    assert state.loss.dtype == state.y_true.dtype == torch.float64
    assert state.y_pred.dtype == state.gradients["dense_0.weight"].dtype == torch.float32


def test_float64_inputs_are_cast_and_it_is_said_once():
    step = train_step(two_layers(), "mean_squared_error", "sgd")
    with pytest.warns(gv.errors.InputCastWarning, match="float64 are cast to the model's torch.float32"):
        state = step.init((X.double(), Y))
    assert step((X.double(), Y), state).loss.dtype == torch.float32


@pytest.mark.case("axon-T6")
@pytest.mark.parametrize("gradient", [1, 1e-2, 1e-3, 1e-4, 1e-6])
def test_adam_moves_a_float16_parameter_by_a_float32_master(gradient):
    model = nn.Linear(1, 1, bias=False, dtype=torch.float16)
    nn.init.ones_(model.weight)
    scale = gv.LossScale.static(2**10)  # a gradient of 1e-6 is below what float16 resolves

    def loss(prediction, targets):
        return (prediction.float() * gradient).sum()

    step = train_step(model, loss, partial(torch.optim.Adam, lr=1e-3), loss_scale=scale)
    batch = torch.ones(1, 1, dtype=torch.float16), torch.zeros(1)
    state, seen = step.init(batch), []
    for _ in range(3):
        state = step(batch, state)
        seen.append(model.weight.item())
    assert seen[0] == pytest.approx(0.99902344, abs=1e-8)
    assert seen[2] == pytest.approx(0.99707031, abs=1e-8)


def test_every_parameter_buffer_moment_and_gradient_is_among_the_leaves():
    model, batch = small(torch.optim.Adam)
    step = train_step(model, "mean_squared_error", "adam", loss_scale="dynamic", keep_gradients=True)
    state = step.init(batch)
    for _ in range(2):  # after init, and after a step: the live parts are what they are now
        paths = types(state)
        parameters, buffers = len(list(model.parameters())), len(list(model.buffers()))
        moments = 3 * parameters  # step, exp_avg, exp_avg_sq
        scale = 2  # loss_scale, counter
        assert len(paths) == 4 + parameters + buffers + moments + scale + parameters
        for name, _ in model.named_parameters():
            assert f"['model_state']['{name}']" in paths
            assert f"['optimizer_state']['{name}']['exp_avg']" in paths
            assert f"['gradients']['{name}']" in paths
        for name, _ in model.named_buffers():
            assert f"['model_state']['{name}']" in paths
        state = step(batch, state)


def test_an_unused_parameter_has_zeros_and_no_moments_until_it_is_reached():
    class Switch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other, self.both = nn.Linear(3, 1), nn.Linear(3, 1), False

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.one(x) + self.other(x) if self.both else self.one(x)

    model = Switch()
    before = model.other.weight.clone()
    step = train_step(model, "mean_squared_error", partial(torch.optim.AdamW, weight_decay=0.1), keep_gradients=True)
    state = step.init((X, Y))
    for _ in range(2):  # after init, and after a step: the live parts are what they are now
        assert state.gradients.unused == ("other.weight", "other.bias")
        assert state.gradients["other.weight"].tolist() == [[0, 0, 0]]
        assert list(state["optimizer_state"]) == ["one.weight", "one.bias"]
        state = step((X, Y), state)
    assert torch.equal(model.other.weight, before)
    model.both = True  # reached for the first time: a new baseline, no error
    state = step((X, Y), state)
    assert list(state["optimizer_state"]) == ["one.weight", "one.bias", "other.weight", "other.bias"]
    model.both = False
    state = step((X, Y), state)
    assert state.gradients.unused == ("other.weight", "other.bias")


class Momentum(torch.optim.Optimizer):
    """An optimizer of one's own: state of several kinds, rebound at each step."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})
        self.log = []

    @torch.no_grad()
    def step(self, closure=None):
        self.log.append(len(self.state))
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                velocity = state.get("velocity", torch.zeros_like(p, dtype=torch.float64))
                state["velocity"] = 0.9 * velocity + p.grad.double()
                state["count"] = state.get("count", 0) + 1
                state["history"] = {"last": p.grad.abs().max()}
                p.sub_(group["lr"] * state["velocity"].to(p.dtype))


@pytest.mark.parametrize("scale", SCALES)
def test_types_hold_for_an_optimizer_and_a_loss_scale_of_one_s_own(scale):
    step = train_step(two_layers(), "mean_squared_error", Momentum, loss_scale=scale, keep_gradients=True)
    state = step.init((X, Y))
    assert step.optimizer.log == []
    before = types(state)
    assert before["['optimizer_state']['dense_0.weight']['count']"] is int
    assert before["['optimizer_state']['dense_0.weight']['velocity']"][0] == torch.float64
    for _ in range(2):
        state = step((X, Y), state)
        assert types(state) == before


def test_init_leaves_no_trace_and_fires_no_hook_of_the_optimizer():
    class Uncopied(nn.Sequential):
        def __deepcopy__(self, memo):
            raise AssertionError("copied")

    torch.manual_seed(0)
    model = Uncopied(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("pre"))
    optimizer.register_step_post_hook(lambda *_: calls.append("post"))
    everywhere = register_optimizer_step_pre_hook(lambda *_: calls.append("global"))
    step = train_step(model, "mean_squared_error", optimizer, keep_gradients=True)
    values = {name: value.clone() for name, value in model.state_dict().items()}
    streams = torch.get_rng_state(), random.getstate(), str(np.random.get_state())
    try:
        step.init((X, Y))
    finally:
        everywhere.remove()
    assert calls == []
    assert len(optimizer.state) == 0
    assert scheduler.last_epoch == 0
    assert all(torch.equal(value, values[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(streams[0], torch.get_rng_state())
    assert streams[1:] == (random.getstate(), str(np.random.get_state()))


def test_an_optimizer_that_trained_before_goes_on_with_its_moments():
    model = two_layers()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    F.mse_loss(model(X), Y).backward()
    optimizer.step()
    twin = copy.deepcopy((model, optimizer.state_dict()))
    step = train_step(model, "mean_squared_error", optimizer)
    state = step.init((X, Y))
    assert state["optimizer_state"]["dense_0.weight"]["step"] == 1
    step((X, Y), state)
    other = torch.optim.Adam(twin[0].parameters(), lr=0.01)
    other.load_state_dict(twin[1])
    F.mse_loss(twin[0](X), Y).backward()
    other.step()
    assert all(map(torch.equal, model.parameters(), twin[0].parameters()))


# strict ----------------------------------------------------------------------------------------------------------


def test_a_loss_of_another_dtype_is_named_before_anything_moved():
    model, batch = one_weight(0.8)
    step = train_step(model, "mean_squared_error", "sgd")
    state = step(batch, step.init(batch))
    before = model.weight.clone()
    with pytest.raises(StateTypeError, match=r"In iteration 1, y_true became float64 .*, where float32"):
        step((batch[0], batch[1].double()), state)
    assert torch.equal(model.weight, before)
    loose = train_step(model, "mean_squared_error", "sgd", strict=False)
    state = loose(batch, loose.init(batch))
    assert loose((batch[0], batch[1].double()), state).loss.dtype == torch.float64


def test_a_moment_of_another_dtype_is_named_at_its_iteration():
    model, batch = one_weight(0.8)
    step = train_step(model, "mean_squared_error", Momentum)
    state = step.init(batch)
    for _ in range(3):
        state = step(batch, state)
    step.optimizer.state[model.weight]["count"] = 1.5
    with pytest.raises(
        StateTypeError,
        match=r"In iteration 3, optimizer_state\['weight'\]\['count'\] became of type float, where of type int",
    ):
        step(batch, state)


def test_a_buffer_of_another_dtype_is_named_and_a_new_one_is_no_error():
    model = two_layers()
    step = train_step(model, "mean_squared_error", "sgd")
    state = step((X, Y), step.init((X, Y)))
    model.dense_0.register_buffer("cache", torch.zeros(1))  # as modules do at their first forward pass
    state = step((X, Y), state)
    model.dense_0.cache = torch.zeros(1, dtype=torch.float64)
    with pytest.raises(StateTypeError, match=r"In iteration 2, model_state\['dense_0.cache'\] became float64"):
        step((X, Y), state)


def test_a_cache_that_a_forward_pass_makes_and_lengthens_is_no_error():
    class Caching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 1)
            self.register_buffer("mask", None, persistent=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.mask is None or len(self.mask) < x.shape[1]:
                self.mask = torch.ones(x.shape[1])
            return self.linear(x) * self.mask[: x.shape[1], None]

    step = train_step(Caching(), "mean_squared_error", "sgd")
    state = step.init((torch.ones(3, 4, 2), torch.ones(3, 4, 1)))
    for length in (4, 4, 8, 2, 9):
        state = step((torch.ones(3, length, 2), torch.ones(3, length, 1)), state)
    assert state.model_state["mask"].shape == (9,)


def test_batches_and_sequences_may_vary_in_length():
    step = train_step(nn.Linear(2, 1), "mean_squared_error", "sgd")
    state = step.init((torch.ones(4, 5, 2), torch.ones(4, 5, 1)))
    for shape in ((4, 5), (3, 5), (2, 9)):
        state = step((torch.ones(*shape, 2), torch.ones(*shape, 1)), state)
    assert state.y_pred.shape == (2, 9, 1)


def test_what_a_handler_puts_into_the_state_is_its_own():
    model, batch = one_weight(0.8)
    step = train_step(model, "mean_squared_error", "sgd")
    state = step.init(batch)
    for extra in (1, "text", torch.ones(3), {"nested": (None, 2.0)}):
        state["mine"] = extra
        state = step(batch, state)
        assert state.mine is extra


# The state itself ------------------------------------------------------------------------------------------------


def test_a_state_is_a_pytree_whose_live_parts_become_plain_snapshots():
    model, batch = one_weight(0.8)
    step = train_step(model, "mean_squared_error", partial(torch.optim.SGD, lr=0.1, momentum=0.9), keep_gradients=True)
    state = step(batch, step.init(batch))
    snapshot = tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, state)
    step(batch, state)
    assert isinstance(snapshot, StepState)
    assert snapshot.model_state["weight"].item() == pytest.approx(0.4)
    assert state.model_state["weight"].item() != snapshot.model_state["weight"].item()
    assert snapshot.optimizer_state["weight"]["momentum_buffer"].item() == pytest.approx(4)
    assert snapshot.gradients["weight"].item() == pytest.approx(4)


def test_micro_batches_join_leaf_by_leaf():
    parts = [{"a": torch.ones(2, 3), "b": (torch.zeros(2),)}, {"a": torch.ones(1, 3), "b": (torch.zeros(1),)}]
    both = joined(parts)
    assert both["a"].shape == (3, 3)
    assert both["b"][0].shape == (3,)
    assert joined(parts[:1]) is parts[0]
    apart = joined([{"a": torch.ones(2)}, {"b": torch.ones(2)}])
    assert [list(part) for part in apart] == [["a"], ["b"]]


@pytest.mark.parametrize("other", [lambda i: i.int(), lambda i: i.float(), lambda i: i.reshape(1), int])
def test_a_count_of_another_type_is_named_at_its_iteration(other):
    step = train_step(two_layers(), "mean_squared_error", "sgd")
    state = step.init((X, Y))
    for n in range(3):
        state = step((X, Y), state)
        assert state["i"].item() == n + 1
    state["i"] = other(state["i"])
    with pytest.raises(StateTypeError, match="i became"):
        step((X, Y), state)


def test_a_step_goes_on_counting_from_whichever_state_it_is_given():
    step = train_step(two_layers(), "mean_squared_error", "sgd")
    states = [step.init((X, Y))]
    for _ in range(70):
        states.append(step((X, Y), states[-1]))
    again = step((X, Y), states[5])
    assert [state["i"].item() for state in (*states[::10], again)] == [0, 10, 20, 30, 40, 50, 60, 70, 6]
    assert again["i"] is not states[6]["i"]
    again["i"] += 100
    assert step((X, Y), again)["i"].item() == 107
    assert [state["i"].item() for state in states] == list(range(71))
