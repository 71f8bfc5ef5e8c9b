"""Ctrl-C at any point of a step: the first finishes it, the second acts at once, and both leave everything usable."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import nn

import gradviz as gv
from gradviz.loop.stretch import Stretch

AT = 3
"""The iteration in which Ctrl-C is pressed."""

DATA = [(torch.ones(2, 4), torch.zeros(2, dtype=torch.long))] * 5


class Presser:
    """Presses Ctrl-C so many times, once, in a certain iteration."""

    def __init__(self, times: int) -> None:
        self.left, self.loop, self.passed = times, None, False

    def __deepcopy__(self, memo: object) -> Presser:
        return self

    def __call__(self) -> None:
        if self.loop is not None and self.loop.state.status == "training" and self.loop.state.iteration == AT:
            while self.left:
                self.left -= 1
                os.kill(os.getpid(), signal.SIGINT)
            self.passed = True


class Layer(nn.Linear):
    def __init__(self, forward: Callable[[], None], backward: Callable[[], None]) -> None:
        super().__init__(4, 3)
        self.calls = forward, backward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls[0]()
        return Pressing.apply(super().forward(x), self.calls[1])


class Pressing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, press):
        ctx.press = press
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.press()
        return gradient, None


class Optimizer(torch.optim.SGD):
    def __init__(self, parameters, before: Callable[[], None]) -> None:
        super().__init__(parameters, lr=0.1, momentum=0.9)
        self.before = before

    def step(self, closure=None):
        self.before()
        return super().step(closure)


def nothing(*of: object) -> None:
    return None


def before(owner: object, name: str, press: Callable[[], None]) -> None:
    """Press before a method of ours."""
    method = getattr(owner, name)

    def pressed(*args, **kwargs):
        press()
        return method(*args, **kwargs)

    setattr(owner, name, pressed)


def after(owner: object, name: str, press: Callable[[], None]) -> None:
    method = getattr(owner, name)

    def pressed(*args, **kwargs):
        result = method(*args, **kwargs)
        press()
        return result

    setattr(owner, name, pressed)


def build(place: str, press: Presser) -> tuple[gv.Loop, nn.Module]:
    at = dict.fromkeys(("forward", "backward", "optimizer"), nothing) | {place: press}
    torch.manual_seed(0)
    layer = Layer(at["forward"], at["backward"])
    layer.weight.register_hook(nothing)
    model = nn.Sequential(layer, nn.BatchNorm1d(3)).eval()
    loop = gv.trainer(model, "cross_entropy", partial(Optimizer, before=at["optimizer"]), keep_gradients=True)
    step, history = loop._training.step, loop.history
    if place == "statistics":
        before(step.observer, "see", press)
    if place == "after the statistics":
        after(step.observer, "see", press)
    if place == "row":
        before(history._store.stage("backward"), "append", press)
    if place == "after the row":
        after(history._store.stage("backward"), "append", press)
    if place in ("iteration_started", "iteration_completed"):
        loop.handle_event(place, lambda state: press())
    loop.metric(lambda p, t: (press() if place == "metric" else None) or p.mean(), "mean")
    if place == "validation":
        loop.validate(lambda epoch: pressing(press), event="iteration_completed")
    press.loop = loop
    return loop, model


def pressing(press: Presser):
    press()
    yield from DATA[:2]


def check_usable(loop: gv.Loop, model: nn.Module, press: Presser, handler: object) -> None:
    """Everything is as it was, and the loop goes on."""
    assert loop.state.status == loop.history.progress.status == "interrupted"
    assert signal.getsignal(signal.SIGINT) is handler
    assert not any(child.training for child in model.modules())
    assert all(p.grad is None for p in model.parameters())
    assert len(model[0].weight._backward_hooks) == 1
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    assert not any(getattr(child, name) for child in model.modules() for name in hooks)
    assert loop.state.iteration == len(loop.history) == len(loop.history.metrics)
    assert loop.history.epochs["iterations"].sum() == len(loop.history)
    assert loop.history.norms.index.tolist() == list(range(len(loop.history)))
    rows = len(loop.history)
    press.loop = None
    state = loop.run(DATA)
    assert (state.status, state.iteration, len(loop.history)) == ("completed", rows + 5, rows + 5)
    assert loop.history.norms.notna().all(axis=None)
    assert loop.history.metrics["mean"].iloc[-5:].notna().all()


STEP = ["iteration_started", "forward", "backward", "statistics", "after the statistics", "optimizer"]
RECORDED = ["metric", "row", "after the row", "iteration_completed"]


@pytest.mark.case("L28")
@pytest.mark.parametrize("place", [*STEP, *RECORDED])
def test_the_first_finishes_the_iteration_wherever_it_comes(place):
    press = Presser(1)
    loop, model = build(place, press)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) as stopped:
        loop.run(DATA, epochs=2)
    assert press.passed
    assert len(loop.history) == AT + 1
    assert stopped.value.__notes__ == [
        "Interrupted: 4 iterations are in loop.history, and loop.run(...) goes on with the next epoch."
    ]
    check_usable(loop, model, press, handler)


@pytest.mark.case("L28")
@pytest.mark.parametrize("place", [*STEP, *RECORDED, "validation"])
def test_the_second_acts_at_once_and_a_step_that_was_taken_keeps_its_row(place):
    press = Presser(2)
    loop, model = build(place, press)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        loop.run(DATA, epochs=2)
    assert press.passed == (place in ("row", "after the row")), "Only a row is written whole."
    assert len(loop.history) == AT + (place not in STEP)
    if place == "metric":
        assert loop.history.metrics["mean"].isna().tolist() == [False] * AT + [True]
    check_usable(loop, model, press, handler)


@pytest.mark.case("N08")
def test_the_second_may_come_while_the_first_ends_the_run(monkeypatch):
    broken_off = Stretch._broken_off

    def pressed(stretch, error):
        os.kill(os.getpid(), signal.SIGINT)
        return broken_off(stretch, error)

    monkeypatch.setattr(Stretch, "_broken_off", pressed)
    loop = gv.trainer(nn.Linear(2, 1), "mean_squared_error", "sgd")
    loop.handle_event("iteration_completed", lambda state: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        loop.run([(torch.ones(4, 2), torch.ones(4, 1))] * 3)
    assert (loop.state.status, loop.history.progress.status, len(loop.history)) == ("interrupted", "interrupted", 1)


@pytest.mark.case("L28")
def test_while_data_is_loaded_it_acts_at_once_in_training_and_in_the_trial():
    for waits_for in (0, AT):
        waiting = [False]

        def data(epoch, waits_for=waits_for, waiting=waiting):
            for place, batch in enumerate(DATA):
                if place == waits_for and not waiting[0]:
                    waiting[0] = True
                    os.kill(os.getpid(), signal.SIGINT)
                    raise AssertionError("waited on")
                yield batch

        press = Presser(0)
        loop, model = build("nowhere", press)
        handler = signal.getsignal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            loop.run(data)
        assert len(loop.history) == waits_for
        if waits_for:
            check_usable(loop, model, press, handler)
        else:
            assert loop.state.status == "idle"
            assert signal.getsignal(signal.SIGINT) is handler
            assert loop.run(data).status == "completed"


@pytest.mark.case("L28")
def test_in_the_trial_it_moves_nothing():
    press = Presser(0)
    loop, model = build("nowhere", press)
    weight = model[0].weight.detach().clone()
    model[0].calls = (lambda: os.kill(os.getpid(), signal.SIGINT), nothing)
    with pytest.raises(KeyboardInterrupt):
        loop.run(DATA)
    assert torch.equal(model[0].weight, weight)
    assert (loop.state.status, loop.state.epoch, len(loop.history)) == ("idle", 0, 0)
    model[0].calls = nothing, nothing
    assert loop.run(DATA).status == "completed"


@pytest.mark.case("L28")
@pytest.mark.parametrize("place", ["forward", "optimizer", "row", "iteration_completed"])
@pytest.mark.parametrize("times", [1, 2])
def test_apart_from_the_model_it_leaves_the_model_as_it_was(place, times):
    press = Presser(times)
    loop, model = build(place, press)
    values = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(KeyboardInterrupt):
        loop.run(DATA, in_place=False)
    assert all(torch.equal(value, values[name]) for name, value in model.state_dict().items())
    press.loop = None
    rows = len(loop.history)
    assert loop.run(DATA, in_place=False).iteration == rows + 5
    assert all(torch.equal(value, values[name]) for name, value in model.state_dict().items())


@pytest.mark.case("L28")
def test_a_ctrl_c_that_comes_while_everything_is_put_back_waits_for_it(monkeypatch):
    loop, model = build("nowhere", Presser(0))
    handler = signal.getsignal(signal.SIGINT)

    def pressed(*of):
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("gradviz.loop.stretch.drop_gradients", pressed)
    with pytest.raises(KeyboardInterrupt):
        loop.run(DATA)
    assert signal.getsignal(signal.SIGINT) is handler
    assert not any(child.training for child in model.modules())
    assert loop.state.status == "completed"
