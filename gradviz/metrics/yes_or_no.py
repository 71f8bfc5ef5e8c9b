"""Metrics of predictions of two classes: how often yes and no were right and wrong, and the ratios of these counts."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from gradviz.errors import MetricError, described
from gradviz.metrics.shapes import check_tensors, has_scores, is_yes, without_axis_of_one


def true_positives(prediction: Tensor, targets: Tensor, *, threshold: float = 0.0) -> Tensor:
    """Number of examples that are, and are said to be.

    Parameters
    ----------
    prediction : Tensor
        Logits or probabilities in the shape of the targets, or with one more axis of length 1; every entry is an
        example. Or scores of shape [batch, 2, ...], where the second class is the yes.
    targets : Tensor
        0 and 1, or bool.
    threshold : float
        What a prediction must exceed to say yes: 0 for logits, 0.5 for probabilities.

    Returns
    -------
    0-dim int64 Tensor; float32 and NaN if a prediction is NaN

    Raises
    ------
    MetricError
        If the shapes differ, there are more than two classes, or a target is neither 0 nor 1.

    Examples
    --------
    >>> true_positives(torch.tensor([0.8, 0.6, 0.4]), torch.tensor([1, 0, 1]), threshold=0.5)
    tensor(1)
    """
    return _confusion(prediction, targets, threshold, "true_positives").true_positives


def false_positives(prediction: Tensor, targets: Tensor, *, threshold: float = 0.0) -> Tensor:
    """Number of examples that are not, and are said to be; arguments as of `true_positives`.

    Examples
    --------
    >>> false_positives(torch.tensor([0.8, 0.6, 0.4]), torch.tensor([1, 0, 1]), threshold=0.5)
    tensor(1)
    """
    return _confusion(prediction, targets, threshold, "false_positives").false_positives


def true_negatives(prediction: Tensor, targets: Tensor, *, threshold: float = 0.0) -> Tensor:
    """Number of examples that are not, and are said not to be; arguments as of `true_positives`.

    Examples
    --------
    >>> true_negatives(torch.tensor([0.8, 0.6, 0.4]), torch.tensor([1, 0, 1]), threshold=0.5)
    tensor(0)
    """
    return _confusion(prediction, targets, threshold, "true_negatives").true_negatives


def false_negatives(prediction: Tensor, targets: Tensor, *, threshold: float = 0.0) -> Tensor:
    """Number of examples that are, and are said not to be; arguments as of `true_positives`.

    Examples
    --------
    >>> false_negatives(torch.tensor([0.8, 0.6, 0.4]), torch.tensor([1, 0, 1]), threshold=0.5)
    tensor(1)
    """
    return _confusion(prediction, targets, threshold, "false_negatives").false_negatives


def precision(prediction: Tensor, targets: Tensor, *, threshold: float = 0.0) -> Tensor:
    """Of the examples that are said to be, the share that are; arguments as of `true_positives`.

    Returns
    -------
    0-dim float32 Tensor, between 0 and 1; NaN if nothing is said to be, or a prediction is NaN

    Examples
    --------
    >>> precision(torch.tensor([1.2, -0.3, 2.0, 0.4]), torch.tensor([0, 1, 1, 1]))
    tensor(0.6667)
    """
    right, whole = right_of_said(prediction, targets, threshold=threshold)
    return right / whole


def recall(prediction: Tensor, targets: Tensor, *, threshold: float = 0.0) -> Tensor:
    """Of the examples that are, the share that are said to be; arguments as of `true_positives`.

    Returns
    -------
    0-dim float32 Tensor, between 0 and 1; NaN if there is none that is, or a prediction is NaN

    Examples
    --------
    >>> recall(torch.tensor([1.2, -0.3, 2.0, 0.4]), torch.tensor([0, 1, 1, 1]))
    tensor(0.6667)
    """
    right, whole = right_of_positives(prediction, targets, threshold=threshold)
    return right / whole


def sensitivity(prediction: Tensor, targets: Tensor, *, threshold: float = 0.0) -> Tensor:
    """`recall`, by the name that medicine has for it.

    Examples
    --------
    >>> sensitivity(torch.tensor([1.2, -0.3, 2.0, 0.4]), torch.tensor([0, 1, 1, 1]))
    tensor(0.6667)
    """
    return recall(prediction, targets, threshold=threshold)


def specificity(prediction: Tensor, targets: Tensor, *, threshold: float = 0.0) -> Tensor:
    """Of the examples that are not, the share that are said not to be; arguments as of `true_positives`.

    Returns
    -------
    0-dim float32 Tensor, between 0 and 1; NaN if there is none that is not, or a prediction is NaN

    Examples
    --------
    >>> specificity(torch.tensor([1.2, -0.3, -2.0]), torch.tensor([0, 1, 0]))
    tensor(0.5000)
    """
    right, whole = right_of_negatives(prediction, targets, threshold=threshold)
    return right / whole


# The counts whose ratios they are -----------------------------------------------------------------------------------


class _Confusion(NamedTuple):
    true_positives: Tensor
    false_positives: Tensor
    true_negatives: Tensor
    false_negatives: Tensor


def _confusion(prediction: Tensor, targets: Tensor, threshold: float, name: str) -> _Confusion:
    said, is_so = _said(prediction, targets, threshold, name), is_yes(targets)
    if prediction.isnan().any():
        return _Confusion(*torch.full((4,), math.nan))  # nothing is predicted
    return _Confusion((said & is_so).sum(), (said & ~is_so).sum(), (~said & ~is_so).sum(), (~said & is_so).sum())


def right_of_said(prediction: Tensor, targets: Tensor, *, threshold: float = 0.0) -> tuple[Tensor, Tensor]:
    """How many examples that are said to be are, and how many are said to be."""
    found = _confusion(prediction, targets, threshold, "precision")
    return found.true_positives, found.true_positives + found.false_positives


def right_of_positives(prediction: Tensor, targets: Tensor, *, threshold: float = 0.0) -> tuple[Tensor, Tensor]:
    """How many examples that are are said to be, and how many are."""
    found = _confusion(prediction, targets, threshold, "recall")
    return found.true_positives, found.true_positives + found.false_negatives


def right_of_negatives(prediction: Tensor, targets: Tensor, *, threshold: float = 0.0) -> tuple[Tensor, Tensor]:
    """How many examples that are not are said not to be, and how many are not."""
    found = _confusion(prediction, targets, threshold, "specificity")
    return found.true_negatives, found.true_negatives + found.false_positives


def _said(prediction: Tensor, targets: Tensor, threshold: float, name: str) -> Tensor:
    """Which examples are said to be of the second of two classes."""
    check_tensors(prediction, targets)
    prediction = without_axis_of_one(prediction, targets)
    if prediction.shape == targets.shape:
        return prediction > threshold
    if not has_scores(prediction, targets):
        raise MetricError(
            "A metric of two classes takes a prediction in the shape of the targets, or of shape [batch, 2]; the "
            f"prediction is {described(prediction)}, the targets are {described(targets)}."
        )
    if prediction.shape[1] > 2:
        raise MetricError(
            f"The prediction has {prediction.shape[1]} classes, and this metric is of two. Write e.g. "
            f"{_of_more(name, prediction.shape[1])}."
        )
    if threshold:
        raise MetricError(
            "Of two scores for each example the higher one counts, and there is no threshold. Leave it out, or let the "
            "model predict one number for each example."
        )
    return prediction[:, 1] > prediction[:, 0]


def _of_more(name: str, classes: int) -> str:
    """What to write where there are more classes."""
    if name in ("precision", "recall", "specificity"):
        return f"loop.metric(torchmetrics.classification.Multiclass{name.capitalize()}({classes}))"
    return f'loop.metric(lambda p, y: gv.metrics.{name}(p.argmax(1) == 0, y == 0), "{name}_of_0", "running_sum")'
