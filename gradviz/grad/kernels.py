"""One pass over the entries of many tensors, compiled: everything that is asked of a gradient is read once.

A gradient comes from the backward pass with half of it in the other core's cache, and every pass over it is paid from
there. Measured between real steps, for the sixteen gradients of eight layers of 256 x 256: five passes by numpy took
710 microseconds, one dot product for each tensor 180, torch's `_foreach_norm` 230; all statistics by this pass take
155, and norms alone 120. The same call takes hundreds of small tensors without a Python call for each.

Sums are taken in float64, so that squares of float32 neither vanish nor overflow. The entries are read as integers too:
without its sign, an IEEE 754 number is the larger the larger its bits are, which tells the greatest magnitude (and NaN
and infinities, above all others) and what is zero in the time of one instruction each.

What is told of float32 entries is told to float32's precision: the further digits of the sums say nothing of the
gradient, and as zeros they take no room on the disk.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from numba import carray  # type: ignore[attr-defined]
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from gradviz.errors import RecordingWarning, warn

BLOCK = 1024
"""So many entries of each quarter of a tensor are gone through twice, for the sums and for the bits, while they are in
the nearest cache (16 kB). One loop for both takes a fifth longer: its float64 lanes are half as many as its int32 ones.
And four places at once are fetched faster than one after the other: by a fifth, where they are far."""

SPREAD = 1e8
"""mean² above this many variances: std from squares and mean has lost half of float64's digits, so look twice."""

SMALLEST_NORMAL = 2.0**-126
"""Below, float32 has fewer digits the smaller the number is; what is below is told in float64."""

SAMPLES = 16
"""Entries of a tensor that `sample` reads, besides the last. Each is a line of the cache: of 32 x 32 entries, 64 would
be all lines, and cost what the norm costs."""

Entries = NDArray[np.float32] | NDArray[np.float64]


class Form(NamedTuple):
    """How entries of one dtype are read."""

    entries: Entries
    """Empty: its dtype alone is meant."""
    bits: NDArray[np.int32] | NDArray[np.int64]
    """Empty too."""
    unsigned: np.int32 | np.int64
    """All bits but that of the sign."""
    floor: float
    """A smaller sum of squares may have lost entries to underflow."""


FORMS = {
    torch.float32: Form(np.empty(0, np.float32), np.empty(0, np.int32), np.int32(2**31 - 1), 0.0),
    torch.float64: Form(np.empty(0, np.float64), np.empty(0, np.int64), np.int64(2**63 - 1), 1e-290),
}

_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",  # what is divided by zero is NaN or infinite
    "fastmath": {"reassoc", "contract", "nsz"},  # sums in lanes; NaN and infinities keep their meaning
}


class Kernel:
    """A pass that is compiled when it is first called, in two seconds; from then on that is kept on the disk.

    It is kept beside this file, or else in the home. What is kept may be damaged, and the disk full or closed to us:
    then it is compiled anew, and nothing else changes. Where nothing can be compiled, or is not to be
    (``NUMBA_DISABLE_JIT``), every tensor is left in doubt, and so read the careful way: slower, with the same meaning.
    """

    def __init__(self, function: Callable[..., int]) -> None:
        self._function = function
        self._call: Any = _leave_in_doubt if numba.config.DISABLE_JIT else self._compiled()  # type: ignore[attr-defined]

    def __call__(self, in_doubt: NDArray[np.bool_], *arguments: Any) -> int:
        """How many tensors are in doubt, and which; what was asked of the others is where the arguments say."""
        try:
            n_in_doubt: int = self._call(in_doubt, *arguments)
        except Exception:
            n_in_doubt = self._anew(in_doubt, *arguments)
        return n_in_doubt

    def _compiled(self) -> Any:
        try:
            return numba.njit(cache=True, **_OPTIONS)(self._function)
        except RuntimeError:  # neither place can be written to
            return numba.njit(**_OPTIONS)(self._function)

    def _anew(self, *arguments: Any) -> int:
        """Without what is on the disk, which the next process shall find whole again."""
        n_in_doubt: int
        with contextlib.suppress(Exception):
            for kept in Path(self._call.stats.cache_path).glob(f"*.{self._function.__name__}-*.nb[ic]"):
                kept.unlink()
            self._call = self._compiled()
            n_in_doubt = self._call(*arguments)
            return n_in_doubt
        try:
            self._call = numba.njit(**_OPTIONS)(self._function)
            n_in_doubt = self._call(*arguments)
        except Exception as error:
            self._call = _leave_in_doubt
            n_in_doubt = self._call(*arguments)
            warn(
                f"What reads gradients could not be compiled ({type(error).__name__}: {error}). They are read without "
                "it: as well, but slower. Said once.",
                RecordingWarning,
            )
        return n_in_doubt


def _leave_in_doubt(in_doubt: NDArray[np.bool_], *arguments: Any) -> int:
    in_doubt[:] = True
    return len(in_doubt)


# What a kernel calls is kept with it.
inner: Callable[[Callable[..., Any]], Callable[..., Any]] = numba.njit(**_OPTIONS)


def _pointer(typing: Any, address: Any) -> Any:
    """An address as a pointer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.int64), generate


_at: Any = intrinsic(_pointer)


class Task:
    """What the kernels that read tensors are given: the addresses of arrays, in one array.

    Numba makes each array and tuple that it is given ready for every call: for seven of them that took 35 microseconds
    between two steps, and one takes 2.

    Parameters
    ----------
    lengths : sequence of int
        Entries of each tensor where they lie.
    counts : sequence of int
        Entries that count: those that a sparse tensor leaves out as well.
    places : sequence of int
        The column of each in the table.
    table : float64 array of shape [at least 5, columns]
        Its rows lie together.
    samples : bool
        Whether what measures takes samples on the way.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        counts: Sequence[int],
        places: Sequence[int],
        table: NDArray[np.float64],
        *,
        samples: bool = False,
    ) -> None:
        self.lengths, self.places = np.array(lengths, np.int64), np.array(places, np.int64)
        self.addresses = np.zeros(len(lengths), np.int64)
        """Where the entries lie."""
        self.in_doubt = np.zeros(len(lengths), np.bool_)
        self.samples = np.zeros(len(lengths), np.int64)
        self.counts, self._table = np.array(counts, np.float64), table
        arrays = self.addresses, self.lengths, self.counts, self.places, self._table, self.samples
        self._addresses = self.addresses.view(np.uint8).data.cast("q") if len(lengths) else None
        addresses = [each.ctypes.data for each in arrays]
        self.words = np.array([len(lengths), table.shape[1], *addresses, samples], np.int64)

    def find(self, addresses: Sequence[int]) -> None:
        """Read there from now on. Not by numpy, which takes 12 microseconds for 16 numbers between two steps."""
        if self._addresses is not None:
            self._addresses[:] = array("q", addresses)


@inner
def _array(words: Any, which: int, length: int, dtype: Any) -> Any:
    return carray(_at(words[which]), length, dtype)


@inner
def _quarters(entries: Any, quarter: int) -> Any:
    return (
        entries[:quarter],
        entries[quarter : 2 * quarter],
        entries[2 * quarter : 3 * quarter],
        entries[3 * quarter : 4 * quarter],
    )


@inner
def _sums(a: Any, b: Any, c: Any, d: Any) -> Any:
    squares_a, squares_b, squares_c, squares_d = 0.0, 0.0, 0.0, 0.0
    total_a, total_b, total_c, total_d = 0.0, 0.0, 0.0, 0.0
    for i in range(len(a)):
        w, x, y, z = np.float64(a[i]), np.float64(b[i]), np.float64(c[i]), np.float64(d[i])
        squares_a += w * w
        squares_b += x * x
        squares_c += y * y
        squares_d += z * z
        total_a += w
        total_b += x
        total_c += y
        total_d += z
    return squares_a + squares_b + squares_c + squares_d, total_a + total_b + total_c + total_d


@inner
def _bits(a: Any, b: Any, c: Any, d: Any, unsigned: Any) -> Any:
    integer = a.dtype.type
    greatest, nonzeros = integer(0), integer(0)
    for i in range(len(a)):
        w, x, y, z = (
            integer(a[i] & unsigned),
            integer(b[i] & unsigned),
            integer(c[i] & unsigned),
            integer(d[i] & unsigned),
        )
        greatest = w if w > greatest else greatest
        greatest = x if x > greatest else greatest
        greatest = y if y > greatest else greatest
        greatest = z if z > greatest else greatest
        nonzeros = integer(nonzeros + 1) if w != 0 else nonzeros
        nonzeros = integer(nonzeros + 1) if x != 0 else nonzeros
        nonzeros = integer(nonzeros + 1) if y != 0 else nonzeros
        nonzeros = integer(nonzeros + 1) if z != 0 else nonzeros
    return greatest, nonzeros


@inner
def _sampled(bits: Any, length: int) -> Any:
    """Some entries as one number."""
    mixed = np.int64(0)
    for i in range(0, length, max(length // SAMPLES, 1)):
        mixed = mixed * np.int64(31) + np.int64(bits[i])
    if length:
        mixed = mixed * np.int64(31) + np.int64(bits[length - 1])
    return mixed


@inner
def _kept(value: float, form: Any) -> float:
    """To the precision of the entries, where that holds the value; else as it is."""
    narrow = np.float64(form.entries.dtype.type(value))  # conversions are the same whatever else may be reordered
    return narrow if SMALLEST_NORMAL <= abs(narrow) < np.inf else value


class Kernels(NamedTuple):
    """Those for entries of one dtype. Each takes `Task.in_doubt` and `Task.words`."""

    measure_all: Kernel
    """norm, mean, std, max_abs and zero_fraction into rows 0 to 4 of the table."""
    measure_norms: Kernel
    """The norm into row 0."""
    sample: Kernel
    """Some entries' bits of each tensor as one number, which another one changes that is written over all of them."""


def _kernels(form: Form) -> Kernels:
    @Kernel
    def measure_all(in_doubt: Any, words: Any) -> int:
        n, width, n_in_doubt = words[0], words[1], 0
        addresses, lengths = _array(words, 2, n, np.int64), _array(words, 3, n, np.int64)
        counts, places = _array(words, 4, n, np.float64), _array(words, 5, n, np.int64)
        table, samples = _array(words, 6, (5, width), np.float64), _array(words, 7, n, np.int64)
        largest = np.zeros(1, form.bits.dtype)
        for k in range(n):
            length, count, place = lengths[k], counts[k], places[k]
            entries = carray(_at(addresses[k]), length, form.entries.dtype)
            bits = carray(_at(addresses[k]), length, form.bits.dtype)
            squares, total, nonzeros, quarter = 0.0, 0.0, 0.0, length // 4
            greatest = form.bits.dtype.type(0)
            a, b, c, d = _quarters(entries, quarter)
            bits_a, bits_b, bits_c, bits_d = _quarters(bits, quarter)
            for start in range(0, quarter, BLOCK):
                stop = min(start + BLOCK, quarter)
                of_block = _sums(a[start:stop], b[start:stop], c[start:stop], d[start:stop])
                squares += of_block[0]
                total += of_block[1]
                of_bits = _bits(
                    bits_a[start:stop], bits_b[start:stop], bits_c[start:stop], bits_d[start:stop], form.unsigned
                )
                greatest = max(greatest, of_bits[0])
                nonzeros += of_bits[1]
            for i in range(4 * quarter, length):
                entry = np.float64(entries[i])
                squares += entry * entry
                total += entry
                magnitude = form.bits.dtype.type(bits[i] & form.unsigned)
                greatest = max(greatest, magnitude)
                nonzeros += magnitude != 0
            largest[0] = greatest
            mean = total / count
            deviations = squares - total * mean
            table[0, place] = _kept(np.sqrt(squares), form)
            table[1, place] = _kept(mean, form)
            std = np.sqrt(max(deviations, 0.0) / (count - 1)) if count > 1 else np.nan  # as torch has it
            table[2, place] = _kept(std, form)
            table[3, place] = largest.view(form.entries.dtype)[0] if count else np.nan
            zeros = (count - nonzeros) / count
            share = _kept(zeros, form)
            table[4, place] = share if share < 1 else zeros  # 1 says that all are zero
            is_lost = squares < form.floor and greatest > 0
            is_cancelled = count > 1 and total * mean > deviations * SPREAD
            if words[8]:
                samples[k] = _sampled(bits, length)
            in_doubt[k] = is_lost or is_cancelled or not squares < np.inf
            n_in_doubt += in_doubt[k]
        return n_in_doubt

    @Kernel
    def measure_norms(in_doubt: Any, words: Any) -> int:
        n, n_in_doubt = words[0], 0
        addresses, lengths = _array(words, 2, n, np.int64), _array(words, 3, n, np.int64)
        places, norms = _array(words, 5, n, np.int64), _array(words, 6, words[1], np.float64)
        samples = _array(words, 7, n, np.int64)
        for k in range(n):
            length = lengths[k]
            entries, quarter = carray(_at(addresses[k]), length, form.entries.dtype), length // 4
            squares = _sums(*_quarters(entries, quarter))[0]  # the totals are optimized away
            for i in range(4 * quarter, length):
                entry = np.float64(entries[i])
                squares += entry * entry
            norms[places[k]] = _kept(np.sqrt(squares), form)
            if words[8]:
                samples[k] = _sampled(carray(_at(addresses[k]), length, form.bits.dtype), length)
            in_doubt[k] = not form.floor <= squares < np.inf
            n_in_doubt += in_doubt[k]
        return n_in_doubt

    @Kernel
    def sample(in_doubt: Any, words: Any) -> int:
        n = words[0]
        addresses, lengths = _array(words, 2, n, np.int64), _array(words, 3, n, np.int64)
        samples = _array(words, 7, n, np.int64)
        for k in range(n):
            samples[k] = _sampled(carray(_at(addresses[k]), lengths[k], form.bits.dtype), lengths[k])
        return 0

    return Kernels(measure_all, measure_norms, sample)


KERNELS = {dtype: _kernels(form) for dtype, form in FORMS.items()}
