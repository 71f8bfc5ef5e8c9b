"""Many tensors -> one small table, in one pass and one transfer.

Every row is one tensor, every column one statistic (`STATISTICS`). On the CPU numpy reads the tensors where they lie:
at the size of a layer it beats torch's reductions on two cores (measured on 65,536 floats, microseconds: dot 2.3
against norm 5.1, max and min 5.6 against aminmax 6.3, count 4.0 against 8.9). Small tensors are first copied into one
flat buffer, because there the number of calls is the cost. On other devices torch reduces, and one table travels.

Raw sums come first, for all tensors; the statistics follow from them in a few calls. Sums of squares in float32
underflow below entries of 1e-19 and overflow above 1e19. Zero means zero here: such rows are looked at again in
float64, so a norm is 0 or infinite only where the entries are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gradviz.grad.norms import SAFE, are_plain, values_of, whole

STATISTICS = ("norm", "mean", "std", "max_abs", "zero_fraction", "nan", "posinf", "neginf")
"""Columns of the table. norm, mean, std (torch's own, with Bessel's correction) and max_abs are what torch says of the
whole tensor, so a NaN or an infinity among the entries shows in them; zero_fraction is a share of the entries; nan,
posinf and neginf count entries. Complex entries count by their magnitude."""

PIECE = 65_536
"""Elements looked at together: 256 kB of float32 stay in a core's cache."""

SMALL = 8_192
"""Tensors up to this many elements are copied into a shared piece; larger ones are worth calls of their own."""

TINY_SQUARES = {np.dtype(np.float32): 1e-27, np.dtype(np.float64): 1e-290}
"""A smaller sum of squares may have lost entries to underflow: at most 65,536 x 1.2e-38, or 1e-6 of it, in float32."""

SPREAD = 100.0
"""mean² above this many variances: std from squares and mean has lost digits (1e-4 of it here), so look twice."""

Entries = NDArray[np.float32] | NDArray[np.float64]

_DTYPES = {torch.float32: np.float32, torch.float64: np.float64}
_ONES = {np.dtype(dtype): np.ones(PIECE, dtype) for dtype in _DTYPES.values()}  # dot with ones: half the time of sum()

_RAW = 6  # sum of squares, sum, min, max, non-zeros; and below which sum of squares to look again


def statistics(tensors: Sequence[Tensor]) -> NDArray[np.float64]:
    """The statistics of each tensor.

    Parameters
    ----------
    tensors : sequence of Tensor
        Of any shape, floating or complex dtype, layout and device; left as they are. Sharded ones count as a whole.

    Returns
    -------
    float64 array of shape [len(tensors), len(STATISTICS)]
        An empty tensor has norm 0 and no other statistic (NaN).

    Examples
    --------
    >>> table = statistics([torch.tensor([3.0, -4.0, 0.0]), torch.tensor([1e-23, float("inf")])])
    >>> dict(zip(STATISTICS[:5], table[0].round(4).tolist()))
    {'norm': 5.0, 'mean': -0.3333, 'std': 3.5119, 'max_abs': 4.0, 'zero_fraction': 0.3333}
    >>> table[1][[0, 6]].tolist()
    [inf, 1.0]
    """
    with torch.no_grad(), np.errstate(all="ignore"):
        tensors = whole(tensors)
        here = [row for row, tensor in enumerate(tensors) if tensor.device.type == "cpu"]
        if len(here) == len(tensors):
            return _on_cpu(tensors)
        there = [row for row, tensor in enumerate(tensors) if tensor.device.type != "cpu"]
        table = np.empty((len(tensors), len(STATISTICS)))
        table[here] = _on_cpu([tensors[row] for row in here])
        table[there] = _on_device([tensors[row] for row in there])
        return table


def norms(tensors: Sequence[Tensor]) -> NDArray[np.float64]:
    """The norm of each tensor, and what follows from it: a finite one has no entry that is NaN or infinite.

    Parameters
    ----------
    tensors : sequence of Tensor
        As `statistics` takes them.

    Returns
    -------
    float64 array of shape [len(tensors), len(STATISTICS)]
        mean, std, max_abs and zero_fraction are NaN.

    Examples
    --------
    >>> table = norms([torch.tensor([3.0, -4.0]), torch.tensor([1e-23]), torch.tensor([1.0, float("-inf")])])
    >>> [f"{norm:g}" for norm in table[:, 0]], table[:, 7].tolist()
    (['5', '1e-23', 'inf'], [0.0, 0.0, 1.0])
    """
    with torch.no_grad():
        tensors = whole(tensors)
        table = np.zeros((len(tensors), len(STATISTICS)))
        table[:, 1:5] = np.nan
        if are_plain(tensors):
            table[:, 0] = _plain_norms(tensors)
            # 0, very small, very large, not finite: what that means, only a look at the entries tells.
            doubtful = np.flatnonzero(~((SAFE[0] < table[:, 0]) & (table[:, 0] < SAFE[1])))
        else:
            doubtful = np.arange(len(tensors))
        if len(doubtful):
            again = statistics([tensors[row] for row in doubtful.tolist()])
            table[doubtful, 0], table[doubtful, 5:] = again[:, 0], again[:, 5:]
        return table


def _plain_norms(tensors: Sequence[Tensor]) -> NDArray[np.float64]:
    """In pieces: torch adds up so long in float32 that the norm of 16 million equal entries is wrong by a hundredth."""
    pieces: list[Tensor] = []
    starts = []
    for tensor in tensors:
        starts.append(len(pieces))
        pieces += (tensor,) if tensor.numel() <= PIECE else tensor.reshape(-1).split(PIECE)
    each = torch.stack(torch._foreach_norm(pieces)).numpy()
    return np.sqrt(np.add.reduceat(np.square(each, dtype=np.float64), starts))


def _on_cpu(tensors: Sequence[Tensor]) -> NDArray[np.float64]:
    raw = np.empty((len(tensors), _RAW))
    buckets = _Buckets()
    for row, tensor in enumerate(tensors):
        if tensor.layout is torch.strided and tensor.dtype in _DTYPES and 0 < tensor.numel() <= SMALL:
            buckets.add(row, tensor)
        else:
            raw[row] = _sums(_as_array(tensor), tensor.numel())
    for dtype, rows in buckets.full:
        raw[rows] = _bucket_sums([tensors[place] for place in rows], dtype)
    counts = np.array([tensor.numel() for tensor in tensors], np.float64)
    table, doubtful = _from_sums(raw, counts)
    for row in np.flatnonzero(doubtful).tolist():
        table[row] = _look_again(_as_array(tensors[row]), tensors[row].numel())
    return table


class _Buckets:
    """Rows of small tensors, put together by dtype until a piece is full."""

    def __init__(self) -> None:
        self.full: list[tuple[torch.dtype, list[int]]] = []
        self._open: dict[torch.dtype, tuple[list[int], int]] = {}

    def add(self, row: int, tensor: Tensor) -> None:
        rows, held = self._open.get(tensor.dtype, (None, 0))
        if rows is None or held + tensor.numel() > PIECE:
            rows, held = [], 0
            self.full.append((tensor.dtype, rows))
        rows.append(row)
        self._open[tensor.dtype] = rows, held + tensor.numel()


def _as_array(tensor: Tensor) -> Entries:
    """The entries that count, as a flat float array: stored values of a sparse tensor, magnitudes of a complex one."""
    return _dense_real(tensor).reshape(-1).numpy()


def _dense_real(tensor: Tensor) -> Tensor:
    tensor = values_of(tensor.detach())
    # float16, bfloat16, float8: numpy has no such types, and sums in them overflow.
    return tensor if tensor.dtype in _DTYPES else tensor.float()


def _sums(entries: Entries, count: int) -> NDArray[np.float64]:
    """Raw sums of one tensor, piece by piece; `count` exceeds the entries by a sparse tensor's zeros."""
    starts = range(0, len(entries), PIECE)
    raw = np.zeros((max(len(starts), 1), _RAW))
    for row, start in zip(raw, starts, strict=False):  # all of one piece while it is in the cache
        piece = entries[start : start + PIECE]
        ones = _ONES[piece.dtype][: len(piece)]
        row[:5] = piece.dot(piece), piece.dot(ones), piece.min(), piece.max(), np.count_nonzero(piece != 0)
    low, high = raw[:, 2].min(), raw[:, 3].max()  # numpy's min and max hand on a NaN
    if count > len(entries):
        low, high = np.minimum(low, 0), np.maximum(high, 0)
    squares, total, _, _, nonzeros, _ = raw.sum(axis=0)
    return np.array([squares, total, low, high, nonzeros, TINY_SQUARES[entries.dtype]])


def _bucket_sums(tensors: Sequence[Tensor], dtype: torch.dtype) -> NDArray[np.float64]:
    """Raw sums of many small tensors of one dtype through one flat buffer, a few calls for all of them."""
    counts = [tensor.numel() for tensor in tensors]
    starts = np.cumsum([0, *counts[:-1]])
    flat = torch.empty(sum(counts), dtype=dtype)
    sources = [tensor.detach() for tensor in tensors]
    views = [part.view(source.shape) for part, source in zip(flat.split(counts), sources, strict=True)]
    torch._foreach_copy_(views, sources)
    entries = flat.numpy()
    raw = np.empty((len(tensors), _RAW))
    raw[:, 0] = np.add.reduceat(entries * entries, starts)
    raw[:, 1] = np.add.reduceat(entries, starts)
    raw[:, 2] = np.minimum.reduceat(entries, starts)
    raw[:, 3] = np.maximum.reduceat(entries, starts)
    raw[:, 4] = np.add.reduceat((entries != 0).astype(np.float32), starts)  # exact: at most SMALL ones
    raw[:, 5] = TINY_SQUARES[entries.dtype]
    if entries.dtype == np.float32 and np.any((raw[:, 0] < raw[:, 5]) & (raw[:, 4] > 0)):
        # A vanishing net has hundreds of such rows: all of them at once in float64, not one by one.
        raw[:, 0] = np.add.reduceat(np.square(entries, dtype=np.float64), starts)
        raw[:, 5] = TINY_SQUARES[np.dtype(np.float64)]
    return raw


def _from_sums(raw: NDArray[np.float64], counts: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The table, and which of its rows need another look: under- or overflow, non-finite entries, a lost spread."""
    squares, total, low, high, nonzeros, tiny = raw.T
    mean = total / counts
    variance = np.maximum(squares / counts - mean * mean, 0)  # maximum, not fmax: a NaN must stay one
    table = np.zeros((len(counts), len(STATISTICS)))
    table[:, 0] = np.sqrt(squares)
    table[:, 1] = mean
    table[:, 2] = np.sqrt(variance * counts / (counts - 1))
    table[:, 3] = np.maximum(np.abs(low), np.abs(high))
    table[:, 4] = 1 - nonzeros / counts
    table[counts == 1, 2] = np.nan  # torch's own answer; rounding would make it infinite here
    table[counts == 0, 1:5] = np.nan
    lost = (squares < tiny) & (nonzeros > 0)
    spread_lost = (mean * mean > SPREAD * variance) & (counts > 1)
    return table, lost | ~np.isfinite(squares) | ~np.isfinite(total) | spread_lost


def _look_again(entries: Entries, count: int) -> NDArray[np.float64]:
    """The careful way: float64, scaled by the largest entry, with a second pass for the spread."""
    row = np.zeros(len(STATISTICS))
    row[4] = 1 - np.count_nonzero(entries) / count
    wide = entries.astype(np.float64)
    if not np.isfinite(wide).all():
        row[5:] = np.isnan(wide).sum(), np.isposinf(wide).sum(), np.isneginf(wide).sum()
        row[0] = row[3] = np.nan if row[5] else np.inf
        row[1] = wide.sum()  # +inf, -inf, or NaN where they meet: as torch has it
        row[2] = np.nan
        return row
    row[3] = scale = np.abs(wide).max(initial=0)
    if scale > 0:
        wide /= scale
    mean = wide.sum() / count
    deviations = np.square(wide - mean).sum() + (count - len(wide)) * mean * mean  # absent entries of a sparse tensor
    row[0] = scale * np.sqrt(wide.dot(wide))
    row[1] = scale * mean
    row[2] = scale * np.sqrt(deviations / (count - 1)) if count > 1 else np.nan
    return row


def _on_device(tensors: Sequence[Tensor]) -> NDArray[np.float64]:
    """The same by torch on the tensors' device: no value is read before all are ready, then one transfer."""
    return torch.stack([_device_row(tensor) for tensor in tensors]).cpu().double().numpy()


def _device_row(tensor: Tensor) -> Tensor:
    """One row; scaled by the largest magnitude, so that float32 neither under- nor overflows (MPS has no float64)."""
    count = tensor.numel()
    entries = _dense_real(tensor).reshape(-1)
    if not count:
        return entries.new_tensor([0.0] + [np.nan] * 4 + [0.0] * 3)
    largest = entries.abs().max() if len(entries) else entries.new_zeros(())
    scale = torch.where((largest > 0) & (largest < np.inf), largest, torch.ones_like(largest))
    scaled = entries / scale
    mean = scaled.sum() / count
    deviations = (scaled - mean).square().sum() + (count - len(entries)) * mean.square()
    row = [
        scale * scaled.square().sum().sqrt(),
        scale * mean,
        scale * (deviations / (count - 1)).sqrt() if count > 1 else mean * np.nan,
        largest,
        1 - (entries != 0).sum() / count,
        entries.isnan().sum(),
        entries.isposinf().sum(),
        entries.isneginf().sum(),
    ]
    return torch.stack([value.to(scale.dtype) for value in row])
