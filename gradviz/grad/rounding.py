"""What entries would become in fewer bits: how many would be zero, subnormal or too large, without a cast.

A cast to the nearest number, ties to even, is monotone. So of each dtype three thresholds tell everything: the least
magnitude that is not rounded to zero, the least that is rounded to a normal number, and the least that is too large.
Counting the entries at or above each is one pass over their bits, as an IEEE 754 number without its sign is the larger
the larger its bits are.

A zero is a zero in any dtype, and what is infinite or NaN already was not made so: neither counts as lost.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gradviz.grad.kernels import BLOCK, FORMS, Form, Kernel
from gradviz.grad.norms import whole
from gradviz.grad.statistics import dense_real

NARROW = (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
"""The dtypes that are asked about."""

FATES = ("entries", "zero", "underflow", "subnormal", "overflow", "nonfinite")
"""What is counted: all entries; zeros; others that would be rounded to zero; to a subnormal number; beyond the largest
finite number, which makes them infinite (in float8_e4m3fn, which has no infinity, NaN or that largest number, 448,
whichever this torch has); and what is infinite or NaN as it is. The rest would be normal numbers."""

PIECE = 1 << 22
"""Entries that another device takes at once."""

Counts = NDArray[np.int64]


def roundings(tensors: Sequence[Tensor]) -> Counts:
    """What would become of the entries of each tensor in each narrow dtype, as torch casts.

    Parameters
    ----------
    tensors : sequence of Tensor
        Of any shape, floating or complex dtype, layout and device; they are never written to. Sharded ones count as a
        whole, complex entries by their magnitude, and what a sparse tensor leaves out as zeros.

    Returns
    -------
    int64 array of shape [len(tensors), len(NARROW), len(FATES)]

    Examples
    --------
    >>> (counts,) = roundings([torch.tensor([0.0, 1e-8, 1e-5, 1.0, 70000.0])])
    >>> for dtype, fates in zip(NARROW, counts):
    ...     print(dtype, dict(zip(FATES[1:5], fates[1:5].tolist())))
    torch.float16 {'zero': 1, 'underflow': 1, 'subnormal': 1, 'overflow': 1}
    torch.bfloat16 {'zero': 1, 'underflow': 0, 'subnormal': 0, 'overflow': 0}
    torch.float8_e4m3fn {'zero': 1, 'underflow': 2, 'subnormal': 0, 'overflow': 1}
    torch.float8_e5m2 {'zero': 1, 'underflow': 1, 'subnormal': 1, 'overflow': 1}
    """
    tensors = whole(tensors)
    reaching = np.zeros((len(tensors), _N_EDGES), np.int64)
    there: dict[int, Tensor] = {}
    for place, tensor in enumerate(tensors):
        entries = dense_real(tensor).reshape(-1).contiguous()
        if entries.device.type != "cpu" or not _is_read(entries, reaching[place]):
            there[place] = _by_torch(entries)
    if there:
        reaching[list(there)] = torch.stack([own.cpu() for own in there.values()]).numpy()
    return _fates(np.array([tensor.numel() for tensor in tensors], np.int64), reaching)


def _fates(lengths: Counts, reaching: Counts) -> Counts:
    """From how many entries there are and how many reach each edge."""
    nonzero, infinite, dtypes = reaching[:, :1], reaching[:, 1:2], reaching[:, 2:].reshape(-1, len(NARROW), 3)
    not_lost, normal, too_large = dtypes[:, :, 0], dtypes[:, :, 1], dtypes[:, :, 2]
    counted = {
        "entries": lengths[:, None],
        "zero": lengths[:, None] - nonzero,
        "underflow": nonzero - not_lost,
        "subnormal": not_lost - normal,
        "overflow": too_large - infinite,
        "nonfinite": infinite,
    }
    return np.stack([np.broadcast_to(counted[fate], not_lost.shape) for fate in FATES], axis=-1)


_N_EDGES = 2 + 3 * len(NARROW)


def _thresholds(dtype: torch.dtype) -> list[np.float32]:
    """The least float32 magnitudes that a cast makes not zero, normal, and too large."""
    told = torch.finfo(dtype)
    smallest = told.smallest_normal * told.eps
    last_step = told.eps * 2.0 ** math.floor(math.log2(told.max))
    # Halfway between two neighbours the even one wins: zero, the smallest normal number, and whichever ends in 0 of the
    # largest and what would follow it.
    beyond = np.float32(told.max + last_step / 2)
    is_odd = told.max / last_step % 2 == 1
    return [
        np.nextafter(np.float32(smallest / 2), np.float32(1)),
        np.float32(told.smallest_normal - smallest / 2),
        beyond if is_odd else np.nextafter(beyond, np.float32(np.inf)),
    ]


def _in_float64(least: np.float32) -> np.float64:
    """The same for float64, which torch casts to float32 first."""
    below = np.nextafter(least, np.float32(0))
    between = (np.float64(below) + np.float64(least)) / 2
    return between if np.float32(between) >= least else np.nextafter(between, np.inf)


@functools.cache
def _edges(dtype: torch.dtype) -> NDArray[Any]:
    """The least nonzero magnitude, infinity, and the thresholds of each narrow dtype."""
    number = FORMS[dtype].entries.dtype.type
    least: list[Any] = [each for narrow in NARROW for each in _thresholds(narrow)]
    if dtype == torch.float64:
        least = list(map(_in_float64, least))
    return np.array([np.nextafter(number(0), number(1)), np.inf, *least], number)


def _is_read(entries: Tensor, reaching: Counts) -> bool:
    """Count by the compiled pass; whether there is one."""
    form = FORMS[entries.dtype]
    edges = _edges(entries.dtype).view(form.bits.dtype)
    return not _count(np.zeros(1, np.bool_), form, edges, entries.numpy().view(form.bits.dtype), reaching)


@Kernel
def _count(in_doubt: Any, form: Form, edges: Any, bits: Any, reaching: Any) -> int:
    """Add how many entries reach each edge: one edge after the other, over a block in the nearest cache."""
    integer = form.bits.dtype.type
    magnitudes = np.empty(BLOCK, form.bits.dtype)
    for start in range(0, len(bits), BLOCK):
        n = min(BLOCK, len(bits) - start)
        for i in range(n):
            magnitudes[i] = bits[start + i] & form.unsigned
        for place in range(len(edges)):
            edge, own = edges[place], integer(0)
            for i in range(n):
                own = integer(own + 1) if magnitudes[i] >= edge else own
            reaching[place] += own
    in_doubt[0] = False
    return 0


def _by_torch(entries: Tensor) -> Tensor:
    """The same by torch, on the entries' device: no value is read."""
    edges = torch.from_numpy(_edges(entries.dtype)).to(entries.device)
    reaching = torch.zeros(_N_EDGES, dtype=torch.int64, device=entries.device)
    for piece in entries.split(PIECE):
        magnitudes = piece.abs()
        # NaN reaches all of them, as its bits do.
        reaching += torch.stack([(~(magnitudes < edge)).sum() for edge in edges])
    return reaching
