"""Which rows hold, when a run was resumed before its end and recorded iterations again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

END = int(np.iinfo(np.int64).max)


class Attempts:
    """Where each attempt began. From there on, what earlier ones recorded no longer holds.

    Parameters
    ----------
    begins : iterable of int
        The first iteration of each.
    written : dict of int to int
        By attempt, up to which iteration (exclusive) every table has been written, where that is not all: a writer
        that was killed leaves the next rows in some of them.

    Attributes
    ----------
    current : int
        Index of the one that records now.

    Examples
    --------
    >>> attempts = Attempts([0, 300])
    >>> attempts.end(0), attempts.end(1) == END
    (300, True)
    """

    def __init__(self, begins: Iterable[int] = (0,), written: dict[int, int] | None = None) -> None:
        self.begins = list(begins)
        self.current = len(self.begins) - 1
        self._written = written or {}

    @property
    def is_plain(self) -> bool:
        """Whether all rows hold."""
        return self.current == 0 and not self._written

    def begin(self, iteration: int) -> None:
        """Record from this iteration on once more."""
        self.begins.append(iteration)
        self.current += 1

    def written(self, attempt: int) -> int:
        """The iteration up to which (exclusive) the rows of an attempt are whole."""
        return self._written.get(attempt, END)

    def end(self, attempt: int) -> int:
        """The iteration up to which (exclusive) its rows hold."""
        return min([self.written(attempt), *self.begins[attempt + 1 :]])

    def holds(self, iteration: NDArray[np.int64], attempt: NDArray[Any]) -> NDArray[np.bool_]:
        """Which of these rows do."""
        n = max(len(self.begins), int(attempt.max(initial=0)) + 1)
        ends = np.array([self.end(k) for k in range(n)], np.int64)
        holding: NDArray[np.bool_] = iteration < ends[attempt]
        return holding
