"""What the values of several batches come to: counts add up, and a ratio is that of the counts of all of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from gradviz.metrics.of_classes import accuracy, among_k_of_counted, right_of_counted, top_k_accuracy
from gradviz.metrics.yes_or_no import (
    false_negatives,
    false_positives,
    precision,
    recall,
    right_of_negatives,
    right_of_positives,
    right_of_said,
    sensitivity,
    specificity,
    true_negatives,
    true_positives,
)

_COUNTS = (true_positives, false_positives, true_negatives, false_negatives)
_COUNTS_OF: tuple[tuple[Callable[..., Tensor], Callable[..., tuple[Tensor, Tensor]]], ...] = (
    (accuracy, right_of_counted),
    (top_k_accuracy, among_k_of_counted),
    (precision, right_of_said),
    (recall, right_of_positives),
    (sensitivity, right_of_positives),
    (specificity, right_of_negatives),
)


def is_count(metric: Any) -> bool:
    """Whether a metric is a number of examples, so that those of several batches add up.

    Examples
    --------
    >>> is_count(partial(true_positives, threshold=0.5)), is_count(precision)
    (True, False)
    """
    return is_count(metric.func) if isinstance(metric, partial) else any(metric is count for count in _COUNTS)


def counts_of(metric: Any) -> Callable[..., tuple[Tensor, Tensor]] | None:
    """The function of the same arguments that gives the two counts whose ratio a metric is; None if it is no ratio.

    Examples
    --------
    >>> import torch
    >>> counts_of(precision)(torch.tensor([1.2, -0.3, 2.0, 0.4]), torch.tensor([0, 1, 1, 1]))
    (tensor(2), tensor(3))
    """
    if isinstance(metric, partial):
        counts = counts_of(metric.func)
        return None if counts is None else partial(counts, *metric.args, **metric.keywords)
    return next((counts for ratio, counts in _COUNTS_OF if metric is ratio), None)
