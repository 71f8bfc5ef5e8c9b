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
