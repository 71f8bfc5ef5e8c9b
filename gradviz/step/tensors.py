"""What a step does to one leaf: a tensor, or anything else that stands among tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


def zeros(leaf: Any) -> Any:
    """What a leaf looks like before the first step."""
    return torch.zeros_like(leaf, requires_grad=False) if isinstance(leaf, Tensor) else leaf


def detached(leaf: Any) -> Any:
    """A leaf without its graph."""
    return leaf.detach() if isinstance(leaf, Tensor) and leaf.requires_grad else leaf


def own(leaf: Any) -> Any:
    """A leaf without its graph, in memory of its own where it is a parameter or a view of one, which moves on."""
    if not isinstance(leaf, Tensor):
        return leaf
    moves = leaf.is_leaf or (leaf._base is not None and leaf._base.is_leaf)
    return leaf.detach().clone() if moves else leaf.detach()


def drop_gradients(parameters: Iterable[Tensor]) -> None:
    """No parameter has a ``.grad``, so that an optimizer leaves it alone."""
    for p in parameters:
        p.grad = None


def write(value: Tensor, tensor: Tensor) -> None:
    """Write a value into a tensor, if it has another."""
    # By value: batch norm moves its statistics without counting a version, and an expanded constant refuses a copy.
    if value is not tensor and not equal(value, tensor):
        with torch.no_grad():
            tensor.copy_(value)


def equal(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same values, sparse ones too."""
    if one.layout is not torch.strided or other.layout is not torch.strided:
        one, other = one.to_dense(), other.to_dense()
    return torch.equal(one, other)
