"""A metric that no longer improves is noticed when patience is at an end, against the best it has been."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

import gradviz as gv
from gradviz.errors import HandlerWarning, MetricError
from gradviz.loop.events import State
from gradviz.loop.handlers.monitor import Monitor, Watched

DATA = [(torch.ones(1, 1), torch.ones(1, 1))]


def verdicts(values, **options) -> str:
    """The first letter of each verdict."""
    watched = Watched("m", **options)
    return "".join(watched.look(State(metrics={"m": value}))[0] for value in values)


def loop_of(values, **options) -> gv.Loop:
    """A loop whose metric "m" is one of these numbers in each epoch."""
    loop = gv.trainer(nn.Linear(1, 1), "mean_squared_error", "sgd", record=None, **options)
    return loop.metric(lambda prediction, targets: values[loop.state.epoch], "m")


@pytest.mark.case("axon-P1")
def test_it_is_called_after_so_many_events_without_an_improvement_and_after_as_many_again():
    assert verdicts([1, 2, 3, 4, 5, 6, 7], patience=2) == "iwwswws"
    fired = []
    loop = loop_of([1, 2, 3, 4, 5, 6, 7]).monitor("m", lambda state: fired.append(state.epoch), patience=2)
    loop.run(DATA, epochs=7)
    assert fired == [3, 6]


@pytest.mark.case("axon-P2")
def test_values_that_stay_equal_do_not_improve():
    assert verdicts([15, 10, 5, 5, 5, 5], patience=2) == "iiiwws"


@pytest.mark.case("axon-P5")
def test_the_best_is_the_best_ever_also_after_it_was_called():
    assert verdicts([1, 5, 5, 4, 3], patience=1) == "iwsws"
    assert verdicts([1, 5, 5, 4, 0.5], patience=1) == "iwswi"


@pytest.mark.case("axon-P6")
def test_without_patience_the_first_failure_counts_and_equal_values_come_around():
    assert verdicts([3, 4, 5, 2, 2], patience=0) == "issis"
    assert verdicts([1] * 9, patience=3) == "iwwwswwws"


def test_higher_may_be_better_and_small_steps_may_be_none():
    assert verdicts([1, 2, 2, 3, 1], mode="max", patience=1) == "iiwiw"
    assert verdicts([1.0, 0.75, 0.5, 0.25], min_delta=0.5, patience=9) == "iwwi"
    assert verdicts([1.0, 1.25, 1.5, 1.75], mode="max", min_delta=0.5, patience=9) == "iwwi"


def test_nan_never_improves_and_what_follows_does():
    assert verdicts([math.nan, math.nan, 3, math.nan, 2], patience=9) == "wwiwi"
    assert verdicts([math.nan, 3], mode="max") == "wi"
    assert verdicts([math.nan] * 4, patience=2) == "wwsw"
    assert verdicts([math.inf, math.inf, 3, -math.inf, -math.inf], patience=9) == "wwiiw"


@given(
    values=st.lists(st.floats(-8, 8, width=16) | st.sampled_from([math.nan, math.inf, -math.inf]), max_size=20),
    mode=st.sampled_from(["min", "max"]),
    patience=st.integers(0, 4),
    min_delta=st.sampled_from([0.0, 0.5]),
)
def test_it_says_what_torch_s_own_scheduler_says(values, mode, patience, min_delta):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    torch_s = ReduceLROnPlateau(
        optimizer, mode, factor=0.5, patience=patience, threshold=min_delta, threshold_mode="abs", eps=0.0
    )
    watched = Watched("m", mode, patience, min_delta)
    for value in values:
        before, best = optimizer.param_groups[0]["lr"], torch_s.best
        torch_s.step(value)
        reduced = optimizer.param_groups[0]["lr"] < before
        expected = "stalled" if reduced else "improved" if torch_s.best != best else "waiting"
        assert watched.look(State(metrics={"m": value})) == expected
        assert watched.best == torch_s.best


def test_a_control_word_counts_and_it_listens_to_the_event_and_filter_it_is_given():
    state = loop_of([1, 2, 3, 4]).monitor("m", lambda state: "halt_loop", patience=0).run(DATA, epochs=4)
    assert (state.status, state.epoch) == ("halted", 2)
    fired = []
    loop = loop_of([1]).monitor(
        "m", lambda state: fired.append(state.iteration), patience=0, event="iteration_completed", every=2
    )
    loop.run(DATA * 7)
    assert fired == [2, 4, 6]


def test_a_metric_that_a_function_of_the_user_s_did_not_add_is_an_error_at_the_first_event_and_names_the_nearest():
    loop = loop_of([1]).metric("mean_absolute_error").handle_event("epoch_completed", act)
    with pytest.raises(
        MetricError, match="No metric is called 'mean_absolute_eror': did you mean 'mean_absolute_e"
    ) as e:
        loop.monitor("mean_absolute_eror", lambda state: None).run(DATA)
    assert "In the handler monitor(mean_absolute_eror) for 'epoch_completed'" in e.value.__notes__[0]
    assert (loop.state.status, loop.state.epoch) == ("failed", 1)
    with pytest.raises(MetricError, match="there are none at this event"):
        loop_of([1]).monitor("loss", lambda state: None, event="started").run(DATA)
    lenient = loop_of([1, 2], on_error="warn").handle_event("epoch_completed", act)
    lenient.monitor("lss", lambda state: None)
    with pytest.warns(HandlerWarning, match="No metric is called 'lss': did you mean 'loss'"):
        lenient.run(DATA, epochs=2)


def test_a_validation_s_metric_is_there_for_what_is_attached_after_it():
    with pytest.raises(MetricError, match="attach validate first, at the same event and"):
        loop_of([1, 2]).validate(DATA, after=1).monitor("validation_loss", lambda state: None).run(DATA)
    assert loop_of([1]).validate(DATA).monitor("validation_loss", lambda s: None).run(DATA).status == "completed"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "minimum"}, 'mode is "min" or "max"; got \'minimum\''),
        ({"patience": -1}, "patience is a whole number from 0 on; got -1"),
        ({"patience": 1.5}, "patience is a whole number from 0 on; got 1.5"),
        ({"patience": True}, "got True"),
        ({"min_delta": -0.1}, "min_delta is a number from 0 on; got -0.1"),
        ({"min_delta": math.nan}, "min_delta is a number from 0 on; got nan"),
        ({"metric": 3}, 'A metric is watched by its name, such as "loss"; got an int'),
        ({"fn": 3}, "monitor calls a function of the state; got an int"),
        ({"fn": lambda: None}, "fn is called with the state alone, .*; write fn=lambda state: ..."),
    ],
)
def test_options_that_are_none_are_refused(options, words):
    options = {"metric": "loss", "fn": print, **options}
    with pytest.raises(ValueError, match=words):
        loop_of([1]).monitor(options.pop("metric"), options.pop("fn"), **options)


def act(state):
    pass


@pytest.mark.case("N07")
def test_the_same_function_once_more_takes_the_place_and_knows_what_the_earlier_has_seen():
    values, fired = [1, 2, 2, 3, 4], []

    def act(state):
        fired.append(state.epoch)

    loop = loop_of(values).monitor("m", act, patience=9).monitor("m", lambda state: None)
    loop.run(DATA, epochs=3)
    loop.monitor("m", act, patience=2)
    loop.run(DATA, epochs=2)
    assert fired == [3]


def test_monitors_of_one_metric_are_told_apart_by_their_functions_and_share_no_memory():
    fired = []
    loop = loop_of([1, 2, 3, 4, 5])
    loop.monitor("m", lambda state: fired.append(("one", state.epoch)), patience=0)
    loop.monitor("m", lambda state: fired.append(("two", state.epoch)), patience=2)
    loop.run(DATA, epochs=5)
    assert [epoch for name, epoch in fired if name == "one"] == [1, 2, 3, 4]
    assert [epoch for name, epoch in fired if name == "two"] == [3]


@pytest.mark.case("axon-P7")
def test_what_it_has_seen_is_the_best_and_the_events_since():
    loop = loop_of([3, 1, 2, 2]).monitor("m", act, patience=5).early_stop("m", patience=5)
    loop.run(DATA, epochs=4)
    remembered = loop._training.handlers.state_dict()
    assert remembered == {
        "epoch_completed: monitor(m) #0": {"best": 1.0, "since": 2},
        "epoch_completed: early_stop(m) #0": {"best": 1.0, "since": 2, "values": None, "epoch": None},
    }
    fresh = Monitor(Watched("m", patience=2), act)
    fresh.load_state_dict(remembered["epoch_completed: monitor(m) #0"])
    assert fresh.state_dict() == {"best": 1.0, "since": 2}
