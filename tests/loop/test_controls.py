"""The buttons of a picture reach the run that they were shown for, and no other."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

import gradviz as gv
from gradviz.errors import LoopError

DATA = [(torch.ones(2, 4), torch.zeros(2, dtype=torch.long))] * 3
ENDLESS = 10**9


def make() -> gv.Loop:
    return gv.trainer(nn.Linear(4, 3), "cross_entropy", "sgd")


def test_they_pause_step_and_stop_a_run_in_the_background():
    loop = make().start(DATA, epochs=ENDLESS)
    controls = loop.history.controls
    assert not controls.blocks
    assert controls("pause") == "pauses after this iteration"
    loop.pause()  # comes back when it rests
    assert controls("pause") == "paused"
    before = loop.state.iteration
    assert controls("step") == "takes one iteration"
    loop._under_way.gate.wait_until_it_rests()
    assert loop.state.iteration == before + 1 == len(loop.history)
    assert controls("unpause") == "goes on"
    assert controls("stop").startswith("stops")
    assert loop.wait().status == "halted"
    assert loop.history.controls is None


def test_a_wish_for_a_run_that_is_over_does_nothing_to_the_next_one():
    loop = make()
    loop.run(DATA * 2, display=None)
    seen = []
    loop.handle_event("started", lambda state: seen.append(loop.history.controls))
    loop.run(DATA, display=None)
    loop.start(DATA, epochs=ENDLESS)
    late, now = seen[0], loop.history.controls
    assert late.run != now.run
    with pytest.raises(LoopError, match="is over"):
        late("stop")
    assert loop.pause().state.status == "paused"
    loop.stop().wait()


def test_a_run_in_the_main_thread_says_that_it_blocks_and_cannot_be_paused_from_there():
    loop, told = make(), []

    def ask(state: gv.State) -> None:
        controls = loop.history.controls
        told.append(controls.blocks)
        with pytest.raises(LoopError, match=r"loop\.start"):
            controls("pause")
        if state.iteration == 3:
            told.append(controls("stop"))

    loop.handle_event("iteration_completed", ask)
    assert loop.run(DATA, epochs=5, display=None).iteration == 4
    assert told == [True] * 4 + ["stops after this iteration"]


def test_from_another_thread_a_run_in_the_main_thread_is_paused_and_goes_on():
    loop, rests = make(), []

    def other(controls: object) -> None:
        controls("pause")
        loop._under_way.gate.wait_until_it_rests()
        rests.append(loop.state.status)
        controls("unpause")

    def begin(state: gv.State) -> None:
        threading.Thread(target=other, args=(loop.history.controls,)).start()

    loop.handle_event("started", begin)
    loop.handle_event("epoch_completed", lambda state: "halt_loop" if rests else None)
    assert loop.run(DATA, epochs=ENDLESS, display=None).status == "halted"
    assert rests == ["paused"]


def test_a_step_is_one_iteration_also_over_the_end_of_an_epoch_and_of_the_run():
    loop = make().start(DATA, epochs=2000)
    loop.pause()
    at = loop.state.iteration
    for i in range(7):
        assert loop.step() is loop
        assert (loop.state.status, loop.state.iteration) == ("paused", at + i + 1)
    assert len(loop.history) == at + 7
    loop.stop().wait()
    short = make()

    def shut(state: gv.State) -> None:
        short._shut()

    short.handle_event("started", shut).start(DATA)
    for _ in range(3):
        short.step()
    assert short.state.iteration == 3
    short.step()  # which ends it
    assert short.wait().status == "completed"


def test_a_step_of_a_run_that_is_not_paused_is_an_error():
    loop = make()
    with pytest.raises(LoopError, match="there is none"):
        loop.step()
    loop.start(DATA, epochs=ENDLESS)
    with pytest.raises(LoopError, match=r"loop\.pause\(\) first"):
        loop.step()
    loop.stop().wait()
