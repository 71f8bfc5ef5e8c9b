"""Losses by name give torch's numbers, or hand-made ones."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from gradviz.step.losses import LOSSES


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_every_loss_gives_a_differentiable_scalar(name):
    prediction = torch.tensor([[0.2, -1.0, 0.5], [1.5, 0.1, -0.3]], requires_grad=True)
    targets = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    if name == "nll":
        targets = targets.argmax(1)
    loss = LOSSES[name](prediction, targets)
    assert loss.shape == ()
    (gradient,) = torch.autograd.grad(loss, prediction)
    assert gradient.isfinite().all()


def test_torch_s_own_are_torch_s_own():
    assert LOSSES["cross_entropy"] is LOSSES["categorical_cross_entropy"] is F.cross_entropy
    assert LOSSES["binary_cross_entropy"] is F.binary_cross_entropy_with_logits
    assert LOSSES["mean_squared_error"] is F.mse_loss
    assert LOSSES["mean_absolute_error"] is LOSSES["l1"] is F.l1_loss


def test_hinges_by_hand():
    assert LOSSES["hinge"](torch.tensor([0.5, -2.0]), torch.tensor([1.0, 1.0])).item() == pytest.approx((0.5 + 3) / 2)
    scores, right = torch.tensor([[0.2, 0.9, 0.4]]), torch.tensor([[1.0, 0.0, 0.0]])
    assert LOSSES["categorical_hinge"](scores, right).item() == pytest.approx(1 + 0.9 - 0.2)


def test_log_cosh_does_not_overflow():
    loss = LOSSES["log_cosh"](torch.tensor([1.0, 1000.0, -1000.0]), torch.zeros(3))
    assert loss.item() == pytest.approx((math.log(math.cosh(1)) + 2 * (1000 - math.log(2))) / 3, rel=1e-6)


def test_kl_divergence_by_hand():
    p, q = torch.tensor([[0.5, 0.5]]), torch.tensor([[0.25, 0.75]])
    by_hand = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert LOSSES["kl_divergence"](q.log(), p).item() == pytest.approx(by_hand)
