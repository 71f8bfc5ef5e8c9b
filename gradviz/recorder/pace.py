"""Which iterations are recorded, and what recording costs.

The cost is a share of the step without it: the seconds spent here, divided by those of the rest. Both are sums in which
an iteration weighs less the longer it is past, so that the share tells of now. The first recorded iteration does not
count: what it needs is loaded and compiled then. And of a long wait between two steps, as for a validation or for the
next cell of a notebook, no more than a few steps' time counts.
"""

from __future__ import annotations

import math
import time
from types import TracebackType

from gradviz.errors import RecordingWarning, warn

HORIZON = 200
"""Iterations after which one weighs 1/e."""

_FADE = math.exp(-1 / HORIZON)

PATIENCE = 100
"""Iterations that are left out before it is told that a budget cannot be kept."""

LONGEST = 10
"""Steps' time that a wait counts for at most."""


class Pace:
    """Every so many iterations, and within a budget.

    As a context it measures: what is done inside is the cost of recording.

    Parameters
    ----------
    every : int
    budget : float, optional
        The share that recording may cost.

    Examples
    --------
    >>> pace = Pace(every=2)
    >>> [pace.is_due(iteration) for iteration in range(4)]
    [True, False, True, False]
    """

    def __init__(self, every: int = 1, budget: float | None = None) -> None:
        self._every = every
        self._budget = budget
        self._own = self._began = 0.0
        self._depth = 0
        self._last: float | None = None  # when the last iteration ended
        self._is_warm = False
        self._spent = self._rest = 0.0  # sums
        self._step: float | None = None  # of late
        self._costs: float | None = None  # an iteration that is recorded, of late
        self._costs_anyway: float | None = None  # one that is not
        self._n_left_out = 0

    def __enter__(self) -> None:
        if not self._depth:
            self._began = time.perf_counter()
        self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if not self._depth:
            self.count_since(self._began)

    def count_since(self, began: float) -> None:
        """What was done since then is the cost of recording, and none of it is counted otherwise."""
        self._own += time.perf_counter() - began

    @property
    def thins(self) -> bool:
        """Whether there may be iterations that are not recorded."""
        return self._every > 1 or self._budget is not None

    def is_due(self, count: int) -> bool:
        """Whether to record the iteration of this number."""
        if count % self._every:
            return False
        if self._budget is None or self._costs is None:
            return True
        return self._spent + self._costs <= self._budget * self._rest

    def end_iteration(self, was_recorded: bool) -> None:
        """One is over, but for the little that comes after this."""
        now = time.perf_counter()
        if self._depth:  # asked from within
            self._own, self._began = self._own + now - self._began, now
        own, self._own = self._own, 0.0
        last, self._last = self._last, now
        if last is None or not self._is_warm:
            self._is_warm = self._is_warm or was_recorded
            return
        rest = now - last - own
        if self._step is not None and rest > LONGEST * self._step:
            rest = LONGEST * self._step
        self._step = _followed(self._step, rest)
        self._spent, self._rest = self._spent * _FADE + own, self._rest * _FADE + rest
        if was_recorded:
            self._costs = _followed(self._costs, own)
            return
        self._costs_anyway = _followed(self._costs_anyway, own)
        self._n_left_out += 1
        if self._n_left_out == PATIENCE and self._budget is not None:
            self._warn_if_out_of_reach(self._budget, self._costs_anyway, self._step)

    def _warn_if_out_of_reach(self, budget: float, costs: float, step: float) -> None:
        """A row without gradients costs something too, and of a small step that may be more than the budget."""
        anyway = costs / step
        if anyway > budget:
            warn(
                f"budget={budget} cannot be kept: of a step of {step * 1e3:.1f} ms, a row without any "
                f"gradient costs {anyway:.0%}. Gradients are left out nearly always; every=10 records one in ten. Said "
                "once.",
                RecordingWarning,
            )

    @property
    def overhead(self) -> float:
        """What recording costs now, as a share of the step without it; NaN before it is known."""
        return self._spent / self._rest if self._rest > 0 else math.nan


def _followed(mean: float | None, value: float) -> float:
    """A mean that goes along with its values."""
    return value if mean is None else mean + (value - mean) / 8
