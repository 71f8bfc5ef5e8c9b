"""Metrics: functions of the step state, averaged over an epoch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from gradviz.errors import MetricError, described, nearest
from gradviz.step.batch import batch_size
from gradviz.step.train_step import StepState

RESERVED = ("loss", "epoch", "iteration", "iterations", "nonfinite", "loss_scale", "skipped")
"""Columns that the frames have of their own."""

DEFAULT_FIELDS = ("y_pred", "y_true")
ACCUMULATORS = ("running_average",)


def accuracy(prediction: Tensor, targets: Tensor) -> Tensor:
    """Share of examples whose prediction is right.

    Parameters
    ----------
    prediction : Tensor
        Scores of shape [batch, classes, ...], torch's own order; or logits of two classes in the shape of the targets
        (or with one more axis of length 1), where above 0 means yes.
    targets : Tensor
        Class indices of shape [batch, ...], one-hot or probabilities in the shape of the scores, or 0 and 1.

    Returns
    -------
    0-dim float32 Tensor, between 0 and 1; NaN if a prediction is NaN

    Raises
    ------
    MetricError
        If the shapes fit none of these.

    Examples
    --------
    >>> accuracy(torch.tensor([[2.0, 1.0], [0.0, 3.0], [1.0, 0.0]]), torch.tensor([0, 1, 1]))
    tensor(0.6667)
    >>> accuracy(torch.tensor([[1.5], [-0.5]]), torch.tensor([[1.0], [1.0]]))
    tensor(0.5000)
    """
    if prediction.isnan().any():
        return torch.tensor(math.nan)  # nothing is predicted
    if prediction.ndim == targets.ndim + 1 and prediction.shape[1] == 1:
        prediction = prediction.squeeze(1)
    if prediction.ndim == targets.ndim + 1 and prediction.shape[:1] + prediction.shape[2:] == targets.shape:
        right = prediction.argmax(1) == targets
    elif prediction.shape == targets.shape and prediction.ndim > 1 and prediction.shape[1] > 1:
        if not torch.isclose(targets.sum(1).float(), torch.ones(())).all():
            raise MetricError(
                "accuracy takes one class for each example; these targets are neither one-hot nor shares."
            )
        right = prediction.argmax(1) == targets.argmax(1)
    elif prediction.shape == targets.shape:
        if not ((targets == 0) | (targets == 1)).all():
            raise MetricError("accuracy counts classes, and these targets are neither class indices nor 0 and 1.")
        right = (prediction > 0) == (targets > 0.5)
    else:
        raise MetricError(
            f"accuracy cannot compare a prediction of shape {tuple(prediction.shape)} with targets of shape "
            f"{tuple(targets.shape)}; it wants [batch, classes] and [batch], or the same shape twice."
        )
    return right.float().mean()


METRICS: dict[str, Callable[..., Any]] = {"accuracy": accuracy}


@dataclass
class RunningAverage:
    """A weighted mean, summed in float64: in float32 a mean of 0.1 has drifted to 0.0998 after 2e5 steps.

    A value that is not finite shows once, at its own iteration, and does not poison the mean of the others.
    """

    total: float = 0.0
    weight: float = 0.0
    latest: float = math.nan
    nonfinite: int = 0

    def add(self, value: float, weight: float) -> None:
        """Take in one batch's value."""
        self.latest = value
        if math.isfinite(value):
            self.total += value * weight
            self.weight += weight
        else:
            self.nonfinite += 1

    @property
    def mean(self) -> float:
        """The mean of the finite values; NaN without any."""
        return self.total / self.weight if self.weight else math.nan

    @property
    def shown(self) -> float:
        """The mean so far, or the latest value where that is not finite."""
        return self.mean if math.isfinite(self.latest) else self.latest


@dataclass
class Metric:
    """One metric of a loop: a function, the fields of the step state it takes, and its running average."""

    name: str
    function: Callable[..., Any]
    fields: tuple[str, ...]
    weighted: bool = False
    average: RunningAverage = field(default_factory=RunningAverage)

    def __call__(self, state: StepState) -> float:
        """The batch's own value."""
        missing = [name for name in self.fields if name not in state]
        if missing:
            hint = " Pass keep_gradients=True to trainer." if "gradients" in missing else ""
            raise MetricError(f"The metric {self.name!r} asks for {missing[0]!r}: {nearest(missing[0], state)}.{hint}")
        with torch.no_grad():
            value = self.function(*(state[name] for name in self.fields))
        try:
            return float(value)
        except (TypeError, ValueError, RuntimeError):
            raise MetricError(f"The metric {self.name!r} returned {described(value)}; one number is wanted.") from None

    def weight(self, state: StepState) -> int:
        """Number of examples, where the metric looks at predictions or targets; 1 otherwise."""
        if not (self.weighted or {"y_true", "y_pred"} & set(self.fields)):
            return 1
        return batch_size(state["y_pred"], state["y_true"])


def loss_metric() -> Metric:
    """The batch's own loss, under the name every loop has it."""
    return Metric("loss", lambda loss: loss, ("loss",), weighted=True)


def build_metric(
    metric: str | Callable[..., Any], name: str | None, accumulate: str, fields: Sequence[str] | None
) -> Metric:
    """A metric by name or function.

    Raises
    ------
    MetricError
        If the name or accumulator is unknown, or a function has no name to go by.
    TypeError
        If `fields` is a bare string.
    """
    if isinstance(fields, str):
        raise TypeError(f"fields takes a list of step-state keys; write fields=[{fields!r}].")
    if accumulate not in ACCUMULATORS:
        raise MetricError(f"No accumulator is called {accumulate!r}: {nearest(str(accumulate), ACCUMULATORS)}")
    if isinstance(metric, str):
        if metric not in METRICS:
            raise MetricError(f"No metric is called {metric!r}: {nearest(metric, METRICS)}")
        name, metric = name or metric, METRICS[metric]
    if not callable(metric):
        raise MetricError(f"A metric is a name or a function; got {described(metric)}.")
    name = name or getattr(metric, "__name__", None)
    if not name or name == "<lambda>":
        raise MetricError('The metric needs a name: loop.metric(function, "name").')
    if name in RESERVED:
        raise MetricError(f"{name!r} is a column that every history has of its own; give the metric another name.")
    return Metric(name, metric, tuple(fields) if fields is not None else DEFAULT_FIELDS)


def means(metrics: Iterable[Metric]) -> dict[str, float]:
    """What `state.metrics` shows."""
    return {metric.name: metric.average.shown for metric in metrics}
