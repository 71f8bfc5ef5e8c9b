"""Which rows hold, when a run was resumed before its end and recorded iterations again."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

END = np.iinfo(np.int64).max


class Attempts:
    """Where each attempt began. From there on, what earlier ones recorded no longer holds.

    Examples
    --------
    >>> attempts = Attempts([0, 300])
    >>> attempts.end(0), attempts.end(1) == END
    (300, True)
    """

    def __init__(self, begins: list[int] | None = None) -> None:
        self.begins = begins or [0]

    @property
    def current(self) -> int:
        """Index of the one that records now."""
        return len(self.begins) - 1

    def begin(self, iteration: int) -> None:
        """Record from this iteration on once more."""
        self.begins.append(iteration)

    def end(self, attempt: int) -> int:
        """The iteration from which on a later attempt holds."""
        return min(self.begins[attempt + 1 :], default=END)

    def holds(self, iteration: NDArray[np.int64], attempt: NDArray[Any]) -> NDArray[np.bool_]:
        """Which of these rows do."""
        ends = np.array([self.end(k) for k in range(len(self.begins))], np.int64)
        holding: NDArray[np.bool_] = iteration < ends[attempt]
        return holding
