"""A stream is a run with somebody else's code between its epochs."""

from __future__ import annotations

import contextlib
import copy
import gc
import signal
import weakref
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gradviz as gv
from gradviz.errors import DataError, LoopError, MetricError, UnknownKeywordError


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))


def loader() -> DataLoader:
    torch.manual_seed(1)
    inputs, targets = torch.randn(50, 4), torch.randint(0, 3, (50,))
    return DataLoader(TensorDataset(inputs, targets), batch_size=16, shuffle=True)


def make(model: nn.Module, **options) -> gv.Loop:
    optimizer = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
    return gv.trainer(model, "cross_entropy", optimizer, keep_gradients=True, **options).metric("accuracy")


def events(loop: gv.Loop) -> list[str]:
    seen: list[str] = []
    for event in ("started", "epoch_completed", "completed", "halted"):
        loop.handle_event(event, lambda state, event=event: seen.append(event))
    return seen


DATA = [(torch.ones(2, 4), torch.zeros(2, dtype=torch.long))] * 3


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("policy", [None, gv.Policy(params="bfloat16", compute="bfloat16", output="float32")])
def test_a_stream_trains_as_a_run_does_to_the_bit(in_place, policy):
    loops = []
    for streams in (False, True):
        loop = make(net(), policy=policy).validate(loader())
        data = loader()
        torch.manual_seed(2)
        if streams:
            epochs = [(state.epoch, state.iteration) for state in loop.stream(data, epochs=3, in_place=in_place)]
            assert epochs == [(1, 4), (2, 8), (3, 12)]
        else:
            loop.run(data, epochs=3, in_place=in_place)
        loops.append(loop)
    run, stream = loops
    assert (run.state.status, run.state.iteration) == (stream.state.status, stream.state.iteration) == ("completed", 12)
    assert run.history.gradients.equals(stream.history.gradients)
    assert run.history.metrics.equals(stream.history.metrics)
    assert run.history.epochs.equals(stream.history.epochs)
    assert run.state.event_counts == stream.state.event_counts
    models = [loop.state.step_state["model_state"].module.state_dict() for loop in loops]
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])


def test_between_the_epochs_nothing_of_ours_is_active():
    model = net().eval()
    before = signal.getsignal(signal.SIGINT)
    loop = make(model)
    for state in loop.stream(loader(), epochs=3):
        assert signal.getsignal(signal.SIGINT) is before
        assert not any(child.training for child in model.modules())
        assert state is loop.state
        assert state.status == "training"
        assert state.iteration == len(loop.history)
        model[0].weight.data.mul_(0.5)
        halved = model[0].weight.detach().clone()
    assert loop.state.status == "completed"
    assert torch.equal(model[0].weight, halved)


def test_apart_from_the_model_each_state_has_the_trained_copy():
    model = net()
    before = copy.deepcopy(model.state_dict())
    seen = []
    for state in make(model).stream(loader(), epochs=3, in_place=False):
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
        seen.append(state.step_state["model_state"].module[0].weight.detach().clone())
    assert not torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[1], seen[2])


def test_the_events_of_a_run_fire_once_for_the_whole_stream():
    loop = make(net())
    seen = events(loop)
    for _ in loop.stream(DATA, epochs=2):
        pass
    assert seen == ["started", "epoch_completed", "epoch_completed", "completed"]
    seen.clear()
    for _ in loop.stream(DATA, epochs=5):
        break
    assert seen == ["started", "epoch_completed", "halted"]
    assert (loop.state.status, loop.state.epoch, loop.history.progress.status) == ("halted", 3, "halted")
    assert loop.run(DATA).status == "completed"


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_an_error_in_the_body_ends_the_run_in_good_order(error):
    model = net().eval()
    loop = make(model)
    seen = events(loop)

    def body():
        for _ in loop.stream(DATA, epochs=5):
            raise error

    with pytest.raises(error):
        body()
    assert (loop.state.status, loop.state.iteration, seen[-1]) == ("halted", 3, "halted")
    assert not model.training
    assert all(p.grad is None for p in model.parameters())
    assert loop.run(DATA).status == "completed"


def test_a_handler_that_halts_ends_the_stream_after_its_epoch():
    loop = make(net()).handle_event("epoch_completed", lambda state: "halt_loop" if state.epoch == 1 else None)
    assert [state.epoch for state in loop.stream(DATA, epochs=5)] == [1, 2]
    assert loop.state.status == "halted"
    loop.handle_event("iteration_completed", lambda state: "halt_loop", after=7)
    assert [state.iteration for state in loop.stream(DATA, epochs=5)] == [8]


def test_an_error_or_a_ctrl_c_inside_an_epoch_is_raised_where_the_next_one_is_asked_for():
    loop = make(net()).handle_event("iteration_completed", lambda state: 1 / 0, once=5)
    with pytest.raises(ZeroDivisionError):
        for _ in loop.stream(DATA, epochs=3):
            pass
    assert (loop.state.status, loop.state.epoch, len(loop.history)) == ("failed", 2, 5)
    loop = make(net())
    loop.handle_event("iteration_completed", lambda state: signal.raise_signal(signal.SIGINT), once=5)
    with pytest.raises(KeyboardInterrupt):
        for _ in loop.stream(DATA, epochs=3):
            pass
    assert (loop.state.status, loop.state.epoch, len(loop.history)) == ("interrupted", 2, 5)
    assert loop.run(DATA).status == "completed"


def test_arguments_are_checked_when_it_is_called_and_nothing_runs_before_it_is_asked_for():
    loop = make(net())
    with pytest.raises(DataError, match="read only once"):
        loop.stream(iter(DATA), epochs=2)
    with pytest.raises(UnknownKeywordError, match="epochs"):
        loop.stream(DATA, epoch=2)
    with pytest.raises(ValueError, match="display is"):
        loop.stream(DATA, display="yes")
    loop.stream(DATA)
    assert loop.state.status == "idle"
    assert list(loop.stream(DATA, epochs=0)) == []
    assert loop.run(DATA).iteration == 3


def test_a_bad_first_batch_moves_nothing_and_another_run_is_free_to_begin():
    loop = make(net())
    with pytest.raises(DataError):
        next(iter(loop.stream([3])))
    assert loop.state.status == "idle"
    assert loop.run(DATA).status == "completed"


def test_while_a_stream_is_open_no_other_run_begins_and_stop_ends_it():
    loop = make(net())
    stream = loop.stream(DATA, epochs=5)
    next(stream)
    for begin in (loop.run, loop.stream, loop.start):
        with pytest.raises(LoopError, match=r"loop\.stop\(\) ends that"):
            begin(DATA)
    with pytest.raises(LoopError, match="in the one that asks"):
        loop.pause()
    assert loop.stop().state.status == "halted"
    assert list(stream) == []
    assert loop.run(DATA).status == "completed"


def test_a_stream_that_is_dropped_is_ended():
    loop = make(net())
    stream = iter(loop.stream(DATA, epochs=5))
    next(stream)
    del stream
    gc.collect()
    assert loop.state.status == "halted"


def test_stop_in_a_handler_ends_after_the_iteration():
    loop = make(net())
    loop.handle_event("iteration_started", lambda state: loop.stop(), once=5)
    seen = events(loop)
    assert loop.run(DATA, epochs=3).status == "halted"
    assert (len(loop.history), seen[-1]) == (5, "halted")
    assert loop.stop().run(DATA).status == "completed"  # a stop is for what is under way, not for what comes


@pytest.mark.parametrize("how", ["run", "stream", "broken off", "background", "refused"])
def test_when_it_is_over_the_data_is_the_caller_s_alone(how):
    """And is not left to the garbage collector, for which a loader with persistent workers ends them too late."""

    def fail(state):
        raise ValueError

    loop, data = make(net()).validate(DATA), loader()
    kept = weakref.ref(data)
    gc.collect()
    gc.disable()
    try:
        if how == "run":
            loop.run(data, display=None)
        elif how == "stream":
            for _ in loop.stream(data, epochs=2):
                pass
        elif how == "background":
            loop.start(data).wait()
        elif how == "broken off":
            with contextlib.suppress(ValueError):
                loop.handle_event("iteration_completed", fail).run(data)
        else:
            with contextlib.suppress(MetricError):
                loop.metric("true_positives").run(data)
        del data
        assert kept() is None
    finally:
        gc.enable()
