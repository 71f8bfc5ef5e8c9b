"""Ranges over stretches that lie end to end."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from gradviz.history.run.parquet import stretches


@given(st.lists(st.integers(0, 5), max_size=6), st.integers(0, 20), st.integers(0, 20))
def test_the_stretches_of_a_range_are_its_places_in_order(lengths, start, stop):
    places = [(index, at) for index, length in enumerate(lengths) for at in range(length)]
    found = [
        (index, at)
        for index, rows in stretches(list(accumulate(lengths)), start, stop)
        for at in range(rows.start, rows.stop)
    ]
    assert found == places[start:stop]
    assert all(rows.start < rows.stop for _, rows in stretches(list(accumulate(lengths)), start, stop))
