"""Metrics of predictions that have a score for each class."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gradviz.errors import MetricError, described
from gradviz.metrics.shapes import check_tensors, has_scores, is_yes, without_axis_of_one


def accuracy(prediction: Tensor, targets: Tensor, *, threshold: float = 0.0) -> Tensor:
    """Share of examples whose prediction is right.

    Parameters
    ----------
    prediction : Tensor
        Scores of shape [batch, classes, ...], torch's own order; or logits of two classes in the shape of the targets
        (or with one more axis of length 1), where above `threshold` means yes.
    targets : Tensor
        Class indices of shape [batch, ...], one-hot or probabilities in the shape of the scores, or 0 and 1.
    threshold : float
        Only without a score for each class: 0 for logits, 0.5 for probabilities.

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
    check_tensors(prediction, targets)
    if prediction.isnan().any():
        return torch.tensor(math.nan)  # nothing is predicted
    prediction = without_axis_of_one(prediction, targets)
    if has_scores(prediction, targets):
        right = prediction.argmax(1) == _classes(prediction, targets)
    elif prediction.shape == targets.shape:
        right = (prediction > threshold) == is_yes(targets)
    else:
        raise MetricError(
            f"accuracy cannot compare a prediction of shape {tuple(prediction.shape)} with targets of shape "
            f"{tuple(targets.shape)}; it wants [batch, classes] and [batch], or the same shape twice."
        )
    return right.float().mean()


def top_k_accuracy(prediction: Tensor, targets: Tensor, *, k: int = 5) -> Tensor:
    """Share of examples whose class is among the k with the highest scores.

    Parameters
    ----------
    prediction : Tensor
        Scores of shape [batch, classes, ...].
    targets : Tensor
        Class indices of shape [batch, ...], or one-hot or probabilities in the shape of the scores.
    k : int
        At most the number of classes.

    Returns
    -------
    0-dim float32 Tensor, between 0 and 1; NaN if a prediction is NaN

    Raises
    ------
    MetricError
        If the shapes fit neither, or there are no k classes.

    Examples
    --------
    >>> top_k_accuracy(torch.tensor([[0.1, 0.4, 0.7], [0.1, 0.4, 0.7]]), torch.tensor([1, 0]), k=2)
    tensor(0.5000)
    """
    check_tensors(prediction, targets)
    if not has_scores(prediction, targets):
        raise MetricError(
            "top_k_accuracy wants scores of shape [batch, classes] and targets of shape [batch]; the prediction is "
            f"{described(prediction)}, the targets are {described(targets)}."
        )
    if not 1 <= k <= prediction.shape[1]:
        raise MetricError(
            f"There is no top_k_accuracy with k={k} of {prediction.shape[1]} classes; k is 5 if not said otherwise. "
            "Write loop.metric(functools.partial(gv.metrics.top_k_accuracy, k=2))."
        )
    if prediction.isnan().any():
        return torch.tensor(math.nan)
    among = prediction.topk(k, dim=1).indices == _classes(prediction, targets).unsqueeze(1)
    return among.any(1).float().mean()


def _classes(prediction: Tensor, targets: Tensor) -> Tensor:
    """The class of each example."""
    if prediction.ndim == targets.ndim + 1:
        return targets
    if not torch.isclose(targets.sum(1).float(), torch.ones((), device=targets.device)).all():
        raise MetricError("Accuracy takes one class for each example; these targets are neither one-hot nor shares.")
    return targets.argmax(1)
