"""A step captures gradients of intermediate values: those of the whole step's loss, and training stays as it is."""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import gradviz as gv
from gradviz.errors import CaptureError, NoSuchFieldError
from gradviz.grad.capture import session

SGD = partial(torch.optim.SGD, lr=0.1)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))


def batches(n=4, length=6):
    torch.manual_seed(1)
    return [(torch.randn(length, 3), torch.randint(2, (length,))) for _ in range(n)]


def steps(model, data, **options):
    step = gv.train_step(model, "cross_entropy", SGD, **options)
    state, states = step.init(data[0]), []
    for batch in data:
        state = step(batch, state)
        states.append(state)
    return states


def by_hand(model, x, y):
    """The gradients of all outputs, by torch alone."""
    outputs, hidden = [], x
    for module in copy.deepcopy(model):
        hidden = module(hidden) if not isinstance(module, nn.ReLU) else F.relu(hidden)
        hidden.retain_grad()
        outputs.append(hidden)
    F.cross_entropy(hidden, y).backward()
    return [output.grad for output in outputs]


@pytest.mark.parametrize("loss_scale", ["identity", gv.LossScale.static(1024.0), "dynamic"], ids=str)
def test_a_step_gives_the_gradients_of_its_loss_without_the_loss_scale(loss_scale):
    model, (x, y) = net(), batches(1)[0]
    expected = by_hand(model, x, y)
    (state,) = steps(model, [(x, y)], loss_scale=loss_scale, capture=gv.Capture("*", keep="tensors"))
    for name, gradient in zip("012", expected, strict=True):
        (call,) = state.captured[name]
        torch.testing.assert_close(call.gradient, gradient)
        assert call.statistics["norm"] == pytest.approx(gradient.norm().item(), rel=1e-6)


def test_micro_batches_are_calls_and_their_gradients_those_of_the_joined_batch():
    (x, y), model = batches(1, length=6)[0], net()
    expected = by_hand(model, x, y)
    group = [(x[:4], y[:4]), (x[4:], y[4:])]
    step = gv.train_step(model, "cross_entropy", SGD, accumulate=2, capture=gv.Capture("*", keep="tensors"))
    captured = step(group, step.init(group)).captured
    for name, gradient in zip("012", expected, strict=True):
        torch.testing.assert_close(torch.cat([call.gradient for call in captured[name]]), gradient)


@pytest.mark.parametrize("keep", ["statistics", "running", "example_norms", "tensors"])
@pytest.mark.parametrize("optimizer", ["adam", "lbfgs"])
def test_training_is_the_same_to_the_bit(keep, optimizer):
    plain, captured, data = net(), net(), batches()
    for model, capture in ((plain, None), (captured, gv.Capture("*", keep=keep, values=True))):
        step = gv.train_step(model, "cross_entropy", optimizer, capture=capture)
        state = step.init(data[0])
        for batch in data:
            state = step(batch, state)
    assert all(map(torch.equal, plain.state_dict().values(), captured.state_dict().values()))


def test_only_the_first_evaluation_of_an_optimizer_that_evaluates_the_loss_itself_counts():
    model, data = net(), batches(1)
    expected = by_hand(model, *data[0])
    step = gv.train_step(model, "cross_entropy", "lbfgs", capture=gv.Capture("*", keep="tensors"))
    captured = step(data[0], step.init(data[0])).captured
    assert [len(captured[name]) for name in "012"] == [1, 1, 1]
    torch.testing.assert_close(captured["0"][0].gradient, expected[0])


@pytest.mark.case("P08")
def test_each_step_has_its_own_calls_alone():
    for state in steps(net(), batches(20), capture=gv.Capture("*")):
        assert [len(calls) for calls in state.captured.values()] == [1, 1, 1]


def test_no_hook_is_left_behind_and_no_capture_at_work():
    model = net()
    steps(model, batches(), capture=gv.Capture("*"))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert session.open_sessions == ()


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_nor_after_an_error_in_the_middle(error):
    model, (x, y), fails = net(), batches(1)[0], []

    def loss(prediction, targets):
        if fails:
            raise error("in the middle")
        return F.cross_entropy(prediction, targets)

    step = gv.train_step(model, loss, SGD, capture=gv.Capture("*"))
    state = step.init((x, y))
    fails.append(True)
    with pytest.raises(error, match="in the middle"):
        step((x, y), state)
    fails.clear()
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert session.open_sessions == ()
    assert [len(calls) for calls in step((x, y), state).captured.values()] == [1, 1, 1]


@pytest.mark.case("P16")
@pytest.mark.parametrize("keep", ["statistics", "running", "example_norms"])
def test_nothing_of_a_step_is_kept_alive_without_a_garbage_collector(keep):
    outputs = []

    class Noted(nn.Linear):
        def forward(self, x):
            y = super().forward(x)
            outputs.append(weakref.ref(y))
            return y

    model = nn.Sequential(Noted(3, 4), nn.Tanh(), Noted(4, 2))
    gc.disable()
    try:
        states = steps(model, batches(8), capture=gv.Capture("*", keep=keep))
        alive = [output() for output in outputs[:-2] if output() is not None]
    finally:
        gc.enable()
    assert states
    assert not alive


def test_sown_values_of_an_objective_are_captured():
    model, (x, y) = net(), batches(1)[0]

    def objective(forward, model_state, inputs, targets):
        output = forward(model_state, inputs)
        penalty = gv.sow(model_state["0.weight"].square().sum(), "penalty")
        return F.cross_entropy(output.prediction, targets) + 0.5 * penalty, output

    step = gv.train_step(model, objective, SGD, capture=gv.Capture())
    captured = step((x, y), step.init((x, y))).captured
    assert list(captured) == ["penalty"]
    assert captured["penalty"][0].statistics["mean"] == 0.5


def test_a_value_that_leads_to_the_loss_and_to_no_parameter_is_no_unused_one():
    model, (x, y) = net(), batches(1)[0]
    noise = torch.zeros(6, 3, requires_grad=True)

    def objective(forward, model_state, inputs, targets):
        shift = gv.sow(noise * 2, "shift")
        output = forward(model_state, inputs)
        return F.cross_entropy(output.prediction, targets) + shift.sum(), output

    step = gv.train_step(model, objective, SGD, capture=gv.Capture(keep="tensors"))
    captured = step((x, y), step.init((x, y))).captured
    assert captured["shift"][0].state == "ok"
    assert captured["shift"][0].gradient.tolist() == torch.ones(6, 3).tolist()
    assert noise.grad is None


@pytest.mark.case("P30")
def test_a_frozen_part_says_so_until_it_is_unfrozen():
    model, data = net(), batches(2)
    model[0].requires_grad_(False)
    step = gv.train_step(model, "cross_entropy", SGD, capture=gv.Capture("*"))
    state = step(data[0], step.init(data[0]))
    assert [state.captured[name][0].state for name in "012"] == ["frozen", "frozen", "ok"]
    model[0].requires_grad_(True)
    state = step(data[1], state)
    assert [state.captured[name][0].state for name in "012"] == ["ok", "ok", "ok"]


def test_a_module_that_is_put_into_the_model_between_two_steps_is_followed():
    model, data = net(), batches(2)
    step = gv.train_step(model, "cross_entropy", SGD, capture=gv.Capture("*"))
    with step.training():
        state = step(data[0], step.init(data[0]))
        model.append(nn.Identity())
        state = step(data[1], state)
    assert list(state.captured) == ["0", "1", "2", "3"]
    assert not model[3]._forward_hooks


def test_running_moments_go_over_all_steps():
    model, data = net(), batches(5)
    plain, seen = net(), []
    for x, y in data:
        seen.append(by_hand(plain, x, y)[2])
        SGD(plain.parameters()).zero_grad()
        F.cross_entropy(plain(x), y).backward()
        SGD(plain.parameters()).step()
    running = steps(model, data, capture=gv.Capture("2", keep="running"))[-1].captured["2"][0].running
    together = torch.cat(seen).double()
    assert running.count == len(together)
    torch.testing.assert_close(running.mean, together.mean(0))
    torch.testing.assert_close(running.second_moment, together.square().mean(0))


def test_who_asks_for_what_was_not_captured_is_told_the_option():
    (state,) = steps(net(), batches(1))
    with pytest.raises(NoSuchFieldError, match=r"capture=gv\.Capture"):
        _ = state.captured
    with pytest.raises(CaptureError, match=r"capture=gv.Capture\(\'encoder\.\*\'\)"):
        gv.train_step(net(), "cross_entropy", SGD, capture="encoder.*")


def test_passes_of_another_thread_are_not_this_one_s():
    model, both = nn.Linear(2, 2, bias=False), threading.Barrier(2)
    captured = {}

    def loss(m, x):
        h = gv.sow(m(x), "h")
        both.wait(60)
        total = h.square().sum()
        both.wait(60)
        return total

    def take(place):
        own = copy.deepcopy(model)
        captured[place] = gv.reap(loss)(own, torch.full((3, 2), float(place)))[2]

    threads = [threading.Thread(target=take, args=(place,)) for place in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for place in (1, 2):
        (call,) = captured[place]["h"]
        assert call.state == "ok"
        torch.testing.assert_close(call.gradient, 2 * model(torch.full((3, 2), float(place))).detach())


def test_examples_are_not_counted_along_another_axis():
    class TimeFirst(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 3)

        def forward(self, x):  # batch 8, time 6
            return self.head(x.transpose(0, 1)).mean(0)

    model, batch = TimeFirst(), (torch.randn(8, 6, 4), torch.randint(3, (8,)))
    for keep in ("example_norms", "running"):
        step = gv.train_step(model, "cross_entropy", SGD, capture=gv.Capture("head", keep=keep))
        captured = step(batch, step.init(batch)).captured
        with pytest.raises(CaptureError):
            _ = captured["head"][0].example_norms if keep == "example_norms" else captured["head"][0].running


def test_rounding_of_autocast_is_no_other_way_to_the_loss():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))

    def loss(m, x, y):
        with torch.autocast("cpu", torch.bfloat16):
            return F.cross_entropy(m(x), y)

    capture = gv.Capture("*", keep="example_norms")
    captured = gv.reap(loss, capture)(model, torch.randn(16, 32), torch.randint(10, (16,)))[2]
    assert captured.parameter_example_norms.keys() == {name for name, _ in model.named_parameters()}
