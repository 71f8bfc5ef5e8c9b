"""A model is trained by one thread at a time, and a loop that trains is found by whoever asks."""

from __future__ import annotations

import gc
import re
import threading
import weakref
from functools import partial

import pytest
import torch
from torch import nn

import gradviz as gv
from gradviz.errors import LoopError

DATA = [(torch.ones(2, 4), torch.zeros(2, dtype=torch.long))] * 3
ENDLESS = 10**9
BEGINNINGS = ("run", "stream", "start")


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))


def make(model: nn.Module, optimizer="sgd", **options) -> gv.Loop:
    return gv.trainer(model, "cross_entropy", optimizer, log=0, **options)


def values(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("begin", BEGINNINGS)
def test_a_cell_that_is_run_again_is_refused_while_the_first_still_trains(begin):
    model = net()
    loop = make(model).start(DATA, epochs=ENDLESS).pause()
    first, before = weakref.ref(loop), values(model)
    loop = make(model)
    with pytest.raises(LoopError) as error:
        getattr(loop, begin)(DATA)
    said = str(error.value)
    assert re.match(r"Loop of Sequential: .*\(paused\) trains the same model in the background since \d\d:\d\d:", said)
    assert said.endswith("for old in gv.running(): old.stop().wait()")
    assert loop.state.status == "idle"
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert gv.running() == [first()]
    for old in gv.running():
        old.stop().wait()
    assert gv.running() == []
    assert loop.start(DATA).wait().status == "completed"


def test_as_soon_as_start_returns_it_is_known_to_train_in_the_background():
    for _ in range(50):  # the thread itself may not have run yet
        model = net()
        loop = make(model).start(DATA, epochs=ENDLESS)
        with pytest.raises(LoopError, match="in the background"):
            make(model).run(DATA)
        with pytest.raises(LoopError, match="would change"):
            loop.metric("accuracy")
        assert loop.pause().state.status == "paused"
        assert loop.stop().wait().status == "halted"


@pytest.mark.parametrize("begin", BEGINNINGS)
@pytest.mark.parametrize("shared", ["parameter '0.weight'", "buffer '1.running_mean'"])
def test_what_two_models_share_is_trained_by_one(begin, shared):
    model, second = net(), net()
    if "parameter" in shared:  # an optimizer that two share holds parameters of both
        second[0].weight = model[0].weight
    else:
        second[1].running_mean = model[1].running_mean
    one, other = make(model).start(DATA, epochs=ENDLESS), make(second)
    with pytest.raises(LoopError, match=f"trains the {shared} too in the background"):
        getattr(other, begin)(DATA)
    assert one.stop().wait().status == "halted"
    assert other.start(DATA).wait().status == "completed"


def test_two_loops_of_two_models_train_at_once():
    one, other = make(net()).start(DATA, epochs=ENDLESS), make(net()).start(DATA, epochs=ENDLESS)
    assert gv.running() == [one, other]
    assert make(net()).run(DATA).status == "completed"
    assert other.stop().wait().status == one.stop().wait().status == "halted"


def test_in_one_thread_loops_take_turns():
    model = net()
    streams = make(model).stream(DATA, epochs=3), make(model).stream(DATA, epochs=3)
    for turns, (one, other) in enumerate(zip(*streams, strict=True), 1):
        assert (one.epoch, other.epoch) == (turns, turns)
    outer, inner = make(model), make(model)
    outer.handle_event("epoch_completed", lambda state: inner.run(DATA) and None)
    assert outer.run(DATA, epochs=2).status == "completed"
    assert inner.state.epoch == 2
    assert outer.start(DATA, epochs=2).wait().status == "completed"
    assert inner.state.epoch == 4


def test_nothing_starts_in_the_background_beside_a_stream_that_is_open_or_a_run_that_goes_on():
    model = net()
    stream, later = make(model).stream(DATA, epochs=5), make(model)
    next(stream)
    with pytest.raises(LoopError, match=r"in this thread since .*for old in gv.running\(\): old.stop\(\)$"):
        later.start(DATA)
    for old in gv.running():
        old.stop()
    assert later.start(DATA).wait().status == "completed"
    run = make(model).handle_event("iteration_completed", lambda state: later.start(DATA) and None)
    with pytest.raises(LoopError, match="in this thread"):
        run.run(DATA)


def test_a_run_of_another_thread_is_in_the_way_too():
    model, refused = net(), []

    def other():
        for begin in BEGINNINGS:
            with pytest.raises(LoopError, match="in another thread"):
                getattr(make(model), begin)(DATA)
            refused.append(begin)

    def beside(state) -> None:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(30)

    assert make(model).handle_event("iteration_completed", beside, once=1).run(DATA).status == "completed"
    assert refused == list(BEGINNINGS)


def test_no_checkpoint_is_put_into_a_model_that_another_loop_trains(tmp_path):
    model = net()
    make(model).checkpoint(tmp_path).run(DATA)
    loop = make(model).start(DATA, epochs=ENDLESS).pause()
    before = values(model)
    with pytest.raises(LoopError, match="trains the same model"):
        make(model).resume(tmp_path)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    loop.stop().wait()
    assert make(model).resume(tmp_path).state.epoch == 1


def test_no_policy_converts_a_model_that_a_loop_trains():
    model = net()
    loop = make(model).start(DATA, epochs=ENDLESS)
    with pytest.raises(LoopError, match="a policy converts it"):
        make(model, policy=gv.Policy(params="bfloat16"))
    assert model[0].weight.dtype == torch.float32
    loop.stop().wait()


def test_an_evaluation_waits_for_a_pause():
    model = net()
    evaluation = gv.evaluator(model, "cross_entropy")
    loop = make(model).start(DATA, epochs=ENDLESS)
    with pytest.raises(LoopError, match=r"eval mode under that. Evaluate between loop.pause\(\) and loop.unpause\(\)"):
        evaluation.run(DATA)
    loop.pause()
    assert evaluation.run(DATA).status == "completed"
    assert model.training
    assert loop.unpause().stop().wait().status == "halted"
    assert evaluation.run(DATA).status == "completed"
    seen = []
    loop.handle_event("epoch_completed", lambda state: seen.append(evaluation.run(DATA).status))
    loop.start(DATA).wait()
    assert seen == ["completed"]


def test_a_loop_that_is_over_is_held_by_nobody():
    loop = make(net(), partial(torch.optim.SGD, lr=0.1))
    loop.start(DATA).wait()
    gone = weakref.ref(loop)
    del loop
    gc.collect()
    assert gone() is None
