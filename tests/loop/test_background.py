"""A run in a thread trains as any other, can be paused and stopped, and its errors are not lost."""

from __future__ import annotations

import math
import os
import signal
import threading
import traceback
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gradviz as gv
from gradviz.errors import DataError, LoopError, ModelError
from gradviz.loop.settings import ThreadSettings
from tests.loop.new_process import ended

DATA = [(torch.ones(2, 4), torch.zeros(2, dtype=torch.long))] * 3
ENDLESS = 10**9


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))


def make(model: nn.Module | None = None, **options) -> gv.Loop:
    optimizer = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
    return gv.trainer(model or net(), "cross_entropy", optimizer, **options).metric("accuracy")


def loader(**options) -> DataLoader:
    torch.manual_seed(1)
    inputs, targets = torch.randn(50, 4), torch.randint(0, 3, (50,))
    return DataLoader(TensorDataset(inputs, targets), batch_size=16, shuffle=True, **options)


class Held:
    """A handler that waits, so that a test can act in the middle of an iteration."""

    def __init__(self) -> None:
        self.reached, self.go = threading.Event(), threading.Event()

    def __call__(self, state) -> None:
        self.reached.set()
        assert self.go.wait(30)


@pytest.mark.parametrize("in_place", [True, False])
def test_it_trains_as_a_run_does_to_the_bit(in_place):
    loops = []
    for starts in (False, True):
        loop, data = make().validate(loader()), loader()
        torch.manual_seed(2)
        if starts:
            assert loop.start(data, epochs=3, in_place=in_place) is loop
            assert loop.wait() is loop.state
        else:
            loop.run(data, epochs=3, in_place=in_place)
        loops.append(loop)
    run, start = loops
    assert (start.state.status, start.state.iteration) == ("completed", 12)
    assert run.history.gradients.equals(start.history.gradients)
    assert run.history.epochs.equals(start.history.epochs)
    models = [loop.state.step_state["model_state"].module.state_dict() for loop in loops]
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])


def test_it_trains_under_the_settings_of_the_thread_that_started_it():
    class Records(nn.Linear):
        def forward(self, x):
            seen.add((torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"), torch.get_num_threads()))
            return super().forward(x)

    seen: set[object] = set()
    loop = gv.trainer(nn.Sequential(Records(4, 3)), "cross_entropy", "sgd")
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
        loop.start(DATA)
    loop.wait()
    assert seen == {(True, torch.float16, torch.get_num_threads())}
    assert loop.history.gradients["norm"].gt(0).any()


def test_a_pause_rests_between_two_iterations_until_it_is_over():
    model = net()
    loop = make(model).start(loader(), epochs=ENDLESS).pause()
    state = loop.state
    assert (state.status, loop.history.progress.status) == ("paused", "paused")
    assert state.iteration == len(loop.history)
    assert loop.history.progress.left_s is None
    before, rows = model[0].weight.detach().clone(), len(loop.history)
    with pytest.raises(TimeoutError, match=r"goes on after 0.05 s: Loop of Sequential.*paused"):
        loop.wait(0.05)
    assert torch.equal(model[0].weight, before)
    assert len(loop.history) == rows
    more = threading.Event()
    loop.handle_event("iteration_completed", lambda state: more.set())
    loop.unpause()
    assert more.wait(30)
    assert loop.pause() is loop.pause()
    assert len(loop.history) > rows
    assert loop.unpause().stop().wait().status == "halted"


def test_a_thread_that_is_only_starting_is_in_the_background_already(monkeypatch):
    go, in_force = threading.Event(), ThreadSettings.in_force
    monkeypatch.setattr(ThreadSettings, "in_force", lambda settings: in_force(settings) if go.wait(30) else None)
    loop = make().start(DATA, epochs=ENDLESS)
    with pytest.raises(LoopError, match="would change"):
        loop.metric("mean_absolute_error")
    gate = loop._under_way.gate
    close = gate.close
    monkeypatch.setattr(gate, "close", lambda: close() or go.set())
    assert loop.pause().state.status == "paused"
    assert len(loop.history) == 0
    assert loop.stop().wait().status == "halted"


def test_a_pause_counts_in_no_time():
    held = Held()
    loop = make().handle_event("iteration_started", held, once=2).start(DATA)
    assert held.reached.wait(30)
    pausing = threading.Thread(target=loop.pause)
    pausing.start()
    held.go.set()
    pausing.join(30)
    with pytest.raises(TimeoutError):
        loop.wait(0.3)
    loop.unpause().wait()
    assert loop.state.times[0] < 0.3


def test_stop_ends_it_normally_and_fires_halted():
    seen = []
    held = Held()
    loop = make().handle_event("iteration_started", held, once=5)
    loop.handle_event("halted", lambda state: seen.append(state.status)).start(loader(), epochs=ENDLESS)
    assert held.reached.wait(30)
    assert loop.stop() is loop
    held.go.set()
    assert loop.wait().status == "halted"
    assert (seen, loop.state.iteration, len(loop.history)) == (["halted"], 5, 5)
    assert loop.run(loader()).status == "completed"
    assert loop.history.norms.index.tolist() == list(range(9))


def test_stop_ends_a_paused_run_and_is_nothing_where_none_is():
    loop = make()
    assert loop.stop() is loop
    loop.start(loader(), epochs=ENDLESS).pause().stop().wait()
    assert loop.state.status == "halted"
    loop.stop()
    assert loop.start(loader()).wait().status == "completed"


def test_stop_and_pause_reach_a_blocking_run_from_another_thread():
    loop = make()
    seen = []

    def act():
        loop.pause()
        seen.append((loop.state.status, loop.state.iteration == len(loop.history)))
        loop.unpause().stop()

    acting = threading.Thread(target=act)
    loop.handle_event("iteration_completed", lambda state: acting.start(), once=2)
    assert loop.run(loader(), epochs=ENDLESS).status == "halted"
    acting.join(30)
    assert seen == [("paused", True)]


def test_a_ctrl_c_just_before_a_run_rests_does_not_wait_for_it_to_go_on(monkeypatch):
    loop = make()
    loop.handle_event("iteration_completed", lambda state: loop._under_way.gate.close(), once=2)
    monkeypatch.setattr(loop.history.progress, "pause", lambda: signal.raise_signal(signal.SIGINT))
    let_go = threading.Timer(5, loop.unpause)
    let_go.start()
    with pytest.raises(KeyboardInterrupt):
        loop.run(DATA * 3)
    let_go.cancel()
    assert (loop.state.status, loop.state.iteration) == ("interrupted", 2)


def test_a_handler_in_the_background_may_pause_and_stop():
    loop = make()
    loop.handle_event("iteration_completed", lambda state: loop.pause(), once=2)
    loop.handle_event("iteration_completed", lambda state: loop.stop(), once=3)
    paused = threading.Event()
    listener = Listener(loop.history, paused)
    loop.history.subscribe(listener.hear)
    loop.start(loader())
    assert paused.wait(30)
    assert (loop.state.status, len(loop.history)) == ("paused", 2)
    assert loop.unpause().wait().status == "halted"
    assert len(loop.history) == 3


def test_a_handler_that_steps_a_paused_run_does_not_wait_for_itself():
    loop = make()
    loop.handle_event("iteration_completed", lambda state: loop.pause(), once=1)
    loop.handle_event("iteration_completed", lambda state: loop.step(), once=2)
    paused = threading.Event()
    listener = Listener(loop.history, paused)
    loop.history.subscribe(listener.hear)
    loop.start(loader())
    assert paused.wait(30)
    loop.step()  # in which the handler asks for one more
    assert (loop.state.status, len(loop.history)) == ("paused", 3)
    loop.stop().wait()


class Listener:
    def __init__(self, history, paused: threading.Event) -> None:
        self.history, self.paused = history, paused

    def hear(self, final: bool) -> None:
        if self.history.progress.status == "paused":
            self.paused.set()


def test_its_error_is_raised_once_by_wait_with_its_traceback_and_said_on_stderr(capsys):
    def fails(state):
        raise OSError("the disk is full\nsecond line")

    loop = make(log=0).handle_event("iteration_completed", fails, once=2).start(loader())
    with pytest.raises(OSError, match="the disk is full") as error:
        loop.wait()
    assert "fails" in [frame.name for frame in traceback.extract_tb(error.value.__traceback__)]
    assert loop.wait().status == "failed"
    assert loop.history.progress.message == "OSError: the disk is full"
    said = capsys.readouterr().err.splitlines()
    assert said == ["gradviz: training in the background failed, and loop.wait() raises it: OSError: the disk is full"]
    assert len(loop.history) == 2
    loop.handle_event("iteration_completed", lambda state: None)
    assert loop.run(loader()).status == "completed"
    assert loop.wait().status == "completed"


def test_what_cannot_be_trained_is_said_at_once_and_moves_nothing():
    model = net()
    before = model[0].weight.detach().clone()
    loop = make(model)
    with pytest.raises(DataError, match="read only once"):
        loop.start(iter(DATA), epochs=2)
    with pytest.raises(DataError):
        loop.start([3])
    assert torch.equal(model[0].weight, before)
    assert loop.state.status == "idle"
    assert loop.start(DATA, epochs=0).wait().status == "idle"
    assert loop.start(DATA).wait().status == "completed"
    with pytest.raises(ModelError, match="apart"):
        loop.start(DATA, in_place=False).wait() and loop.start(DATA)


def test_one_thing_at_a_time():
    held = Held()
    loop = make().handle_event("iteration_started", held, once=2).start(DATA)
    assert held.reached.wait(30)
    for begin in (loop.run, loop.stream, loop.start):
        with pytest.raises(LoopError, match="in the background"):
            begin(DATA)
    with pytest.raises(LoopError, match="would change"):
        loop.metric("mean_absolute_error")
    seen = []
    loop.handle_event("completed", lambda state: seen.append(state.status))
    held.go.set()
    assert loop.wait().status == "completed"
    assert seen == ["completed"]
    for ask in (loop.pause, loop.unpause):
        with pytest.raises(LoopError, match="there is none"):
            ask()


def test_a_handler_cannot_wait_for_itself_nor_pause_a_run_that_blocks():
    loop = make()
    for event, ask in (("iteration_completed", loop.wait), ("epoch_completed", loop.run)):
        loop = make()
        asked = getattr(loop, ask.__name__)
        arguments = (DATA,) if ask.__name__ == "run" else ()
        loop.handle_event(event, lambda state, asked=asked, arguments=arguments: asked(*arguments))
        with pytest.raises(LoopError):
            loop.start(DATA).wait()
    loop = make()
    loop.handle_event("iteration_completed", lambda state: loop.pause())
    with pytest.raises(LoopError, match="in the one that asks"):
        loop.run(DATA)


@pytest.mark.parametrize("timeout", [-1, math.nan, math.inf, "1"])
def test_it_waits_for_some_time_from_0_on(timeout):
    with pytest.raises(ValueError, match="timeout is a number from 0 on; got"):
        make().wait(timeout)
    assert make().wait(0).status == "idle"


def test_ctrl_c_ends_the_waiting_only():
    held = Held()
    loop = make().handle_event("iteration_started", held, once=2).start(DATA)
    assert held.reached.wait(30)
    timer = threading.Timer(0.1, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        loop.wait()
    timer.join()
    assert loop.state.status == "training"
    held.go.set()
    assert loop.wait().status == "completed"


def test_the_history_can_be_read_while_it_trains():
    loop = make().validate(DATA).start(loader(), epochs=ENDLESS)
    history, reads = loop.history, 0
    try:
        while reads < 20 or len(history) < 20:
            norms, metrics = history.norms, history.metrics
            assert norms.index.tolist() == list(range(len(norms)))
            assert len(norms) <= len(metrics) <= len(history)
            assert norms.notna().all(axis=None)
            tidy = history.gradients
            assert len(tidy) % 6 == 0
            assert set(history.epochs.columns) >= {"loss", "iterations"}
            assert history.epochs["iterations"].iloc[:-1].eq(4).all()
            columns, seen = history.overview()
            assert columns.stop[-1] == seen if len(columns) else not seen
            assert len(history.events) == 0
            state = loop.state
            assert state.metrics.keys() <= {"loss", "accuracy", "validation_loss", "validation_accuracy"}
            assert list(state.times) == list(range(len(state.times)))
            reads += 1
    finally:
        loop.stop().wait()


# Whole programs -----------------------------------------------------------------------------------------------------


WITH_WORKERS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
import gradviz as gv

torch.manual_seed(0)
data = DataLoader(TensorDataset(torch.randn(20, 4), torch.randint(3, (20,))), batch_size=5, shuffle=True, num_workers=2)
norms = []
for starts in (False, True):
    torch.manual_seed(1)
    loop = gv.trainer(nn.Linear(4, 3), "cross_entropy", "sgd", log=0)
    loop.start(data, epochs=2).wait() if starts else loop.run(data, epochs=2)
    norms.append(loop.history.norms)
print(norms[0].equals(norms[1]), len(norms[1]))
"""

TRAINS_ON = """
import atexit, tempfile, threading, torch, gradviz as gv
folder = tempfile.TemporaryDirectory()
model = torch.nn.Linear(4, 3)
loop = gv.trainer(model, "cross_entropy", "sgd", save_to=folder.name, flush_interval_s=1000)
loop.handle_event("halted", lambda state: print("halted", state.event_counts["iteration_completed"]))
begun = threading.Event()
loop.handle_event("iteration_completed", lambda state: begun.set())
data = [(torch.ones(2, 4), torch.zeros(2, dtype=torch.long))] * 100
def last_words():
    print(loop.state.status, len(loop.history) == loop.state.iteration >= 1)
    if loop.state.status == "halted":
        print("saved", gv.History.open(folder.name).norms.equals(loop.history.norms))
atexit.register(last_words)
loop.start(data, epochs=10**6)
assert begun.wait(60)
loop.history.flush()  # what comes later lies in a file of its own
"""

HANGS = """
from gradviz.loop import background
background.EXIT_S = 0.2
hanging = threading.Event()
loop.handle_event("iteration_started", lambda state: hanging.set() or threading.Event().wait())
assert hanging.wait(60)
"""

STREAMS = """
import atexit, torch, gradviz as gv
loop = gv.trainer(torch.nn.Linear(4, 3), "cross_entropy", "sgd", log=0)
loop.handle_event("halted", lambda state: print("halted"))
atexit.register(lambda: print(loop.state.status, loop.state.iteration))
held = loop.stream([(torch.ones(2, 4), torch.zeros(2, dtype=torch.long))] * 5, epochs=10)
next(held), next(held)
"""

FORKS = """
import os, signal, sys
child = os.fork()
if not child:
    folder._finalizer.detach()  # it is its parent's to remove
    sys.exit(0)
for _ in range(100):
    ended, status = os.waitpid(child, os.WNOHANG)
    if ended:
        break
    threading.Event().wait(0.1)
else:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
print("child ended", bool(ended) and os.waitstatus_to_exitcode(status) == 0, file=sys.stderr)
"""

ENDS = {"": 0, "loop.pause()": 0, "raise SystemExit(3)": 3, "1 / 0": 1}
PROGRAMS = {end: TRAINS_ON + end for end in ENDS} | {
    "hangs": TRAINS_ON + HANGS,
    "workers": WITH_WORKERS,
    "streams": STREAMS,
}
if hasattr(os, "fork"):
    PROGRAMS["forks"] = TRAINS_ON + FORKS


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    return dict(zip(PROGRAMS, ended(PROGRAMS.values(), tmp_path_factory.mktemp("programs")), strict=True))


@pytest.mark.parametrize("end", ENDS)
def test_a_program_that_ends_stops_it_and_keeps_the_last_row(programs, end):
    done = programs[end]
    assert done.returncode == ENDS[end]
    halted, last, saved = done.stdout.splitlines()
    assert halted.startswith("halted ")
    assert (last, saved) == ("halted True", "saved True")
    assert "gradviz" not in done.stderr


def test_a_step_that_hangs_does_not_keep_a_program_alive(programs):
    done = programs["hangs"]
    assert done.returncode == 0
    assert done.stdout == "training False\n" or done.stdout.startswith("training")


def test_a_stream_that_is_held_to_a_program_s_end_is_halted(programs):
    assert programs["streams"].stdout.splitlines() == ["halted", "halted 10"]
    assert programs["streams"].returncode == 0


def test_a_process_that_was_forked_does_not_wait_for_a_thread_it_does_not_have(programs):
    assert "child ended True" in programs["forks"].stderr
    assert programs["forks"].stdout.endswith("halted True\nsaved True\n")


def test_workers_of_a_loader_are_started_from_the_thread_too(programs):
    # In a process of its own: a worker that is forked from a thread drops what the main thread holds, and of tests that
    # ran before this is what no program has.
    assert programs["workers"].stdout.split() == ["True", "8"]
