"""Which parameters and iterations a frame is made of, decided before it is."""

from __future__ import annotations

import fnmatch
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gradviz.errors import HistoryError, described, nearest, whole

Attempted = Literal["latest", "all"]

_LONGEST = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class Selection:
    """What `History.select` was given, checked.

    Attributes
    ----------
    parameters : tuple of str, or None
        Names and patterns.
    iterations : slice, or tuple of int, or None
        Half-open, by the iteration's own number.
    every : int
        Every so manieth of them.
    """

    parameters: tuple[str, ...] | None = None
    iterations: slice | tuple[int, ...] | None = None
    every: int = 1

    def places(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Which names are meant; an exact name counts as itself, whatever signs are in it.

        Raises
        ------
        HistoryError
            If a pattern fits none.
        """
        if self.parameters is None:
            return np.arange(len(names))
        chosen: set[int] = set()
        for pattern in self.parameters:
            fitting = {i for i, name in enumerate(names) if name == pattern}
            fitting = fitting or {i for i, name in enumerate(names) if fnmatch.fnmatchcase(name, pattern)}
            if not fitting:
                raise HistoryError(f"No parameter fits {pattern!r}: {nearest(pattern, names)}")
            chosen |= fitting
        return np.array(sorted(chosen), np.int64)

    def rows(self, iteration: NDArray[np.int64]) -> NDArray[np.int64]:
        """Which rows of these iterations, ascending or in several attempts, are meant."""
        if self.iterations is None:
            return np.arange(0, len(iteration), self._step)
        end = int(iteration.max(initial=-1)) + 1
        if isinstance(self.iterations, tuple):
            chosen = np.isin(iteration, [i + end if i < 0 else i for i in self.iterations])
        else:
            low, high = (
                bound + end if bound is not None and bound < 0 else bound
                for bound in (self.iterations.start, self.iterations.stop)
            )
            chosen = np.ones(len(iteration), np.bool_)
            if low is not None:
                chosen &= iteration >= low
            if high is not None:
                chosen &= iteration < high
        return np.flatnonzero(chosen)[:: self._step]

    @property
    def _step(self) -> int:
        return min(self.every, _LONGEST)  # numpy takes no larger one, and there are no more iterations


def selection(parameters: object = None, iterations: object = None, every: int = 1) -> Selection:
    """A selection of what a user wrote.

    Examples
    --------
    >>> chosen = selection("encoder.*", slice(10, 20), every=5)
    >>> chosen.places(["encoder.weight", "head.weight"]).tolist(), chosen.rows(np.arange(8, 30)).tolist()
    ([0], [2, 7])
    """
    step = whole("every", every, least=1, error=HistoryError)
    if isinstance(iterations, slice) and iterations.step is not None:
        step *= whole("The step of iterations", iterations.step, least=1, error=HistoryError)
    return Selection(_patterns(parameters), _iterations(iterations), step)


def _patterns(parameters: object) -> tuple[str, ...] | None:
    if parameters is None:
        return None
    patterns = (parameters,) if isinstance(parameters, str) else parameters
    if isinstance(patterns, Iterable):
        patterns = tuple(patterns)
        if all(isinstance(pattern, str) for pattern in patterns):
            return patterns
    raise HistoryError(
        f'parameters is a name, a pattern such as "encoder.*", or a list of these; got {described(parameters)}.'
    )


def _iterations(iterations: object) -> slice | tuple[int, ...] | None:
    if iterations is None:
        return None
    try:
        if isinstance(iterations, slice):
            bounds = (iterations.start, iterations.stop)
            start, stop = (None if bound is None else operator.index(bound) for bound in bounds)
            return slice(start, stop)
        if isinstance(iterations, Iterable):
            return tuple(operator.index(iteration) for iteration in iterations)
        return (operator.index(iterations),)  # type: ignore[arg-type]
    except TypeError:
        raise HistoryError(
            f"iterations is a slice such as slice(1000, 2000), a number, or a list of numbers; got {iterations!r}."
        ) from None
