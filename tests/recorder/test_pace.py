"""What recording costs, by a clock of our own: each test says how long its iterations take."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gradviz.errors import RecordingWarning
from gradviz.recorder import pace as module
from gradviz.recorder.pace import HORIZON, LONGEST, Pace


class Clock:
    """It stands still unless it is told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def iterate(pace: Pace, clock: Clock, n: int, *, step: float, own: float) -> list[bool]:
    """So many iterations: which of them were recorded."""
    recorded = []
    for count in range(n):
        clock.now += step
        with pace:
            is_due = pace.is_due(count)
            clock.now += own if is_due else 0.0
        pace.end_iteration(was_recorded=is_due)
        recorded.append(is_due)
    return recorded


def test_the_cost_is_a_share_of_the_step_without_it(clock):
    pace = Pace()
    iterate(pace, clock, 50, step=0.010, own=0.001)
    assert pace.overhead == pytest.approx(0.1)


def test_it_is_unknown_before_a_step_was_seen_from_end_to_end(clock):
    pace = Pace()
    assert math.isnan(pace.overhead)
    iterate(pace, clock, 1, step=0.010, own=0.001)
    assert math.isnan(pace.overhead)
    iterate(pace, clock, 1, step=0.010, own=0.001)
    assert pace.overhead == pytest.approx(0.1)


def test_the_first_recorded_iteration_does_not_count_for_what_it_loads_and_compiles(clock):
    pace = Pace()
    iterate(pace, clock, 1, step=0.010, own=2.0)
    iterate(pace, clock, 50, step=0.010, own=0.001)
    assert pace.overhead == pytest.approx(0.1)


def test_time_is_counted_once_however_deep_it_is_measured(clock):
    pace = Pace()
    for _ in range(50):
        clock.now += 0.010
        with pace:
            clock.now += 0.001
            with pace:
                clock.now += 0.001
        pace.end_iteration(was_recorded=True)
    assert pace.overhead == pytest.approx(0.2)


def test_an_iteration_may_end_within_what_is_measured_and_what_comes_after_is_the_next_one_s(clock):
    pace = Pace()
    for _ in range(50):
        clock.now += 0.010
        with pace:
            clock.now += 0.001
            pace.end_iteration(was_recorded=True)
            clock.now += 0.001
    assert pace.overhead == pytest.approx(0.2)


def test_what_goes_wrong_inside_is_measured_too_and_comes_out(clock):
    pace = Pace()
    iterate(pace, clock, 2, step=0.010, own=0.0)

    def fail() -> None:
        with pace:
            clock.now += 0.005
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    clock.now += 0.010
    pace.end_iteration(was_recorded=True)
    assert pace.overhead == pytest.approx(0.005 / 0.020, rel=0.01)


def test_it_tells_of_now_an_iteration_weighs_less_the_longer_it_is_past(clock):
    pace = Pace()
    iterate(pace, clock, 2000, step=0.010, own=0.0)
    iterate(pace, clock, HORIZON, step=0.010, own=0.001)
    assert pace.overhead == pytest.approx(0.1 * (1 - 1 / math.e), rel=0.02)


def test_a_long_wait_between_two_steps_hides_no_cost(clock):
    pace = Pace()
    iterate(pace, clock, 50, step=0.010, own=0.001)
    clock.now += 3600.0  # the next cell of a notebook
    iterate(pace, clock, 1, step=0.010, own=0.001)
    waited = pace.overhead
    assert waited > 0.1 * 50 / (50 + LONGEST) * 0.9
    iterate(pace, clock, 2000, step=0.010, own=0.001)
    assert pace.overhead == pytest.approx(0.1, rel=0.01)


def test_every_so_many_iterations_one_is_due(clock):
    assert iterate(Pace(every=3), clock, 7, step=0.01, own=0.001) == [True, False, False, True, False, False, True]


def test_a_budget_that_is_not_reached_leaves_nothing_out(clock):
    pace = Pace(budget=0.2)
    assert all(iterate(pace, clock, 300, step=0.010, own=0.001))


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize(("step", "own"), [(0.010, 0.005), (0.010, 0.001), (0.200, 0.150), (0.001, 0.001)])
def test_iterations_are_left_out_to_stay_under_a_budget_and_no_more_than_that(clock, every, step, own):
    pace = Pace(every, budget=0.05)
    recorded = iterate(pace, clock, 2000, step=step, own=own)
    assert pace.overhead <= 0.05 + 1e-9
    possible = min(0.05 * step / own, 1 / every)
    assert sum(recorded[500:]) / 1500 == pytest.approx(possible, rel=0.1)
    assert not any(is_due for count, is_due in enumerate(recorded) if count % every)


def test_a_budget_follows_a_cost_that_changes(clock):
    pace = Pace(budget=0.05)
    iterate(pace, clock, 500, step=0.010, own=0.005)
    cheap = iterate(pace, clock, 2000, step=0.010, own=0.0001)
    assert all(cheap[1000:])
    dear = iterate(pace, clock, 2000, step=0.010, own=0.005)
    assert sum(dear[1000:]) / 1000 == pytest.approx(0.1, rel=0.15)
    assert pace.overhead <= 0.05 + 1e-9


def test_what_is_left_out_costs_too_and_counts(clock):
    """Where looking alone is over the budget, next to nothing is recorded, and the share says what it is."""
    pace: Any = Pace(budget=0.05)
    recorded = []

    def run():
        for count in range(500):
            clock.now += 0.010
            with pace:
                is_due = pace.is_due(count)
                clock.now += 0.001 + 0.005 * is_due
            pace.end_iteration(was_recorded=is_due)
            recorded.append(is_due)

    with pytest.warns(RecordingWarning, match=r"budget=0.05 cannot be kept: of a step of 10.0 ms, .* 10%") as said:
        run()
    assert len(said) == 1
    assert not any(recorded[10:])
    assert pace.overhead == pytest.approx(0.1, rel=0.05)
