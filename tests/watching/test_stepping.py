"""Hooks around a step come behind the user's own, and go whenever they are told to."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

import gradviz as gv
from tests.watching.scenes import one_weight


@pytest.fixture
def model():
    return one_weight()


@pytest.fixture
def optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def step(model, optimizer, closure=None):
    optimizer.zero_grad()
    model(torch.full((1, 1), 4.0)).sum().backward()
    optimizer.step(closure)


def has_hooks(model, optimizer):
    own = optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks
    return any("gradviz" in str(hook) for table in own for hook in table.values()) or bool(
        model.weight._post_accumulate_grad_hooks
    )


def test_a_clip_in_a_hook_that_was_added_after_the_watch_is_seen(model, optimizer):
    with gv.watch(model, optimizer) as w:
        optimizer.register_step_pre_hook(lambda *_: nn.utils.clip_grad_norm_(model.parameters(), 1.0) and None)
        step(model, optimizer)
    assert w.history.gradients[["stage", "norm"]].round(3).values.tolist() == [["backward", 4.0], ["clipped", 1.0]]


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("where", ["register_step_pre_hook", "register_step_post_hook"])
def test_a_watch_may_be_closed_in_a_hook_of_the_step(model, optimizer, where, is_first):
    def close(*_):
        if len(done) == 1:
            w.close()

    done = []
    if is_first:
        getattr(optimizer, where)(close)
    w = gv.watch(model, optimizer)
    if not is_first:
        getattr(optimizer, where)(close)
    getattr(optimizer, where)(lambda *_: done.append(True))
    for _ in range(3):
        step(model, optimizer)
    assert len(done) == 3
    assert not has_hooks(model, optimizer)
    assert w.history.iterations.tolist() == [0]
    torch.testing.assert_close(model.weight.item(), 1 - 3 * 0.4)


def test_a_watch_may_be_closed_in_a_closure(model, optimizer):
    w = gv.watch(model, optimizer)
    step(model, optimizer, w.close)
    assert not has_hooks(model, optimizer)


def test_a_step_that_breaks_off_leaves_nothing_that_keeps_a_watch_from_closing(model, optimizer):
    with pytest.raises(KeyboardInterrupt), gv.watch(model, optimizer):
        step(model, optimizer, lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    assert not has_hooks(model, optimizer)


def test_a_watch_is_closed_by_another_thread_while_one_steps(model, optimizer):
    w = gv.watch(model, optimizer)
    is_within, is_closed = threading.Event(), threading.Event()

    def wait(*_):
        is_within.set()
        assert is_closed.wait(60)

    optimizer.register_step_pre_hook(wait)
    optimizer.register_step_pre_hook(lambda *_: None)
    thread = threading.Thread(target=step, args=(model, optimizer))
    thread.start()
    assert is_within.wait(60)
    w.close()
    is_closed.set()
    thread.join()
    assert model.weight.item() == pytest.approx(0.6)
    assert not has_hooks(model, optimizer)
