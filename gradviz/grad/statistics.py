"""Many tensors -> one small table, in one transfer.

Every row of the table is one tensor, every column one statistic (`STATISTICS`). On the CPU raw sums come first, for all
tensors (`gradviz.grad.sums`); the statistics follow from them in a few calls. Sums of squares in float32 underflow
below entries of 1e-19 and overflow above 1e19. Zero means zero here: what the sums leave in doubt is looked at again in
float64, so a norm is 0 or infinite only where the entries are. On other devices torch reduces, and one table travels.
"""

from __future__ import annotations

import contextvars
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gradviz.grad.norms import values_of, whole
from gradviz.grad.sums import PLAIN, TINY, Entries, Floats, Sums

STATISTICS = ("norm", "mean", "std", "max_abs", "zero_fraction", "nan", "posinf", "neginf")
"""Columns of the table. norm, mean, std (torch's own, with Bessel's correction) and max_abs are what torch says of the
whole tensor, so a NaN or an infinity among the entries shows in them; zero_fraction is a share of the entries; nan,
posinf and neginf count entries. Complex entries count by their magnitude."""

SPREAD = 100.0
"""mean² above this many variances: std from squares and mean has lost digits (1e-4 of it here), so look twice."""

FLOOR = {torch.float32: 0.0, torch.float64: 1e-290}
"""A smaller sum of squares may have lost entries to underflow, even if it was taken in float64."""

_least, _greatest = np.minimum.reduce, np.maximum.reduce


class Statistics:
    """The statistics of tensors of certain shapes, again and again.

    Parameters
    ----------
    tensors : sequence of Tensor
        Of any shape, floating or complex dtype, layout and device; they are never written to. Sharded ones count as a
        whole. Those that come later have the same shapes and dtypes in the same places.
    only_norms : bool
        Leave out mean, std, max_abs and zero_fraction (NaN), for less time. The counts follow from the norm: a finite
        one has no entry that is not.

    Examples
    --------
    >>> measure = Statistics([torch.zeros(2), torch.zeros(1)], only_norms=True)
    >>> table = measure([torch.tensor([3.0, -4.0]), torch.tensor([1e-23])])
    >>> [f"{norm:g}" for norm in table[:, 0]]
    ['5', '1e-23']
    """

    def __init__(self, tensors: Sequence[Tensor], *, only_norms: bool = False) -> None:
        self._only_norms = only_norms
        self._take_in(tensors)
        # Sums that overflow are looked at again. This takes ten microseconds less a step than np.errstate.
        self._quiet = contextvars.copy_context()
        self._quiet.run(np.seterr, all="ignore")

    def __call__(self, tensors: Sequence[Tensor]) -> Floats:
        """The statistics of each tensor.

        Returns
        -------
        float64 array of shape [len(tensors), len(STATISTICS)]
            One statistic of all tensors lies together. An empty tensor has norm 0 and no other statistic (NaN). The
            next call writes into the same array.
        """
        tensors = whole(tensors)
        try:
            self._quiet.run(self._measure, tensors)
        except (RuntimeError, TypeError):  # one is of another kind than before: sparse now, or on another device
            tensors = [tensor.detach() for tensor in tensors]
            self._take_in(tensors)
            self._quiet.run(self._measure, tensors)
        return self._table.T

    def _take_in(self, tensors: Sequence[Tensor]) -> None:
        """Make what depends on shapes, dtypes and devices alone."""
        plain = [place for place, tensor in enumerate(tensors) if _is_plain(tensor)]
        others = [place for place, tensor in enumerate(tensors) if not _is_plain(tensor)]
        self._here = [place for place in others if tensors[place].device.type == "cpu"]
        self._there = [place for place in others if tensors[place].device.type != "cpu"]
        self._plain = plain if others else None
        self._sums = Sums([tensors[place] for place in plain])
        self._places = np.array(plain, np.intp)[self._sums.order]
        measured = [tensors[place] for place in self._places.tolist()]
        self._counts = np.array([tensor.numel() for tensor in measured], np.float64)
        self._floor = np.array([FLOOR[tensor.dtype] for tensor in measured])
        # Of one entry, torch's std is NaN, and there is no spread to be lost.
        self._per_degree = np.array([1 / (count - 1) if count > 1 else np.nan for count in self._counts])
        self._share = np.where(self._counts > 1, SPREAD / (1 + SPREAD), 2.0)
        self._leeway = np.zeros(len(measured))
        self._table = np.zeros((len(STATISTICS), len(tensors)))
        self._table[1:5] = np.nan
        self._is_in_order = self._places.tolist() == list(range(len(tensors)))
        self._derived = self._table[:5] if self._is_in_order else np.full((5, len(measured)), np.nan)
        self._has_looked = False

    def _measure(self, tensors: Sequence[Tensor]) -> None:
        if self._has_looked:
            self._table[5:], self._has_looked = 0, False
        if len(self._places):
            self._measure_plain(tensors)
        self._look_again(tensors, self._here)
        if self._there:
            there = _on_device([tensors[place] for place in self._there])
            self._put(self._there, there.T)

    def _measure_plain(self, tensors: Sequence[Tensor]) -> None:
        plain = tensors if self._plain is None else [tensors[place] for place in self._plain]
        sums, squares = self._sums, self._sums.raw[0]
        if self._only_norms:
            sums.squares(plain)
        else:
            sums.all(plain)
        is_clear = _least(squares) >= TINY and _greatest(squares) < np.inf  # a NaN is neither
        if not is_clear:
            sums.widen(plain)
        self._derive()
        if not self._is_in_order:
            self._table[:5, self._places] = self._derived
        if not (is_clear and _least(self._leeway) >= 0):
            in_doubt = ~((squares >= self._floor) & (squares < np.inf) & (self._leeway >= 0))
            self._look_again(tensors, self._places[in_doubt].tolist())

    def _derive(self) -> None:
        """What follows from the raw sums, in place; right where they are."""
        squares, total, least, greatest, nonzeros = self._sums.raw
        norm, mean, std, max_abs, zero_fraction = self._derived
        np.sqrt(squares, out=norm)
        if self._only_norms:
            return
        np.divide(total, self._counts, out=mean)
        np.multiply(total, mean, out=std)
        np.multiply(squares, self._share, out=self._leeway)
        np.subtract(self._leeway, std, out=self._leeway)  # negative where mean² is more than SPREAD variances
        np.subtract(squares, std, out=std)
        np.maximum(std, 0, out=std)
        np.multiply(std, self._per_degree, out=std)
        np.sqrt(std, out=std)
        np.subtract(0, least, out=max_abs)
        np.maximum(max_abs, greatest, out=max_abs)
        np.subtract(self._counts, nonzeros, out=zero_fraction)
        np.divide(zero_fraction, self._counts, out=zero_fraction)

    def _look_again(self, tensors: Sequence[Tensor], places: Sequence[int]) -> None:
        for place in places:
            self._put(place, _carefully(_as_array(tensors[place]), tensors[place].numel()))

    def _put(self, places: int | Sequence[int], rows: Floats) -> None:
        self._table[:, places] = rows
        if self._only_norms:
            self._table[1:5, places] = np.nan
        self._has_looked = True


def statistics(tensors: Sequence[Tensor]) -> Floats:
    """The statistics of each tensor, once.

    Parameters
    ----------
    tensors : sequence of Tensor
        As `Statistics` takes them.

    Returns
    -------
    float64 array of shape [len(tensors), len(STATISTICS)]

    Examples
    --------
    >>> table = statistics([torch.tensor([3.0, -4.0, 0.0]), torch.tensor([1e-23, float("inf")])])
    >>> dict(zip(STATISTICS[:5], table[0].round(4).tolist()))
    {'norm': 5.0, 'mean': -0.3333, 'std': 3.5119, 'max_abs': 4.0, 'zero_fraction': 0.3333}
    >>> table[1][[0, 6]].tolist()
    [inf, 1.0]
    """
    tensors = [tensor.detach() for tensor in whole(tensors)]
    return Statistics(tensors)(tensors)


def _is_plain(tensor: Tensor) -> bool:
    """Whether numpy can read it where it lies, and there is something to read."""
    return tensor.is_cpu and tensor.layout is torch.strided and tensor.dtype in PLAIN and tensor.numel() > 0


def _as_array(tensor: Tensor) -> Entries:
    """The entries that count, as a flat float array: stored values of a sparse tensor, magnitudes of a complex one."""
    return _dense_real(tensor).reshape(-1).numpy()


def _dense_real(tensor: Tensor) -> Tensor:
    tensor = values_of(tensor.detach())
    # float16, bfloat16, float8: numpy has no such types, and sums in them overflow.
    return tensor if tensor.dtype in PLAIN else tensor.float()


def _carefully(entries: Entries, count: int) -> NDArray[np.float64]:
    """The careful way: float64, scaled by the largest entry, with a second pass for the spread."""
    row = np.zeros(len(STATISTICS))
    if not count:
        row[1:5] = np.nan
        return row
    row[4] = (count - np.count_nonzero(entries)) / count
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
