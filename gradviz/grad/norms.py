"""Norms of many tensors as of one long vector, right at both ends of the range."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

Order = Literal[1, 2] | float

SAFE = (1e-13, 1e18)
"""Between these a float32 2-norm has lost nothing to under- or overflow of its squares."""


# By attrgetter: 20 microseconds for 400 leaves, where a comprehension takes 50.
_layout, _dtype_of, _is_cpu = (operator.attrgetter(name) for name in ("layout", "dtype", "is_cpu"))
_PLAIN = ({torch.float32}, {torch.float64})


def norm_of(leaves: list[Tensor], ord: Order) -> Tensor:
    """The norm of all values of `leaves` together.

    Accumulated in float32 or wider; a 2-norm whose squares under- or overflow is taken again, scaled. 0-dim, of the
    dtype that `wide` tells; 0 for no values.
    """
    leaves = list(whole(leaves))
    if ord == 2 and are_plain(leaves):
        plain: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(leaves, ord)))
        if SAFE[0] < plain.item() < SAFE[1]:
            return plain
    result = wide(leaves)
    leaves = [values for values in map(values_of, leaves) if values.numel()]
    if not leaves:
        return torch.zeros((), dtype=result)
    # On a GPU float64 sums need no second look, and looking would wait for the device.
    looks = leaves[0].device.type in ("cpu", "mps")
    each = torch._foreach_norm(leaves, ord, dtype=result if looks or leaves[0].is_meta else torch.float64)
    total: Tensor = torch.linalg.vector_norm(_together(each), ord)
    if looks and ord == 2 and not SAFE[0] < float(total.detach()) < SAFE[1]:
        scaled = _scaled_norm(leaves)
        total = total if scaled is None else scaled
    return total.to(result)


_UNSHARDED = {Tensor, nn.Parameter}


def whole(leaves: Sequence[Tensor]) -> Sequence[Tensor]:
    """Tensors that are sharded over processes (FSDP's DTensor) in one piece, gathered; others as they are."""
    if _UNSHARDED.issuperset(map(type, leaves)):
        return leaves
    return [leaf.full_tensor() if hasattr(leaf, "full_tensor") else leaf for leaf in leaves]


def are_plain(leaves: Sequence[Tensor]) -> bool:
    """Whether torch's own loops take them as they are: dense, on the CPU, of one dtype that sums are right in."""
    dtypes = set(map(_dtype_of, leaves))
    return dtypes in _PLAIN and all(map(_is_cpu, leaves)) and set(map(_layout, leaves)) == {torch.strided}


def _together(norms: Sequence[Tensor]) -> Tensor:
    home = norms[0].device
    return torch.stack([norm if norm.device == home else norm.to(home) for norm in norms])


def _scaled_norm(leaves: list[Tensor]) -> Tensor | None:
    """By the largest magnitude, so that squares neither vanish nor overflow; None where that is 0, NaN or infinite."""
    scale = torch.stack([leaf.detach().abs().max().to(leaves[0].device, torch.float64) for leaf in leaves]).max()
    if not 0 < float(scale) < math.inf:
        return None
    scaled = [torch.linalg.vector_norm(leaf.double() / scale) for leaf in leaves]
    total: Tensor = torch.linalg.vector_norm(_together(scaled))
    return scale * total


def values_of(leaf: Tensor) -> Tensor:
    """What counts of a tensor, real and in a dtype that torch can sum: a sparse one's stored values, magnitudes."""
    if leaf.layout is not torch.strided:
        leaf = leaf.coalesce().values() if leaf.layout is torch.sparse_coo else leaf.to_dense()
    if leaf.is_complex():
        return leaf.abs()
    return leaf.float() if leaf.dtype.itemsize < 2 else leaf


def wide(leaves: Iterable[Any]) -> torch.dtype:
    """float64 if any leaf holds 64-bit values, else float32."""
    is_wide = any(leaf.dtype in (torch.float64, torch.complex128) for leaf in leaves)
    return torch.float64 if is_wide else torch.float32
