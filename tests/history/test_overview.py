"""The bounded picture loses nothing that matters, at any length."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradviz.history.overview import NAN, NOT_RECORDED, Columns, Overview, join
from gradviz.widgets.wire import pack, unpack

GOLDEN = Path(__file__).parents[1] / "data" / "overview.json"


def columns(values: np.ndarray, flags: np.ndarray | None = None, start: int = 0) -> Columns:
    values = np.asarray(values, np.float32)
    first = np.arange(start, start + len(values), dtype=np.uint32)
    flags = np.zeros(values.shape, np.uint8) if flags is None else flags
    return Columns(first, first + np.uint32(1), values, values, flags)


@pytest.mark.parametrize("case", json.loads(GOLDEN.read_text()), ids=lambda case: f"capacity {case['capacity']}")
def test_golden_bytes_shared_with_the_browser(case):
    overview = Overview(case["capacity"])
    for piece in case["appends"]:
        overview.append(unpack(base64.b64decode(piece)))
    assert overview.level == case["level"]
    assert pack(overview.columns, with_minimum=True) == base64.b64decode(case["result"])


@settings(max_examples=100)
@given(st.data())
def test_every_column_is_the_maximum_minimum_and_union_of_its_iterations(data):
    capacity = data.draw(st.integers(1, 20))
    lengths = data.draw(st.lists(st.integers(0, 30), min_size=1, max_size=8))
    random = np.random.default_rng(data.draw(st.integers(0, 1000)))
    total = sum(lengths)
    values = random.normal(size=(total, 3)).astype(np.float32)
    values[random.random(values.shape) < 0.2] = np.nan
    flags = (random.integers(0, 256, values.shape) * (random.random(values.shape) < 0.3)).astype(np.uint8)
    flags[np.isnan(values)] |= NAN  # a cell without a value says why
    overview, at = Overview(capacity), 0
    for length in lengths:
        overview.append(columns(values[at : at + length], flags[at : at + length], at))
        at += length
    kept = overview.columns
    assert len(kept) <= capacity
    assert len(kept) == (0 if not total else -(-total // 2**overview.level))
    for place in range(len(kept)):
        part = slice(kept.start[place], kept.stop[place])
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(kept.maximum[place], np.fmax.reduce(values[part]))
            np.testing.assert_array_equal(kept.minimum[place], np.fmin.reduce(values[part]))
        np.testing.assert_array_equal(kept.flags[place], np.bitwise_or.reduce(flags[part]))
    assert kept.start.tolist() == [0, *kept.stop[:-1].tolist()] if total else True


@settings(max_examples=50)
@given(length=st.integers(1, 3000), data=st.data())
def test_one_nan_in_a_long_run_stays_flagged(length, data):
    where = data.draw(st.integers(0, length - 1))
    values, flags = np.ones((length, 1)), np.zeros((length, 1), np.uint8)
    values[where], flags[where] = np.nan, NAN
    overview = Overview(64)
    for at in range(0, length, 97):
        overview.append(columns(values[at : at + 97], flags[at : at + 97], at))
    hit = overview.columns.flags[:, 0] & NAN
    assert np.count_nonzero(hit) == 1
    place = int(np.argmax(hit))
    assert overview.columns.start[place] <= where < overview.columns.stop[place]
    assert overview.columns.maximum[:, 0].tolist().count(1.0) >= len(hit) - 1


def test_merging_to_a_number_of_columns_keeps_at_least_one():
    many = columns(np.arange(10.0).reshape(10, 1))
    assert len(many.at_most(4)) == 3
    assert many.at_most(0).maximum.tolist() == [[9]]
    assert many.at_most(100) is many


def test_a_loss_alone_joins_the_column_before_it_also_where_it_comes_together_with_what_begins_another():
    values = np.ones((10, 2), np.float32)
    values[8, 0] = np.nan  # the first of a block of two
    together, one_by_one = Overview(5), Overview(5)
    together.append(columns(values[:8]))
    together.append(columns(values[8:], start=8))
    for i in range(10):
        one_by_one.append(columns(values[i : i + 1], start=i))
    assert together.columns.stop.tolist() == one_by_one.columns.stop.tolist() == [2, 4, 6, 9, 10]


def test_an_iteration_with_a_loss_alone_joins_the_column_before_it_in_whichever_block_that_is():
    values = np.full((12, 2), np.nan)
    values[:, -1] = range(12)
    values[[0, 5, 6], 0] = 1, 2, 3
    flags = np.zeros(values.shape, np.uint8)
    flags[9, -1] = NAN
    overview = Overview()
    for at in range(12):
        overview.append(columns(values[at : at + 1], flags[at : at + 1], at))
    for kept, starts in (
        (overview.columns, [0, 5, 6]),
        (columns(values, flags).at_level(0), [0, 5, 6]),
        (overview.columns.at_level(2), [0, 5]),  # blocks of 4: 5 and 6 are in one
        (columns(values, flags).at_level(2), [0, 5]),
        (columns(values, flags).at_most(2), [0, 5]),
    ):
        assert kept.start.tolist() == starts
        assert kept.stop.tolist() == [*starts[1:], 12]
        assert kept.maximum[:, -1].tolist() == [stop - 1 for stop in kept.stop]
        assert kept.minimum[:, -1].tolist() == starts
        assert kept.flags[:, 0].tolist() == [0] * len(starts)
        assert kept.flags[-1, -1] == NAN
    assert kept.maximum[:, 0].tolist() == [1, 3]
    assert len(columns(values[:, -1:]).at_level(0)) == 12  # of a model without parameters


def test_a_picture_goes_on_at_its_own_level():
    overview = Overview(4)
    for at in range(9):
        overview.append(columns([[at, at]], start=at))
    again = Overview.of(overview.columns)
    assert (again.level, again.columns.level) == (2, 2)
    for each in (overview, again):
        each.append(columns([[9, 9]], start=9))
    assert again.columns.start.tolist() == overview.columns.start.tolist() == [0, 4, 8]


def test_rows_that_come_later_were_never_recorded_before_and_the_last_row_stays_last():
    joined = join([columns([[1, 9]]), columns([[2, 3, 8]], start=1)])
    np.testing.assert_array_equal(joined.maximum, [[1, np.nan, 9], [2, 3, 8]])
    assert joined.flags.tolist() == [[0, NOT_RECORDED, 0], [0, 0, 0]]


def test_an_empty_overview_has_no_columns():
    overview = Overview()
    overview.append(columns(np.empty((0, 2))))
    assert len(overview.columns) == 0
