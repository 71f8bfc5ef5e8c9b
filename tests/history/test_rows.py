"""Rows in memory: append and read, across chunks, attempts and widenings."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gradviz.history import rows as module
from gradviz.history.rows import PLANES, RowStore, gathered
from gradviz.history.schema import NOT_RECORDED, STATISTICS


@settings(max_examples=40)
@given(lengths=st.lists(st.integers(0, 9), max_size=5), start=st.integers(0, 40))
def test_what_was_appended_is_read_whole_and_from_any_start(lengths, start):
    chunk, module.CHUNK = module.CHUNK, 4
    try:
        store, expected = RowStore(), []
        for width, length in enumerate(lengths, start=1):  # each stretch has one parameter more, and is another attempt
            for _ in range(length):
                i = len(expected)
                table, states = np.full((width, len(STATISTICS)), float(i)), np.zeros(width, np.uint8)
                store.append(i, width, width - 1, table, states)
                expected.append((i, width))
    finally:
        module.CHUNK = chunk
    widest = len(lengths)
    read = gathered([(piece.of, piece.rows) for piece in store.pieces()], PLANES, np.arange(widest))
    assert [i for piece in store.pieces(start) for i in piece.of.iteration[piece.rows]] == [
        i for i, _ in expected[start:]
    ]
    assert len(store) == len(read) == len(expected)
    assert read.iteration.tolist() == [i for i, _ in expected]
    assert read.epoch.tolist() == (read.attempt + 1).tolist() == [width for _, width in expected]
    for at, (i, width) in enumerate(expected):
        for name in STATISTICS:
            assert (read.planes[name][at, :width] == i).all()
            assert np.isnan(read.planes[name][at, width:]).all()
        assert (read.planes["state"][at, :width] == 0).all()
        assert (read.planes["state"][at, width:] == NOT_RECORDED).all()


@given(places=st.lists(st.integers(0, 5), unique=True).map(sorted), rows=st.lists(st.integers(0, 6), unique=True))
def test_some_parameters_of_some_rows_are_what_all_of_all_are_there(places, rows):
    store = RowStore()
    for i in range(7):
        width = 4 if i < 3 else 6
        table = np.arange(width * len(STATISTICS), dtype=float).reshape(width, -1) + 100 * i
        store.append(i, 0, 0, table, np.full(width, i % 3, np.uint8))
    pieces = [(piece.of, piece.rows) for piece in store.pieces()]
    whole = gathered(pieces, PLANES, np.arange(6))
    chosen = np.array(sorted(rows), np.int64)
    begins = (0, 3)
    some = [
        (segment, chosen[(chosen >= begin) & (chosen < begin + len(segment))] - begin)
        for begin, (segment, _) in zip(begins, pieces, strict=True)
    ]
    part = gathered(some, PLANES, np.array(places, np.int64))
    assert part.iteration.tolist() == chosen.tolist()
    for name in PLANES:
        np.testing.assert_array_equal(part.planes[name], whole.planes[name][chosen][:, places])


def test_rows_without_parameters_are_rows():
    store = RowStore()
    for i in range(3):
        store.append(i, 0, 0, np.empty((0, len(STATISTICS))), np.empty(0, np.uint8))
    read = gathered([(piece.of, piece.rows) for piece in store.pieces()], ("norm", "state"), np.arange(2))
    assert read.planes["norm"].shape == (3, 2)
    assert (read.planes["state"] == NOT_RECORDED).all()
