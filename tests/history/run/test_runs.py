"""Integers as runs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradviz.history.run.runs import expanded, shortened


@given(st.lists(st.integers(-(2**40), 2**40)))
def test_any_integers_come_back(values):
    read = expanded(shortened(np.array(values, np.int64)))
    assert read.tolist() == values
    assert read.dtype == np.int64


@pytest.mark.parametrize(
    ("values", "runs"),
    [
        ([], []),
        ([7], [[7, 0, 1]]),
        (list(range(100_000)), [[0, 1, 100_000]]),
        (list(range(0, 1000, 10)), [[0, 10, 100]]),
        ([0] * 300 + [1] * 300 + [2] * 5, [[0, 0, 300], [1, 0, 300], [2, 0, 5]]),
        ([5, 6, 7, 20, 21], [[5, 1, 3], [20, 1, 2]]),
    ],
)
def test_what_is_even_is_short(values, runs):
    assert shortened(np.array(values, np.int64)) == runs
