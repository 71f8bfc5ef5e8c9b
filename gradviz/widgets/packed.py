"""Columns in few bytes, for a page that carries its numbers with it (`js/src/page/packed.ts`).

A cell becomes a whole number: the bits of its float32, where there is room for them, and otherwise the place of its
logarithm on a grid of `STEPS` an octave, 0 for "no number", 1 for zero, and negative for what is below zero. So a zero
is a zero, what has no number has none, and all else is told to within `ROUNDED`; flags and the loss are always exact.
A row lies in one piece, each number as its difference from the one before, byte by byte: then it deflates well.

Little-endian, before it is deflated::

    uint32  columns C, rows R, has_min (0 or 1), rounded (0 or 1)
    planes  start[C], stop[C]                     4 bytes each
    planes  max[(R-1) * C]                        2 bytes each if rounded, else 4
    planes  min[(R-1) * C]                        only if has_min, as the difference from max
    planes  loss_max[C]; loss_min[C] if has_min   4 bytes each
    uint8   flags[R * C]

Planes of n numbers of b bytes are all lowest bytes, all second ones and so on, of differences in zigzag.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradviz.history.overview import Columns

STEPS = 116
"""Places an octave: as many as 16 bits have for all sizes of a float32, of either sign."""
ROUNDED = 0.003
"""How far a rounded number may be from what it was, as a share of it."""

_LOWEST = -149
"""The exponent of the smallest float32."""
_LARGEST = np.finfo(np.float32).max
_NOTHING, _ZERO, _FIRST = 0, 1, 2


def coded(values: NDArray[np.float32]) -> NDArray[np.int16]:
    """The place of each number on the grid.

    Examples
    --------
    >>> coded(np.float32([np.nan, 0, 1.4e-45, 1, 2, -2])).tolist()
    [0, 1, 2, 17286, 17402, -17402]
    """
    size = np.abs(values.astype(np.float64))
    with np.errstate(divide="ignore", invalid="ignore"):
        place = np.rint((np.log2(size) - _LOWEST) * STEPS) + _FIRST
    place = np.where(size > 0, np.copysign(place, values), np.where(size == 0, _ZERO, _NOTHING))
    return place.astype(np.int16)


def decoded(places: NDArray[np.int16]) -> NDArray[np.float32]:
    """The numbers that these places stand for.

    Examples
    --------
    >>> decoded(np.int16([0, 1, 2, 17286, -17402])).tolist()
    [nan, 0.0, 1.401298464324817e-45, 1.0, -2.0]
    """
    size = np.exp2((np.abs(places.astype(np.float64)) - _FIRST) / STEPS + _LOWEST)
    value = np.copysign(np.minimum(size, _LARGEST), places)
    return np.select([places == _NOTHING, places == _ZERO], [np.nan, 0.0], value).astype(np.float32)


def flat(columns: Columns, *, rounded: bool) -> bytes:
    """Columns as bytes that deflate well."""
    has_min = not columns.exact
    code, width = (coded, 2) if rounded else (_bits, 4)
    maximum, minimum = code(columns.maximum[:, :-1].T), code(columns.minimum[:, :-1].T)
    loss_max, loss_min = _bits(columns.maximum[:, -1:].T), _bits(columns.minimum[:, -1:].T)
    parts = [
        np.array([len(columns), columns.rows, has_min, rounded], "<u4").tobytes(),
        _planes(columns.start[None], 4),
        _planes(columns.stop[None], 4),
        _planes(maximum, width),
        _planes(minimum - maximum, width) if has_min else b"",
        _planes(loss_max, 4),
        _planes(loss_min, 4) if has_min else b"",
        np.ascontiguousarray(columns.flags.T).tobytes(),
    ]
    return b"".join(parts)


def packed(columns: Columns, limit: int) -> tuple[bytes, Columns, bool]:
    """Columns in at most so many bytes, deflated, the columns they are of, and whether these are rounded.

    All bits are kept where they fit; where not, numbers are rounded; and where that does not do, neighbours merge too
    (the largest, the smallest and every flag are kept).
    """
    for rounded in (False, True):
        small = zlib.compress(flat(columns, rounded=rounded), 6)
        if len(small) <= limit:
            return small, columns, rounded
    while len(small) > limit and len(columns) > 1:
        columns = columns.at_most(len(columns) // 2)
        small = zlib.compress(flat(columns, rounded=True), 6)
    return small, columns, True


def _bits(values: NDArray[np.float32]) -> NDArray[np.int32]:
    return np.where(np.isnan(values), np.float32(np.nan), values).view(np.int32)


def _planes(numbers: NDArray[Any], width: int) -> bytes:
    """Numbers of each row as differences from the one before, in zigzag, byte by byte."""
    wrapped = numbers.astype(f"<i{width}")
    steps = np.diff(wrapped, axis=1, prepend=wrapped.dtype.type(0))
    zigzag = (steps << 1) ^ (steps >> (8 * width - 1))
    return np.ascontiguousarray(zigzag.ravel().view(np.uint8).reshape(-1, width).T).tobytes()
