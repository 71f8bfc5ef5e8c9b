"""What the values of an epoch's batches come to: their mean, sum, last, largest, smallest, or what a function makes."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np

from gradviz.errors import MetricError, described, nearest

Fold = Callable[[float, float, int], float]
"""``fold(so_far, value, n)``: what the values come to with one more, `n` being the number of those before."""


@dataclass
class Accumulator:
    """What a metric has come to so far, in float64: in float32 a mean of 0.1 is at 0.0998 after 2e5 steps.

    A value that is not finite shows once, at its own iteration, and does not poison what the others come to.
    """

    n: int = 0
    latest: float = math.nan
    nonfinite: int = 0
    lost: float = 0.0

    def add(self, value: float, weight: float) -> None:
        """Take in one batch's value; of weight 0, as a mean over nothing, it is seen and no part of the others'."""
        self.latest = value
        if not math.isfinite(value):
            self.nonfinite += 1
            self.lost += value if weight else 0.0
        elif weight:
            self._take(value, weight)
            self.n += 1

    def _take(self, value: float, weight: float) -> None:
        """One more finite value that counts; `n` is the number of those before."""
        raise NotImplementedError

    @property
    def value(self) -> float:
        """Of the finite values; NaN without any."""
        raise NotImplementedError

    @property
    def result(self) -> float:
        """Of the finite values; where none is, what all of them are: infinite, or NaN if they differ or one is."""
        return self.value if self.n else self.complete

    @property
    def complete(self) -> float:
        """Of all values: NaN or infinite if one of them is, where that matters to the whole."""
        return self.value if math.isfinite(self.lost) else self.lost

    @property
    def shown(self) -> float:
        """The value so far, or the latest batch's where that is not finite."""
        return self.value if math.isfinite(self.latest) else self.latest

    def state_dict(self) -> dict[str, float]:
        """Where it stands, in plain numbers."""
        return {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Go on from there."""
        for name in self.state_dict():
            setattr(self, name, state[name])


@dataclass
class RunningAverage(Accumulator):
    """The mean, by weight."""

    total: float = 0.0
    weight: float = 0.0

    def _take(self, value: float, weight: float) -> None:
        self.total += value * weight
        self.weight += weight

    @property
    def value(self) -> float:
        """The mean of the finite values; NaN without any."""
        return self.total / self.weight if self.weight else math.nan


@dataclass
class RunningSum(Accumulator):
    """The sum, which knows no weights."""

    total: float = 0.0

    def _take(self, value: float, weight: float) -> None:
        self.total += value

    @property
    def value(self) -> float:
        """The sum of the finite values; NaN without any."""
        return self.total if self.n else math.nan


@dataclass
class Last(Accumulator):
    """The value of the last batch; of the last finite one, while the epoch lasts."""

    value: float = math.nan
    final: float = math.nan

    def add(self, value: float, weight: float) -> None:
        """Take in one batch's value."""
        super().add(value, weight)
        if weight:
            self.final = value

    def _take(self, value: float, weight: float) -> None:
        self.value = value

    @property
    def complete(self) -> float:
        """Of the last batch, whatever it is."""
        return self.final


@dataclass
class Max(Accumulator):
    """The largest value."""

    value: float = math.nan
    sign: ClassVar[int] = 1

    def _take(self, value: float, weight: float) -> None:
        if not self.n or self.sign * value > self.sign * self.value:
            self.value = value

    @property
    def complete(self) -> float:
        """The largest of all: NaN if one of them is, and not the infinity at the other end."""
        return self.value if self.n and self.lost == -self.sign * math.inf else super().complete


@dataclass
class Min(Max):
    """The smallest value."""

    sign: ClassVar[int] = -1


@dataclass
class Folded(Accumulator):
    """What a function of the user's makes of the values, one by one; the first stands for itself."""

    fold: Fold = field(kw_only=True)
    value: float = math.nan

    def _take(self, value: float, weight: float) -> None:
        if not self.n:
            self.value = value
            return
        folded = self.fold(self.value, value, self.n)
        try:
            self.value = float(folded)
        except (TypeError, ValueError, RuntimeError):
            raise MetricError(f"The function to accumulate by returned {described(folded)}, not a number.") from None

    def state_dict(self) -> dict[str, float]:
        """Where it stands, without the function."""
        return {name: number for name, number in super().state_dict().items() if name != "fold"}


ACCUMULATORS: dict[str, type[Accumulator]] = {
    "running_average": RunningAverage,
    "running_sum": RunningSum,
    "last": Last,
    "max": Max,
    "min": Min,
}

_BUILTINS = {max: "max", min: "min", sum: "running_sum"}


def maker(accumulate: str | Fold) -> Callable[[], Accumulator]:
    """What makes the accumulator of an epoch, by its name or from a function.

    Raises
    ------
    MetricError
        If there is none of that name, or the function does not take three numbers.

    Examples
    --------
    >>> smoothed = maker(lambda so_far, value, n: 0.5 * so_far + 0.5 * value)()
    >>> for value in (4.0, 2.0, math.nan, 1.0): smoothed.add(value, 1)
    >>> smoothed.value, smoothed.n
    (2.0, 3)
    """
    if isinstance(accumulate, str):
        if accumulate not in ACCUMULATORS:
            near = nearest(accumulate.replace("mean", "average"), ACCUMULATORS)
            raise MetricError(f"No accumulator is called {accumulate!r}: {near}")
        return ACCUMULATORS[accumulate]
    if not callable(accumulate):
        raise MetricError(
            f"accumulate takes a name ({', '.join(ACCUMULATORS)}) or a function of (so_far, value, n); "
            f"got {described(accumulate)}."
        )
    for builtin, name in _BUILTINS.items():
        if accumulate is builtin:  # which would take n for one of the values
            raise MetricError(f"Python's {builtin.__name__} takes no (so_far, value, n); write accumulate={name!r}.")
    try:
        inspect.signature(accumulate).bind(0.0, 0.0, 1)
        if isinstance(accumulate, np.ufunc) and accumulate.nin != 3:  # which would take n for where to write
            raise TypeError
    except TypeError:
        raise MetricError(
            "A function to accumulate by takes what it has come to, the new value, and the number of values before: "
            "lambda so_far, value, n: ..."
        ) from None
    except ValueError:
        pass  # written in C, with a signature that cannot be read
    return partial(Folded, fold=accumulate)
