"""All rows of one run: what a history and its selections read, and what a writer puts on disk."""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gradviz.history.attempts import END, Attempts
from gradviz.history.rows import Places, RowStore, Segment
from gradviz.history.schema import METRICS, STAGES, TABLES, Parameter
from gradviz.history.series import Series
from gradviz.history.table import Column, Columns, Table
from gradviz.history.tensors import Tensors

T = TypeVar("T")
Reading = Callable[[Callable[[], T]], T]
"""Calls what reads rows, once more where their files were merged meanwhile."""


class Store:
    """Gradients by stage, metrics, tables and epoch means.

    Parameters
    ----------
    memory_limit : int
        Bytes that rows are meant to take at most: chunks are much smaller.

    Attributes
    ----------
    stages : dict of str to RowStore
        By stage, as far as there are rows.
    metrics : Table
        One row for each iteration. An iteration counts as recorded from the moment it has one.
    tables : dict of str to Table
    tensors : Tensors
        Those that were kept whole.
    epochs : list of dict
        The means of every epoch.
    epoch_starts : list of int
        The iteration each epoch began with.
    attempts : Attempts
    iterations : array of int64
        Those that hold, ascending.
    version : int
        Another one after every change.
    reload : weak reference to a callable, or None
        Finds out anew where rows lie, for a store whose files somebody else writes.
    lock : RLock
        Held by whoever writes, and by readers while they find out what there is.
    """

    def __init__(self, memory_limit: int) -> None:
        self._chunk_bytes = memory_limit // 8
        self._parameters: list[Parameter] = []
        self._names: list[str] = []
        self.stages: dict[str, RowStore] = {}
        self.metrics = Table(METRICS)
        self.tensors = Tensors()
        self.tables = {name: Table(schema) for name, schema in TABLES.items()}
        self.epochs: list[dict[str, float]] = []
        self.epoch_starts: list[int] = []
        self.attempts = Attempts()
        self.iterations = array("q")
        self.version = 0
        self.reload: Callable[[], Callable[[], object] | None] | None = None
        self.lock = threading.RLock()  # a notebook reads while a thread trains

    @property
    def parameters(self) -> list[Parameter]:
        """In declaration order; a new list when there are others."""
        return self._parameters

    @property
    def names(self) -> list[str]:
        """Of the parameters."""
        return self._names

    @property
    def all_series(self) -> dict[str, Series[Any, Any]]:
        """Everything that is kept in chunks and parts, by the name of its folder and of its files."""
        gradients = {f"gradients/{stage}": rows for stage, rows in self.stages.items()}
        return {
            **gradients,
            **{f"{name}/rows": table for name, table in self.tables.items()},
            "tensors/kept": self.tensors,
            "metrics/rows": self.metrics,
        }

    @property
    def thins(self) -> bool:
        """Whether there are iterations of which nothing but metrics was to be recorded."""
        return self.metrics.schema.get("thinned") == "flag"

    def declare(self, parameters: Sequence[Parameter]) -> None:
        """Name the parameters; tables have them in this order too."""
        self._parameters = list(parameters)
        self._names = [parameter["name"] for parameter in parameters]
        for table in self.tables.values():
            if "parameter" in table.vocabulary:
                table.vocabulary["parameter"].places(self._names)
        self.change()

    def stage(self, name: str) -> RowStore:
        """The rows of a stage, made when they are first asked for."""
        if name not in self.stages:
            kept = {**self.stages, name: RowStore(self._chunk_bytes)}
            self.stages = {stage: kept[stage] for stage in STAGES if stage in kept}
        return self.stages[name]

    @property
    def nbytes(self) -> int:
        """Memory that rows take."""
        return sum(series.nbytes for series in self.all_series.values())

    def evict(self, n_bytes: int) -> int:
        """Let go of the oldest chunks that are on disk, until all take no more than this; what they take then."""
        with self.lock:
            left = self.nbytes
            for series in sorted(self.all_series.values(), key=lambda series: -series.nbytes):
                while left > n_bytes and (freed := series.evict()):
                    left -= freed
            return left

    def change(self) -> None:
        """What was read before is no longer all."""
        self.version += 1

    # ------------------------------------------------------------------------------------------------------------

    def held(
        self, stage: str, *, first: int = 0, last: int = END, all_attempts: bool = False
    ) -> list[tuple[Segment, Places]]:
        """Where the rows of a stage lie that hold, from the iteration `first` to `last`."""
        found: list[tuple[Segment, Places]] = []
        if stage not in self.stages:
            return found
        start = self.stages[stage].begin_of(first) if first and self.attempts.is_plain else 0
        for segment, rows in self.stages[stage].pieces(start):
            end = self.attempts.written(segment.attempt) if all_attempts else self.attempts.end(segment.attempt)
            low, high = np.searchsorted(segment.iteration[rows], (first, min(end - 1, last) + 1)) + rows.start
            if low < high:
                found.append((segment, slice(int(low), int(high))))
        return found

    def newest(self, stage: str) -> tuple[Segment, slice] | None:
        """Where the last row of a stage lies that holds; None if there is none."""
        if stage not in self.stages:
            return None
        rows = self.stages[stage]
        found = list(rows.pieces(max(len(rows) - 1, 0))) if self.attempts.is_plain else self.held(stage)
        if not found:
            return None
        segment, places = found[-1]
        last = int(np.arange(len(segment))[places][-1])
        return segment, slice(last, last + 1)

    def read_metrics(self, start: int = 0, stop: int | None = None, *, all_attempts: bool = False) -> Columns:
        """The metrics of the iterations that hold, the rows [start, stop) of them."""
        if self.attempts.is_plain:
            return self.metrics.read(start, stop)
        return _picked(self._holding(self.metrics.read(), all_attempts), slice(start, stop))

    def read_loss(self, start: int = 0, stop: int | None = None) -> Column:
        """The loss of the same iterations; missing in all of them where none was ever taken."""
        columns = self.read_metrics(start, stop)
        n = len(columns["iteration"].values)
        return columns.get("loss", Column(np.full(n, np.nan), np.ones(n, np.bool_)))

    def read_table(self, name: str, start: int = 0, stop: int | None = None, *, all_attempts: bool = False) -> Columns:
        """Of the rows [start, stop) of a table those that hold."""
        return self._holding(self.tables[name].read(start, stop), all_attempts)

    def _holding(self, columns: Columns, all_attempts: bool) -> Columns:
        if self.attempts.is_plain or all_attempts:
            return columns
        return _picked(columns, self.attempts.holds(columns["iteration"].values, columns["attempt"].values))

    def begin_attempt(self, iteration: int, epoch: int) -> None:
        """From this iteration and epoch on, rows are recorded once more."""
        self.attempts.begin(iteration)
        del self.iterations[bisect_left(self.iterations, iteration) :]
        self.epochs = [record for record in self.epochs if record["epoch"] < epoch]
        self.epoch_starts = [start for start in self.epoch_starts if start < iteration]
        self.change()


def _picked(columns: Columns, rows: slice | NDArray[Any]) -> Columns:
    return {name: column[rows] for name, column in columns.items()}
