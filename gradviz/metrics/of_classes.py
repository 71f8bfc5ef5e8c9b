"""Metrics of predictions that have a score for each class."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gradviz.errors import MetricError, described
from gradviz.metrics.shapes import IGNORE_INDEX, check_tensors, has_scores, is_yes, not_ignored, without_axis_of_one


def accuracy(
    prediction: Tensor, targets: Tensor, *, threshold: float = 0.0, ignore_index: int = IGNORE_INDEX
) -> Tensor:
    """Share of examples whose prediction is right, of those that the loss does not ignore.

    Parameters
    ----------
    prediction : Tensor
        Scores of shape [batch, classes, ...], torch's own order; or logits of two classes in the shape of the targets
        (or with one more axis of length 1), where above `threshold` means yes.
    targets : Tensor
        Class indices of shape [batch, ...], one-hot or probabilities in the shape of the scores, or 0 and 1.
    threshold : float
        Only without a score for each class: 0 for logits, 0.5 for probabilities.
    ignore_index : int
        The class index of examples that do not count, torch's own as it stands: padding, pixels without a label. They
        weigh nothing in the epoch either.

    Returns
    -------
    0-dim float32 Tensor, between 0 and 1; NaN if no example counts, or the prediction of one that counts is NaN

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
    >>> accuracy(torch.tensor([[2.0, 1.0], [0.0, 3.0], [1.0, 0.0]]), torch.tensor([0, -100, 1]))
    tensor(0.5000)
    """
    right, counted = right_of_counted(prediction, targets, threshold=threshold, ignore_index=ignore_index)
    return right / counted


def top_k_accuracy(prediction: Tensor, targets: Tensor, *, k: int = 5, ignore_index: int = IGNORE_INDEX) -> Tensor:
    """Share of examples whose class is among the k with the highest scores, of those that the loss does not ignore.

    Parameters
    ----------
    prediction : Tensor
        Scores of shape [batch, classes, ...].
    targets : Tensor
        Class indices of shape [batch, ...], or one-hot or probabilities in the shape of the scores.
    k : int
        At most the number of classes.
    ignore_index : int
        As of `accuracy`.

    Returns
    -------
    0-dim float32 Tensor, between 0 and 1; NaN if no example counts, or the prediction of one that counts is NaN

    Raises
    ------
    MetricError
        If the shapes fit neither, or there are no k classes.

    Examples
    --------
    >>> top_k_accuracy(torch.tensor([[0.1, 0.4, 0.7], [0.1, 0.4, 0.7]]), torch.tensor([1, 0]), k=2)
    tensor(0.5000)
    """
    among, counted = among_k_of_counted(prediction, targets, k=k, ignore_index=ignore_index)
    return among / counted


# The counts whose ratios they are -----------------------------------------------------------------------------------


def right_of_counted(
    prediction: Tensor, targets: Tensor, *, threshold: float = 0.0, ignore_index: int = IGNORE_INDEX
) -> tuple[Tensor, Tensor]:
    """How many examples are right, and how many count; arguments as of `accuracy`."""
    check_tensors(prediction, targets)
    prediction = without_axis_of_one(prediction, targets)
    if has_scores(prediction, targets):
        classes, counts = _classes(prediction, targets, ignore_index)
        return _counted(prediction.argmax(1) == classes, counts, prediction.isnan().any(1))
    if prediction.shape == targets.shape:
        right = (prediction > threshold) == is_yes(targets)
        return _counted(right, torch.ones_like(right), prediction.isnan())
    raise MetricError(
        f"accuracy cannot compare a prediction of shape {tuple(prediction.shape)} with targets of shape "
        f"{tuple(targets.shape)}; it wants [batch, classes] and [batch], or the same shape twice."
    )


def among_k_of_counted(
    prediction: Tensor, targets: Tensor, *, k: int = 5, ignore_index: int = IGNORE_INDEX
) -> tuple[Tensor, Tensor]:
    """How many examples have their class among the k best, and how many count; arguments as of `top_k_accuracy`."""
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
    classes, counts = _classes(prediction, targets, ignore_index)
    among = (prediction.topk(k, dim=1).indices == classes.unsqueeze(1)).any(1)
    return _counted(among, counts, prediction.isnan().any(1))


def _counted(right: Tensor, counts: Tensor, is_nan: Tensor) -> tuple[Tensor, Tensor]:
    if (counts & is_nan).any():
        return torch.tensor(math.nan), torch.tensor(math.nan)  # nothing is predicted
    return (right & counts).sum(), counts.sum()


def _classes(prediction: Tensor, targets: Tensor, ignore_index: int) -> tuple[Tensor, Tensor]:
    """The class of each example, and which of them count."""
    if prediction.ndim == targets.ndim + 1:
        return targets, not_ignored(targets, ignore_index)
    if not torch.isclose(targets.sum(1).float(), torch.ones((), device=targets.device)).all():
        raise MetricError("Accuracy takes one class for each example; these targets are neither one-hot nor shares.")
    classes = targets.argmax(1)
    return classes, torch.ones_like(classes, dtype=torch.bool)
