"""The metrics of a loop on other data, after each epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import FunctionType
from typing import Any

import numpy as np

from gradviz.errors import DataError, MetricWarning, warn
from gradviz.loop.data import Data, Epochs
from gradviz.loop.evaluator import evaluated, loss_metrics
from gradviz.loop.metrics.measured import VALIDATION
from gradviz.loop.metrics.metric import Metric, complete
from gradviz.loop.same import is_same_handler
from gradviz.step.eval_step import EvalStep
from gradviz.step.streams import unsaved_in

_OTHER_DATA = VALIDATION
"""In what was said, among names of metrics; none begins so."""


class Validation:
    """What a loop's metrics come to on validation data.

    Raises
    ------
    DataError
        If `data` is no iterable or callable, or an iterator that can be read only once.
    """

    def __init__(self, step: EvalStep, data: Data) -> None:
        if isinstance(data, Iterator):
            raise DataError(
                f"The {type(data).__name__} can be read only once, but every validation goes through it. Pass "
                "list(data), or a function that makes a new one for each epoch: loop.validate(lambda epoch: "
                "make_batches())."
            )
        self._step = step
        self._data = data
        self._source = Epochs(data, 1)
        self._said: set[str] = set()

    def __call__(
        self, metrics: Iterable[Metric], epoch: int, watched: Callable[[Iterable[Any]], Iterable[Any]]
    ) -> dict[str, np.floating[Any]]:
        """Evaluate the data of an epoch.

        Parameters
        ----------
        metrics : iterable of Metric
            As the loop has them; they are left as they are. The loop's own loss goes by the name of an evaluation's.
        epoch : int
        watched : callable
            Passes batches on, or ends them when the user interrupts.
        """
        fresh = self._carried(metrics)
        n_batches = 0
        for _ in evaluated(self._step, watched(self._source(epoch)), fresh):
            n_batches += 1
        if not n_batches:
            error = self._source.empty(epoch)
            error.add_note("In a validation.")
            raise error
        return {VALIDATION + name: value for name, value in complete(fresh).items()}

    def unsaved_streams(self) -> list[str]:
        """Those of its data that no checkpoint can hold, in words."""
        return [f"validation {stream}" for stream in unsaved_in(self._source.held())]

    def succeed(self, earlier: Validation) -> None:
        """Take its place, and say nothing again that it has said; that it had other data is said once."""
        self._said |= earlier._said
        if not earlier._is_of(self._data) and _OTHER_DATA not in self._said:
            self._said.add(_OTHER_DATA)
            warn(
                "A loop has one validation: this one takes the place of the one before (said once). To look at other "
                "data as well, call gv.evaluator(model, loss).run(data) in a function: "
                'loop.handle_event("epoch_completed", fn).',
                MetricWarning,
            )

    def _is_of(self, data: Data) -> bool:
        """Whether its data is this, or this defined once more, as when a notebook cell runs again."""
        return is_same_handler(self._data, data) if isinstance(data, FunctionType) else self._data is data

    def state_dict(self) -> dict[str, Any]:
        """How the random streams of its data stand, and what was said."""
        return {"streams": self._source.streams(), "said": sorted(self._said)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._source.put_back(state["streams"])
        self._said = set(state["said"])

    def names(self, metrics: Iterable[Metric]) -> list[str]:
        """What its results are called."""
        return [VALIDATION + metric.name for metric in self._computed(metrics)]

    def _computed(self, metrics: Iterable[Metric]) -> list[Metric]:
        """What an evaluation can compute of a loop's metrics, with a loss of its own."""
        fields = set(self._step.fields)
        others = [metric for metric in metrics if metric.name != "loss" and fields.issuperset(metric.fields)]
        return [*loss_metrics(self._step.objective), *others]

    def _carried(self, metrics: Iterable[Metric]) -> list[Metric]:
        """Copies of the metrics that an evaluation can compute; the others are named once."""
        metrics = list(metrics)
        fresh = [metric.fresh() for metric in self._computed(metrics)]
        carried = {metric.name for metric in fresh} | {"loss"} | self._said
        left_out = [metric for metric in metrics if metric.name not in carried]
        if left_out:
            self._said.update(metric.name for metric in left_out)
            names = ", ".join(f"{metric.name!r} (of {', '.join(metric.fields)})" for metric in left_out)
            warn(
                f"Validation leaves out {names}: an evaluation has {', '.join(self._step.fields)} only (said once).",
                MetricWarning,
            )
        return fresh
