"""What the user's loop tells of an iteration: its epoch, its loss, its metrics.

A loop may say so before its step or after it. Between a backward pass and the step there is no doubt. Between a step
and the next backward pass there is: then each name means what it meant when it was first given. What was given before
the first backward pass of all belongs to the step that follows, every time; anything else, to the step before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


class Marks:
    """Which values belong to which iteration.

    Examples
    --------
    >>> marks = Marks()
    >>> marks.give({"epoch": 0}, in_iteration=False, n_done=0)
    {}
    >>> marks.take()
    {'epoch': 0}
    >>> marks.give({"epoch": 1, "loss": 0.5}, in_iteration=False, n_done=1)
    {'loss': 0.5}
    >>> marks.take()
    {'epoch': 1}
    """

    def __init__(self) -> None:
        self._coming: dict[str, Any] = {}
        self._comes_first: dict[str, bool] = {}

    def give(self, values: Mapping[str, Any], *, in_iteration: bool, n_done: int) -> dict[str, Any]:
        """Keep what is of the coming iteration; what is left is of the last one.

        Parameters
        ----------
        values : mapping
        in_iteration : bool
            Whether there was a backward pass since the last step.
        n_done : int
            Steps so far.
        """
        past = {}
        for name, value in values.items():
            comes_first = self._comes_first.setdefault(name, not in_iteration and n_done == 0)
            if in_iteration or comes_first:
                self._coming[name] = value
            else:
                past[name] = value
        return past

    def take(self) -> dict[str, Any]:
        """What was given of the iteration that is over now."""
        given, self._coming = self._coming, {}
        return given


class Means:
    """What an epoch comes to: the mean of each name over the iterations that told it, of finite values.

    Examples
    --------
    >>> means = Means()
    >>> for loss in (1.0, math.nan, 2.0):
    ...     means.add({"loss": loss})
    >>> means.iterations, means.nonfinite, means.values()
    (3, 1, {'loss': 1.5})
    """

    def __init__(self) -> None:
        self.iterations = self.nonfinite = 0
        self._given: dict[str, list[float]] = {}  # the sum and the number of finite ones, and the sum of the others

    def add(self, values: Mapping[str, float]) -> None:
        """One iteration."""
        self.iterations += 1
        self.nonfinite += not math.isfinite(values.get("loss", 0.0))
        for name, value in values.items():
            sums = self._given.setdefault(name, [0.0, 0.0, 0.0])
            if math.isfinite(value):
                sums[0], sums[1] = sums[0] + value, sums[1] + 1
            else:
                sums[2] += value

    def values(self) -> dict[str, float]:
        """By name; infinite where all were, with the same sign, and NaN where none was finite else."""
        return {name: total / n if n else others for name, (total, n, others) in self._given.items()}
