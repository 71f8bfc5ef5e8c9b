"""Nets whose numbers are known, shared by the tests of a step."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence, Set
from typing import Any

import torch
from torch import Tensor, nn

from gradviz.grad.algebra import Grad
from gradviz.grad.leaves import Kind

X = torch.tensor([[1.0, -1.0, 2.0], [0.5, 0.0, -1.0]])
Y = torch.tensor([[1.0], [-1.0]])
K0 = torch.tensor([[0.1, -0.2], [0.3, 0.4], [-0.5, 0.6]])

GRADIENTS = {  # of the mean squared error, by hand
    "dense_0.weight": torch.tensor([[0.532, 1.072], [0, -1.072], [-1.064, 2.144]]).T,
    "dense_0.bias": torch.tensor([1.064, 1.072]),
    "dense_1.weight": torch.tensor([[0.912], [-0.737]]).T,
    "dense_1.bias": torch.tensor([0.18]),
}
NORM, HEAD_NORM = 3.463931, 1.186302


def two_layers(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    """Prediction -0.34 and 0.52 on X, mean squared error 2.053."""
    model = nn.Sequential(
        OrderedDict(dense_0=nn.Linear(3, 2), relu=nn.ReLU(), dense_1=nn.Linear(2, 1)),
    )
    with torch.no_grad():
        model.dense_0.weight.copy_(K0.T)
        model.dense_0.bias.copy_(torch.tensor([0.05, -0.05]))
        model.dense_1.weight.copy_(torch.tensor([[0.7, -0.8]]))
        model.dense_1.bias.fill_(0.1)
    return model.to(dtype)


def one_weight(value: float, dtype: torch.dtype = torch.float32) -> tuple[nn.Linear, tuple[Tensor, Tensor]]:
    """w times 1 and 2 against 0: loss 2.5 w², gradient 5 w."""
    model = nn.Linear(1, 1, bias=False, dtype=dtype)
    nn.init.constant_(model.weight, value)
    return model, (torch.tensor([[1.0], [2.0]], dtype=dtype), torch.zeros(2, 1, dtype=dtype))


class Seen:
    """An observer of a step that hands on the gradients it is shown."""

    def __init__(self, see: Callable[[str, Grad[Any]], Any]) -> None:
        self._see = see

    def see(self, stage: str, kind: Kind, given: Sequence[Tensor | None], unused: Set[str]) -> None:
        assert unused == {name for name, gradient in zip(kind.names, given, strict=True) if gradient is None}
        self._see(stage, Grad._from(kind, [torch.zeros(shape) for shape in kind.shapes], given))

    def before_step(self) -> None:
        pass

    def after_step(self) -> None:
        pass
