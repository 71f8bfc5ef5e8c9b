"""Rows in memory: append and read, across chunks and widenings."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gradviz.history import rows as module
from gradviz.history.rows import NOT_RECORDED, STATISTICS, RowStore


@settings(max_examples=40, deadline=None)
@given(lengths=st.lists(st.integers(0, 9), max_size=5), start=st.integers(0, 40))
def test_what_was_appended_is_read_whole_and_from_any_start(lengths, start):
    chunk, module.CHUNK = module.CHUNK, 4
    try:
        store, expected = RowStore(), []
        for width, length in enumerate(lengths, start=1):  # each stretch has one parameter more
            for _ in range(length):
                i = len(expected)
                table, states = np.full((width, len(STATISTICS)), float(i)), np.zeros(width, np.uint8)
                store.append(i, width, table, states, {"m": i}, loss_scale=2.0**i, skipped=i % 2 == 1)
                expected.append((i, width))
        read = store.read(len(lengths))
        pieces = [piece.iteration.tolist() for piece in store.pieces(start)]
    finally:
        module.CHUNK = chunk
    assert [i for piece in pieces for i in piece] == [i for i, _ in expected[start:]]
    kept = expected
    assert len(store) == len(expected)
    assert read.iteration.tolist() == [i for i, _ in kept]
    assert read.epoch.tolist() == [width for _, width in kept]
    assert read.loss_scale.tolist() == [2.0**i for i, _ in kept]
    assert read.skipped.tolist() == [i % 2 == 1 for i, _ in kept]
    if kept:
        widest = len(lengths)
        assert read.statistics.shape == (len(kept), len(STATISTICS), widest)
        assert read.metrics["m"].tolist() == [float(i) for i, _ in kept]
        for at, (i, width) in enumerate(kept):
            assert (read.statistics[at, :, :width] == i).all()
            assert np.isnan(read.statistics[at, :, width:]).all()
            assert (read.states[at, width:] == NOT_RECORDED).all()


@settings(max_examples=40, deadline=None)
@given(n=st.integers(0, 14), cut=st.integers(0, 15), more=st.integers(0, 9), again=st.integers(0, 20))
def test_what_is_cut_is_gone_and_rows_go_on_from_there(n, cut, more, again):
    chunk, module.CHUNK = module.CHUNK, 4
    try:
        store, expected = RowStore(), []
        for stretch, (start, stop) in enumerate(((0, n), (cut, cut + more), (again, again + 2))):
            store.cut(start)
            expected = [row for row in expected if row[0] < start]
            for i in range(start, stop):
                table = np.full((1 + stretch, len(STATISTICS)), float(i))
                store.append(i, stretch, table, np.zeros(1 + stretch, np.uint8), {"m": 10.0 * stretch + i})
                expected.append((i, stretch))
        read = store.read(3)
        pieces = [piece.iteration.tolist() for piece in store.pieces(2)]
    finally:
        module.CHUNK = chunk
    assert len(store) == len(expected)
    assert [(i, stretch) for i, stretch in zip(read.iteration, read.epoch, strict=True)] == expected
    assert read.metrics.get("m", np.empty(0)).tolist() == [10.0 * stretch + i for i, stretch in expected]
    assert [i for piece in pieces for i in piece] == [i for i, _ in expected[2:]]
