"""Metrics of one batch: what ``loop.metric("accuracy")`` follows, and what to give arguments with `functools.partial`.

Each takes the prediction and the targets, torch's own order, and returns a 0-dim tensor. Those of two classes take
logits, where above 0 means yes; of probabilities write ``partial(gv.metrics.precision, threshold=0.5)``. Over an epoch
counts add up, and their ratios are those of all examples together.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from gradviz.metrics.of_classes import accuracy, top_k_accuracy
from gradviz.metrics.of_numbers import mean_absolute_error, mean_squared_error
from gradviz.metrics.yes_or_no import (
    false_negatives,
    false_positives,
    precision,
    recall,
    sensitivity,
    specificity,
    true_negatives,
    true_positives,
)

__all__ = [
    "accuracy",
    "false_negatives",
    "false_positives",
    "mean_absolute_error",
    "mean_squared_error",
    "precision",
    "recall",
    "sensitivity",
    "specificity",
    "top_k_accuracy",
    "true_negatives",
    "true_positives",
]

METRICS: dict[str, Callable[..., Tensor]] = {name: globals()[name] for name in __all__}
"""By the names they go by."""


def is_ours(metric: Any) -> bool:
    """Whether a metric is one of these, with arguments or without.

    Examples
    --------
    >>> is_ours(partial(precision, threshold=0.5)), is_ours(max)
    (True, False)
    """
    return is_ours(metric.func) if isinstance(metric, partial) else any(metric is each for each in METRICS.values())
