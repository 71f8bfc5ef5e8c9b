"""A gradient is read by parameter name, and unused is not zero."""

from __future__ import annotations

import torch

from gradviz.grad.algebra import Grad


def test_a_parameter_the_loss_never_reached_reads_as_zeros_and_is_listed():
    used, idle = torch.ones(2, requires_grad=True), torch.ones(3, dtype=torch.float64, requires_grad=True)
    grad = Grad({"used": used, "idle": idle}, torch.autograd.grad((used * 0).sum(), [used, idle], allow_unused=True))
    assert list(grad) == ["used", "idle"]
    assert grad.unused == ("idle",)
    assert grad["used"].tolist() == [0, 0]
    assert grad["idle"].tolist() == [0, 0, 0]
    assert grad["idle"].dtype == torch.float64
    assert not grad["idle"].requires_grad
    assert grad.given["idle"] is None
    assert "idle: (3,) float64" in repr(grad)
