"""Histograms of tensors on one fixed grid: those of other iterations, tensors and runs lie bin on bin.

The grid is logarithmic, four bins an octave from 2^-48 to 2^16 on either side of zero. What is zero, smaller, larger,
infinite or NaN is counted apart. A bin holds the edge that is nearer to zero and not the other one, so that every entry
is in exactly one, and histograms are merged by adding their counts.

No logarithm is taken. Without its sign, an IEEE 754 number is the larger the larger its bits are: the exponent tells
the octave, and the mantissa, compared with three thresholds, the quarter of it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gradviz.grad.kernels import BLOCK, FORMS, Form, Kernel, inner
from gradviz.grad.norms import whole
from gradviz.grad.statistics import dense_real

FIRST, LAST = -48, 16
"""The octaves of the grid begin at 2^-48 and end at 2^16."""

QUARTERS = (1.0, 1.189207115002721, 1.4142135623730951, 1.681792830507429)
"""2^(k/4), to the last digit of float64."""

EDGES = np.array([*(quarter * 2.0**octave for octave in range(FIRST, LAST) for quarter in QUARTERS), 2.0**LAST])
"""The edges of the positive bins, ascending; float64."""

FARTHEST = len(EDGES) + 2
"""Ranks by distance from zero: 0 is zero itself, 1 too small, then the bins, too large, and this one infinite."""

ZERO, NAN = FARTHEST, 2 * FARTHEST + 1
"""Where zeros and NaN are counted. A positive entry is as many places behind the zeros as its rank, a negative one
before."""

N_BINS = NAN + 1

_NEAR, _FAR = np.array([0.0, 0.0, *EDGES, np.inf]), np.array([0.0, *EDGES, np.inf, np.inf])
LOW = np.array([*-_FAR[:0:-1], *_NEAR, np.nan])
HIGH = np.array([*0.0 - _NEAR[:0:-1], *_FAR, np.nan])  # 0.0 - 0.0 has no sign
"""The ends of every bin, float64 arrays of shape [N_BINS]. Zeros have 0 at both ends, infinities their infinity."""

PIECE = 1 << 22
"""Entries that another device takes at once: it needs 16 bytes for each."""

Counts = NDArray[np.int64]


class _Grid(NamedTuple):
    """The grid in the bits of one dtype."""

    mantissa: np.int32 | np.int64
    """Its number of bits."""
    fraction: np.int32 | np.int64
    """All of them."""
    first: np.int32 | np.int64
    """Quarters of octaves up to the grid, less the ranks before it."""
    quarters: tuple[np.int32 | np.int64, ...]
    """The least mantissas of the second, third and last quarter of an octave."""
    infinity: np.int32 | np.int64


def histograms(tensors: Sequence[Tensor]) -> Counts:
    """How many entries of each tensor lie in each bin.

    Parameters
    ----------
    tensors : sequence of Tensor
        Of any shape, floating or complex dtype, layout and device; they are never written to. Sharded ones count as a
        whole, complex entries by their magnitude, and what a sparse tensor leaves out as zeros.

    Returns
    -------
    int64 array of shape [len(tensors), N_BINS]
        `LOW` and `HIGH` are the ends of the bins. They ascend from minus infinity to infinity; NaN is counted last.

    Examples
    --------
    >>> (counts,) = histograms([torch.tensor([1.0, 1.1, -3.0, 0.0, 1e-20, float("inf")])])
    >>> for low, high, count in zip(LOW, HIGH, counts):
    ...     if count:
    ...         print(f"{low:.3g} to {high:.3g}: {count}")
    -3.36 to -2.83: 1
    0 to 0: 1
    0 to 3.55e-15: 1
    1 to 1.19: 2
    inf to inf: 1
    """
    counts = np.zeros((len(tensors), N_BINS), np.int64)
    there: dict[int, Tensor] = {}
    for place, tensor in enumerate(whole(tensors)):
        entries = dense_real(tensor).reshape(-1).contiguous()
        counts[place, ZERO] = tensor.numel() - len(entries)  # absent entries of a sparse tensor
        if entries.device.type != "cpu" or not _is_read(entries, counts[place]):
            there[place] = _by_torch(entries)
    if there:
        counts[list(there)] += torch.stack([own.cpu() for own in there.values()]).numpy()
    return counts


def _is_read(entries: Tensor, counts: Counts) -> bool:
    """Add to the counts by the compiled pass; whether there is one."""
    form = FORMS[entries.dtype]
    values = entries.numpy()
    return not _count(np.zeros(1, np.bool_), form, _GRIDS[entries.dtype], values.view(form.bits.dtype), counts)


@inner
def _place_all(bits: Any, form: Any, grid: Any, places: Any) -> None:
    """Where each entry is counted."""
    integer = bits.dtype.type
    second, third, last = grid.quarters
    for i in range(len(bits)):
        magnitude = integer(bits[i] & form.unsigned)
        fraction = integer(magnitude & grid.fraction)
        rank = integer(integer(integer(magnitude >> grid.mantissa) << integer(2)) - grid.first)
        rank = integer(rank + 1) if fraction >= second else rank
        rank = integer(rank + 1) if fraction >= third else rank
        rank = integer(rank + 1) if fraction >= last else rank
        rank = integer(1) if rank < 1 else rank
        rank = integer(FARTHEST - 1) if rank > FARTHEST - 1 else rank
        rank = integer(FARTHEST) if magnitude == grid.infinity else rank
        rank = integer(0) if magnitude == 0 else rank
        place = integer(ZERO - rank) if bits[i] < 0 else integer(ZERO + rank)
        places[i] = integer(NAN) if magnitude > grid.infinity else place


@Kernel
def _count(in_doubt: Any, form: Form, grid: Any, bits: Any, counts: Any) -> int:
    """Add how many entries lie in each bin; one place after the other, so that no count waits for the one before."""
    places = np.empty(BLOCK, np.int16)
    own = np.zeros((4, N_BINS), np.int64)
    for start in range(0, len(bits), BLOCK):
        stop = min(start + BLOCK, len(bits))
        _place_all(bits[start:stop], form, grid, places)
        n = (stop - start) // 4 * 4
        for i in range(0, n, 4):
            own[0, places[i]] += 1
            own[1, places[i + 1]] += 1
            own[2, places[i + 2]] += 1
            own[3, places[i + 3]] += 1
        for i in range(n, stop - start):
            own[0, places[i]] += 1
    for place in range(N_BINS):
        counts[place] += own[0, place] + own[1, place] + own[2, place] + own[3, place]
    in_doubt[0] = False
    return 0


def _by_torch(entries: Tensor) -> Tensor:
    """The same by torch, on the entries' device: no value is read."""
    edges = _edges(entries.dtype, entries.device)
    counts = torch.zeros(N_BINS, dtype=torch.int64, device=entries.device)
    one = torch.ones((), dtype=torch.int64, device=entries.device)
    for piece in entries.split(PIECE):
        ranks = torch.bucketize(piece.abs(), edges, right=True)
        places = torch.where(piece.signbit(), ZERO - ranks, ZERO + ranks).masked_fill(piece.isnan(), NAN)
        counts.scatter_add_(0, places, one.expand(len(places)))
    return counts


@functools.cache
def _edges(dtype: torch.dtype, device: torch.device) -> Tensor:
    """The least number of each rank but 0."""
    values = _not_below(EDGES, FORMS[dtype].entries.dtype)
    least = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    return torch.tensor([least, *values.tolist(), np.inf], dtype=dtype, device=device)


def _not_below(edges: NDArray[np.float64], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The least numbers of a dtype that are not below the edges."""
    nearest = edges.astype(dtype)
    return np.where(nearest < edges, np.nextafter(nearest, dtype.type(np.inf)), nearest)


def _grid(form: Form) -> _Grid:
    dtype, integer = form.entries.dtype, form.bits.dtype.type
    mantissa = integer(np.finfo(dtype).nmant)
    fraction = integer((1 << mantissa) - 1)
    least, infinity = np.array([2.0**FIRST, np.inf], dtype).view(form.bits.dtype)
    quarters = _not_below(np.array(QUARTERS), dtype).view(form.bits.dtype) & fraction
    return _Grid(mantissa, fraction, integer(4 * (least >> mantissa) - 2), tuple(quarters[1:]), infinity)


_GRIDS = {dtype: _grid(form) for dtype, form in FORMS.items()}
