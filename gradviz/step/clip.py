"""Clipping: a gradient too large is made smaller, as a whole or entry by entry, into a gradient of its own.

What torch's `clip_grad_norm_` and `clip_grad_value_` do to the parameters' ``.grad``, but out of place: the gradient
that came in, which may be kept and shown, stays as it was.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gradviz.errors import OptimizerError, described, nearest
from gradviz.grad.algebra import Grad

Clip = Callable[[Grad[Any]], Grad[Any]]


def as_clip(value: Any) -> Clip | None:
    """The function that clips; None for no clipping.

    Parameters
    ----------
    value : None, float or pair
        ``1.0`` or ``("norm", 1.0)`` by norm, ``("value", 0.5)`` by value.

    Raises
    ------
    OptimizerError
        If it is none of these, or the number is not above 0.
    """
    if value is None:
        return None
    kind, limit = value if isinstance(value, tuple | list) and len(value) == 2 else ("norm", value)
    is_number = isinstance(limit, numbers.Real) and not isinstance(limit, bool)
    line = 'Write clip=1.0 to clip by norm, or clip=("value", 0.5).'
    if not isinstance(kind, str) or not is_number:
        came = repr(value) if isinstance(value, str | bool | tuple | list) else described(value)
        raise OptimizerError(f"A gradient is clipped to a number, by norm or by value; got clip={came}. {line}")
    if kind not in KINDS:
        raise OptimizerError(f"Nothing is clipped by {kind!r}: {nearest(kind, KINDS)}. {line}")
    if not limit > 0:
        raise OptimizerError(f"A gradient is clipped to a number above 0; got clip={value!r}. {line}")
    return partial(KINDS[kind], limit=float(limit))


def by_norm(grad: Grad[Any], limit: float) -> Grad[Any]:
    """The gradient scaled so that its norm is at most `limit`; the very same where it already is.

    A norm that is not finite tells no factor: the gradient is left alone, so that what is wrong with it shows, and no
    finite entry becomes 0.

    Examples
    --------
    >>> grad = Grad(torch.nn.Linear(2, 1), [torch.tensor([[3.0, 0.0]]), torch.tensor([4.0])])
    >>> by_norm(grad, 1.0).bias
    tensor([0.8000])
    """
    norm = grad.norm()
    if norm == math.inf:  # float32 may hold the entries, but not their norm
        norm = (grad * 2.0**-64).norm().double() * 2.0**64
    factor = limit / (norm + 1e-6)  # torch's own, in the dtype of the norm: the same to the bit
    return grad * factor if 0 < factor < 1 else grad


def by_value(grad: Grad[Any], limit: float) -> Grad[Any]:
    """Every entry brought between ``-limit`` and ``limit``; NaN stays NaN.

    Raises
    ------
    OptimizerError
        If a gradient is complex: those have no order.

    Examples
    --------
    >>> grad = Grad(torch.nn.Linear(2, 1), [torch.tensor([[3.0, -0.2]]), torch.tensor([-math.inf])])
    >>> by_value(grad, 0.5).weight, by_value(grad, 0.5).bias
    (tensor([[ 0.5000, -0.2000]]), tensor([-0.5000]))
    """
    for name, leaf in grad._leaves.items():
        if leaf.dtype.is_complex:
            raise OptimizerError(
                f"The gradient of {name} is {leaf.dtype}, and complex numbers have no order to clip them by. "
                f"Write clip={limit!r} to clip by norm."
            )

    def together(leaves: list[Tensor]) -> Sequence[Tensor]:
        limits = [_representable(limit, leaf.dtype) for leaf in leaves]
        return torch._foreach_clamp_max(torch._foreach_clamp_min(leaves, [-each for each in limits]), limits)

    return grad._each(together, lambda leaf: _clamped(leaf, _representable(limit, leaf.dtype)))


def _clamped(leaf: Tensor, limit: float) -> Tensor:
    if leaf.layout is not torch.sparse_coo:
        return leaf.clamp(-limit, limit)
    leaf = leaf.coalesce()  # entries that stand twice count by their sum
    values = leaf.values().clamp(-limit, limit)
    return torch.sparse_coo_tensor(leaf.indices(), values, leaf.shape, is_coalesced=True, check_invariants=False)


def _representable(limit: float, dtype: torch.dtype) -> float:
    """The limit, or the largest finite number below it: torch refuses to clamp a float16 to 1e6."""
    return limit if limit == math.inf else min(limit, torch.finfo(dtype).max)


KINDS: dict[str, Callable[..., Grad[Any]]] = {"norm": by_norm, "value": by_value}
