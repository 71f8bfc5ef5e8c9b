"""Gradients by iteration: numbers [statistics, parameters] for each, in numpy columns that grow in chunks."""

from __future__ import annotations

import functools
import os
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gradviz.history.schema import COUNTS, NOT_RECORDED, STATISTICS
from gradviz.history.series import Series
from gradviz.history.side_by_side import side_by_side

Floats = NDArray[np.float64]
Places = slice | NDArray[np.int64]

PLANES = (*STATISTICS, "state")
"""What is known of a parameter at an iteration."""

CHUNK = 1024
"""Iterations a chunk holds."""

CHUNK_BYTES = 65_000_000
"""But no more than so much."""


ROW_BYTES = 8 * len(STATISTICS) + 1
"""What a parameter takes in one iteration."""


@dataclass(frozen=True)
class Rows:
    """Some iterations of a run, and some of what is known of each parameter in them.

    Attributes
    ----------
    iteration, epoch, attempt : int64 arrays of shape [iterations]
    planes : dict of str to array of shape [iterations, parameters]
        By the name of a statistic, float64, NaN where nothing was recorded; and ``"state"``, uint8, places in STATES.
    """

    iteration: NDArray[np.int64]
    epoch: NDArray[np.int64]
    attempt: NDArray[np.int64]
    planes: dict[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(self.iteration)


class Segment(Protocol):
    """Rows that lie together, in memory or in a file: one attempt, one number of parameters."""

    attempt: int
    n_parameters: int

    def __len__(self) -> int: ...

    @property
    def iteration(self) -> NDArray[np.int64]:
        """The iterations, ascending."""

    @property
    def epoch(self) -> NDArray[np.int64]:
        """The epoch of each."""

    def planes(
        self, names: Sequence[str], rows: Places, parameters: NDArray[np.int64] | None
    ) -> dict[str, NDArray[Any]]:
        """Planes by name, of some rows and some parameters (all, if None), which this segment knows."""


class Block:
    """A chunk in memory: rows [iterations, statistics, parameters] that fill up.

    Each iteration lies together, and is written as bytes: numpy's own way to write a row takes 12 microseconds between
    two steps, this takes 3.
    """

    def __init__(self, attempt: int, n_parameters: int, capacity: int) -> None:
        self.attempt, self.n_parameters, self._capacity = attempt, n_parameters, capacity
        # Not filled: the pages of a large model's chunk cost nothing before they are written.
        self._statistics = np.empty((capacity, len(STATISTICS), n_parameters))
        self._state = np.empty((capacity, n_parameters), np.uint8)
        self._iteration, self._epoch = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
        self._iterations, self._epochs = self._iteration.data, self._epoch.data
        self._bytes = self._statistics.reshape(-1).view(np.uint8).data
        self._state_bytes = self._state.reshape(-1).data
        self._row_bytes = 8 * len(STATISTICS) * n_parameters
        self._length = 0

    def holds(self, n_parameters: int, capacity: int) -> bool:
        """Whether it has this size."""
        return self._state.shape == (capacity, n_parameters)

    def begin(self, attempt: int) -> None:
        """Be an empty chunk again."""
        self.attempt, self._length = attempt, 0

    def __len__(self) -> int:
        return self._length

    @property
    def nbytes(self) -> int:
        """Memory its rows take."""
        return self._length * (16 + self.n_parameters * ROW_BYTES)

    @property
    def iteration(self) -> NDArray[np.int64]:
        """The iterations, ascending."""
        return self._iteration[: self._length]

    @property
    def epoch(self) -> NDArray[np.int64]:
        """The epoch of each."""
        return self._epoch[: self._length]

    def append(self, iteration: int, epoch: int, attempt: int, statistics: Floats, states: NDArray[np.uint8]) -> bool:
        """Copy one iteration to the end, if it goes in: there is room, and it is of this attempt and size."""
        at = self._length
        if at == self._capacity or attempt != self.attempt or len(states) != self.n_parameters:
            return False
        self._iterations[at], self._epochs[at] = iteration, epoch
        if self.n_parameters:
            begin = at * self._row_bytes
            self._bytes[begin : begin + self._row_bytes] = statistics.T.tobytes()
            begin = at * self.n_parameters
            self._state_bytes[begin : begin + self.n_parameters] = states.tobytes()
        self._length = at + 1  # last: who reads beside this sees whole rows only
        return True

    def planes(
        self, names: Sequence[str], rows: Places, parameters: NDArray[np.int64] | None
    ) -> dict[str, NDArray[Any]]:
        """Planes by name; without a copy where rows are a slice and parameters are all."""
        read = {
            name: (self._state if name == "state" else self._statistics[:, STATISTICS.index(name)])[: self._length][
                rows
            ]
            for name in names
        }
        return read if parameters is None else {name: plane[:, parameters] for name, plane in read.items()}


@dataclass
class Thinned:
    """A segment of an attempt's iterations of which no parameter was recorded."""

    attempt: int
    iteration: NDArray[np.int64]
    epoch: NDArray[np.int64]
    n_parameters: int = 0

    def __len__(self) -> int:
        return len(self.iteration)

    def planes(
        self, names: Sequence[str], rows: Places, parameters: NDArray[np.int64] | None
    ) -> dict[str, NDArray[Any]]:
        """Planes without a parameter."""
        return blank(len(self.iteration[rows]), names, np.empty(0, np.int64))


class RowStore(Series[Block, Any]):
    """Append-only rows of one stage. Parameters may be added on the way; earlier rows never recorded them."""

    def __init__(self, chunk_bytes: int = CHUNK_BYTES) -> None:
        super().__init__()
        self._chunk_bytes = min(chunk_bytes, CHUNK_BYTES)
        self._spare: Block | None = None

    def append(self, iteration: int, epoch: int, attempt: int, statistics: Floats, states: NDArray[np.uint8]) -> None:
        """Copy one iteration, [parameters, statistics] and [parameters], to the end."""
        if not self.chunks or not self.chunks[-1].append(iteration, epoch, attempt, statistics, states):
            self.begin_chunk(self._fresh(attempt, len(states)))
            self.chunks[-1].append(iteration, epoch, attempt, statistics, states)

    def begin_of(self, iteration: int) -> int:
        """The first row of the chunk that an iteration is in, where rows ascend; 0 if it is in none.

        Who asks for the newest rows would look through all chunks, of which a long run has hundreds.
        """
        place = bisect_right(self.chunks, iteration, key=lambda chunk: int(chunk.iteration[0])) - 1
        return self.evicted + sum(map(len, self.chunks[:place])) if place >= 0 else 0

    def evict(self) -> int:
        """Let go of the oldest chunk, but keep its memory for the next: fresh pages cost more than what is copied."""
        oldest = self.chunks[0] if self.chunks else None
        freed = super().evict()
        if freed:
            self._spare = oldest
        return freed

    def _fresh(self, attempt: int, n_parameters: int) -> Block:
        capacity = max(min(CHUNK, self._chunk_bytes // (n_parameters * ROW_BYTES + 16)), 1)
        spare, self._spare = self._spare, None
        if spare is None or not spare.holds(n_parameters, capacity):
            return Block(attempt, n_parameters, capacity)
        spare.begin(attempt)
        return spare


def gathered(
    pieces: Iterable[tuple[Segment, Places]],
    names: Sequence[str],
    parameters: NDArray[np.int64],
) -> Rows:
    """Rows of several segments as one; what a segment does not know of a parameter was not recorded."""
    pieces = list(pieces)

    def planes(piece: tuple[Segment, Places]) -> Mapping[str, NDArray[Any]]:
        return _widened(*piece, names, parameters)

    # Files are decoded side by side; what is in memory takes no time.
    in_turn = all(isinstance(segment, Block | Thinned) for segment, _ in pieces) or len(pieces) < 2
    read = list(map(planes, pieces)) if in_turn else list(side_by_side(_readers(), planes, pieces))
    taken = [
        (segment, segment.iteration[rows], segment.epoch[rows], own)
        for (segment, rows), own in zip(pieces, read, strict=True)
    ]
    nothing = blank(0, names, parameters)
    return Rows(
        _joined([iteration for _, iteration, _, _ in taken], np.empty(0, np.int64)),
        _joined([epoch for _, _, epoch, _ in taken], np.empty(0, np.int64)),
        np.repeat(
            np.array([segment.attempt for segment, *_ in taken], np.int64),
            np.array([len(iteration) for _, iteration, _, _ in taken], np.int64),
        ),
        {
            name: (_sparse if name in COUNTS else _joined)([planes[name] for *_, planes in taken], nothing[name])
            for name in names
        },
    )


@functools.cache
def _readers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="gradviz-reader")


if hasattr(os, "register_at_fork"):  # a child has none of the threads
    os.register_at_fork(after_in_child=_readers.cache_clear)


def _widened(
    segment: Segment, rows: Places, names: Sequence[str], parameters: NDArray[np.int64]
) -> Mapping[str, NDArray[Any]]:
    n = segment.n_parameters
    if len(parameters) == n and (not n or (parameters[0] == 0 and (np.diff(parameters) == 1).all())):
        return segment.planes(names, rows, None)
    known = parameters < n
    if known.all():
        return segment.planes(names, rows, parameters)
    wide = blank(len(segment.iteration[rows]), names, parameters)
    for name, plane in segment.planes(names, rows, parameters[known]).items():
        wide[name][:, known] = plane
    return wide


def blank(length: int, names: Sequence[str], parameters: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """Planes of so many iterations in which nothing was recorded of these parameters."""
    shape = (length, len(parameters))
    return {
        name: np.full(shape, NOT_RECORDED, np.uint8) if name == "state" else np.full(shape, np.nan) for name in names
    }


def _sparse(arrays: list[NDArray[Any]], empty: NDArray[Any]) -> NDArray[Any]:
    """One array of counts, which are zero nearly always: then none of its memory is touched."""
    if any(array.any() for array in arrays):
        return _joined(arrays, empty)
    return np.zeros((sum(map(len, arrays)), empty.shape[1]))


def _joined(arrays: list[NDArray[Any]], empty: NDArray[Any]) -> NDArray[Any]:
    """One array; without a copy where there is only one."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays or [empty])
