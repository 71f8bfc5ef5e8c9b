"""Columns survive the bytes, NaN and infinity included."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gradviz.history.overview import Columns
from gradviz.widgets.wire import pack, unpack


@given(st.data(), st.integers(0, 5), st.integers(1, 4), st.booleans())
def test_a_round_trip_changes_nothing(data, n_columns, n_rows, exact):
    shape = (n_columns, n_rows)
    start = np.cumsum(np.full(n_columns, 3), dtype=np.uint32)
    maximum = data.draw(hnp.arrays(np.float32, shape))
    minimum = maximum if exact else data.draw(hnp.arrays(np.float32, shape))
    flags = data.draw(hnp.arrays(np.uint8, shape))
    columns = Columns(start, start + np.uint32(1 if exact else 3), maximum, minimum, flags)
    back = unpack(pack(columns))
    for name in ("start", "stop", "maximum", "minimum", "flags"):
        np.testing.assert_array_equal(getattr(back, name), getattr(columns, name), err_msg=name)


def test_single_iterations_travel_without_their_minimum():
    cells = np.ones((4, 10), np.float32)
    start = np.arange(4, dtype=np.uint32)
    exact = Columns(start, start + np.uint32(1), cells, cells, cells.astype(np.uint8))
    merged = Columns(start, start + np.uint32(2), cells, cells, cells.astype(np.uint8))
    assert len(pack(exact)) == 16 + 4 * 8 + 40 * 5
    assert len(pack(merged)) == len(pack(exact, with_minimum=True)) == 16 + 4 * 8 + 40 * 9


@pytest.mark.parametrize("cut", [slice(0, -1), slice(0, 16)])
def test_bytes_of_the_wrong_length_are_refused(cut):
    cells = np.ones((1, 2), np.float32)
    one = np.array([0], np.uint32)
    with pytest.raises(ValueError, match="expected version 1 in 34 bytes"):
        unpack(pack(Columns(one, one + np.uint32(1), cells, cells, cells.astype(np.uint8)))[cut])
