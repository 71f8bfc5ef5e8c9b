"""Losses by name, in torch's order `loss(prediction, targets)`, averaged over the batch.

========================================== ==========================================================================
name                                       prediction; targets
========================================== ==========================================================================
mean_squared_error; mean_absolute_error,   anything; the same shape
l1; smooth_l1; huber; log_cosh
cross_entropy, categorical_cross_entropy   logits [batch, classes, ...]; class indices, or probabilities
nll                                        log-probabilities [batch, classes, ...]; class indices
binary_cross_entropy                       logits, not probabilities (torch's ..._with_logits); 0 to 1
hinge; soft_margin                         scores; -1 or 1
categorical_hinge                          scores [..., classes]; one-hot
kl_divergence                              log-probabilities; probabilities
poisson                                    the logarithm of the rate; counts
========================================== ==========================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor
from torch.nn import functional as F

Loss = Callable[..., Tensor]


def hinge(prediction: Tensor, targets: Tensor) -> Tensor:
    """mean(max(0, 1 - targets * prediction)), targets -1 or 1."""
    return (1 - targets * prediction).clamp(min=0).mean()


def categorical_hinge(prediction: Tensor, targets: Tensor) -> Tensor:
    """mean(max(0, 1 + the largest wrong score - the right score)), targets one-hot over the last axis."""
    right = (targets * prediction).sum(-1)
    wrong = ((1 - targets) * prediction).amax(-1)
    return (1 + wrong - right).clamp(min=0).mean()


def log_cosh(prediction: Tensor, targets: Tensor) -> Tensor:
    """mean(log(cosh(prediction - targets))), written so that it does not overflow."""
    error = prediction - targets
    return (error + F.softplus(-2 * error) - math.log(2)).mean()


def kl_divergence(prediction: Tensor, targets: Tensor) -> Tensor:
    """torch's kl_div, averaged over the batch: the prediction is in log space, the targets are probabilities."""
    return F.kl_div(prediction, targets, reduction="batchmean")


LOSSES: dict[str, Loss] = {
    "binary_cross_entropy": F.binary_cross_entropy_with_logits,
    "categorical_cross_entropy": F.cross_entropy,
    "categorical_hinge": categorical_hinge,
    "cross_entropy": F.cross_entropy,
    "hinge": hinge,
    "huber": F.huber_loss,
    "kl_divergence": kl_divergence,
    "l1": F.l1_loss,
    "log_cosh": log_cosh,
    "mean_absolute_error": F.l1_loss,
    "mean_squared_error": F.mse_loss,
    "nll": F.nll_loss,
    "poisson": F.poisson_nll_loss,
    "smooth_l1": F.smooth_l1_loss,
    "soft_margin": F.soft_margin_loss,
}
