"""A function of each batch, accumulated: by far the most metrics, and every loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from gradviz.loop.metrics.accumulators import Accumulator, Fold, maker
from gradviz.loop.metrics.metric import Fields, Metric
from gradviz.loop.same import is_same_handler
from gradviz.metrics import is_ours
from gradviz.metrics.over_batches import counts_of, is_count
from gradviz.step.batch import Parts, batch_size
from gradviz.step.objective import Objective
from gradviz.step.shares import counted, counts_targets
from gradviz.step.step_state import StepState


class FunctionMetric(Metric):
    """A function that returns one number for each batch.

    A batch weighs as much as it has examples, where the function looks at them. A ratio of two counts weighs as much as
    there is to count, so that over an epoch it is that of all examples; a count, like what looks at none, weighs 1.
    """

    running: Accumulator

    def __init__(
        self, name: str, function: Callable[..., Any], fields: Iterable[str], accumulate: str | Fold | None = None
    ) -> None:
        super().__init__(name, fields)
        adds_up = is_count(function)
        if accumulate is None:
            accumulate = "running_sum" if adds_up else "running_average"
        self.function, self.accumulate = function, accumulate
        self._accumulator = maker(accumulate)
        self._counts = counts_of(function)
        self._is_of_examples = not adds_up and not {"y_pred", "y_true"}.isdisjoint(self.fields)
        self.start()

    def start(self) -> None:
        """Forget what came before: an epoch begins."""
        self.running = self._accumulator()

    def is_same(self, other: Metric) -> bool:
        """Whether `other` is this one defined once more, as when a notebook cell runs again."""
        return (
            isinstance(other, FunctionMetric)
            and self.fields == other.fields
            and is_same_handler(self.function, other.function)
            and is_same_handler(self.accumulate, other.accumulate)
        )

    def try_out(self, state: StepState) -> None:
        """Be computed if the function is one of ours; one of the user's may count its calls."""
        if is_ours(self.function):
            self.fresh()(state)

    def _take(self, parts: list[Fields]) -> float:
        if len(parts) == 1:
            value, weight = self._measured(parts[0])
            self.running.add(value, weight)
            return value
        batch = self._accumulator()  # the parts of a batch come together as the batches of an epoch do
        for part in parts:
            value, weight = self._measured(part)
            for running in (batch, self.running):
                running.add(value, weight)
        return batch.complete

    def _measured(self, part: Fields) -> tuple[float, float]:
        """The value, and how much it weighs."""
        with torch.no_grad():
            if self._counts is None:
                return self._number(self._called(self.function, part)), self.weight(part)
            share, of = self._called(self._counts, part)
            return float(share / of), float(of)

    def weight(self, part: Fields) -> float:
        """Number of examples, where the metric looks at predictions or targets; 1 otherwise."""
        return batch_size(part["y_pred"], part["y_true"]) if self._is_of_examples else 1

    @property
    def value(self) -> np.floating[Any]:
        """What it came to over the batches whose value is finite; where none is, over all."""
        return self._reported(self.running.result)

    @property
    def complete(self) -> np.floating[Any]:
        """What it came to over all batches, those whose value is not finite too."""
        return self._reported(self.running.complete)

    @property
    def so_far(self) -> float:
        """What it came to so far, or the latest batch's own value where that is not finite."""
        return self.running.shown

    @property
    def accumulated_by(self) -> str:
        """The name of the accumulator, or "function"."""
        return self.accumulate if isinstance(self.accumulate, str) else "function"

    def _so_far(self) -> dict[str, Any]:
        return dict(self.running.state_dict())

    def _go_on_from(self, so_far: dict[str, Any]) -> None:
        self.running.load_state_dict(so_far)


class LossMetric(FunctionMetric):
    """The batch's own loss, weighted by what counts in it."""

    def __init__(self, objective: Objective | None = None, name: str = "loss") -> None:
        super().__init__(name, float, ["loss"])
        self._objective = objective
        self._is_of_targets = counts_targets(objective)

    def __call__(self, state: Fields) -> float:
        """The batch's own loss: it is always there, one number of all parts together, and has no graph."""
        value = self._number(state["loss"])
        self.running.add(value, self.weight(state))
        return value

    def weight(self, part: Fields) -> float:
        """Number of examples, or of the targets that the loss does not ignore."""
        prediction, targets = part["y_pred"], part["y_true"]
        if self._is_of_targets or isinstance(targets, Parts):
            return counted(self._objective, prediction, targets)
        return batch_size(prediction, targets)
