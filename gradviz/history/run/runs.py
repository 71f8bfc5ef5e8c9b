"""Integers that mostly go up by the same step, as a few triples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def shortened(values: NDArray[np.int64]) -> list[list[int]]:
    """The runs of evenly spaced values, each as [start, step, count].

    Examples
    --------
    >>> shortened(np.array([0, 10, 20, 30, 31, 32]))
    [[0, 10, 4], [31, 1, 2]]
    """
    steps = np.diff(values)
    turns = np.flatnonzero(np.diff(steps)) + 1  # places in `steps` where another step begins
    runs, at = [], 0
    while at < len(values):
        if at == len(values) - 1:
            step, last = 0, at
        else:
            step = int(steps[at])
            after = int(np.searchsorted(turns, at, side="right"))
            last = int(turns[after]) if after < len(turns) else len(values) - 1
        runs.append([int(values[at]), step, last - at + 1])
        at = last + 1
    return runs


def expanded(runs: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """The values again.

    Examples
    --------
    >>> expanded([[0, 10, 4], [31, 1, 2]]).tolist()
    [0, 10, 20, 30, 31, 32]
    """
    return np.concatenate(
        [np.empty(0, np.int64), *(start + step * np.arange(count, dtype=np.int64) for start, step, count in runs)]
    )
