"""What follows metrics: `Measured`, the method by which a loop and an evaluation are given them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

from gradviz.errors import MetricError, MetricWarning, described, names_nearest_keyword, nearest, warn
from gradviz.loop.metrics.accumulators import Fold
from gradviz.loop.metrics.metric import Metric
from gradviz.metrics import METRICS

RESERVED = ("loss", "objective", "epoch", "iteration", "iterations", "nonfinite", "loss_scale", "skipped")
"""Names that the frames and evaluations have of their own."""

VALIDATION = "validation_"
"""What the names of a validation's results begin with."""

DEFAULT_FIELDS = ("y_pred", "y_true")


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
        accumulate: str | Fold = "running_average",
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
        accumulate : str or callable
            ``"running_average"``: the mean, weighted by examples where the metric looks at predictions or targets.
            ``"running_sum"``: the sum of the batches' values, as for counts. ``"last"``, ``"max"``, ``"min"``: one of
            them. Or a function of what they have come to so far, to begin with the first value, the next value, and
            the number of values before it: ``lambda so_far, value, n: 0.9 * so_far + 0.1 * value``. Values that are
            not finite show at their own iteration, and are left out of all of these.
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
        if earlier is not None and not earlier.is_same(made):
            warn(f"The metric {made.name!r} was there already; the new one takes its place.", MetricWarning)
        self._metrics[made.name] = made
        return self


def build_metric(
    metric: str | Callable[..., Any], name: str | None, accumulate: str | Fold, fields: Sequence[str] | None
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
    return Metric(name, metric, tuple(fields) if fields is not None else DEFAULT_FIELDS, accumulate)
