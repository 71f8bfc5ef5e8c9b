"""Rows of a run as tidy Parquet files, which any reader of Parquet understands, read back in pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gradviz.history.rows import PLANES, Places, Rows
from gradviz.history.run.folder import Folder
from gradviz.history.run.parquet import GROUP, TEXT, ParquetPart, encode, stretches
from gradviz.history.run.runs import expanded, shortened
from gradviz.history.schema import COUNTS, STATES, STATISTICS, Kind, Schema
from gradviz.history.table import Column, Columns, Table, Vocabulary

# Gradients ---------------------------------------------------------------------------------------------------------

_ROWS = pa.schema(
    [
        ("iteration", pa.int64()),
        ("epoch", pa.int64()),
        ("attempt", pa.int64()),
        ("parameter", TEXT),
        ("stage", TEXT),
        ("state", TEXT),
        *((name, pa.float64()) for name in STATISTICS if name not in COUNTS),
        *((name, pa.int64()) for name in COUNTS),
        ("nonfinite", pa.int64()),
    ]
)


def encode_rows(rows: Rows, names: Sequence[str], stage: str) -> pa.Buffer:
    """A file of a stage's rows: all planes, of one attempt; `names` are the parameters', in the order of the planes.

    One line for each iteration and parameter: iteration, epoch, attempt (int64), parameter, stage, state (dictionaries
    of texts), norm, mean, std, max_abs, zero_fraction (double; NaN where nothing was recorded, as `state` says), nan,
    posinf, neginf and their sum nonfinite (int64; null where not taken).
    """
    attempt = int(rows.attempt[0])
    if (rows.attempt != attempt).any():
        raise ValueError("A part holds rows of one attempt.")
    blocks = (
        Rows(rows.iteration[at], rows.epoch[at], rows.attempt[at], {name: rows.planes[name][at] for name in PLANES})
        for at in _blocks(len(rows), len(names))
    )
    return _encode_blocks(blocks, names, stage)


def merge_rows(parts: Sequence[RowPart]) -> pa.Buffer:
    """One file of the rows of several, which are of one attempt and the same parameters, in order."""
    first = parts[0]
    if {(part.attempt, part.n_parameters) for part in parts} != {(first.attempt, first.n_parameters)}:
        raise ValueError("Parts of one attempt and one number of parameters can be merged, not others.")
    return _encode_blocks(_regrouped(parts), first.names(), first.told["stage"])


def _blocks(length: int, n_parameters: int) -> list[slice]:
    """The iterations of each row group."""
    step = max(GROUP // max(n_parameters, 1), 1)
    return [slice(at, min(at + step, length)) for at in range(0, length, step)]


def _regrouped(parts: Sequence[RowPart]) -> Iterator[Rows]:
    ends = list(accumulate(map(len, parts)))
    for block in _blocks(ends[-1], parts[0].n_parameters):
        pieces = [(parts[index], at) for index, at in stretches(ends, block.start, block.stop)]
        planes = [part.planes(PLANES, at, None) for part, at in pieces]
        iteration = np.concatenate([part.iteration[at] for part, at in pieces])
        yield Rows(
            iteration,
            np.concatenate([part.epoch[at] for part, at in pieces]),
            np.full(len(iteration), parts[0].attempt),
            {name: np.concatenate([piece[name] for piece in planes]) for name in PLANES},
        )


def _encode_blocks(blocks: Iterable[Rows], names: Sequence[str], stage: str) -> pa.Buffer:
    dictionaries = pa.array(names, pa.string()), pa.array([stage]), pa.array(STATES)
    told: dict[str, Any] = {"stage": stage, "n_parameters": len(names), "blocks": []}
    iterations, epochs = [], []

    def batches() -> Iterator[pa.RecordBatch]:
        for block in blocks:
            told["attempt"] = int(block.attempt[0])
            told["blocks"].append(len(block))
            iterations.append(block.iteration)
            epochs.append(block.epoch)
            if names:
                yield _batch(block, len(names), *dictionaries)
        told["iterations"] = shortened(np.concatenate(iterations))
        told["epochs"] = shortened(np.concatenate(epochs))

    return encode(_ROWS, batches(), told)


def _batch(block: Rows, n: int, names: pa.Array, stage: pa.Array, states: pa.Array) -> pa.RecordBatch:
    length = len(block) * n
    counts = {name: block.planes[name].ravel() for name in COUNTS}
    columns = {
        "iteration": np.repeat(block.iteration, n),
        "epoch": np.repeat(block.epoch, n),
        "attempt": np.repeat(block.attempt, n),
        "parameter": pa.DictionaryArray.from_arrays(np.tile(np.arange(n, dtype=np.int32), len(block)), names),
        "stage": pa.DictionaryArray.from_arrays(np.zeros(length, np.int32), stage),
        "state": pa.DictionaryArray.from_arrays(block.planes["state"].ravel().astype(np.int32), states),
        **{name: block.planes[name].ravel() for name in STATISTICS if name not in COUNTS},
        **{name: _whole(numbers) for name, numbers in counts.items()},
        "nonfinite": _whole(sum(counts.values(), np.zeros(length))),
    }
    return pa.record_batch([pa.array(columns[name]) for name in _ROWS.names], schema=_ROWS)


def _whole(numbers: NDArray[np.float64]) -> pa.Array:
    """Counts as integers, null where there is none."""
    absent = np.isnan(numbers)
    if not absent.any():
        return pa.array(numbers.astype(np.int64))
    return pa.array(np.where(absent, 0, numbers).astype(np.int64), mask=absent)


class _Layout(NamedTuple):
    """What lies where in a part, as its footer tells."""

    attempt: int
    n_parameters: int
    iteration: NDArray[np.int64]
    epoch: NDArray[np.int64]
    ends: NDArray[np.int64]
    """Where each row group ends, in iterations."""


class RowPart(ParquetPart):
    """Gradients of a stage in a file: a `Segment`, of which no more is read than is asked for."""

    @property
    def attempt(self) -> int:
        """Index of the attempt that recorded it."""
        return self._layout.attempt

    @property
    def n_parameters(self) -> int:
        """Parameters of each iteration."""
        return self._layout.n_parameters

    def __len__(self) -> int:
        return len(self._layout.iteration)

    @property
    def iteration(self) -> NDArray[np.int64]:
        """The iterations, ascending."""
        return self._layout.iteration

    @property
    def epoch(self) -> NDArray[np.int64]:
        """The epoch of each."""
        return self._layout.epoch

    def names(self) -> list[str]:
        """The parameters, in the order of the planes."""
        if not self.n_parameters:
            return []
        with self.opened() as file:
            column = file.read_row_group(0, ["parameter"]).column("parameter")
            return [str(name) for name in column[: self.n_parameters].to_pylist()]

    def planes(
        self, names: Sequence[str], rows: Places, parameters: NDArray[np.int64] | None
    ) -> dict[str, NDArray[Any]]:
        """Planes by name, of some rows and some parameters (all, if None)."""
        n, ends = self.n_parameters, self._layout.ends
        taken = np.arange(len(self))[rows]
        width = n if parameters is None else len(parameters)
        read: dict[str, NDArray[Any]] = {
            name: np.empty((len(taken), width), np.uint8 if name == "state" else np.float64) for name in names
        }
        if not read or not taken.size or not width:
            return read
        groups = np.searchsorted(ends, taken, side="right")
        with self.opened() as file:
            for group in np.unique(groups).tolist():
                at = _places(np.flatnonzero(groups == group))
                within = _places(taken[at] - (ends[group - 1] if group else 0))
                columns = file.read_row_group(group, list(names))
                for name in names:
                    plane = self._plane(name, columns.column(name)).reshape(-1, n)[within]
                    read[name][at] = plane if parameters is None else plane[:, parameters]
        return read

    def _plane(self, name: str, column: pa.ChunkedArray) -> NDArray[Any]:
        if column.type != _ROWS.field(name).type:
            raise self.damaged(f"its column {name} holds what it should not")
        if name != "state":
            return np.asarray(column.to_numpy(), np.float64)
        states = column.combine_chunks()
        states = states.chunk(0) if isinstance(states, pa.ChunkedArray) else states
        texts = states.dictionary.to_pylist()
        if states.null_count or not set(texts) <= set(STATES):
            raise self.damaged(f"a state is none of {', '.join(STATES)}")
        places = np.array([STATES.index(text) for text in texts], np.uint8)
        return np.asarray(places[states.indices.to_numpy()])

    @cached_property
    def _layout(self) -> _Layout:
        told, footer = self.told, self.footer
        try:
            layout = _Layout(
                int(told["attempt"]),
                int(told["n_parameters"]),
                expanded(told["iterations"]),
                expanded(told["epochs"]),
                np.cumsum(np.array(told["blocks"], np.int64)),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise self.damaged(f"its footer lacks {error}") from error
        length, n = len(layout.iteration), layout.n_parameters
        if not len(layout.epoch) == length == sum(told["blocks"]) > 0:
            raise self.damaged("its footer contradicts itself")
        if footer.num_rows != length * n or (n and footer.num_row_groups != len(layout.ends)):
            raise self.damaged("its footer tells of other rows than there are")
        return layout


def _places(places: NDArray[np.int64]) -> Places:
    """The same places, as a slice if they lie side by side: read without a copy."""
    first, last = int(places[0]), int(places[-1])
    if last - first == len(places) - 1 and (np.diff(places) == 1).all():
        return slice(first, last + 1)
    return places


# Tables ------------------------------------------------------------------------------------------------------------

_TYPES: dict[Kind, pa.DataType] = {
    "integer": pa.int64(),
    "count": pa.int64(),
    "float": pa.float64(),
    "value": pa.float64(),
    "flag": pa.bool_(),
    "text": TEXT,
}
_GROWN: dict[pa.DataType, Kind] = {TEXT: "text", pa.bool_(): "flag"}


def encode_table(columns: Columns, schema: Schema, vocabulary: Mapping[str, Vocabulary]) -> pa.Buffer:
    """A file of a table's rows. A column that they lack is missing in all of them."""
    length = len(next(iter(columns.values())).values)
    arrays = [
        _array(columns[name], kind, vocabulary.get(name)) if name in columns else _lacking(length, _TYPES[kind])
        for name, kind in schema.items()
    ]
    arrow = _arrow(schema)
    whole = pa.Table.from_arrays(arrays, schema=arrow)
    return encode(arrow, (whole.slice(at, GROUP) for at in range(0, length, GROUP)), {})


def merge_tables(parts: Sequence[TablePart]) -> pa.Buffer:
    """One file of the rows of several, in order, with the columns of all."""
    return _rewritten(parts, pa.unify_schemas([part.arrow for part in parts]))


def widened(part: TablePart, schema: Schema) -> pa.Buffer:
    """The same file with all the columns of a schema: plain readers take those of the first file for all."""
    return _rewritten([part], _arrow(schema))


def _arrow(schema: Schema) -> pa.Schema:
    return pa.schema([(name, _TYPES[kind]) for name, kind in schema.items()])


def _array(column: Column, kind: Kind, vocabulary: Vocabulary | None) -> pa.Array:
    if kind != "text" or vocabulary is None:
        return pa.array(column.values, mask=column.missing)
    used, places = np.unique(column.values, return_inverse=True)
    absent = column.values < 0
    first = int(used[0] < 0) if len(used) else 0
    texts = [vocabulary.texts[place] for place in used[first:].tolist()]
    indices = pa.array((places - first).astype(np.int32), mask=absent)
    return pa.DictionaryArray.from_arrays(indices, pa.array(texts, pa.string()))


def _lacking(length: int, kind: pa.DataType) -> pa.Array:
    """A column that rows do not have: missing, or a flag that was not raised."""
    return pa.array(np.zeros(length, np.bool_)) if pa.types.is_boolean(kind) else pa.nulls(length, kind)


def _rewritten(parts: Sequence[TablePart], schema: pa.Schema) -> pa.Buffer:
    def groups() -> Iterator[pa.Table]:
        waiting, length = [], 0
        for part in parts:
            for group in part.groups():
                waiting.append(_fitted(group, schema))
                length += len(group)
                if length >= GROUP:
                    yield pa.concat_tables(waiting).unify_dictionaries()
                    waiting, length = [], 0
        if waiting:
            yield pa.concat_tables(waiting).unify_dictionaries()

    return encode(schema, groups(), {})


def _fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_arrays(
        [
            rows.column(field.name) if field.name in rows.column_names else _lacking(len(rows), field.type)
            for field in schema
        ],
        schema=schema,
    )


class TablePart(ParquetPart):
    """Rows of a table in a file; their texts are put into the table's vocabulary as they are read."""

    def __init__(self, folder: Folder, name: str, table: Table) -> None:
        super().__init__(folder, name)
        self._table = table

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @cached_property
    def arrow(self) -> pa.Schema:
        """Its columns, as Arrow has them."""
        _ = self.footer  # refuses what a newer gradviz, or something else, has written
        with self.opened() as file:
            return file.schema_arrow.remove_metadata()

    @property
    def kinds(self) -> dict[str, Kind]:
        """What its columns hold, for a table that does not know them yet."""
        return {field.name: _GROWN.get(field.type, "value") for field in self.arrow}

    def groups(self) -> Iterator[pa.Table]:
        """Its row groups, one after the other."""
        for group in range(len(self._ends)):
            yield self._group(group, self.arrow.names)

    def columns(self, rows: slice) -> Columns:
        """Some rows, of the columns that both this part and the table have."""
        start, stop, _ = rows.indices(len(self))
        schema = {name: kind for name, kind in self._table.schema.items() if name in self.arrow.names}
        pieces = [self._group(group, list(schema))[at] for group, at in stretches(self._ends, start, stop)]
        whole = pa.concat_tables([self.arrow.empty_table().select(list(schema)), *pieces]).unify_dictionaries()
        return {name: self._column(name, kind, whole.column(name)) for name, kind in schema.items()}

    def _group(self, group: int, names: Sequence[str]) -> pa.Table:
        with self.opened() as file:
            return file.read_row_group(group, list(names)).replace_schema_metadata()

    def _column(self, name: str, kind: Kind, column: pa.ChunkedArray) -> Column:
        if column.type != _TYPES[kind] or (column.null_count and kind in ("integer", "float", "flag")):
            raise self.damaged(f"its column {name} holds what it should not")
        if kind == "text":
            return Column(self._places(name, column))
        missing = column.is_null().to_numpy() if column.null_count else None
        if missing is not None:
            column = column.fill_null(0 if kind == "count" else np.nan)
        return Column(column.to_numpy(), missing)

    def _places(self, name: str, column: pa.ChunkedArray) -> NDArray[np.int32]:
        pieces = [np.empty(0, np.int32)]
        for chunk in column.chunks:
            places = self._table.vocabulary[name].places([*chunk.dictionary.to_pylist(), None])
            pieces.append(places[chunk.indices.fill_null(len(places) - 1).to_numpy()])
        return np.concatenate(pieces)

    @cached_property
    def _ends(self) -> list[int]:
        groups = map(self.footer.row_group, range(self.footer.num_row_groups))
        return list(accumulate(group.num_rows for group in groups))
