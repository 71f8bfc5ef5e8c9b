"""What predictions and targets of classes look like."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from gradviz.errors import MetricError, described

IGNORE_INDEX = -100
"""The class index that torch's losses leave out if they are not told another one."""


def check_tensors(prediction: Any, targets: Any) -> None:
    """Raise a MetricError if one of them is no tensor, such as one of several outputs."""
    if not (isinstance(prediction, Tensor) and isinstance(targets, Tensor)):
        raise MetricError(
            f"This metric compares tensors; the prediction is {described(prediction)}, the targets are "
            f"{described(targets)}. Write e.g. lambda p, y: gv.metrics.accuracy(p[0], y[0])."
        )


def without_axis_of_one(prediction: Tensor, targets: Tensor) -> Tensor:
    """A prediction of shape [batch, 1, ...] in the shape of its targets, [batch, ...]; any other as it is."""
    is_one_more = prediction.ndim == targets.ndim + 1 and prediction.shape[1] == 1
    return prediction.squeeze(1) if is_one_more else prediction


def has_scores(prediction: Tensor, targets: Tensor) -> bool:
    """Whether the prediction has an axis of classes, and the targets fit it."""
    if prediction.ndim < 2:
        return False
    if prediction.ndim == targets.ndim + 1:
        return prediction.shape[:1] + prediction.shape[2:] == targets.shape
    return prediction.shape == targets.shape and prediction.shape[1] > 1


def not_ignored(targets: Tensor, ignore_index: int = IGNORE_INDEX) -> Tensor:
    """Which class indices count.

    Examples
    --------
    >>> import torch
    >>> not_ignored(torch.tensor([2, -100, 0]))
    tensor([ True, False,  True])
    """
    return targets.long() != ignore_index  # in uint8, -100 would be class 156


def is_yes(targets: Tensor) -> Tensor:
    """Which targets are 1; a MetricError if they are not all 0 or 1."""
    if not ((targets == 0) | (targets == 1)).all():
        raise MetricError(
            "This metric counts classes, and these targets are neither class indices nor 0 and 1. Of numbers there are "
            '"mean_absolute_error" and "mean_squared_error".'
        )
    return targets == 1
