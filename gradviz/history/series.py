"""Rows in the order they were written: the older ones on disk, the newer in memory, some in both.

::

    parts    |---- 0 ----|-- 1 --|-- 2 --|                 files; the first `stored` rows
    chunks                       |--- a ---|--- b --..     memory; from row `evicted` on
                                 ^evicted  ^stored         ^length

A row is readable from the moment it is appended. A chunk leaves memory only when all of it is on disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Generic, NamedTuple, Protocol, TypeVar


class Chunk(Protocol):
    """Rows in memory."""

    def __len__(self) -> int: ...

    @property
    def nbytes(self) -> int:
        """Memory its rows take."""


class Part(Protocol):
    """Rows in a file."""

    def __len__(self) -> int: ...


C = TypeVar("C", bound=Chunk)
P = TypeVar("P", bound=Part)


class Piece(NamedTuple, Generic[C, P]):
    """A stretch of rows within one chunk or part."""

    of: C | P
    rows: slice


class Series(Generic[C, P]):
    """Keeps chunks and parts of the same rows together."""

    def __init__(self) -> None:
        self.chunks: list[C] = []
        self.parts: list[P] = []
        self.evicted = 0
        self._n_before = 0  # rows of all chunks but the newest, which alone grows

    def __len__(self) -> int:
        return self.evicted + self._n_before + (len(self.chunks[-1]) if self.chunks else 0)

    def begin_chunk(self, chunk: C) -> None:
        """Let the rows to come go there."""
        self._n_before = len(self) - self.evicted
        self.chunks.append(chunk)

    @property
    def stored(self) -> int:
        """Rows that are on disk."""
        return sum(map(len, self.parts))

    @property
    def nbytes(self) -> int:
        """Memory all chunks take."""
        return sum(chunk.nbytes for chunk in self.chunks)

    def pieces(self, start: int = 0, stop: int | None = None) -> Iterator[Piece[C, P]]:
        """The rows [start, stop), in order; what is in memory is read from there."""
        end = len(self) if stop is None else min(stop, len(self))
        if start < self.evicted:  # what is in memory can be read when its files cannot
            yield from _pieces(self.parts, 0, start, min(end, self.evicted))
        yield from self._in_memory(start, end)

    def unstored(self) -> list[Piece[C, P]]:
        """What is in memory alone."""
        return list(self._in_memory(self.stored, len(self)))

    def _in_memory(self, start: int, stop: int) -> Iterator[Piece[C, P]]:
        """Who asks for the newest rows looks at the newest chunks alone: a long run has hundreds."""
        place, first = len(self.chunks), len(self)
        while place and first > start:
            place -= 1
            first -= len(self.chunks[place])
        return _pieces(self.chunks[place:], first, start, stop)

    def open(self, parts: list[P]) -> None:
        """Take over rows that are on disk; there are none yet in memory."""
        self.parts = parts
        self.evicted = self.stored

    def merge(self, merged: P, of: list[P]) -> None:
        """Read from one part what several held that lay side by side."""
        at = self.parts.index(of[0])
        self.parts[at : at + len(of)] = [merged]

    def evict(self) -> int:
        """Let go of the oldest chunk, if all of it is on disk; the bytes freed. The next row begins another."""
        if not self.chunks or self.evicted + len(self.chunks[0]) > self.stored:
            return 0
        oldest = self.chunks.pop(0)
        if self.chunks:
            self._n_before -= len(oldest)
        self.evicted += len(oldest)
        return oldest.nbytes


S = TypeVar("S", bound=Chunk | Part)


def _pieces(segments: list[S], first: int, start: int, stop: int) -> Iterator[Piece]:  # type: ignore[type-arg]
    """The rows [start, stop) of segments, of which the first begins at row `first`."""
    ends = list(accumulate(map(len, segments), initial=first))
    for segment, begin, end in zip(segments, ends, ends[1:], strict=False):
        low, high = max(start, begin), min(stop, end)
        if low < high:
            yield Piece(segment, slice(low - begin, high - begin))
