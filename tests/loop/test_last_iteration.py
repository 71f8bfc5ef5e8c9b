"""Where not every iteration is recorded, the last one is, with the numbers that it would have had among all."""

from __future__ import annotations

import contextlib
import os
import signal

import pandas as pd
import pytest
import torch
from torch import nn

import gradviz as gv

SMALL = [(torch.ones(2, 3) * (i + 1), torch.zeros(2, 1)) for i in range(9)]


def thinned_loop(**options):
    torch.manual_seed(0)
    return gv.trainer(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1)), "mean_squared_error", "adam", **options)


def assert_recorded(loop, expected, stage="backward"):
    """These iterations, with the numbers of a loop that records all."""
    everything = thinned_loop(clip=1e-3 if stage == "clipped" else None)
    everything.run(SMALL, display=None)
    norms = loop.history.wide("norm", stage=stage).dropna()
    assert norms.index.tolist() == expected
    pd.testing.assert_frame_equal(norms, everything.history.wide("norm", stage=stage).loc[expected])


@pytest.mark.case("W19")
@pytest.mark.parametrize("options", [{}, {"budget": 1e-9}, {"record": "norms"}])
def test_the_last_iteration_that_is_planned_is_recorded(options):
    loop = thinned_loop(every=100, **options)
    loop.run(SMALL[:5], display=None)
    assert_recorded(loop, [0, 4])
    loop.run(SMALL[5:], iterations=2, display=None)
    assert_recorded(loop, [0, 4, 6])


class Ending:
    """Data in the midst of which something happens."""

    def __init__(self, happen):
        self.happen = happen

    def __iter__(self):
        yield from SMALL[:4]
        self.happen()
        yield from SMALL[4:]


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def fail():
    raise OSError("the disk is gone")


@pytest.mark.case("W19")
@pytest.mark.parametrize("end", ["data", "early_stop", "interrupt", "error", "stop", "keep_gradients"])
def test_the_last_iteration_is_recorded_however_the_run_ends(end):
    loop = thinned_loop(every=100, keep_gradients=end == "keep_gradients")
    data = {"data": iter(SMALL[:4]), "interrupt": Ending(interrupt), "error": Ending(fail)}.get(end, SMALL)
    if end == "early_stop":
        loop.early_stop("loss", patience=1, mode="min", event="iteration_completed")
    if end == "stop":
        loop.metric(lambda y_pred, y_true: loop.stop() and 0.0 if loop.state.iteration == 3 else 0.0, "stops")
    if end == "keep_gradients":
        loop.handle_event("iteration_completed", lambda state: "halt_loop" if state.iteration == 3 else None)
    with contextlib.suppress(KeyboardInterrupt, OSError):
        loop.run(data, display=None)
    last = loop.state.iteration - 1
    assert last < len(SMALL) - 1
    assert_recorded(loop, [0, last])
    assert loop.history.thinned.tolist() == list(range(1, last))


def test_of_a_last_iteration_that_is_clipped_only_what_the_optimizer_got_is_there_still():
    loop = thinned_loop(every=100, clip=1e-3)
    loop.run(iter(SMALL[:4]), display=None)
    assert_recorded(loop, [0, 3], stage="clipped")
    assert loop.history.norms.dropna().index.tolist() == [0]


@pytest.mark.parametrize("by", ["handler", "code between epochs", "optimizer"])
def test_gradients_that_somebody_may_have_written_into_are_not_taken_for_those_of_the_last_iteration(by):
    def add(state=None):
        loop._step.model(SMALL[0][0]).sum().backward()

    loop = thinned_loop(every=100)
    if by == "handler":
        loop.handle_event("iteration_completed", add)
    if by == "optimizer":
        loop._step.optimizer.register_step_post_hook(lambda optimizer, *_: add())
    if by == "code between epochs":
        for _ in loop.stream(iter(SMALL[:4]), display=None):
            add()
    else:
        loop.run(iter(SMALL[:4]), display=None)
    assert loop.history.norms.dropna().index.tolist() == [0]


@pytest.mark.parametrize("every", [1, 3, 100])
def test_how_often_gradients_are_recorded_leaves_training_as_it_is(every):
    loops = thinned_loop(record=None), thinned_loop(every=every)
    for loop in loops:
        loop.run(iter(SMALL), display=None)
    assert all(map(torch.equal, loops[0]._step.model.parameters(), loops[1]._step.model.parameters()))
