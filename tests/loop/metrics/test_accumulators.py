"""What an epoch's values come to, by each accumulator, and what a value that is not finite does to it."""

from __future__ import annotations

import functools
import io
import math
import operator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gradviz.errors import MetricError
from gradviz.loop.metrics.accumulators import ACCUMULATORS, Accumulator, Max, maker

INF, NAN = math.inf, math.nan
NAMES = list(ACCUMULATORS)
numbers = st.floats(-1e6, 1e6)


def accumulated(accumulate, values, weights=None) -> Accumulator:
    accumulator = maker(accumulate)()
    for value, weight in zip(values, weights or [1] * len(values), strict=True):
        accumulator.add(value, weight)
    return accumulator


@pytest.mark.case("L20")
@pytest.mark.parametrize(
    ("accumulate", "shown", "value", "complete"),
    [
        ("running_average", [4, 3, NAN, 3, 3.25], 3.25, NAN),
        ("running_sum", [4, 6, NAN, 9, 13], 13, NAN),
        ("last", [4, 2, NAN, 3, 4], 4, 4),
        ("max", [4, 4, NAN, 4, 4], 4, NAN),
        ("min", [4, 2, NAN, 2, 2], 2, NAN),
        (lambda so_far, value, n: so_far + n * value, [4, 6, NAN, 12, 24], 24, NAN),
    ],
)
def test_each_is_right_and_a_nan_shows_once_and_not_for_the_rest_of_the_epoch(accumulate, shown, value, complete):
    accumulator, seen = maker(accumulate)(), []
    for each in [4, 2, NAN, 3, 4]:
        accumulator.add(each, 1)
        seen.append(accumulator.shown)
    assert seen == pytest.approx(shown, nan_ok=True)
    assert accumulator.value == value
    assert accumulator.complete == pytest.approx(complete, nan_ok=True)
    assert accumulator.nonfinite == 1


@pytest.mark.parametrize("name", NAMES)
def test_without_a_finite_value_there_is_none(name):
    assert math.isnan(accumulated(name, []).value)
    assert math.isnan(accumulated(name, [NAN, INF]).value)


@pytest.mark.parametrize(
    ("name", "values", "complete"),
    [
        ("max", [1, -INF, 2], 2),
        ("max", [1, INF, 2], INF),
        ("max", [-INF], -INF),
        ("max", [-INF, NAN, 1], NAN),
        ("min", [1, INF, 2], 1),
        ("min", [1, -INF, 2], -INF),
        ("running_sum", [1, INF], INF),
        ("running_sum", [-INF, INF], NAN),
        ("last", [NAN, 1], 1),
        ("last", [1, NAN], NAN),
    ],
)
def test_of_all_values_together_it_is_what_arithmetic_makes_of_the_infinite_ones(name, values, complete):
    assert accumulated(name, values).complete == pytest.approx(complete, nan_ok=True)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("values", "result"), [([INF, INF], INF), ([-INF], -INF), ([INF, NAN], NAN), ([NAN], NAN)])
def test_where_no_value_is_finite_it_says_of_what_kind_they_were(name, values, result):
    at_the_end = NAN if name == "last" and math.isnan(values[-1]) else result
    assert accumulated(name, values).result == pytest.approx(at_the_end, nan_ok=True)
    assert accumulated(name, [*values, 2.0]).result == 2.0
    assert math.isnan(accumulated(name, values, [0] * len(values)).result)


@pytest.mark.parametrize("name", NAMES)
def test_a_value_of_no_weight_is_seen_and_counts_for_nothing(name):
    accumulator = accumulated(name, [2.0, 100.0, NAN], [3, 0, 0])
    assert accumulator.value == accumulator.complete == 2.0
    assert math.isnan(accumulator.shown)


def test_a_function_gets_the_first_value_then_what_it_made_and_how_many_there_were():
    given = []

    def fold(so_far, value, n):
        given.append((so_far, value, n))
        return so_far * 10 + value

    accumulator = accumulated(fold, [1.0, NAN, 2.0, INF, 3.0])
    assert given == [(1.0, 2.0, 1), (12.0, 3.0, 2)]
    assert accumulator.value == 123.0
    assert isinstance(accumulated(lambda so_far, value, n: torch.tensor(5), [1.0, 2.0]).value, float)


@pytest.mark.parametrize(
    ("accumulate", "words"),
    [
        ("running_averge", "did you mean 'running_average'"),
        ("mean", "did you mean 'running_average'"),
        ("sum", "known: last, max, min, running_average, running_sum"),
        (3, r"takes a name \(running_average, .*\) or a function of \(so_far, value, n\); got an int"),
        (None, "got None"),
        (max, "accumulate='max'"),
        (min, "accumulate='min'"),
        (sum, "accumulate='running_sum'"),
        (lambda so_far, value: so_far + value, "lambda so_far, value, n: ..."),
        (functools.partial(lambda a, b, c: 0, 1), "the number of values before"),
        (operator.add, "lambda so_far, value, n"),
        (np.maximum, "lambda so_far, value, n"),
    ],
)
def test_what_accumulates_nothing_is_told_so(accumulate, words):
    with pytest.raises(MetricError, match=words):
        maker(accumulate)


def test_a_function_that_returns_no_number_is_told_so_and_what_came_before_stays():
    accumulator = accumulated(lambda so_far, value, n: None, [1.0])
    with pytest.raises(MetricError, match="returned None, not a number"):
        accumulator.add(2.0, 1)
    assert (accumulator.value, accumulator.n) == (1.0, 1)


@given(st.lists(numbers, min_size=1, max_size=20), st.integers(0, 20), st.sampled_from(NAMES))
def test_one_that_goes_on_from_a_checkpoint_is_as_if_it_had_never_stopped(values, place, name):
    values.insert(min(place, len(values)), NAN)
    first, second = values[:place], values[place:]
    file = io.BytesIO()
    torch.save(accumulated(name, first).state_dict(), file)
    file.seek(0)
    resumed = maker(name)()
    resumed.load_state_dict(torch.load(file))
    for value in second:
        resumed.add(value, 1)
    assert repr(resumed) == repr(accumulated(name, values))


def test_a_function_goes_on_from_a_checkpoint_too():
    def fold(so_far, value, n):
        return so_far + n * value

    before = accumulated(fold, [1.0, 2.0])
    assert "fold" not in before.state_dict()
    resumed = maker(fold)()
    resumed.load_state_dict(before.state_dict())
    resumed.add(3.0, 1)
    assert resumed == accumulated(fold, [1.0, 2.0, 3.0])


def test_the_least_is_the_largest_turned_round():
    values = [3.0, -1.0, 2.0]
    assert accumulated("min", values).value == -accumulated("max", [-value for value in values]).value
    assert isinstance(accumulated("min", values), Max)


def test_a_mean_of_many_equal_values_does_not_drift():
    assert accumulated("running_average", [0.1] * 200_000).value == pytest.approx(0.1, abs=1e-12)
