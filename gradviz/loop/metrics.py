"""Metrics: functions of the step state, accumulated over an epoch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from gradviz.errors import MetricError, MetricWarning, described, names_nearest_keyword, nearest, warn
from gradviz.loop.events import is_same_handler
from gradviz.step.batch import Parts, batch_size
from gradviz.step.objective import Objective
from gradviz.step.shares import counted, counts_targets
from gradviz.step.step_state import StepState

RESERVED = ("loss", "objective", "epoch", "iteration", "iterations", "nonfinite", "loss_scale", "skipped")
"""Names that the frames and evaluations have of their own."""

VALIDATION = "validation_"
"""What the names of a validation's results begin with."""

_LARGEST = float(np.finfo(np.float32).max)

DEFAULT_FIELDS = ("y_pred", "y_true")


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


def mean_absolute_error(prediction: Tensor, targets: Tensor) -> Tensor:
    """Mean distance of predictions from targets, over all entries.

    Parameters
    ----------
    prediction, targets : Tensor
        Of one shape; integers are fine.

    Returns
    -------
    0-dim Tensor, in the widest of both dtypes and float32

    Raises
    ------
    MetricError
        If the shapes differ: broadcast, [batch] and [batch, 1] would compare everything with everything.

    Examples
    --------
    >>> mean_absolute_error(torch.tensor([[0, 1], [0, 0]]), torch.tensor([[1, 1], [1, 0]]))
    tensor(0.5000)
    """
    if not (isinstance(prediction, Tensor) and isinstance(targets, Tensor) and prediction.shape == targets.shape):
        raise MetricError(
            "mean_absolute_error compares tensors of one shape; the prediction is "
            f"{described(prediction)}, the targets are {described(targets)}. "
            "Write e.g. lambda p, y: (p.squeeze(1) - y).abs().mean()."
        )
    wide = torch.promote_types(torch.promote_types(prediction.dtype, targets.dtype), torch.float32)
    return F.l1_loss(prediction.to(wide), targets.to(wide))


METRICS: dict[str, Callable[..., Any]] = {"accuracy": accuracy, "mean_absolute_error": mean_absolute_error}


@dataclass
class Running:
    """What a metric has come to so far, summed in float64: in float32 a mean of 0.1 is at 0.0998 after 2e5 steps.

    A value that is not finite shows once, at its own iteration, and does not poison the sum of the others.
    """

    total: float = 0.0
    weight: float = 0.0
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
            self.total += value * weight
            self.weight += weight

    @property
    def complete(self) -> float:
        """Of all values: NaN or infinite if one of them is."""
        return self.value if math.isfinite(self.lost) else self.lost

    @property
    def value(self) -> float:
        """Of the finite values; NaN without any."""
        raise NotImplementedError

    @property
    def shown(self) -> float:
        """The value so far, or the latest batch's where that is not finite."""
        return self.value if math.isfinite(self.latest) else self.latest


class RunningAverage(Running):
    """The mean, by weight."""

    @property
    def value(self) -> float:
        """The mean of the finite values; NaN without any."""
        return self.total / self.weight if self.weight else math.nan


class RunningSum(Running):
    """The sum, which knows no weights."""

    def add(self, value: float, weight: float) -> None:
        """Take in one batch's value, once whatever its weight."""
        super().add(value, 1 if weight else 0)

    @property
    def value(self) -> float:
        """The sum of the finite values; NaN without any."""
        return self.total if self.weight else math.nan


ACCUMULATORS: dict[str, type[Running]] = {"running_average": RunningAverage, "running_sum": RunningSum}


@dataclass
class Metric:
    """One metric of a loop: a function, the fields of the step state it takes, and what it has come to.

    `dtype` is what it is reported in: the wider of its values' own and float32, from the first batch on.
    """

    name: str
    function: Callable[..., Any] | None  # None for a field itself
    fields: tuple[str, ...]
    accumulator: type[Running] = RunningAverage
    weigh: Callable[[StepState], float] | None = None
    running: Running = field(init=False)
    dtype: type[np.float32 | np.float64] = field(init=False, default=np.float32)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Forget what came before: an epoch begins."""
        self.running = self.accumulator()

    def fresh(self) -> Metric:
        """The same metric, of other data."""
        return dataclasses.replace(self)

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
        batch = self.accumulator()
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
    if name in RESERVED or name.startswith(VALIDATION):
        raise MetricError(f"{name!r} is a name that loops and histories use themselves; give the metric another name.")
    return Metric(name, metric, tuple(fields) if fields is not None else DEFAULT_FIELDS, ACCUMULATORS[accumulate])


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


class Measured:
    """Something that follows metrics, by name."""

    @property
    def _metrics(self) -> dict[str, Metric]:
        raise NotImplementedError

    @names_nearest_keyword
    def metric(
        self,
        fn_or_name: str | Callable[..., Any],
        name: str | None = None,
        accumulate: str = "running_average",
        *,
        fields: Sequence[str] | None = None,
    ) -> Self:
        """Follow a metric of every batch, and what it comes to over the epoch, or over the data of an evaluation.

        It is reported as a numpy scalar, in the wider of its values' dtype and float32, and summed in float64.

        Parameters
        ----------
        fn_or_name : str or callable
            ``"accuracy"``, ``"mean_absolute_error"``, or a function that returns one number. Accuracy takes scores of
            each class, or the logits of two: above 0 means yes. Of probabilities write
            ``lambda p, y: ((p > 0.5) == y.bool()).float().mean()``.
        name : str, optional
            What it is called; by default as the function is.
        accumulate : str
            ``"running_average"``: the mean, weighted by examples where the metric looks at predictions or targets.
            ``"running_sum"``: the sum of the batches' values, as for counts.
        fields : list of str, optional
            Keys of the step state that are its arguments, by default ``["y_pred", "y_true"]``: torch's own order.
            Others are ``loss``, ``model_state``, ``optimizer_state``, ``loss_scale_state``, ``i``, and ``gradients``
            with ``keep_gradients=True``; an evaluation has y_pred, y_true, loss and model_state only.

        Examples
        --------
        >>> import gradviz as gv
        >>> from torch import nn
        >>> loop = gv.trainer(nn.Linear(2, 1), "mean_squared_error", "sgd")
        >>> loop.metric(lambda loss: loss.sqrt(), "root of the loss", fields=["loss"])
        Loop of Linear: 0 iterations, 0 epochs (idle)
        """
        made = build_metric(fn_or_name, name, accumulate, fields)
        earlier = self._metrics.get(made.name)
        # A cell that is run again says the same once more; only another meaning is worth a word.
        same = (
            earlier is not None
            and (earlier.fields, earlier.accumulator) == (made.fields, made.accumulator)
            and is_same_handler(earlier.function, made.function)
        )
        if earlier is not None and not same:
            warn(f"The metric {made.name!r} was there already; the new one takes its place.", MetricWarning)
        self._metrics[made.name] = made
        return self


def _is_float64(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.dtype == torch.float64
    return isinstance(value, float) or (isinstance(value, np.ndarray) and value.dtype == np.float64)
