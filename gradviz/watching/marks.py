"""What the user's loop tells of an iteration: its epoch, its loss, its metrics.

A loop may say so before its step or after it. Between a backward pass and the step there is no doubt. Between a step
and the next backward pass there is: then each name means what it meant when it was first given. What came before the
first step of all belongs to the step that follows, every time; what came after one, to the step before.
"""

from __future__ import annotations

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
            comes_first = self._comes_first.setdefault(name, in_iteration or n_done == 0)
            if in_iteration or comes_first:
                self._coming[name] = value
            else:
                past[name] = value
        return past

    def take(self) -> dict[str, Any]:
        """What was given of the iteration that is over now."""
        given, self._coming = self._coming, {}
        return given
