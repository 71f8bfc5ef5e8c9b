"""Loops of a user's own: each trains a model for some iterations, with nothing of gradviz in it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

Step = Callable[[int], None]
"""Called between the backward pass and the optimizer's step, with the iteration."""


def net(seed: int = 0) -> nn.Sequential:
    """3 -> 4 -> 1: "0.weight", "0.bias", "2.weight" and "2.bias"."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def one_weight(value: float = 1.0) -> nn.Linear:
    """A weight w; its gradient by w x is x."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, value)
    return model


def inputs(iteration: int, n: int = 5) -> Tensor:
    """Other ones in each iteration."""
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(iteration))


def plain(model: nn.Module, optimizer: torch.optim.Optimizer, n: int = 4, before_step: Step | None = None) -> None:
    """Zero, backward, step."""
    for iteration in range(n):
        optimizer.zero_grad()
        model(inputs(iteration)).square().mean().backward()
        if before_step is not None:
            before_step(iteration)
        optimizer.step()


def norms(model: nn.Module) -> list[float]:
    """Of the gradients there are now; NaN where there is none."""
    return [float("nan") if p.grad is None else float(p.grad.norm()) for p in model.parameters()]
