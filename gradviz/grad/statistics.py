"""Many tensors -> one small table, in one transfer.

Every row of the table is one tensor, every column one statistic (`STATISTICS`). On the CPU all of them are read in one
pass (`gradviz.grad.kernels`). Zero means zero here, and infinite infinite: what the pass leaves in doubt is looked at
again, so a norm is 0 or infinite only where the entries are. On other devices torch reduces, and one table travels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gradviz.grad import kernels
from gradviz.grad.norms import values_of, whole

STATISTICS = ("norm", "mean", "std", "max_abs", "zero_fraction", "nan", "posinf", "neginf")
"""Columns of the table. norm, mean, std (torch's own, with Bessel's correction) and max_abs are what torch says of the
whole tensor, so a NaN or an infinity among the entries shows in them; zero_fraction is a share of the entries; nan,
posinf and neginf count entries. Complex entries count by their magnitude. What is told of entries of 32 or fewer bits
has float32's precision, but for numbers beyond its normal range, which are told in float64."""

N_SCALING = 4
"""Statistics that are multiplied as the entries are: norm, mean, std and max_abs come first."""

Floats = NDArray[np.float64]


class Statistics:
    """The statistics of tensors of certain shapes, again and again.

    Parameters
    ----------
    tensors : sequence of Tensor
        Of any shape, floating or complex dtype, layout and device; they are never written to. Sharded ones count as a
        whole. Those that come later have the same shapes in the same places.
    only_norms : bool
        Leave out mean, std, max_abs and zero_fraction (NaN), for less time. The counts follow from the norm: a finite
        one has no entry that is not.
    samples : bool
        Have `sampled` tell what `sample` would have told of the same tensors at the same time, for next to nothing.

    Examples
    --------
    >>> measure = Statistics([torch.zeros(2), torch.zeros(1)], only_norms=True)
    >>> table = measure([torch.tensor([3.0, -4.0]), torch.tensor([1e-23])])
    >>> [f"{norm:g}" for norm in table[:, 0]]
    ['5', '1e-23']
    """

    def __init__(self, tensors: Sequence[Tensor], *, only_norms: bool = False, samples: bool = False) -> None:
        self._only_norms, self._samples, self._has_looked = only_norms, samples, False
        self._take_in(whole(tensors))

    def __call__(self, tensors: Sequence[Tensor]) -> Floats:
        """The statistics of each tensor.

        Returns
        -------
        float64 array of shape [len(tensors), len(STATISTICS)]
            One statistic of all tensors lies together. An empty tensor has norm 0 and no other statistic (NaN). The
            next call writes into the same array.
        """
        if self._others or self._there or not self._find(tensors):
            tensors = whole(tensors)
            if not self._find(tensors):
                self._take_in(tensors)  # one comes in another form than before: sparse now, or on another device
        if self._has_looked:
            self._table[5:], self._has_looked = 0, False
        for each in self._plain:
            if each.read():
                self._look_again(tensors, each.in_doubt())
        if self._others:
            entries = {place: dense_real(tensors[place]).contiguous() for place in self._others}
            for each in self._passes(entries, tensors):
                if each.read():
                    self._look_again(tensors, each.in_doubt())
        if self._there:
            self._put(self._there, _on_device([tensors[place] for place in self._there]).T)
        return self._by_tensor

    def sampled(self) -> bytes | None:
        """What `sample` would have told of the tensors that were measured last."""
        return None if self._others or self._there else b"".join([each.sampled() for each in self._plain])

    def sample(self, tensors: Sequence[Tensor]) -> bytes | None:
        """Eight bytes for each tensor, of some of its entries; None if these are not where others were read last.

        Two are the same if nothing was written in between, and hardly ever if every entry was.
        """
        if self._others or self._there or not _TYPES.issuperset(map(type, tensors)):
            return None
        samples = [each.sample(tensors) for each in self._plain]
        return b"".join(samples) if _all_there(samples) else None

    def _find(self, tensors: Sequence[Tensor]) -> bool:
        """Whether all can be read as the last ones were."""
        return all(each.finds(tensors) for each in self._plain)

    def _take_in(self, tensors: Sequence[Tensor]) -> None:
        """Make what depends on shapes, dtypes and devices alone."""
        here = {place: tensor for place, tensor in enumerate(tensors) if tensor.device.type == "cpu"}
        plain = {place: tensor for place, tensor in here.items() if _lies_open(tensor)}
        self._others = [place for place in here if place not in plain]
        self._there = [place for place in range(len(tensors)) if place not in here]
        self._table = np.zeros((len(STATISTICS), len(tensors)))
        self._by_tensor = self._table.T
        self._table[1:5] = np.nan
        self._has_looked = False
        self._plain = self._passes(plain, tensors)

    def _passes(self, entries: Mapping[int, Tensor], tensors: Sequence[Tensor]) -> list[_Pass]:
        """One for each dtype, given what is to be read of each tensor by its place."""
        own = [[place for place, stored in entries.items() if stored.dtype is dtype] for dtype in kernels.FORMS]
        asked = {"only_norms": self._only_norms, "samples": self._samples}
        return [_Pass(places, entries, tensors, self._table, **asked) for places in own if places]

    def _look_again(self, tensors: Sequence[Tensor], places: Sequence[int]) -> None:
        for place in places:
            with np.errstate(all="ignore"):  # what overflows is meant to show
                row = _carefully(dense_real(tensors[place]).reshape(-1).numpy(), tensors[place].numel())
            self._put(place, row)

    def _put(self, places: int | Sequence[int], rows: Floats) -> None:
        self._table[:, places] = rows
        if self._only_norms:
            self._table[1:5, places] = np.nan
        self._has_looked = True


class _Pass:
    """Tensors of one dtype that one compiled call reads into a table, [statistics, tensors].

    Addresses know neither size nor dtype: what is read is asked for both each time (`finds`).
    """

    def __init__(
        self,
        places: list[int],
        entries: Mapping[int, Tensor],
        tensors: Sequence[Tensor],
        table: Floats,
        *,
        only_norms: bool,
        samples: bool,
    ) -> None:
        own = [entries[place] for place in places]
        self._reads_all = places == list(range(len(tensors)))
        self._lengths, self._dtype = list(map(Tensor.numel, own)), {own[0].dtype}
        # Absent entries of a sparse tensor count as well.
        counts = [tensors[place].numel() for place in places]
        self._task = kernels.Task(self._lengths, counts, places, table, samples=samples)
        self._addresses = list(map(Tensor.data_ptr, own))
        self._task.find(self._addresses)
        self._kernels = kernels.KERNELS[own[0].dtype]
        self._measure = self._kernels.measure_norms if only_norms else self._kernels.measure_all
        self._reads_signs = not only_norms

    def _own(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        return tensors if self._reads_all else [tensors[place] for place in self._task.places.tolist()]

    def finds(self, tensors: Sequence[Tensor]) -> bool:
        """Whether it may read its own among these where they lie, as it will."""
        own = self._own(tensors)
        if not _lie_open(own, self._dtype) or list(map(Tensor.numel, own)) != self._lengths:
            return False
        if self._reads_signs and any(map(Tensor.is_neg, own)):
            return False
        addresses = list(map(Tensor.data_ptr, own))
        if 0 in addresses and any(map(Tensor._is_zerotensor, own)):  # which has no memory
            return False
        self._addresses = addresses
        self._task.find(addresses)
        return True

    def read(self) -> int:
        """Write into the table; how many have to be looked at again."""
        return self._measure(self._task.in_doubt, self._task.words)

    def in_doubt(self) -> list[int]:
        """Their places."""
        places: list[int] = self._task.places[self._task.in_doubt].tolist()
        return places

    def sampled(self) -> bytes:
        """On the way, when it was read last."""
        return self._task.samples.tobytes()

    def sample(self, tensors: Sequence[Tensor]) -> bytes | None:
        """Of what was read last, as it is now; None if it lies elsewhere now, or nothing can be compiled."""
        try:
            if list(map(Tensor.data_ptr, self._own(tensors))) != self._addresses:
                return None
        except RuntimeError:  # a sparse one now, which lies in several places
            return None
        if self._kernels.sample(self._task.in_doubt, self._task.words):
            return None
        return self._task.samples.tobytes()


class OneByOne:
    """The statistics of tensors on the CPU that come one after the other, each of another size and dtype.

    What `Statistics` makes ready for many tensors would cost several times what reading one does.

    Examples
    --------
    >>> OneByOne()(torch.tensor([3.0, -4.0, 0.0])).round(4)[:5].tolist()
    [5.0, -0.3333, 3.5119, 4.0, 0.3333]
    """

    def __init__(self) -> None:
        self._table = np.zeros((len(STATISTICS), 1))
        self._task = kernels.Task([0], [0], [0], self._table)

    def __call__(self, tensor: Tensor) -> Floats:
        """A row of the table, which is the caller's."""
        entries = tensor
        if not _lies_open(tensor):
            (tensor,) = whole([tensor])
            entries = dense_real(tensor).contiguous()
        task = self._task
        task.addresses[0], task.lengths[0], task.counts[0] = entries.data_ptr(), entries.numel(), tensor.numel()
        if kernels.KERNELS[entries.dtype].measure_all(task.in_doubt, task.words):
            with np.errstate(all="ignore"):  # what overflows is meant to show
                return _carefully(entries.reshape(-1).numpy(), tensor.numel())
        return self._table[:, 0].copy()


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
    return Statistics(tensors)(tensors)


_dtype_of, _layout_of, _is_cpu = attrgetter("dtype"), attrgetter("layout"), attrgetter("is_cpu")
_STRIDED = {torch.strided}
_TYPES = {Tensor, nn.Parameter}  # a subclass may keep its entries elsewhere


def _all_there(samples: list[bytes | None]) -> TypeGuard[list[bytes]]:
    return all(each is not None for each in samples)


def _lie_open(tensors: Sequence[Tensor], dtype: set[torch.dtype]) -> bool:
    """Whether all are of a dtype, and entries lie where the address says, one after the other.

    By maps of one attribute each, which for 400 tensors take a third less than one of all three. What has no memory at
    all, or its sign turned, is not seen here.
    """
    return (
        _TYPES.issuperset(map(type, tensors))
        and set(map(_dtype_of, tensors)) == dtype
        and all(map(_is_cpu, tensors))
        and set(map(_layout_of, tensors)) == _STRIDED
        and all(map(Tensor.is_contiguous, tensors))
    )


def _lies_open(tensor: Tensor) -> bool:
    """The same of one, and that its dtype can be read and it has memory: six times as fast for it."""
    return (
        type(tensor) in _TYPES
        and tensor.dtype in kernels.FORMS
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
        and not tensor.is_neg()
        and not tensor._is_zerotensor()
    )


def dense_real(tensor: Tensor) -> Tensor:
    """The entries that count: stored values of a sparse tensor, magnitudes of a complex one, halves as float32."""
    values = values_of(tensor.detach()).resolve_neg()
    if values._is_zerotensor():
        values = torch.zeros(values.shape, dtype=values.dtype)
    return values if values.dtype in kernels.FORMS else values.float()


def _carefully(entries: kernels.Entries, count: int) -> NDArray[np.float64]:
    """The careful way, to the precision of the entries."""
    row = _in_float64(entries, count)
    if entries.dtype == np.float64:
        return row
    narrow = row[:5].astype(entries.dtype).astype(np.float64)
    is_kept = (np.abs(narrow) >= kernels.SMALLEST_NORMAL) & (np.abs(narrow) < np.inf)
    is_kept[4] &= narrow[4] < 1  # which says that all are zero
    row[:5][is_kept] = narrow[is_kept]
    return row


def _in_float64(entries: kernels.Entries, count: int) -> NDArray[np.float64]:
    """Scaled by the largest entry, with a second pass for the spread."""
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
    return torch.stack([device_row(tensor) for tensor in tensors]).cpu().double().numpy()


def device_row(tensor: Tensor) -> Tensor:
    """One row; scaled by the largest magnitude, so that float32 neither under- nor overflows (MPS has no float64)."""
    count = tensor.numel()
    entries = dense_real(tensor).reshape(-1)
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
