"""Takes up what a folder holds: a run that is over, one that is still being written, or one whose writer was killed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gradviz.errors import HistoryError, RecordingWarning, warn
from gradviz.history.attempts import END, Attempts
from gradviz.history.run.epochs import read_epochs
from gradviz.history.run.folder import Folder
from gradviz.history.run.form import Damaged, damaged
from gradviz.history.run.manifest import Began, Manifest
from gradviz.history.run.names import PartName, current
from gradviz.history.run.parts import RowPart, TablePart
from gradviz.history.run.tensors import TensorPart
from gradviz.history.schema import STAGES, Parameter
from gradviz.history.store import Store
from gradviz.history.table import Table

TRIES = 20
"""A writer that merges parts takes away what was listed a moment before; it does so every few seconds at most."""

UNKNOWN = "unknown"
"""The status of a run whose `run.json` cannot be read, and the dtype of its parameters."""

Part = TypeVar("Part", RowPart, TablePart, TensorPart)


class _Gap(FileNotFoundError):
    """Flushes of which there is no part, or more than one."""

    def __init__(self, address: str, folder: str, place: PartName, begins: int) -> None:
        missing = PartName(place.series, begins, place.first - 1, place.suffix)
        what = f"{folder}/{missing} is missing" if begins < place.first else f"{folder}/{place} has rows of another"
        super().__init__(
            f"{address}: {what}. Put back what was there, or read the rest: "
            f"gv.History.open({address!r}, skip_damaged=True)."
        )
        self.folder = folder


class Reader:
    """Puts what a folder holds into a store, again and again while it grows.

    Parameters
    ----------
    store : Store
        Into which nothing else is written.
    folder : Folder
    skip_damaged : bool
        Leave out files that cannot be read, with a warning, instead of an error.
    """

    def __init__(self, store: Store, folder: Folder, *, skip_damaged: bool = False) -> None:
        self.folder = folder
        self._store, self._skips = store, skip_damaged
        self._attempts = Attempts()
        self._known: dict[str, RowPart | TablePart | TensorPart] = {}
        self._skipped: set[str] = set()
        self._gaps: set[str] = set()

    def read(self, *, only_what_was_there: bool = False) -> Manifest:
        """Take up what there is by now.

        Parameters
        ----------
        only_what_was_there : bool
            Find out where the same iterations lie as before, and leave out what has come since.

        Raises
        ------
        HistoryError
            If the folder is no run, is of a newer gradviz, or a file in it is damaged.
        """
        before = self._attempts if only_what_was_there else None
        for _ in range(TRIES):
            try:
                return self._read(before)
            except FileNotFoundError as error:  # merged into another since it was listed, or as it was
                missing = error
        if self._skips and isinstance(missing, _Gap):
            self._gaps.add(missing.folder)
            warn(f"Left out: {missing}", RecordingWarning)
            return self.read(only_what_was_there=only_what_was_there)
        went = "" if isinstance(missing, _Gap) else f"{self.folder.address}: files go away as fast as they are found, "
        raise HistoryError(f"{went}{missing}") from missing

    def manifest(self) -> Manifest:
        """What `run.json` tells by now; where it is damaged and damage is left out, that its status is unknown."""
        try:
            return Manifest.read(self.folder)
        except Damaged as error:
            if not self._skips:
                raise
            self._leave_out(error)
            return Manifest(began="", status=UNKNOWN)

    def _read(self, before: Attempts | None) -> Manifest:
        store = self._store
        ended = self.manifest().ended
        # In the order in which it matters: metrics are written last, and `run.json` before what it describes.
        metrics = self._table_parts("metrics", store.metrics)
        tables = {name: self._table_parts(name, table) for name, table in store.tables.items()}
        stages = {stage: self._parts("gradients", stage, lambda file: RowPart(self.folder, file)) for stage in STAGES}
        tensors = self._parts("tensors", "kept", lambda file: TensorPart(self.folder, file))
        epochs = self._readable(lambda: read_epochs(self.folder), [])
        manifest = self.manifest()
        if manifest.ended != ended:  # its last rows came after the files were listed
            return self._read(before)
        for part in metrics:
            for name, kind in part.kinds.items():
                store.metrics.grow([name], kind)
        columns = store.metrics.joined([part.columns(slice(None)) for part in metrics])
        iteration, attempt = columns["iteration"].values, columns["attempt"].values
        rows = [part for parts in stages.values() for part in parts]
        if manifest.status == UNKNOWN:
            manifest.parameters, manifest.attempts = _guessed(rows, iteration, attempt)
        self._check(manifest, rows, attempt)
        begins = [began["begins"] for began in manifest.attempts] or [0]
        written = {k: int(iteration[attempt == k].max(initial=-1)) + 1 for k in range(len(begins))}
        if before is not None:
            begins = begins[: len(before.begins)]
            written = {k: min(end, before.written(k)) if k < len(begins) else 0 for k, end in written.items()}
        self._attempts = Attempts(begins, written)
        if before is None:  # what has come since is left out, and its rows with it
            has_row = np.ones(len(iteration), np.bool_)
            if store.thins:
                has_row = ~columns["thinned"].values
                for late in stages["backward"]:
                    has_row |= (attempt == late.attempt) & np.isin(iteration, late.iteration)
            self._check_whole(manifest, stages["backward"], iteration[has_row], attempt[has_row])
        # Of an attempt that has ended all rows are whole, and need no second look each time.
        killed = {k: end for k, end in written.items() if k < len(begins) - 1}
        attempts = self._attempts if manifest.ended is None or before is not None else Attempts(begins, killed)
        holding = attempts.holds(iteration, attempt)
        epoch = columns["epoch"].values[holding]
        if (back := np.flatnonzero(np.diff(epoch) < 0)).size:
            why = f"iteration {iteration[holding][back[0] + 1]} is of an earlier epoch than those before it"
            self._readable(lambda: self._refuse("metrics", why), None)
            epoch = np.maximum.accumulate(epoch)
        with store.lock:
            store.declare(manifest.parameters)
            store.metrics.open(metrics)
            for name, of_table in tables.items():
                store.tables[name].open(of_table)
            store.tensors.open(tensors)
            for stage, parts in stages.items():
                if parts:
                    store.stage(stage).open(parts)
            store.attempts = attempts
            store.iterations = type(store.iterations)("q", iteration[holding].tobytes())
            lengths = np.bincount(epoch, minlength=1) if len(epoch) else np.zeros(1, np.int64)
            store.epochs = [
                record
                for record in epochs  # they are written before the last of their rows
                if record["epoch"] < len(lengths) - 1
                or (record["epoch"] == len(lengths) - 1 and record["iterations"] <= lengths[-1])
            ]
            firsts = np.searchsorted(epoch, np.arange(int(epoch.max(initial=-1)) + 1))
            store.epoch_starts = iteration[holding][firsts].tolist()
            store.change()
        return manifest

    def _check(self, manifest: Manifest, parts: list[RowPart], attempts: Any) -> None:
        """What `run.json` says must go with the rows."""
        n_attempts, n_parameters = max(len(manifest.attempts), 1), len(manifest.parameters)
        latest = max([*(part.attempt for part in parts), int(attempts.max(initial=0))], default=0)
        widest = max([part.n_parameters for part in parts], default=0)
        if latest >= n_attempts or widest > n_parameters:
            raise HistoryError(
                f"{self.folder.address}: run.json tells of {n_parameters} parameters and {n_attempts} attempts, and "
                f"the rows of {widest} and {latest + 1}: it belongs to another run. Nothing was deleted; put back the "
                "run.json that was there."
            )

    def _check_whole(self, manifest: Manifest, parts: list[RowPart], iteration: Any, attempt: Any) -> None:
        """Each of these iterations has a row of gradients, and no other has one, once all is written."""
        if manifest.ended is None or self._gaps or self._skipped or len(manifest.attempts) > len(self._attempts.begins):
            return
        ends = [self._attempts.written(k) for k in range(len(self._attempts.begins))]
        there = sum(
            int(np.searchsorted(part.iteration, ends[part.attempt])) for part in parts if part.attempt < len(ends)
        )
        wanted = sum(int(((attempt == k) & (iteration < end)).sum()) for k, end in enumerate(ends))
        last = len(ends) - 1
        if there != wanted:
            self._readable(lambda: self._refuse("gradients", f"{wanted - there} iterations have only metrics"), None)
        elif any(part.attempt == last and part.iteration[-1] >= ends[last] for part in parts):
            self._readable(lambda: self._refuse("metrics", "the last iterations have only gradients"), None)

    def _refuse(self, name: str, why: str) -> None:
        raise damaged(self.folder.address, name, why)

    def _parts(self, folder: str, series: str, made: Callable[[str], Part]) -> list[Part]:
        """Those of a series that can be read."""
        parts = [self._part(file, made) for file in self._files(folder, series)]
        return [part for part in parts if part is not None]

    def _table_parts(self, name: str, table: Table) -> list[TablePart]:
        return self._parts(name, "rows", lambda file: TablePart(self.folder, file, table))

    def _files(self, folder: str, series: str) -> list[str]:
        names = self.folder.names(folder)
        for _ in range(TRIES):  # a listing may have missed a merged part as well as those that went into it
            listed, names = names, self.folder.names(folder)
            if names == listed:
                break
        places = [place for place in current(names) if place.series == series]
        if folder not in self._gaps:
            self._check_gaps(folder, places)
        return [f"{folder}/{place}" for place in places]

    def _check_gaps(self, folder: str, places: Sequence[PartName]) -> None:
        """Each part begins where the one before ended, the first at 0."""
        begins = 0
        for place in places:
            if place.first != begins:
                raise _Gap(self.folder.address, folder, place, begins)
            begins = place.last + 1

    def _part(self, file: str, made: Callable[[str], Part]) -> Part | None:
        """A part whose footer has been read, once."""
        if file in self._skipped:
            return None
        part = self._known.get(file)
        if part is None:
            part = made(file)
            if self._readable(lambda: len(part), None) is None:  # reads the footer, and no more
                return None
            self._known[file] = part
        return part  # type: ignore[return-value]

    def _readable(self, read: Callable[[], Any], otherwise: Any) -> Any:
        try:
            return read()
        except HistoryError as error:
            if not self._skips:
                raise
            self._leave_out(error)
            return otherwise

    def _leave_out(self, error: HistoryError) -> None:
        if str(error) not in self._skipped:
            self._skipped.add(str(error))
            warn(f"Left out: {error}", RecordingWarning)


def _guessed(
    parts: list[RowPart], iteration: NDArray[np.int64], attempt: NDArray[np.int64]
) -> tuple[list[Parameter], list[Began]]:
    """What `run.json` would have told, as far as rows know it; these are the iterations and attempts of all."""
    widest = max(parts, key=lambda part: part.n_parameters, default=None)
    names = [] if widest is None else widest.names()
    latest = max([int(attempt.max(initial=0)), *(part.attempt for part in parts)])
    # One that has written no row takes none away.
    begins = [int(iteration[attempt == k].min(initial=END)) for k in range(latest + 1)]
    return (
        [Parameter(name=name, shape=None, dtype=UNKNOWN) for name in names],
        [Began(begins=begin, at="") for begin in begins],
    )
