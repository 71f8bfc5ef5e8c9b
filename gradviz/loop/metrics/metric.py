"""What is followed over an epoch: `Metric`, and what several of them report."""

from __future__ import annotations

import copy
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from gradviz.errors import MetricError, described, nearest
from gradviz.step.batch import Parts
from gradviz.step.step_state import StepState

Fields = Mapping[str, Any]
"""What a step leaves behind, or that of one of its micro-batches."""

_LARGEST = float(np.finfo(np.float32).max)
_DTYPES: dict[str, type[np.float32 | np.float64]] = {"float32": np.float32, "float64": np.float64}


class Metric(ABC):
    """One metric of a loop: the fields of the step state that it takes, and what it comes to.

    It sees the state that a step leaves behind, and so the prediction that was made before the update.

    Attributes
    ----------
    name : str
    fields : tuple of str
        Keys of the step state.
    dtype : numpy.float32 or numpy.float64
        What it is reported in: the wider of its values' own and float32, from the first batch on.
    """

    def __init__(self, name: str, fields: Iterable[str]) -> None:
        self.name = name
        self.fields = tuple(fields)
        self.dtype: type[np.float32 | np.float64] = np.float32

    def __call__(self, state: StepState) -> float:
        """The batch's own value, which joins the others."""
        self.check(state)
        try:
            return self._take(in_parts(state, self.fields))
        except Exception as error:
            if not isinstance(error, MetricError):
                given = ", ".join(f"{name}, {described(state[name])}" for name in self.fields)
                error.add_note(f"It was given {given}.{self._hint(state)}")
            raise

    def check(self, fields: Collection[str]) -> None:
        """Refuse to be computed of these fields of a step state alone.

        Raises
        ------
        MetricError
        """
        for name in self.fields:
            if name not in fields:
                raise MetricError(
                    f"The metric {self.name!r} asks for {name!r}, which the step state does not have: "
                    f"{nearest(name, fields)}"
                )

    @abstractmethod
    def try_out(self, state: StepState) -> None:
        """Be computed of the trial before the first step, where nothing remembers it, so that what cannot be raises."""

    @abstractmethod
    def _take(self, parts: list[Fields]) -> float:
        """The value of a batch, which joins the others; one that is of several parts that do not fit together, too."""

    @abstractmethod
    def start(self) -> None:
        """Forget what came before: an epoch begins."""

    def fresh(self) -> Self:
        """The same metric, of other data."""
        other = copy.copy(self)
        other.dtype = np.float32
        other.start()
        return other

    @abstractmethod
    def is_same(self, other: Metric) -> bool:
        """Whether `other` is this one defined once more, as when a notebook cell runs again."""

    # What it comes to --------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def value(self) -> np.floating[Any]:
        """What it came to over the batches whose value is finite."""

    @property
    @abstractmethod
    def complete(self) -> np.floating[Any]:
        """What it came to over all batches, those whose value is not finite too."""

    @property
    @abstractmethod
    def so_far(self) -> float:
        """What it came to so far, or the latest batch's own value where that is not finite."""

    @property
    def shown(self) -> np.floating[Any]:
        """The same as it is reported."""
        return self._reported(self.so_far)

    # In a checkpoint ---------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def accumulated_by(self) -> str:
        """What makes one of all values, in a word."""

    @abstractmethod
    def _so_far(self) -> dict[str, Any]:
        """What the values have come to, in numbers, strings, tensors, lists and dicts."""

    @abstractmethod
    def _go_on_from(self, so_far: dict[str, Any]) -> None:
        """Take up what the values had come to."""

    def state_dict(self) -> dict[str, Any]:
        """Where it stands in the middle of an epoch, in what torch.load reads by its safe default."""
        return {"accumulated_by": self.accumulated_by, "dtype": self.dtype.__name__, "so_far": self._so_far()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there.

        Raises
        ------
        MetricError
            If it was accumulated otherwise; nothing is loaded then.
        """
        if state["accumulated_by"] != self.accumulated_by:
            raise MetricError(
                f"The metric {self.name!r} is accumulated by {self.accumulated_by!r} here, and by "
                f"{state['accumulated_by']!r} in what was saved. Give the loop the metric that was saved."
            )
        self._go_on_from(state["so_far"])
        self.dtype = _DTYPES[state["dtype"]]

    # For the kinds of it -----------------------------------------------------------------------------------------

    def _number(self, value: Any, hint: str = "") -> float:
        """A value as a number; one of float64 makes the reports float64."""
        try:
            number = float(value)
        except (TypeError, ValueError, RuntimeError):
            raise MetricError(
                f"The metric {self.name!r} returned {described(value)}; one number is wanted.{hint}"
            ) from None
        if _is_float64(value):
            self.dtype = np.float64
        return number

    def _called(self, function: Callable[..., Any], part: Fields) -> Any:
        return function(*[part[name] for name in self.fields])

    def _hint(self, state: StepState) -> str:
        """A word more on what it was given, where that is often the mistake."""
        return ""

    def _reported(self, number: float) -> np.floating[Any]:
        return _as(self.dtype, number)


def in_parts(state: Fields, names: Iterable[str]) -> list[Fields]:
    """The fields of each micro-batch, where those that are named do not fit together; all as they are otherwise.

    Examples
    --------
    >>> in_parts({"y_pred": Parts([1, 2]), "loss": 3}, ["y_pred"])
    [{'y_pred': 1, 'loss': 3}, {'y_pred': 2, 'loss': 3}]
    """
    for name in names:
        if isinstance(state[name], Parts):
            return [
                {name: value[place] if isinstance(value, Parts) else value for name, value in state.items()}
                for place in range(len(state[name]))
            ]
    return [state]


class Shown(Mapping[str, np.floating[Any]]):
    """What `state.metrics` shows after a batch: a report of each is made when somebody looks.

    Between two steps numpy takes 10 microseconds for one number.

    Parameters
    ----------
    metrics : iterable of Metric
    others : mapping of str to numpy scalar
        What comes behind them.
    """

    def __init__(self, metrics: Iterable[Metric], others: Mapping[str, np.floating[Any]]) -> None:
        self._numbers = {metric.name: (metric.dtype, metric.so_far) for metric in metrics}
        self._others = others

    @functools.cached_property
    def made(self) -> dict[str, np.floating[Any]]:
        """All of them."""
        return dict(self)

    def __getitem__(self, name: str) -> np.floating[Any]:
        return self._others[name] if name in self._others else _as(*self._numbers[name])

    def __iter__(self) -> Iterator[str]:
        return iter({**self._numbers, **self._others})

    def __len__(self) -> int:
        return len({**self._numbers, **self._others})


def results(metrics: Iterable[Metric]) -> dict[str, np.floating[Any]]:
    """What `state.metrics` shows after the last one."""
    return {metric.name: metric.value for metric in metrics}


def complete(metrics: Iterable[Metric]) -> dict[str, np.floating[Any]]:
    """What an evaluation came to: a batch that is not finite shows in it, where nobody looks at each batch."""
    return {metric.name: metric.complete for metric in metrics}


def floats(reported: Mapping[str, np.floating[Any]]) -> dict[str, float]:
    """Reported values as Python's own numbers, for those who write or draw them."""
    return dict(zip(reported, map(float, reported.values()), strict=True))


def _as(dtype: type[np.float32 | np.float64], number: float) -> np.floating[Any]:
    if not abs(number) > _LARGEST:
        return dtype(number)
    with np.errstate(over="ignore"):  # a sum beyond float32 is infinite there, as it is to torch
        return dtype(number)


def _is_float64(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.dtype == torch.float64
    return isinstance(value, float) or (isinstance(value, np.ndarray) and value.dtype == np.float64)
