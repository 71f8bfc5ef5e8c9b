"""Metrics of one batch, by name: what `loop.metric("accuracy")` follows.

Each takes the prediction and the targets, torch's own order, and returns a 0-dim tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from gradviz.errors import MetricError, described


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
