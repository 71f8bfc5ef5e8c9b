"""At which of its times an event reaches a handler."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import gradviz as gv
from gradviz.errors import EventError, HandlerWarning, UnknownKeywordError
from gradviz.loop.filters import ALWAYS, Filter

DATA = [(torch.ones(1, 1), torch.ones(1, 1))]


def small_loop(**options) -> gv.Loop:
    return gv.trainer(nn.Linear(1, 1), "mean_squared_error", "sgd", record=None, **options)


def calls(batches: int, epochs: int = 1, event: str = "iteration_completed", **filters) -> list[tuple[int, int]]:
    """The epoch, and the iteration within it, of every call."""
    seen = []
    loop = small_loop().handle_event(event, lambda state: seen.append((state.epoch, state.epoch_iteration)), **filters)
    loop.run(DATA * batches, epochs=epochs)
    return seen


@pytest.mark.case("axon-L4")
@pytest.mark.parametrize(
    ("filters", "events", "times"),
    [
        ({}, 50, 50),
        ({"every": 2}, 50, 25),
        ({"every": 3}, 30, 10),
        ({"after": 10}, 50, 40),
        ({"before": 10}, 50, 9),
        ({"once": 30}, 50, 1),
        ({"every": 2, "after": 10, "before": 40}, 50, 15),
        ({"first": True}, 50, 1),
        ({"when": lambda state: state.event_counts["iteration_completed"] == 5}, 50, 1),
        ({"every": 2, "when": lambda state: state.iteration >= 40}, 50, 5),
        ({"once": 51}, 50, 0),
    ],
)
def test_over_a_run_an_event_is_filtered_so_often(filters, events, times):
    assert len(calls(events, **filters)) == times


@pytest.mark.case("axon-L5")
def test_every_second_counts_over_the_run_or_anew_in_each_epoch():
    over_the_run = [(0, 0), (0, 2), (0, 4), (1, 1), (1, 3), (2, 0), (2, 2), (2, 4)]
    assert calls(5, 3, every=2) == over_the_run
    assert calls(5, 3, every=2, per="run") == over_the_run
    assert calls(5, 3, every=2, per="epoch") == [(epoch, i) for epoch in range(3) for i in (0, 2, 4)]
    state = small_loop().run(DATA * 5, epochs=3)
    assert (state.epoch, state.event_counts["iteration_completed"]) == (3, 15)


@pytest.mark.case("axon-L6")
def test_within_an_epoch_filters_mean_its_own_iterations():
    def of_an_epoch(**filters):
        seen = calls(120, 2, per="epoch", **filters)
        first, second = ([i for epoch, i in seen if epoch == e] for e in (0, 1))
        assert first == second
        return first

    assert of_an_epoch(every=50) == [0, 50, 100]
    assert of_an_epoch(after=3)[:2] == [3, 4]
    assert of_an_epoch(before=3) == [0, 1]
    assert of_an_epoch(once=2) == [1]


def test_the_first_time_is_once_in_all_runs_also_where_times_count_per_epoch():
    seen = []
    loop = small_loop().handle_event("iteration_started", lambda s: seen.append(s.iteration), first=True, per="epoch")
    loop.handle_event("started", lambda state: seen.append("started"), first=True)
    for _ in range(2):
        loop.run(DATA * 2, epochs=2)
    assert seen == ["started", 0]


def test_counts_go_on_in_the_next_run():
    seen = []
    loop = small_loop().handle_event("iteration_completed", lambda state: seen.append(state.iteration), every=3)
    for _ in range(3):
        loop.run(DATA * 4)
    assert seen == [0, 3, 6, 9]


def test_filters_hold_for_other_events_too():
    assert calls(2, 5, event="epoch_completed", every=2) == [(0, 1), (2, 1), (4, 1)]
    assert calls(2, 5, event="epoch_started", after=3) == [(3, 0), (4, 0)]


COUNTS = st.none() | st.integers(1, 20)


@given(every=COUNTS, after=COUNTS, before=COUNTS, once=COUNTS)
def test_all_that_are_given_must_hold(every, after, before, once):
    together = Filter(every, after, before, once)
    alone = [Filter(every=every), Filter(after=after), Filter(before=before), Filter(once=once)]
    for count in range(1, 50):
        assert together(None, count, 0) == all(one(None, count, 0) for one in alone)
        assert Filter(every, after, before, once, per="epoch")(None, 0, count) == together(None, count, 0)
    assert ALWAYS(None, 1, 1)


@pytest.mark.parametrize(
    ("filters", "words"),
    [
        ({"every": 0}, "every is a whole number from 1 on; got 0"),
        ({"every": True}, "every is a whole number from 1 on; got True"),
        ({"once": True}, "once is the number of a time, once=3 the 3rd only; the first time only is once=1; got True"),
        ({"after": -1}, "after is a whole number from 0 on; got -1"),
        ({"before": 0}, "before is a whole number from 1 on; got 0"),
        ({"once": 1.5}, "once is a whole number from 1 on; got 1.5"),
        ({"first": 1}, "first is True or False; got 1"),
        ({"when": 3}, "says yes or no; got an int"),
        ({"when": lambda: True}, "when is called with the state alone, .*; write when=lambda state: ..."),
        ({"per": "epochs"}, 'per is "run" or "epoch"; got \'epochs\''),
    ],
)
def test_what_is_no_filter_is_refused_at_once(filters, words):
    for attach in (gv.Loop.handle_event, gv.Loop.log):
        arguments = (lambda state: None,) if attach is gv.Loop.log else ("started", lambda state: None)
        with pytest.raises(EventError, match=words):
            attach(small_loop(), *arguments, **filters)


def test_whole_numbers_of_other_libraries_are_whole_numbers():
    assert calls(6, every=np.int64(3), after=torch.tensor(1)) == [(0, 3)]


def test_an_unknown_filter_names_the_nearest_in_every_method():
    loop = small_loop()
    with pytest.raises(UnknownKeywordError, match=r"handle_event\(\) takes no keyword 'evry': did you mean 'every'"):
        loop.handle_event("started", lambda state: None, evry=3)
    with pytest.raises(UnknownKeywordError, match=r"log\(\) takes no keyword 'evry': did you mean 'every'"):
        loop.log(lambda state: "", evry=3)
    with pytest.raises(
        UnknownKeywordError, match=r"early_stop\(\) takes no keyword 'patiense': did you mean 'patience'"
    ):
        loop.early_stop("loss", patiense=3)


def test_events_of_which_an_epoch_has_one_are_not_counted_within_it():
    with pytest.raises(EventError, match="'epoch_completed' is not counted anew in each epoch; leave out per"):
        small_loop().handle_event(["iteration_started", "epoch_completed"], lambda state: None, every=2, per="epoch")


def test_when_fails_as_its_handler_does():
    def fails(state):
        raise KeyError("when")

    loop = small_loop().handle_event("iteration_completed", lambda state: None, when=fails)
    with pytest.raises(KeyError) as error:
        loop.run(DATA)
    assert "for 'iteration_completed', at iteration 0" in error.value.__notes__[0]

    seen = []
    loop = small_loop(on_error="warn").handle_event("iteration_completed", lambda state: None, when=fails)
    loop.handle_event("iteration_completed", lambda state: seen.append(state.iteration))
    with pytest.warns(HandlerWarning, match="KeyError: 'when'") as said:
        loop.run(DATA * 3)
    assert len(said) == 1
    assert seen == [0, 1, 2]


@pytest.mark.case("L08")
@pytest.mark.parametrize("accumulate", [2, 3])
def test_with_accumulation_times_are_optimizer_steps_and_none_that_is_due_is_missed(accumulate):
    loop, lines = gv.trainer(nn.Linear(1, 1), "mean_squared_error", "sgd", accumulate=accumulate), []
    loop.handle_event("iteration_completed", lambda state: lines.append(state.iteration), every=2)
    loop.run(DATA * 12)
    steps = 12 // accumulate
    assert lines == list(range(0, steps, 2))
    norms = loop.history.norms
    assert norms.index.tolist() == list(range(steps))
    assert (norms.loc[lines] > 0).all(axis=None)
