"""A training loop in plain PyTorch, and what its gradients were: as which those of every library must be told."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

Norms = list[dict[str, float]]


class Plain:
    """The norms and losses of every step.

    Parameters
    ----------
    clip : float, optional
        The norm that gradients are cut to.
    accumulate : int
        Batches a step.
    """

    def __init__(self, clip: float | None = None, accumulate: int = 1) -> None:
        self.backward: Norms = []
        self.clipped: Norms = []
        self.losses: list[float] = []
        self._clip, self._accumulate = clip, accumulate

    def train(
        self, model: nn.Module, optimizer: Optimizer, batches: Iterable[Any], loss_of: Callable[[Any], Tensor]
    ) -> Plain:
        """Steps of mean gradients."""
        losses = []
        for i, batch in enumerate(batches, 1):
            loss = loss_of(batch) / self._accumulate
            loss.backward()
            losses.append(loss.item())
            if i % self._accumulate:
                continue
            self.backward.append(norms(model))
            if self._clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), self._clip)
            self.clipped.append(norms(model))
            self.losses.append(sum(losses))
            optimizer.step()
            optimizer.zero_grad()
            losses = []
        return self


def norms(model: nn.Module) -> dict[str, float]:
    """Of the gradients that are there now."""
    return {name: p.grad.norm().item() for name, p in model.named_parameters() if p.grad is not None}


def close(wide: Any, expected: Norms) -> bool:
    """Whether a wide frame holds these norms, to 1e-6."""
    assert len(wide) == len(expected)
    wanted = torch.tensor([[step[name] for name in wide.columns] for step in expected], dtype=torch.float64)
    return torch.allclose(torch.tensor(wide.to_numpy(float)), wanted, rtol=1e-6, atol=0.0)


def same(one: nn.Module, other: nn.Module) -> bool:
    """Whether parameters are the same to the bit."""
    return all(torch.equal(p, q) for p, q in zip(one.parameters(), other.parameters(), strict=True))
