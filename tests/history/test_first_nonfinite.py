"""The first NaN or infinity is found, with what led there, and without reading the whole run."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given

from gradviz.history.first_nonfinite import BEFORE
from gradviz.history.history import History
from gradviz.history.overview import CAPACITY
from gradviz.history.schema import FROZEN, OK
from tests.history.made import INF, NAN, NOTHING, histories, history_of, norms, row


def test_a_run_without_one_has_none():
    assert norms([1.0, 0.0], [2.0, 3.0]).first_nonfinite() is None
    assert history_of([(NOTHING, FROZEN)]).first_nonfinite() is None
    assert History().first_nonfinite() is None


def test_of_several_parameters_it_is_the_one_backward_comes_to_first():
    history = norms([1, 1, 1], [2, 4, 1], [NAN, INF, 1], [NAN, NAN, NAN])
    assert tuple(history.first_nonfinite()) == (2, "b", "posinf", 4.0)


@pytest.mark.parametrize(
    ("counts", "kind"), [((3, 1, 1), "nan"), ((1, 3, 1), "posinf"), ((0, 0, 1), "neginf"), ((2, 2, 2), "nan")]
)
def test_its_kind_is_what_most_entries_were(counts: tuple[int, int, int], kind: str):
    assert history_of([(row(NAN, *counts), OK)]).first_nonfinite().kind == kind


def test_the_loss_comes_before_the_gradients_of_its_iteration():
    history = history_of([(row(1.0), OK)], [(row(NAN, nan=1), OK)], loss=[2.0, -INF])
    found = history.first_nonfinite()
    assert found[:3] == (1, "loss", "neginf")
    assert np.isnan(found.growth)
    history = history_of([(row(INF, posinf=1), OK)], [(row(NAN, nan=1), OK)], loss=[2.0, NAN])
    assert history.first_nonfinite()[:3] == (0, "a", "posinf")


def test_what_was_thinned_has_a_loss_that_may_be_the_first():
    history = norms([1.0, 1.0])
    for i in range(1, 30):
        taken = (np.array([row(2.0**i)] * 2), np.zeros(2, np.uint8)) if i % 5 == 0 else (None, None)
        history.append(i, 0, *taken, {"loss": NAN if i >= 27 else 1.0})
    assert history.first_nonfinite() == (27, "loss", "nan", 1.0)
    history.append(30, 0, np.array([row(1.0), row(NAN, nan=1)]), np.zeros(2, np.uint8), {"loss": 1.0})
    assert history.first_nonfinite() == (27, "loss", "nan", 1.0)
    history = norms([1.0])
    for i in range(1, 10):
        history.append(i, 0, None, None, {"loss": 1.0})
    history.append(10, 0, np.array([row(4.0)]), np.zeros(1, np.uint8), {"loss": 1.0})
    history.append(11, 0, np.array([row(INF, posinf=2)]), np.zeros(1, np.uint8), {"loss": 1.0})
    assert history.first_nonfinite() == (11, "a", "posinf", 4.0)


def test_growth_is_over_the_iterations_before_and_unknown_where_there_are_not_two():
    history = norms(*[[2.0**i] for i in range(BEFORE + 8)], [INF])
    assert history.first_nonfinite().growth == 2.0 ** (BEFORE - 1)
    assert np.isnan(norms([1.0], [INF]).first_nonfinite().growth)
    assert np.isnan(norms([0.0], [0.0], [INF]).first_nonfinite().growth)
    assert norms([1e-300], [1e300], [INF]).first_nonfinite().growth == INF


def test_a_norm_without_counts_is_enough():
    assert History.from_frame(pd.DataFrame({"w": [1.0, 3.0, NAN]})).first_nonfinite() == (2, "w", "nan", 3.0)


def test_it_is_found_in_a_merged_column_of_the_picture():
    n = 2 * CAPACITY + 5
    values = np.ones((n, 2))
    values[n - 4, 0], values[n - 2, 1] = INF, NAN
    found = History.from_frame(pd.DataFrame(values, columns=["v", "w"])).first_nonfinite()
    assert found == (n - 4, "v", "posinf", 1.0)


@given(histories())
def test_it_is_the_first_of_the_frame(history: History):
    frame = history.gradients.query("stage == 'backward' and nonfinite > 0")
    found = history.first_nonfinite()
    assert (found is None) == frame.empty
    if found is not None:
        first = frame[frame["iteration"] == frame["iteration"].min()].iloc[-1]
        assert found[:2] == (first["iteration"], first["parameter"])
