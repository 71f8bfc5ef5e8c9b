"""Which events fire when, what handlers may say, and what an error in one does."""

from __future__ import annotations

import copy
import operator
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import gradviz as gv
from gradviz.errors import (
    DataError,
    EventError,
    HandlerWarning,
    LossError,
    ModelError,
    NoSuchFieldError,
    OptimizerError,
    RecordingWarning,
)
from gradviz.loop.events import EVENTS, Handlers, State
from gradviz.loop.filters import Filter
from gradviz.step.eval_step import EvalStep

DATA = [(torch.ones(1, 1), torch.ones(1, 1))]
FAILING = [(torch.randn(4, 1), torch.randn(4, 1)) for _ in range(6)]


def small_loop(**options) -> gv.Loop:
    options = {"record": None, **options}
    return gv.trainer(nn.Linear(1, 1), "mean_squared_error", "sgd", **options)


def noted(loop: gv.Loop) -> list[str]:
    """A list that fills with the events as they fire, each noted by a handler of its own that comes first."""
    seen: list[str] = []
    for event in EVENTS:
        loop.handle_event(event, lambda state, event=event: seen.append(event))
    return seen


# Which fire when --------------------------------------------------------------------------------------------------


@pytest.mark.case("axon-L1")
def test_events_fire_in_order_and_as_often_as_there_are_epochs_and_iterations():
    loop = small_loop()
    seen = noted(loop)
    loop.run(DATA)
    assert seen == [
        "started",
        "epoch_started",
        "iteration_started",
        "iteration_completed",
        "epoch_completed",
        "completed",
    ]
    assert small_loop().run(DATA * 10, epochs=5).event_counts == {
        "started": 1,
        "epoch_started": 5,
        "iteration_started": 50,
        "iteration_completed": 50,
        "epoch_completed": 5,
        "epoch_halted": 0,
        "completed": 1,
        "halted": 0,
    }


@pytest.mark.case("axon-L2")
def test_an_epoch_that_is_halted_is_not_completed():
    loop = small_loop()
    state = loop.handle_event("iteration_completed", lambda state: "halt_epoch").run(DATA * 3, epochs=5)
    assert (state.event_counts["epoch_halted"], state.event_counts["epoch_completed"]) == (5, 0)
    assert (state.epoch, state.iteration, state.status) == (5, 5, "completed")
    assert loop.history.epochs["iterations"].tolist() == [1] * 5


@pytest.mark.case("axon-L3")
def test_an_event_counts_once_however_many_handlers_it_has_and_in_each_epoch_anew():
    loop, seen = small_loop(), []
    loop.handle_event("iteration_started", lambda state: None).handle_event("iteration_started", lambda s: None)

    def note(state):
        counts = state.event_counts
        total = counts["iteration_started"], counts["iteration_completed"]
        seen.append((*total, *state.epoch_event_counts.values(), counts["epoch_started"], counts["epoch_completed"]))

    loop.handle_event(["epoch_started", "epoch_completed"], note).run(DATA * 10, epochs=2)
    assert seen == [(0, 0, 0, 0, 1, 0), (10, 10, 0, 0, 1, 1), (10, 10, 0, 0, 2, 1), (20, 20, 0, 0, 2, 2)]


@pytest.mark.case("axon-L8")
def test_what_a_handler_puts_into_the_step_state_is_there_in_every_later_step():
    def count(state):
        counter = state.step_state.get("counter")
        state.step_state["counter"] = 0 if counter is None else counter + 1
        state.step_state["nested"] = ({"of": [state.step_state["counter"]]},)

    loop = small_loop().handle_event("epoch_completed", count)  # also under strict=True: it is outside of that
    state = loop.run(DATA * 2, epochs=5)
    assert state.step_state["counter"] == 4
    assert state.step_state["nested"] == ({"of": [4]},)
    assert loop.run(DATA).step_state["counter"] == 5


@pytest.mark.parametrize(
    ("event", "word", "expected"),
    [
        ("started", "halt_epoch", ["started", "halted"]),
        ("started", "halt_loop", ["started", "halted"]),
        ("epoch_started", "halt_epoch", ["started", *["epoch_started", "epoch_halted"] * 2, "completed"]),
        ("epoch_started", "halt_loop", ["started", "epoch_started", "halted"]),
        (
            "iteration_started",
            "halt_epoch",
            ["started", *["epoch_started", "iteration_started", "epoch_halted"] * 2, "completed"],
        ),
        ("iteration_started", "halt_loop", ["started", "epoch_started", "iteration_started", "halted"]),
        (
            "iteration_completed",
            "halt_epoch",
            [
                "started",
                *["epoch_started", "iteration_started", "iteration_completed", "epoch_halted"] * 2,
                "completed",
            ],
        ),
        (
            "iteration_completed",
            "halt_loop",
            ["started", "epoch_started", "iteration_started", "iteration_completed", "halted"],
        ),
        (
            "epoch_completed",
            "halt_epoch",
            [
                "started",
                *["epoch_started", *["iteration_started", "iteration_completed"] * 2, "epoch_completed"] * 2,
                "completed",
            ],
        ),
        (
            "epoch_completed",
            "halt_loop",
            [
                "started",
                "epoch_started",
                *["iteration_started", "iteration_completed"] * 2,
                "epoch_completed",
                "halted",
            ],
        ),
    ],
)
def test_a_control_word_halts_what_it_names_from_every_event(event, word, expected):
    loop = small_loop()
    seen = noted(loop)
    state = loop.handle_event(event, lambda state: word).run(DATA * 2, epochs=2)
    assert seen == expected
    assert state.status == expected[-1]
    assert state.epoch == expected.count("epoch_started")
    assert state.iteration == expected.count("iteration_completed")
    assert len(loop.history.epochs) == len(set(loop.history.metrics["epoch"]))


@pytest.mark.parametrize("word", ["halt_epoch", "halt_loop"])
def test_a_halted_epoch_may_halt_the_loop(word):
    loop = small_loop()
    seen = noted(loop)
    loop.handle_event("iteration_completed", lambda state: "halt_epoch")
    loop.handle_event("epoch_halted", lambda state: word)
    state = loop.run(DATA * 2, epochs=2)
    assert seen[-2:] == ["epoch_halted", {"halt_epoch": "completed", "halt_loop": "halted"}[word]]
    assert state.event_counts["epoch_halted"] == {"halt_epoch": 2, "halt_loop": 1}[word]


def test_a_control_word_keeps_later_handlers_of_its_event_from_being_called():
    loop, called = small_loop(), []
    loop.handle_event("epoch_completed", lambda state: "halt_epoch")
    loop.handle_event("epoch_completed", lambda state: called.append(state.epoch))
    assert loop.run(DATA, epochs=2).event_counts["epoch_completed"] == 2
    assert called == []


@pytest.mark.parametrize(("end", "word"), [("completed", None), ("halted", "halt_loop")])
def test_when_a_run_is_over_every_handler_is_called_and_sees_how_it_ended(end, word):
    loop, seen = small_loop(), []
    loop.handle_event("iteration_completed", lambda state: word if state.iteration == 2 else None)
    loop.handle_event(end, lambda state: "halt_loop")
    loop.handle_event(end, lambda state: seen.append((state.status, state.iteration, state.epoch)))
    loop.run(DATA * 3)
    loop.run(DATA * 3)
    assert seen == [(end, 3, 1), ("completed", 6, 2)][: 2 if word is None else 1]
    assert loop.state.event_counts["completed"] == 2 - (word is not None)


def test_a_run_of_no_epochs_fires_nothing():
    loop = small_loop()
    seen = noted(loop)
    assert loop.run(DATA, epochs=0).status == "idle"
    assert seen == []


# Attaching --------------------------------------------------------------------------------------------------------


def test_all_names_each_event_and_a_list_names_some():
    loop, seen = small_loop(), []

    def note(state):
        seen.append(max(state.event_counts.values()))

    state = loop.handle_event("all", note).run(DATA, epochs=2)
    assert len(seen) == sum(state.event_counts.values()) == 10
    loop, some = small_loop(), []
    loop.handle_event(("completed", "started", "completed"), lambda state: some.append(state.status)).run(DATA)
    assert some == ["training", "completed"]


def test_a_cell_that_is_run_again_replaces_the_function_and_its_filter_in_its_place():
    loop, calls = small_loop(), []
    for words in ("once=1", "every=2"):
        cell = {"__name__": "__main__", "loop": loop, "calls": calls}
        exec(
            "def note(state):\n    calls.append(state.iteration)\n"
            f"loop.handle_event('iteration_completed', note, {words})\n"
            "loop.handle_event('iteration_completed', lambda state: calls.append('later'), once=3)",
            cell,
        )
    loop.run(DATA * 4)
    assert calls == [0, 2, "later"]


def test_a_handler_that_is_attached_in_its_own_event_waits_for_the_next():
    loop, seen = small_loop(), []

    def late(state):
        seen.append(state.iteration)

    loop.handle_event("iteration_completed", lambda state: loop.handle_event("iteration_completed", late) and None)
    loop.run(DATA * 3)
    assert seen == [1, 2]


@pytest.mark.parametrize(
    ("event", "fn", "words"),
    [
        ("epoch_complete", print, "No event is called 'epoch_complete': did you mean 'epoch_completed'?"),
        ("epoch", print, "did you mean 'epoch_completed'?"),
        ("iteration", print, "did you mean 'iteration_completed'?"),
        (["started", "stopped"], print, "No event is called 'stopped': did you mean 'started'?"),
        ([], print, "An empty list names no event; known: started, epoch_started"),
        (3, print, 'An event is a name such as "epoch_completed", or a list of names; got an int'),
        ([None], print, "No event is called None: known"),
        ("started", None, "A handler is a function of the state; got None"),
    ],
)
def test_what_is_no_event_or_no_handler_is_refused_and_nothing_attached(event, fn, words):
    loop = small_loop()
    with pytest.raises(EventError) as error:
        loop.handle_event(event, fn)
    assert words in str(error.value)
    assert not any(loop._training.handlers._attached.values())


def test_one_that_comes_last_is_called_after_all_others_and_after_a_control_word():
    handlers, called, state = Handlers(), [], State()
    handlers.add("started", lambda state: called.append("last") or "halt_epoch", comes_last=True)
    handlers.add("started", lambda state: called.append("very last"), comes_last=True)
    handlers.add("started", lambda state: called.append("first"))
    handlers.add("started", lambda state: "halt_loop", Filter(after=1))
    handlers.add("started", lambda state: called.append("not any more"))
    assert handlers.fire("started", state) == "halt_epoch"
    assert called == ["first", "not any more", "last", "very last"]
    called.clear()
    assert handlers.fire("started", state) == "halt_loop"
    assert called == ["first", "last", "very last"]
    assert state.event_counts["started"] == 2


# What has come so far ----------------------------------------------------------------------------------------------


def test_metrics_are_made_when_somebody_looks_and_stay_until_the_next_iteration():
    numbers: list[dict[str, Any]] = []

    def look(state: State) -> None:
        assert state.metrics is state.metrics
        assert "mine" not in state.metrics
        state.metrics["mine"] = "what is no number"
        numbers.append(dict(state.metrics))

    loop = small_loop().handle_event("iteration_completed", look)
    loop.run(DATA)
    assert len(numbers) == len(DATA)
    assert all(type(each["loss"]) is np.float32 and each["mine"] for each in numbers)
    assert set(loop.state.metrics) == set(loop.history.progress.metrics) == {"loss"}
    assert loop.history.progress.metrics["loss"] == float(loop.state.metrics["loss"])


def test_a_state_is_copied_and_pickled_in_the_midst_of_an_epoch():
    copies: list[State] = []
    loop = small_loop()
    loop.handle_event("iteration_completed", lambda state: copies.append(copy.copy(state)))
    loop.handle_event("iteration_completed", lambda state: copies.append(pickle.loads(pickle.dumps(state))))
    loop.run(DATA)
    last = [each.metrics["loss"] for each in copies[-2:]]
    assert last[0] == last[1] == loop.state.metrics["loss"]
    with pytest.raises(AttributeError, match="no attribute 'metric'"):
        _ = copies[0].metric


# Errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", ["stop", True, 0, np.zeros(2), torch.zeros(2), {"halt_loop"}])
def test_a_handler_that_returns_no_control_word_fails_like_one_that_raises(said):
    with pytest.raises(EventError, match=r'it may return None, "halt_epoch" or "halt_loop"') as error:
        small_loop().handle_event("iteration_completed", lambda state: said).run(DATA)
    assert "for 'iteration_completed', at iteration 0" in error.value.__notes__[0]
    loop = small_loop(on_error="warn").handle_event("iteration_completed", lambda state: said)
    with pytest.warns(HandlerWarning, match="EventError"):
        assert loop.run(DATA).status == "completed"


class Mishap(Exception):
    pass


def at_step_3(state):
    if state.iteration == 3:
        raise Mishap


def trained(attach, run, **options) -> tuple[gv.Loop, list[torch.Tensor]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1))
    loop = gv.trainer(model, "mean_squared_error", "adam", **options)
    attach(loop)
    run(loop)
    return loop, [*model.parameters(), *(v for kept in loop._step.optimizer.state.values() for v in kept.values())]


def assert_same(ours, theirs):
    assert len(ours) == len(theirs)
    assert all(map(torch.equal, ours, theirs))


@pytest.mark.case("L24")
@pytest.mark.parametrize("event", ["iteration_started", "iteration_completed"])
def test_a_handler_that_raises_leaves_the_training_as_it_was_whether_it_ends_the_run_or_warns(event):
    plain, expected = trained(lambda loop: None, lambda loop: loop.run(FAILING))

    def run(loop):
        with pytest.warns(HandlerWarning, match=rf"at_step_3 for '{event}', at iteration 3. Mishap") as said:
            loop.run(FAILING)
        assert len(said) == 1

    warned, parameters = trained(lambda loop: loop.handle_event(event, at_step_3), run, on_error="warn")
    assert_same(parameters, expected)
    assert warned.history.norms.equals(plain.history.norms)

    taken = 3 + (event == "iteration_completed")

    def run_twice(loop):
        with pytest.raises(Mishap) as error:
            loop.run(FAILING)
        assert error.value.__notes__ == [f"In the handler at_step_3 for '{event}', at iteration 3."]
        assert (loop.state.status, len(loop.history)) == ("failed", taken)
        loop.handle_event(event, at_step_3, once=100)
        loop.run(FAILING[taken:])

    _, parameters = trained(lambda loop: loop.handle_event(event, at_step_3), run_twice)
    assert_same(parameters, expected)


@pytest.mark.case("L24")
def test_statistics_that_fail_warn_once_and_leave_the_training_as_it_was(monkeypatch):
    _, expected = trained(lambda loop: None, lambda loop: loop.run(FAILING))

    def fails(*of, **how):
        raise Mishap

    monkeypatch.setattr("gradviz.recorder.plan.Statistics", fails)

    def run(loop):
        with pytest.warns(RecordingWarning, match="Mishap") as said:
            loop.run(FAILING)
        assert len(said) == 1

    loop, parameters = trained(lambda loop: None, run)
    assert_same(parameters, expected)
    assert len(loop.history) == 6


@pytest.mark.case("axon-L13")
def test_what_cannot_be_trained_or_evaluated_is_refused():
    model = nn.Linear(1, 1)
    for make, error in (
        (lambda: gv.trainer("model", "mean_squared_error", "sgd"), ModelError),
        (lambda: gv.trainer(model, "no such loss", "sgd"), LossError),
        (lambda: gv.trainer(model, "mean_squared_error", "no such optimizer"), OptimizerError),
        (lambda: gv.trainer(model, "mean_squared_error", "sgd").run([torch.ones(1, 1)]), DataError),
        (lambda: gv.evaluator("model"), ModelError),
        (lambda: gv.evaluator(model).run([torch.ones(1, 1)]), DataError),
    ):
        with pytest.raises(error):
            make()


@pytest.mark.case("axon-L17")
def test_an_evaluation_takes_batches_of_any_size():
    step = EvalStep(nn.Linear(2, 1), None)
    assert [len(step((torch.ones(n, 2), torch.ones(n, 1)))["y_pred"]) for n in (4, 1, 7)] == [4, 1, 7]
    data = [(torch.ones(n, 2), torch.ones(n, 1)) for n in (4, 1, 7)]
    assert gv.evaluator(nn.Linear(2, 1), "mean_squared_error").run(data).iteration == 3


# What handlers remember -------------------------------------------------------------------------------------------


class Remembers:
    def __init__(self, name: str = "remembers") -> None:
        self.name, self.seen = name, 0

    def __call__(self, state: State) -> None:
        self.seen += 1

    def state_dict(self) -> dict:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict) -> None:
        self.seen = state["seen"]


def with_three(**first) -> tuple[Handlers, list[Remembers]]:
    handlers, made = Handlers(), [Remembers(), Remembers(), Remembers("other #1")]
    handlers.add("started", lambda state: None)
    handlers.add("started", made[0], Filter(**first))
    handlers.add(["started", "completed"], made[1])
    handlers.add("completed", made[2])
    return handlers, made


def test_what_handlers_remember_goes_around_by_event_name_and_number():
    handlers, _ = with_three(after=1)
    state = State()
    for event in ("started", "started", "completed"):
        handlers.fire(event, state)
    remembered = handlers.state_dict()
    assert remembered == {
        "started: remembers #0": {"seen": 1},
        "started: remembers #1": {"seen": 3},
        "completed: other #1 #0": {"seen": 1},
    }
    fresh, made = with_three()
    assert fresh.load_state_dict({**remembered, "halted: gone #0": {}}) == ["halted: gone #0"]
    assert [one.seen for one in made] == [1, 3, 1]


def test_a_state_prints_in_a_line():
    assert repr(State(iteration=1204, epoch=3, metrics={"loss": 0.25}, status="completed")) == (
        "State: completed, iteration 1,204, epoch 3; loss 0.25"
    )


@pytest.mark.case("P31")
def test_at_each_event_kept_gradients_are_this_iteration_s_or_said_to_be_still_to_come():
    model, batch = nn.Linear(1, 1, bias=False), (torch.ones(2, 1), torch.zeros(2, 1))
    loop = gv.trainer(
        model, "mean_squared_error", "sgd", keep_gradients=True, capture=gv.Capture(keep="tensors"), log=0
    )
    early, seen = [], []

    def too_early(state):
        for name in ("gradients", "captured"):
            for read in (getattr, operator.getitem):
                with pytest.raises(NoSuchFieldError, match=f"{name} of this iteration come with its step") as error:
                    read(state.step_state, name)
                early.append(error)

    def at(event):
        return lambda state: seen.append((event, state.step_state.gradients["weight"].item()))

    for event in ("iteration_completed", "epoch_completed", "completed"):
        loop.handle_event(event, at(event))
    loop.handle_event("iteration_started", too_early, after=1)
    loop.run([batch, batch], epochs=1)
    assert len(early) == 4
    first, second = loop.history.norms["weight"]
    assert [(event, abs(value)) for event, value in seen] == [
        ("iteration_completed", pytest.approx(first)),
        ("iteration_completed", pytest.approx(second)),
        ("epoch_completed", pytest.approx(second)),
        ("completed", pytest.approx(second)),
    ]
