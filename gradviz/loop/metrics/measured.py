"""What follows metrics: `Measured`, the method by which a loop and an evaluation are given them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

from gradviz.errors import MetricError, MetricWarning, described, names_nearest_keyword, nearest, warn
from gradviz.loop.metrics.accumulators import Fold
from gradviz.loop.metrics.function_metric import FunctionMetric
from gradviz.loop.metrics.metric import Metric
from gradviz.loop.metrics.object_metric import Accumulating, ObjectMetric
from gradviz.metrics import METRICS

RESERVED = (
    *("loss", "objective", "epoch", "iteration", "iterations", "nonfinite", "loss_scale", "skipped"),
    *("attempt", "closure_calls", "optimizer", "thinned"),
    *("i", "y_true", "y_pred", "model_state", "optimizer_state", "loss_scale_state", "gradients"),
)
"""Names that the frames and evaluations have of their own, and those of the step state's fields."""

VALIDATION = "validation_"
"""What the names of a validation's results begin with."""

DEFAULT_FIELDS = ("y_pred", "y_true")


class Measured:
    """Something that follows metrics, by name."""

    @property
    def _metrics(self) -> dict[str, Metric]:
        raise NotImplementedError

    def _check_free(self) -> None:
        """Raise if metrics cannot be added now."""

    def _check_fields(self, metric: Metric) -> None:
        """Raise if a metric asks for a field that is never there."""

    @names_nearest_keyword
    def metric(
        self,
        fn_or_name: str | Callable[..., Any] | Accumulating,
        name: str | None = None,
        accumulate: str | Fold | None = None,
        *,
        fields: Sequence[str] | None = None,
    ) -> Self:
        """Follow a metric of every batch, and what it comes to over the epoch, or over the data of an evaluation.

        It is reported as a numpy scalar, in the wider of its values' dtype and float32, and accumulated in float64. It
        sees what a step leaves behind: ``y_pred`` is what the model said before the update.

        Parameters
        ----------
        fn_or_name : str, callable or object
            A name of `gradviz.metrics`: ``"accuracy"``, ``"top_k_accuracy"``, ``"precision"``, ``"recall"``,
            ``"sensitivity"``, ``"specificity"``, ``"true_positives"``, ``"false_positives"``, ``"true_negatives"``,
            ``"false_negatives"``, ``"mean_absolute_error"``, ``"mean_squared_error"``. They take logits; of
            probabilities write ``functools.partial(gv.metrics.precision, threshold=0.5)``. Or a function that returns
            one number. Or an object that accumulates by itself, with update, compute and reset, such as those of
            torchmetrics: it stays as it is, the loop works with copies. Of an object, `state.metrics` is computed at
            every batch up to the 64th, and from then on whenever the epoch has grown by a 64th; at its end it is exact.
        name : str, optional
            What it is called; by default as the function or the object's class is.
        accumulate : str or callable, optional
            ``"running_average"``, if not said otherwise: the mean, weighted by examples where the metric looks at
            predictions or targets; of the accuracies, precision, recall and specificity that over all examples that
            count. ``"running_sum"``, if not said otherwise for counts such as true_positives: the sum of the batches'
            values. ``"last"``, ``"max"``, ``"min"``: one of them. Or a function of what they have come to so far, to
            begin with the first value, the next value, and the number of values before it: ``lambda so_far, value, n:
            0.9 * so_far + 0.1 * value``. Values that are not finite show at their own iteration, and are left out of
            all of these.
        fields : list of str, optional
            Keys of the step state that are its arguments, by default ``["y_pred", "y_true"]``: torch's own order.
            Others are ``loss``, ``model_state``, ``optimizer_state``, ``loss_scale_state``, ``i``, and ``gradients``
            with ``keep_gradients=True``; an evaluation has y_pred, y_true, loss and model_state only.

        Raises
        ------
        MetricError
            If a name is unknown or taken, a function has no name to go by, an object holds several metrics, or a field
            is never there, such as ``gradients`` without ``keep_gradients=True``. From a metric of `gradviz.metrics` or
            an object, when the first batch is tried, before anything has moved, if it cannot be computed of it; a
            function of your own is first called after the first step.

        Examples
        --------
        >>> import torch, gradviz as gv
        >>> from torch import nn
        >>> loop = gv.trainer(nn.Linear(2, 1), "binary_cross_entropy", "sgd").metric("recall").metric("true_positives")
        >>> loop.metric(lambda loss: loss.sqrt(), "worst", "max", fields=["loss"])
        Loop of Linear: 0 iterations, 0 epochs (idle)
        >>> data = [(torch.ones(4, 2), torch.tensor([[1.0], [1.0], [0.0], [1.0]]))] * 2
        >>> state = loop.run(data)
        >>> float(state.metrics["true_positives"]) == 6 * float(state.metrics["recall"])
        True
        """
        self._check_free()
        made = build_metric(fn_or_name, name, accumulate, fields)
        self._check_fields(made)
        earlier = self._metrics.get(made.name)
        # A cell that is run again says the same once more; only another meaning is worth a word.
        if earlier is not None and not earlier.is_same(made):
            warn(f"The metric {made.name!r} was there already; the new one takes its place.", MetricWarning)
        self._metrics[made.name] = made
        return self


def build_metric(
    metric: str | Callable[..., Any] | Accumulating,
    name: str | None = None,
    accumulate: str | Fold | None = None,
    fields: Sequence[str] | None = None,
) -> Metric:
    """A metric by name, from a function, or from an object that accumulates by itself.

    Raises
    ------
    MetricError
        If the name or accumulator is unknown, a function has no name to go by, or an object is no single metric.
    TypeError
        If `fields` is a bare string.
    """
    if isinstance(fields, str):
        raise TypeError(f"fields takes a list of step-state keys; write fields=[{fields!r}].")
    if isinstance(metric, str):
        if metric not in METRICS:
            raise MetricError(f"No metric is called {metric!r}: {nearest(metric, METRICS)}")
        name, metric = name or metric, METRICS[metric]
    accumulates_itself = isinstance(metric, Accumulating)
    if not accumulates_itself and not callable(metric):
        raise MetricError(
            f"A metric is a name, a function, or an object with update, compute and reset; got {described(metric)}."
        )
    name = name or (type(metric).__name__ if accumulates_itself else _name_of(metric))
    if not name or name == "<lambda>":
        raise MetricError('The metric needs a name: loop.metric(function, "name").')
    if name in RESERVED or name.startswith(VALIDATION):
        raise MetricError(f"{name!r} is a name that loops and histories use themselves; give the metric another name.")
    chosen = DEFAULT_FIELDS if fields is None else fields
    if not isinstance(metric, Accumulating):
        _check_arguments(name, metric, chosen)
        return FunctionMetric(name, metric, chosen, accumulate)
    if accumulate is not None:
        raise MetricError(
            f"The {type(metric).__name__} accumulates by itself; leave out accumulate={accumulate!r}. "
            "For its batches alone, give a function of the batch instead of the object."
        )
    return ObjectMetric(name, metric, chosen)


def _check_arguments(name: str, function: Callable[..., Any], fields: Sequence[str]) -> None:
    try:
        inspect.signature(function).bind(*fields)
    except TypeError as error:
        raise MetricError(
            f"The metric {name!r} is given {', '.join(fields) or 'nothing'}, and takes something else: {error}. Name "
            f'what it takes: loop.metric(function, {name!r}, fields=["y_pred"]).'
        ) from None
    except ValueError:
        pass  # written in C, with a signature that cannot be read


def _name_of(function: Any) -> str | None:
    return _name_of(function.func) if isinstance(function, partial) else getattr(function, "__name__", None)
