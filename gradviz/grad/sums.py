"""Raw sums of many tensors on the CPU: what all statistics follow from, in as few calls as there can be.

A step of a small net takes two milliseconds, so every microsecond for each tensor shows. Measured between real steps,
not in a loop of their own, where all of it is twice as fast (half of a gradient lies in the other core's cache):

- numpy reads large tensors where they lie. For 65,536 floats it beats torch's reductions on two cores: all five sums
  take as long as three dot products, where torch takes four and a half.
- Small tensors of one shape are copied together first: there the number of calls is the cost. 400 tensors of a net of
  200 layers of 32 take half of what `reduceat` over one flat buffer takes.
- What depends on shapes alone is made once, and results are written in place: a call that is not warm costs twice, and
  so does each object it makes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

PIECE = 65_536
"""Elements looked at together: 256 kB of float32 stay in a core's cache, and float32 adds them up to six digits."""

SMALL = 8_192
"""Tensors up to this many elements are stacked with others of their shape; larger ones are worth calls of their own."""

MANY = 16
"""So many tensors of one shape make a stack: what it takes to make one is what so many calls of their own take."""

TINY = 1e-27
"""A smaller sum of squares may have lost entries to underflow: at most 65,536 x 1.2e-38, or 1e-6 of it, in float32."""

PLAIN = (torch.float32, torch.float64)
"""What numpy can read where it lies, and sum up."""

Entries = NDArray[np.float32] | NDArray[np.float64]
Floats = NDArray[np.float64]

_sum, _count, _differ, _least, _greatest = (
    np.einsum,
    np.count_nonzero,
    np.not_equal,
    np.minimum.reduce,
    np.maximum.reduce,
)


class Sums:
    """The raw sums of tensors of certain shapes, again and again.

    Parameters
    ----------
    tensors : sequence of Tensor
        Dense, float32 or float64, on the CPU, none of them empty. Others may come later, of the same shapes and dtypes
        in the same places.

    Attributes
    ----------
    order : int array of shape [tensors]
        The places of the tensors that the columns of `raw` are of.
    raw : float64 array of shape [5, tensors]
        Sum of squares, sum, least and greatest entry, and number of non-zeros of the tensors taken last.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        alike: dict[object, list[int]] = defaultdict(list)
        for place, tensor in enumerate(tensors):
            alike[(tensor.shape, tensor.dtype) if tensor.numel() <= SMALL else place].append(place)
        stacks = [group for group in alike.values() if len(group) >= MANY]
        singles = sorted(place for group in alike.values() if len(group) < MANY for place in group)
        groups: list[tuple[type[_OneByOne] | type[_Stack], list[int]]] = [
            (_OneByOne, [place for place in singles if tensors[place].dtype == dtype]) for dtype in PLAIN
        ]
        for group in stacks:
            size = max(PIECE // tensors[group[0]].numel(), MANY)
            groups += [(_Stack, group[at : at + size]) for at in range(0, len(group), size)]
        self.order = np.array([place for _, group in groups for place in group], np.intp)
        self.raw = np.empty((5, len(tensors)))
        self._parts: list[_Part] = []
        desk, start = _Desk(), 0
        for kind, group in groups:
            if group:
                self._parts.append(kind(group, tensors, self.raw[:, start : start + len(group)], desk))
                start += len(group)

    def squares(self, tensors: Sequence[Tensor]) -> None:
        """Take the sum of squares of each tensor."""
        for part in self._parts:
            part.squares(tensors)

    def all(self, tensors: Sequence[Tensor]) -> None:
        """Take all sums of each tensor."""
        for part in self._parts:
            part.all(tensors)

    def widen(self, tensors: Sequence[Tensor]) -> None:
        """Take sums of squares that float32 may have lost to underflow once more, in float64.

        Of the tensors that were taken last. A vanishing net has hundreds: all of a stack at once.
        """
        for part in self._parts:
            part.widen(tensors)


class _Desk:
    """Memory that one part after the other works in: a core has it at hand, and it is never more."""

    def __init__(self) -> None:
        self.entries = {dtype: torch.empty(MANY * SMALL, dtype=dtype) for dtype in PLAIN}
        self.flags = np.empty(MANY * SMALL, np.bool_)
        self.ones = {dtype: torch.ones(SMALL, dtype=dtype).numpy() for dtype in PLAIN}
        self.zero = {dtype: torch.zeros((), dtype=dtype).numpy() for dtype in PLAIN}


class _Part(Protocol):
    """Some of the tensors; their sums are columns of `raw`."""

    def squares(self, tensors: Sequence[Tensor]) -> None: ...

    def all(self, tensors: Sequence[Tensor]) -> None: ...

    def widen(self, tensors: Sequence[Tensor]) -> None: ...


class _OneByOne:
    """Tensors of one dtype that are read where they lie, in pieces."""

    def __init__(self, places: list[int], tensors: Sequence[Tensor], raw: Floats, desk: _Desk) -> None:
        self._places = places
        self._raw = raw
        dtype = tensors[places[0]].dtype
        counts = [tensors[place].numel() for place in places]
        sizes = [min(PIECE, count - start) for count in counts for start in range(0, count, PIECE)]
        n_pieces = [-(-count // PIECE) for count in counts]
        self._starts = np.cumsum([0, *n_pieces[:-1]]) if len(sizes) > len(places) else None
        self._zero = desk.zero[dtype]
        self._of_pieces = np.empty((4, len(sizes)), self._zero.dtype)
        # Of each piece: where its sums are written, and what they are taken with.
        self._slots: list[Any] = [
            (
                *(self._of_pieces[row, at : at + 1].reshape(()) for row in range(4)),
                desk.flags[:size],
                desk.ones[dtype][:size] if size <= SMALL else None,
            )
            for at, size in enumerate(sizes)
        ]

    def _pieces(self, tensors: Sequence[Tensor]) -> list[Entries]:
        flat = [tensors[place].numpy().reshape(-1) for place in self._places]
        if self._starts is None:
            return flat
        return [entries[start : start + PIECE] for entries in flat for start in range(0, len(entries), PIECE)]

    def squares(self, tensors: Sequence[Tensor]) -> None:
        for piece, (squares, *_) in zip(self._pieces(tensors), self._slots, strict=True):
            piece.dot(piece, squares)
        self._raw[0] = self._added(self._of_pieces[0])

    def all(self, tensors: Sequence[Tensor]) -> None:
        zero, pieces, nonzeros = self._zero, self._pieces(tensors), []
        for piece, (squares, total, least, greatest, flags, ones) in zip(pieces, self._slots, strict=True):
            piece.dot(piece, squares)
            if ones is not None:
                piece.dot(ones, total)
            else:  # half the time of sum(), and no ones to be read
                _sum("i->", piece, out=total)
            _least(piece, 0, None, least)  # both hand on a NaN
            _greatest(piece, 0, None, greatest)
            nonzeros.append(_count(_differ(piece, zero, flags)))
        self._raw[4] = self._added(nonzeros)
        if self._starts is None:
            self._raw[:4] = self._of_pieces
        else:
            self._raw[:2] = np.add.reduceat(self._of_pieces[:2], self._starts, axis=1, dtype=np.float64)
            self._raw[2] = np.minimum.reduceat(self._of_pieces[2], self._starts)
            self._raw[3] = np.maximum.reduceat(self._of_pieces[3], self._starts)

    def _added(self, of_pieces: Any) -> Any:
        return of_pieces if self._starts is None else np.add.reduceat(of_pieces, self._starts, dtype=np.float64)

    def widen(self, tensors: Sequence[Tensor]) -> None:
        squares = self._raw[0]
        for at in np.flatnonzero(squares < TINY).tolist():
            squares[at] = np.square(tensors[self._places[at]].numpy(), dtype=np.float64).sum()


class _Stack:
    """Tensors of one shape and dtype that are copied together and summed up row by row."""

    def __init__(self, places: list[int], tensors: Sequence[Tensor], raw: Floats, desk: _Desk) -> None:
        self._raw = tuple(raw)
        self._pick = itemgetter(*places) if len(places) > 1 else lambda of: (of[places[0]],)
        like = tensors[places[0]]
        n_rows, n_entries = len(places), like.numel()
        stacked = desk.entries[like.dtype][: n_rows * n_entries]
        self._stacked = stacked.view(n_rows, *like.shape)
        self._entries = stacked.view(n_rows, n_entries).numpy()
        self._flags = desk.flags[: n_rows * n_entries].reshape(n_rows, n_entries)
        self._ones, self._zero = desk.ones[like.dtype][:n_entries], desk.zero[like.dtype]

    def _filled(self, tensors: Sequence[Tensor]) -> Entries:
        torch.stack(self._pick(tensors), out=self._stacked)
        return self._entries

    def squares(self, tensors: Sequence[Tensor]) -> None:
        entries = self._filled(tensors)
        self._raw[0][:] = np.vecdot(entries, entries)  # a third of the time of einsum

    def all(self, tensors: Sequence[Tensor]) -> None:
        entries = self._filled(tensors)
        squares, total, least, greatest, nonzeros = self._raw
        squares[:] = np.vecdot(entries, entries)
        total[:] = entries.dot(self._ones)
        least[:] = _least(entries, 1)  # written in place, as float64, it takes three times as long
        greatest[:] = _greatest(entries, 1)
        is_nonzero = _differ(entries, self._zero, self._flags)
        if _count(is_nonzero) == entries.size:
            nonzeros[:] = len(self._ones)
        else:
            nonzeros[:] = is_nonzero.astype(entries.dtype).dot(self._ones)  # exact: at most SMALL ones

    def widen(self, tensors: Sequence[Tensor]) -> None:
        squares = self._raw[0]
        if (squares < TINY).any():  # not by min(): another row may be NaN
            squares[:] = np.square(self._filled(tensors), dtype=np.float64).sum(axis=1)
