"""The loss and the metrics of a run as a bounded picture: a row for each, by iteration; and what is known by epoch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradviz.history.cells import Picture, drawn, kinds
from gradviz.history.overview import CAPACITY, NOT_RECORDED, Columns
from gradviz.history.schema import METRICS, OPTIONAL
from gradviz.history.store import Reading, Store
from gradviz.history.table import Column
from gradviz.history.table import Columns as TableColumns

MOST = 16
"""Metrics in a picture; the others are in the frames."""

_NOT_METRICS = frozenset({*METRICS, *OPTIONAL, "loss"})
_OF_EPOCHS = ("epoch", "iterations", "nonfinite")


class MetricPicture(Picture):
    """A row for each metric's own values by iteration, the loss last; and columns of what there is by epoch alone.

    Parameters
    ----------
    store : Store
    reading : callable
        Calls what reads rows, once more where their files were merged meanwhile.

    Attributes
    ----------
    by_epoch : list of str
        The metrics that have no values by iteration, such as those of a validation; it only grows.
    """

    def __init__(self, store: Store, reading: Reading[Any]) -> None:
        super().__init__(store)
        self._reading = reading
        self.by_epoch: list[str] = []

    @property
    def names(self) -> list[str]:
        """The metrics by iteration, without the loss, in the order of the rows; those that come later come last."""
        return self._all_names[:MOST]

    @property
    def n_more(self) -> int:
        """How many metrics have no row here."""
        return len(self._all_names[MOST:])

    @property
    def _all_names(self) -> list[str]:
        return [name for name in list(self._store.metrics.schema) if name not in _NOT_METRICS]

    def overview(self) -> tuple[Columns, int]:
        """The whole run in a bounded number of columns, and how many iterations they show."""
        whole: tuple[Columns, int] = self._reading(super().overview)
        return whole

    def columns(self, start: int, stop: int | None = None) -> Columns:
        """The iterations from the row `start` on, one a column."""
        with self._store.lock:
            read: TableColumns = self._reading(lambda: self._store.read_metrics(start, stop))
            values, missing = _table(read, [*self.names, "loss"])
        flags = kinds(values)
        flags[missing] = NOT_RECORDED
        picture = drawn(values)
        first = read["iteration"].values.astype(np.uint32)
        return Columns(first, first + np.uint32(1), picture, picture, flags)

    def newest(self) -> NDArray[np.float64]:
        """The newest iteration's own values, by `names`, the loss last; NaN also where there is none."""
        n = len(self._store.iterations)
        with self._store.lock:
            read: TableColumns = self._reading(lambda: self._store.read_metrics(max(n - 1, 0)))
            values, _ = _table(read, [*self.names, "loss"])
        return values[-1] if len(values) else np.full(values.shape[1], np.nan)

    @property
    def n_epochs(self) -> int:
        """Epochs whose means are known."""
        return len(self._store.epochs)

    def epochs(self, start: int = 0) -> Columns:
        """A column for each epoch from the record `start` on: rows are `by_epoch`, the mean loss last."""
        with self._store.lock:
            records = [dict(record) for record in self._store.epochs[start:]]
            taken = {*self._all_names, *_OF_EPOCHS, "loss", *self.by_epoch}
        self.by_epoch += dict.fromkeys(name for record in records for name in record if name not in taken)
        names = [*self.by_epoch[:MOST], "loss"]
        values = np.array([record.get(name, np.nan) for record in records for name in names], np.float64)
        missing = np.array([name not in record for record in records for name in names], np.bool_)
        flags = kinds(values)
        flags[missing] = NOT_RECORDED
        epoch = np.array([record["epoch"] for record in records], np.uint32)
        shape = len(records), len(names)
        picture = drawn(values).reshape(shape)
        return Columns(epoch, epoch + np.uint32(1), picture, picture, flags.reshape(shape)).at_most(CAPACITY)


def _table(read: TableColumns, names: list[str]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Values and what is missing, [rows, names]."""
    n = len(read["iteration"].values)
    none = Column(np.full(n, np.nan), np.ones(n, np.bool_))
    columns = [read.get(name, none) for name in names]
    values = np.stack([column.values for column in columns], axis=1)
    missing = np.stack([np.zeros(n, np.bool_) if each.missing is None else each.missing for each in columns], axis=1)
    return values, missing
