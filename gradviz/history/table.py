"""Tidy tables: typed columns of integers, numbers, flags and a few texts, in chunks that fill up."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import setitem
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradviz.history.schema import TEXTS, Kind, Schema
from gradviz.history.series import Series

CHUNK = 4096
"""Rows a chunk holds at least."""

_DTYPES: dict[Kind, Any] = {
    "integer": np.int64,
    "count": np.int64,
    "float": np.float64,
    "value": np.float64,
    "flag": np.bool_,
    "text": np.int32,
}
_MAY_MISS = ("count", "value")


class Vocabulary:
    """The texts of a column, each by its place. It only grows, so that a place means the same for good."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self.texts = list(texts)
        self._places = {text: place for place, text in enumerate(self.texts)}

    def place(self, text: str) -> int:
        """Where the text is, or is put."""
        place = self._places.get(text)
        if place is None:
            if not isinstance(text, str):  # no file could be written of it
                raise TypeError(f"a text was expected, not {text!r}")
            place = self._places[text] = len(self.texts)
            self.texts.append(text)
        return place

    def places(self, texts: Iterable[str | None]) -> NDArray[np.int32]:
        """The places of many; -1 for None."""
        return np.array([-1 if text is None else self.place(text) for text in texts], np.int32)


@dataclass
class Column:
    """One column of some rows.

    Attributes
    ----------
    values : array of shape [rows]
        Texts are given by their places in a vocabulary, -1 where there is none.
    missing : bool array of shape [rows], or None
        Where a count or a value was not taken; None where all were.
    """

    values: NDArray[Any]
    missing: NDArray[np.bool_] | None = None

    def __getitem__(self, rows: slice | NDArray[Any]) -> Column:
        return Column(self.values[rows], None if self.missing is None else self.missing[rows])


Columns = dict[str, Column]


class Sheet:
    """A chunk in memory."""

    def __init__(self, schema: Schema, capacity: int) -> None:
        self._columns: dict[str, Column] = {}
        self._capacity = capacity
        self._length = 0
        # Rows that come one by one are alike nearly always: where the cells of such a row go, and which it lacks.
        self._names: tuple[str, ...] | None = None
        self._cells: list[Any] = []
        self._lacks: list[NDArray[np.bool_]] = []
        self._take_in(schema)

    def __len__(self) -> int:
        return self._length

    @property
    def room(self) -> int:
        """Rows that still go in."""
        return self._capacity - self._length

    @property
    def nbytes(self) -> int:
        """Memory its rows take."""
        return self._length * sum(column.values.itemsize for column in self._columns.values())

    def append(self, schema: Schema, row: Mapping[str, Any]) -> None:
        """Copy one row to the end; a column that is not given is missing in it."""
        if tuple(row) != self._names:
            self._take_in(schema)
            self._names = tuple(row)
            self._cells = [self._columns[name].values.data for name in row]
            absent = [column.missing for name, column in self._columns.items() if name not in row]
            self._lacks = [missing for missing in absent if missing is not None]
        at = self._length
        # A number each. By memoryview: numpy's own way takes thrice the time, cold as code is after a step.
        deque(map(setitem, self._cells, repeat(at), row.values()), maxlen=0)
        for missing in self._lacks:
            missing[at] = True
        self._length = at + 1

    def extend(self, schema: Schema, columns: Mapping[str, Any], length: int) -> None:
        """Copy rows to the end; a column that is not given is missing in them."""
        rows = slice(self._length, self._length + length)
        self._take_in(schema)
        for name, values in columns.items():
            self._columns[name].values[rows] = values.data if isinstance(values, np.ma.MaskedArray) else values
        for name, column in self._columns.items():  # now that all of them fit
            if column.missing is not None:
                column.missing[rows] = np.ma.getmaskarray(columns[name]) if name in columns else True
        self._length += length

    def _take_in(self, schema: Schema) -> None:
        """Have all columns of a schema that has grown; the rows before lack those that are new."""
        for name, kind in schema.items():
            if name not in self._columns:
                self._names = None
                column = self._columns[name] = _empty(kind, self._capacity)
                if column.missing is not None:
                    column.missing[self._length :] = False

    def columns(self, rows: slice) -> Columns:
        """Some rows, without a copy."""
        return {name: column[: self._length][rows] for name, column in self._columns.items()}


def _empty(kind: Kind, capacity: int) -> Column:
    fill = {"text": -1, "value": np.nan}.get(kind, 0)
    values = np.full(capacity, fill, _DTYPES[kind])
    return Column(values, np.ones(capacity, np.bool_) if kind in _MAY_MISS else None)


class Table(Series[Sheet, Any]):
    """Append-only rows of one schema, which may grow: a flag that a row lacks was not raised.

    Examples
    --------
    >>> table = Table({"iteration": "integer", "event": "text"})
    >>> table.extend({"iteration": [3, 3], "event": ["frozen", "unfrozen"]})
    >>> table.read()["event"].values.tolist(), table.vocabulary["event"].texts
    ([0, 1], ['frozen', 'unfrozen'])
    """

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        self.schema = dict(schema)
        self.vocabulary = {name: Vocabulary(TEXTS.get(name, ())) for name, kind in schema.items() if kind == "text"}

    def grow(self, names: Iterable[str], kind: Kind = "value") -> None:
        """Let there be a column of each of these names."""
        for name in names:
            if self.schema.setdefault(name, kind) == "text":
                self.vocabulary.setdefault(name, Vocabulary())

    def append(self, row: Mapping[str, Any]) -> None:
        """Copy one row to the end, texts as places in their vocabulary: the fast way."""
        if not self.chunks or not self.chunks[-1].room:
            self.begin_chunk(Sheet(self.schema, CHUNK))
        self.chunks[-1].append(self.schema, row)

    def extend(self, columns: Mapping[str, Sequence[Any] | NDArray[Any]]) -> None:
        """Copy rows to the end; texts as texts, and what is missing as a masked array's mask, or None for a text."""
        length = len(next(iter(columns.values())))
        if not length:
            return
        given = {
            name: self.vocabulary[name].places(values) if name in self.vocabulary else values
            for name, values in columns.items()
        }
        if not self.chunks or self.chunks[-1].room < length:
            self.begin_chunk(Sheet(self.schema, max(CHUNK, length)))
        self.chunks[-1].extend(self.schema, given, length)

    def read(self, start: int = 0, stop: int | None = None) -> Columns:
        """The rows [start, stop), as one."""
        return self.joined([piece.of.columns(piece.rows) for piece in self.pieces(start, stop)])

    def joined(self, pieces: Sequence[Columns]) -> Columns:
        """Columns one after the other; what a piece lacks is missing there."""
        return {name: self._joined(name, pieces) for name in self.schema}

    def _joined(self, name: str, pieces: Sequence[Columns]) -> Column:
        kind = self.schema[name]
        lengths = [len(next(iter(piece.values())).values) for piece in pieces]
        columns = [piece[name] if name in piece else _empty(kind, n) for piece, n in zip(pieces, lengths, strict=True)]
        if not columns:
            return Column(np.empty(0, _DTYPES[kind]))
        if len(columns) == 1:
            values, missing = columns[0].values, columns[0].missing
        else:
            values = np.concatenate([column.values for column in columns])
            missing = None
            if any(column.missing is not None for column in columns):
                missing = np.concatenate(
                    [
                        np.zeros(len(column.values), np.bool_) if column.missing is None else column.missing
                        for column in columns
                    ]
                )
        return Column(values, missing if missing is not None and missing.any() else None)
