"""A bounded picture of a run of any length.

The overview holds at most `capacity` columns. A column covers the iterations [start, stop); when there are too many,
neighbours merge pairwise and every column covers twice as many::

    level 0    |0|1|2|3|4|5|6|7|          one iteration a column
    level 1    |0 1|2 3|4 5|6 7|          merged: the largest and the smallest finite value, and all flags
    level 2    |0 1 2 3|4 5 6 7|

A merge keeps the maximum, the minimum and the union of the flags, so one bad iteration in 100,000 stays visible.

A column that says nothing of any parameter, neither a value nor a flag, is of an iteration at which only the loss was
recorded: it becomes one with the column before it, whichever block that is in.
The browser runs the same algorithm (`js/src/data/overview.ts`); `tests/data/overview.json` holds both to the same
bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Cell = TypeVar("Cell", np.float32, np.uint8)

CAPACITY = 4096
"""Columns an overview holds at most: wider than any screen, and 37 MB at 1,000 rows."""

NAN, POSINF, NEGINF, ZERO, UNUSED, FROZEN, NOT_OPTIMIZED, NOT_RECORDED = (1 << bit for bit in range(8))
"""What happened in a cell; the bits add up when columns merge."""


@dataclass(frozen=True)
class Columns:
    """Some columns of an overview.

    Attributes
    ----------
    start, stop : uint32 arrays of shape [columns]
        The iterations [start, stop) each column covers.
    maximum, minimum : float32 arrays of shape [columns, rows]
        Largest and smallest finite value of the iterations in the column; NaN where there is none.
    flags : uint8 array of shape [columns, rows]
        Everything that happened in the cell.
    level : int
        Columns in the same block of 2**level iterations are one.
    """

    start: NDArray[np.uint32]
    stop: NDArray[np.uint32]
    maximum: NDArray[np.float32]
    minimum: NDArray[np.float32]
    flags: NDArray[np.uint8]
    level: int = 0

    def __len__(self) -> int:
        return len(self.start)

    def __getitem__(self, columns: slice) -> Columns:
        """Some of them."""
        return Columns(
            self.start[columns],
            self.stop[columns],
            self.maximum[columns],
            self.minimum[columns],
            self.flags[columns],
            self.level,
        )

    @property
    def rows(self) -> int:
        """Cells in each column."""
        return int(self.maximum.shape[1])

    @property
    def exact(self) -> bool:
        """Whether every column is a single iteration, so that maximum and minimum are the same."""
        return bool(np.all(self.stop - self.start == 1))

    def at_level(self, level: int) -> Columns:
        """Merge the columns that fall in the same block of 2**level iterations."""
        first = self._begins(level)
        if len(first) == len(self):
            return self if level == self.level else replace(self, level=level)
        last = np.append(first[1:], len(self)) - 1
        return Columns(self.start[first], self.stop[last], *merged(self, first, axis=0), level)

    def at_most(self, n_columns: int) -> Columns:
        """Merge until at most `n_columns` (at least one) are left."""
        level = self.level
        while len(self._begins(level)) > max(n_columns, 1):
            level += 1
        return self.at_level(level)

    @property
    def has_loss_alone(self) -> NDArray[np.bool_]:
        """Which columns say nothing of any parameter: the first one's cell tells it of all."""
        alone = np.zeros(len(self), np.bool_)
        if self.rows > 1:
            alone[:] = (self.flags[:, 0] == 0) & np.isnan(self.maximum[:, 0])
        return alone

    def _begins(self, level: int) -> NDArray[np.int64]:
        """Which columns begin another one at a level."""
        stands = ~self.has_loss_alone
        stands[:1] = True
        (first,) = np.nonzero(stands)
        block = self.start[first] >> np.uint32(level)
        begins: NDArray[np.int64] = first[np.concatenate((np.ones(len(first[:1]), np.bool_), block[1:] != block[:-1]))]
        return begins


def merged(
    columns: Columns, places: NDArray[np.int64], axis: int
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.uint8]]:
    """Maximum, minimum and flags with all cells from one place to the next as one, along columns (0) or rows (1)."""
    return (
        _reduced(np.fmax, columns.maximum, places, axis),  # fmax: a NaN stays only where nothing is finite
        _reduced(np.fmin, columns.minimum, places, axis),
        _reduced(np.bitwise_or, columns.flags, places, axis),
    )


def _reduced(ufunc: np.ufunc, values: NDArray[Cell], places: NDArray[np.int64], axis: int) -> NDArray[Cell]:
    sizes = np.diff(places)
    if axis or len(sizes) < 2 or (sizes[1:] != sizes[1]).any():
        reduced: NDArray[Cell] = ufunc.reduceat(values, places, axis=axis)
        return reduced
    # Blocks of one size, but for the first and the last: ten times as fast.
    first, last = int(places[1]), int(places[-1])
    blocks = values[first:last].reshape(-1, int(sizes[1]), values.shape[1])
    head, tail = (ufunc.reduce(part, axis=0, keepdims=True) for part in (values[:first], values[last:]))
    return np.concatenate((head, ufunc.reduce(blocks, axis=1), tail))


def join(pieces: Sequence[Columns], rows: int = 0) -> Columns:
    """Put columns one after the other; what some lack of the most rows, or of `rows`, they never recorded."""
    rows = max([rows, *[piece.rows for piece in pieces]])
    return Columns(
        np.concatenate([piece.start for piece in pieces] or [np.empty(0, np.uint32)]),
        np.concatenate([piece.stop for piece in pieces] or [np.empty(0, np.uint32)]),
        _stack([piece.maximum for piece in pieces], rows, np.float32(np.nan)),
        _stack([piece.minimum for piece in pieces], rows, np.float32(np.nan)),
        _stack([piece.flags for piece in pieces], rows, np.uint8(NOT_RECORDED)),
        max([piece.level for piece in pieces], default=0),
    )


def _stack(pieces: Sequence[NDArray[Cell]], rows: int, fill: Cell) -> NDArray[Cell]:
    stacked = np.full((sum(map(len, pieces)), rows), fill, dtype=fill.dtype)
    at = 0
    for piece in pieces:
        part = stacked[at : at + len(piece)]
        if piece.shape[1]:
            # New parameters come before the last row (the loss), which stays last.
            part[:, : piece.shape[1] - 1], part[:, -1] = piece[:, :-1], piece[:, -1]
        at += len(piece)
    return stacked


class Overview:
    """Columns that never grow beyond a capacity.

    Examples
    --------
    >>> overview = Overview(capacity=4)
    >>> for i in range(6):
    ...     start, value = np.array([i], "u4"), np.full((1, 1), i, "f4")
    ...     overview.append(Columns(start, start + np.uint32(1), value, value, np.zeros((1, 1), "u1")))
    >>> overview.level, overview.columns.start.tolist(), overview.columns.maximum[:, 0].tolist()
    (1, [0, 2, 4], [1.0, 3.0, 5.0])
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self.level = 0
        self._pieces: list[Columns] = []  # put together when they are asked for, or have to merge
        self._length = 0

    @classmethod
    def of(cls, columns: Columns) -> Overview:
        """One that goes on from columns it once had."""
        overview = cls()
        overview._pieces, overview._length, overview.level = [columns], len(columns), columns.level
        return overview

    def append(self, columns: Columns) -> None:
        """Add columns at the end, merging what shares a block, and merge all once more while there are too many."""
        if not len(columns):
            return
        if self._length:  # the first of them may belong to the last one
            last = self._pieces[-1]
            self._pieces[-1] = last[:-1]
            self._length -= 1
            columns = join([last[-1:], columns])
        fresh = columns.at_level(self.level)
        self._pieces.append(fresh)
        self._length += len(fresh)
        while self._length > self.capacity:
            self.level += 1
            self._pieces = [self.columns.at_level(self.level)]
            self._length = len(self._pieces[0])

    def drop_newest(self) -> int:
        """Forget the last column; the iteration that it began with."""
        columns = self.columns
        self._pieces, self._length = [columns[:-1]], len(columns) - 1
        return int(columns.start[-1])

    @property
    def columns(self) -> Columns:
        """What there is so far; no columns before the first append."""
        if len(self._pieces) > 1:
            self._pieces = [join([piece for piece in self._pieces if len(piece)])]
        return self._pieces[0] if self._pieces else join([])
