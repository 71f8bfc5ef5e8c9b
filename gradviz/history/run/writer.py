"""Puts rows on disk while others are appended.

A flush takes what is in memory alone, and writes a part of each series; metrics come last. An iteration counts as
written once its metrics are, so that whoever reads meanwhile, or after a kill, sees every table up to the same one.
Small parts are merged eight at a time, so a row is rewritten a few times at most, however long the run.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from gradviz.history.cells import Picture
from gradviz.history.overview import Columns
from gradviz.history.progress import Progress
from gradviz.history.rows import PLANES, RowStore, gathered
from gradviz.history.run.epochs import write_epochs
from gradviz.history.run.folder import Folder
from gradviz.history.run.manifest import Began, Manifest
from gradviz.history.run.names import PartName, covered
from gradviz.history.run.overview import write_overview
from gradviz.history.run.parts import (
    RowPart,
    TablePart,
    encode_rows,
    encode_table,
    merge_rows,
    merge_tables,
    widened,
)
from gradviz.history.run.tensors import TensorPart, encode_tensors
from gradviz.history.series import Series
from gradviz.history.side_by_side import side_by_side
from gradviz.history.store import Store
from gradviz.history.table import Table
from gradviz.history.tensors import Tensors

MERGE = 8
"""Parts of about the same size are merged when there are so many."""

WHOLE = 500_000
"""A part of so many lines is merged no more."""


Taken = tuple[str, Series[Any, Any], Callable[[], pa.Buffer], Callable[[str], Any]]
"""Where rows go, of which series they are, how they are encoded, and read again."""


class Writer:
    """Keeps a folder up to date with a store, from a thread of its own.

    Parameters
    ----------
    store : Store
        What the folder holds of it has been loaded.
    picture : Picture
        Of the store; kept with the run, so that it is drawn at once when it is opened.
    folder : Folder
        Locked already.
    manifest : Manifest
    progress : Progress
    flush_interval_s : float
        What may be lost at most. Flushes begin twice as often, so that they are over by then.
    """

    def __init__(
        self,
        store: Store,
        picture: Picture,
        folder: Folder,
        manifest: Manifest,
        progress: Progress,
        flush_interval_s: float,
    ) -> None:
        self.failure: Exception | None = None
        self.folder, self.manifest = folder, manifest
        self._store, self._picture, self._progress = store, picture, progress
        self._interval_s = flush_interval_s / 2
        self._flushing = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._told: dict[str, Any] | None = None
        self._epochs: list[dict[str, float]] = []
        self._pictured = 0
        self._drawn: Columns | None = None
        self._surplus: list[str] | None = None

    def start(self) -> None:
        """Flush again and again, from now on."""
        if self._thread is None:
            self._stop.clear()
            self._thread = threading.Thread(target=self._run, name="gradviz-history", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        pause_s = self._interval_s
        while not self._stop.wait(pause_s):
            began = time.monotonic()
            self.try_flush()
            took_s = time.monotonic() - began
            pause_s = max(self._interval_s - took_s, took_s / 4)  # a slow disk is left some time for others

    def try_flush(self) -> bool:
        """Flush, and say whether that went well; what failed is kept as `failure`, and tried again by the next one."""
        try:
            self.flush()
        except Exception as error:  # a full disk must not end the training
            self.failure = error
            return False
        self.failure = None
        return True

    def flush(self, *, ended: bool = False) -> None:
        """Write all that there is by now; when the run has `ended`, its picture as well, and how it did.

        Raises
        ------
        OSError
            If something cannot be written. What could be is, and the rest stays in memory.
        """
        with self._flushing:
            columns, seen = self._picture.overview()  # first: rows that are on disk may leave memory
            with self._store.lock:
                taken = list(self._taken())
                epochs = [dict(record) for record in self._store.epochs]
            self._tell(ended=False)
            if epochs != self._epochs:
                write_epochs(self.folder, epochs)
                self._epochs = epochs
            self._clear()
            for name, series, encoded, made in self._encoded(taken):
                self._put(name, series, encoded, made)
            for name, series in self._store.all_series.items():
                while self._merge(name, series):
                    pass
            # The picture at the end, and now and then, in case there is none.
            if (seen and seen >= 2 * self._pictured) or (ended and columns is not self._drawn):
                write_overview(self.folder, columns, seen, self._store.attempts.current)
                self._pictured, self._drawn = seen, columns
            if ended:
                self._tell(ended=True)

    def end(self) -> None:
        """The run is over: write what is left, and let others write here.

        Raises
        ------
        OSError
            If something cannot be written.
        """
        try:
            try:
                self._finish()
            except OSError:
                raise
            except Exception:  # a signal's handler may raise anywhere, as torch's does when Ctrl-C ends its workers
                self._finish()
        finally:
            self.folder.unlock()

    def _finish(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._thread = None
        self.flush(ended=True)

    # -----------------------------------------------------------------------------------------------------------

    def _taken(self) -> Iterator[Taken]:
        """What is in memory alone: where it goes, and how it is encoded there and read again."""
        names = self._store.names
        for name, series in self._store.all_series.items():
            pieces = series.unstored()
            if not pieces:
                continue
            if isinstance(series, RowStore):
                for block, rows in pieces:
                    n = block.n_parameters
                    taken = gathered([(block, rows)], PLANES, np.arange(n))
                    stage = name.rpartition("/")[2]
                    yield name, series, _later(encode_rows, taken, names[:n], stage), self._row_part
            elif isinstance(series, Table):
                columns = series.joined([sheet.columns(rows) for sheet, rows in pieces])
                encode = _later(encode_table, columns, dict(series.schema), series.vocabulary)
                yield name, series, encode, _later(TablePart, self.folder, table=series)
            elif isinstance(series, Tensors):
                tensors = [shelf.tensor for shelf, _ in pieces]
                yield name, series, _later(encode_tensors, tensors), _later(TensorPart, self.folder)

    def _encoded(self, taken: list[Taken]) -> Iterator[tuple[str, Series[Any, Any], pa.Buffer, Callable[[str], Any]]]:
        """The same with what is to be written, in order. Two at a time, where rows come faster than one can be made."""
        n_blocks = sum(isinstance(series, RowStore) for _, series, *_ in taken)
        with ThreadPoolExecutor(2, thread_name_prefix="gradviz-encoder") if n_blocks > 2 else nullcontext() as encoders:
            buffers = map(_encoded, taken) if encoders is None else side_by_side(encoders, _encoded, taken)
            for (name, series, _, made), buffer in zip(taken, buffers, strict=True):
                yield name, series, buffer, made

    def _row_part(self, file: str) -> RowPart:
        return RowPart(self.folder, file)

    def _put(self, name: str, series: Series[Any, Any], data: pa.Buffer, made: Callable[[str], Any]) -> None:
        if isinstance(series, Table):
            self._widen(series)
        number = _place(series.parts[-1].name).last + 1 if series.parts else 0
        part = made(_file(name, number, number, ".safetensors" if isinstance(series, Tensors) else ".parquet"))
        self.folder.write(part.name, data)
        with self._store.lock:
            series.parts.append(part)

    def _widen(self, table: Table) -> None:
        """Give older parts the columns that were added since: plain readers take those of the first file for all."""
        for at, part in enumerate(table.parts):
            if not table.schema.keys() <= set(part.arrow.names):
                self.folder.write(part.name, widened(part, table.schema))
                with self._store.lock:
                    table.parts[at] = TablePart(self.folder, part.name, table)

    def _merge(self, name: str, series: Series[Any, Any]) -> bool:
        """Make one part of several, if there are many of one size."""
        parts = [] if isinstance(series, Tensors) else _many_alike(series.parts)
        if not parts:
            return False
        file = _file(name, _place(parts[0].name).first, _place(parts[-1].name).last)
        merged: RowPart | TablePart
        if isinstance(series, Table):
            merged = TablePart(self.folder, file, series)
            data = merge_tables(parts)
        else:
            merged, data = self._row_part(file), merge_rows(parts)
        self.folder.write(file, data)
        with self._store.lock:
            series.merge(merged, parts)
        self._surplus = [part.name for part in parts]
        self._clear()
        return True

    def _clear(self) -> None:
        """Remove what a merged part holds too, also of a writer that died: plain readers would read it twice."""
        if self._surplus is None:
            folders = {name.rpartition("/")[0] for name in self._store.all_series}
            self._surplus = [f"{folder}/{file}" for folder in folders for file in covered(self.folder.names(folder))]
        while self._surplus:
            self.folder.remove(self._surplus[-1])
            self._surplus.pop()

    def _tell(self, *, ended: bool) -> None:
        """Say in `run.json` what the run is of and how it stands, if that has changed."""
        manifest, progress, now = self.manifest, self._progress, datetime.now(UTC).isoformat(timespec="seconds")
        begins = self._store.attempts.begins
        manifest.parameters = list(self._store.parameters)
        manifest.attempts += [Began(begins=begin, at=now) for begin in begins[len(manifest.attempts) :]]
        # It trains from the moment its folder is open, until all of it is written.
        manifest.status = progress.status if ended or progress.status == "paused" else "training"
        if ended and progress.status in ("training", "paused"):  # by a program that ended before
            manifest.status = "interrupted"
        manifest.progress = {
            "epoch": progress.epoch,
            "epochs": progress.epochs,
            "iterations": progress.iterations,
            "every": progress.every,
            "clipped_from": progress.clipped_from,
            "message": progress.message,
        }
        manifest.ended = now if ended else None
        told = {**vars(manifest), "attempts": len(manifest.attempts), "parameters": len(manifest.parameters)}
        if told != self._told:
            manifest.write(self.folder)
            self._told = told


def _encoded(taken: Taken) -> pa.Buffer:
    return taken[2]()


def _later(function: Callable[..., Any], *arguments: Any, **named: Any) -> Callable[..., Any]:
    return lambda *more: function(*arguments, *more, **named)


def _file(name: str, first: int, last: int, suffix: str = ".parquet") -> str:
    folder, _, series = name.rpartition("/")
    return f"{folder}/{PartName(series, first, last, suffix)}"


def _place(file: str) -> PartName:
    place = PartName.parse(file.rpartition("/")[2])
    assert place is not None, "it was named by _file"
    return place


def _many_alike(parts: Sequence[Any]) -> list[Any]:
    """The first parts side by side that are to be one: so many of one size, none of them whole.

    They are the same when they are looked for again: where writing them failed half-way, their file may be there, and
    no other may overlap it.
    """
    alike: list[Any] = []
    for part in parts:
        if _is_whole(part) or (alike and _likeness(part) != _likeness(alike[-1])):
            alike = []
        if not _is_whole(part):
            alike.append(part)
        if len(alike) == MERGE:
            return alike
    return []


def _likeness(part: RowPart | TablePart) -> tuple[int, ...]:
    """The same for parts that can be one: how many eights of flushes they hold, and what they are of."""
    place = _place(part.name)
    eights = round(math.log(place.last - place.first + 1, MERGE))
    return (eights, part.attempt, part.n_parameters) if isinstance(part, RowPart) else (eights,)


def _is_whole(part: RowPart | TablePart) -> bool:
    lines = len(part) * max(part.n_parameters, 1) if isinstance(part, RowPart) else len(part)
    return lines >= WHOLE
