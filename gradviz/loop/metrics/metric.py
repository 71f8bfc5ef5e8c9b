"""One metric: a function of the step state, and what it comes to over an epoch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gradviz.errors import MetricError, described, nearest
from gradviz.loop.metrics.accumulators import Accumulator, Fold, maker
from gradviz.loop.same import is_same_handler
from gradviz.step.batch import Parts, batch_size
from gradviz.step.objective import Objective
from gradviz.step.shares import counted, counts_targets
from gradviz.step.step_state import StepState

_LARGEST = float(np.finfo(np.float32).max)
_DTYPES: dict[str, type[np.float32 | np.float64]] = {"float32": np.float32, "float64": np.float64}


@dataclass
class Metric:
    """One metric of a loop: a function, the fields of the step state it takes, and what it has come to.

    `dtype` is what it is reported in: the wider of its values' own and float32, from the first batch on.
    """

    name: str
    function: Callable[..., Any] | None  # None for a field itself
    fields: tuple[str, ...]
    accumulate: str | Fold = "running_average"
    weigh: Callable[[StepState], float] | None = None
    running: Accumulator = field(init=False)
    dtype: type[np.float32 | np.float64] = field(init=False, default=np.float32)

    def __post_init__(self) -> None:
        self._accumulator = maker(self.accumulate)
        self.start()

    def start(self) -> None:
        """Forget what came before: an epoch begins."""
        self.running = self._accumulator()

    def fresh(self) -> Metric:
        """The same metric, of other data."""
        return dataclasses.replace(self)

    def is_same(self, other: Metric) -> bool:
        """Whether `other` is this one defined once more, as when a notebook cell runs again."""
        return self.fields == other.fields and all(
            is_same_handler(mine, its)
            for mine, its in ((self.function, other.function), (self.accumulate, other.accumulate))
        )

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps, so that an epoch can go on in its middle: plain numbers, strings and tensors."""
        return {
            "accumulate": self.accumulate if isinstance(self.accumulate, str) else "function",
            "dtype": self.dtype.__name__,
            "running": self.running.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there.

        Raises
        ------
        MetricError
            If it was accumulated otherwise; nothing is loaded then.
        """
        mine = self.state_dict()["accumulate"]
        if state["accumulate"] != mine:
            raise MetricError(
                f"The metric {self.name!r} is accumulated by {mine!r} here, and by {state['accumulate']!r} in what was "
                "saved. Give the loop the metric that was saved."
            )
        self.dtype = _DTYPES[state["dtype"]]
        self.running.load_state_dict(state["running"])

    @property
    def value(self) -> np.floating[Any]:
        """What it came to over the batches whose value is finite."""
        return self._reported(self.running.value)

    @property
    def complete(self) -> np.floating[Any]:
        """What it came to over all batches, those whose value is not finite too."""
        return self._reported(self.running.complete)

    @property
    def shown(self) -> np.floating[Any]:
        """What it came to so far, or the latest batch's own value where that is not finite."""
        return self._reported(self.running.shown)

    def __call__(self, state: StepState) -> float:
        """The batch's own value, which joins the others."""
        missing = [name for name in self.fields if name not in state]
        if missing:
            is_training = "optimizer_state" in state
            hint = " Pass keep_gradients=True to trainer." if "gradients" in missing and is_training else ""
            raise MetricError(f"The metric {self.name!r} asks for {missing[0]!r}: {nearest(missing[0], state)}.{hint}")
        fields = [state[name] for name in self.fields]
        n_parts = 0 if self.function is None else next((len(value) for value in fields if isinstance(value, Parts)), 0)
        if not n_parts:
            number = self._number(fields)
            self.running.add(number, self.weight(state))
            return number
        # Micro-batches that do not fit together: one by one, and together as over an epoch.
        batch = self._accumulator()
        for place in range(n_parts):
            part = [value[place] if isinstance(value, Parts) else value for value in fields]
            number = self._number(part)
            for running in (batch, self.running):
                running.add(number, batch_size(*part))
        return batch.complete

    def _number(self, fields: Sequence[Any]) -> float:
        value = fields[0] if self.function is None else self._called(self.function, fields)
        if _is_float64(value):
            self.dtype = np.float64
        try:
            return float(value)
        except (TypeError, ValueError, RuntimeError):
            raise MetricError(f"The metric {self.name!r} returned {described(value)}; one number is wanted.") from None

    def _called(self, function: Callable[..., Any], fields: Sequence[Any]) -> Any:
        with torch.no_grad():
            try:
                return function(*fields)
            except TypeError as error:
                given = ", ".join(self.fields)
                error.add_note(f'It was given {given}; for others write .metric(..., fields=["gradients"]).')
                raise

    def _reported(self, number: float) -> np.floating[Any]:
        if not abs(number) > _LARGEST:
            return self.dtype(number)
        with np.errstate(over="ignore"):  # a sum beyond float32 is infinite there, as it is to torch
            return self.dtype(number)

    def weight(self, state: StepState) -> float:
        """Number of examples, where the metric looks at predictions or targets; 1 otherwise."""
        if self.weigh is not None:
            return self.weigh(state)
        return batch_size(state["y_pred"], state["y_true"]) if {"y_true", "y_pred"} & set(self.fields) else 1


def loss_metric(objective: Objective | None = None, name: str = "loss") -> Metric:
    """The batch's own loss, weighted by what counts in it; "loss" is the name every loop has it under."""
    by_targets = counts_targets(objective)

    def weigh(state: StepState) -> float:
        prediction, targets = state["y_pred"], state["y_true"]
        if by_targets or isinstance(targets, Parts):
            return counted(objective, prediction, targets)
        return batch_size(prediction, targets)

    return Metric(name, None, ("loss",), weigh=weigh)


def shown(metrics: Iterable[Metric]) -> dict[str, np.floating[Any]]:
    """What `state.metrics` shows after a batch."""
    return {metric.name: metric.shown for metric in metrics}


def results(metrics: Iterable[Metric]) -> dict[str, np.floating[Any]]:
    """What `state.metrics` shows after the last one."""
    return {metric.name: metric.value for metric in metrics}


def complete(metrics: Iterable[Metric]) -> dict[str, np.floating[Any]]:
    """What an evaluation came to: a batch that is not finite shows in it, where nobody looks at each batch."""
    return {metric.name: metric.complete for metric in metrics}


def floats(reported: Mapping[str, np.floating[Any]]) -> dict[str, float]:
    """Reported values as Python's own numbers, for those who write or draw them."""
    return {name: float(value) for name, value in reported.items()}


def _is_float64(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.dtype == torch.float64
    return isinstance(value, float) or (isinstance(value, np.ndarray) and value.dtype == np.float64)
