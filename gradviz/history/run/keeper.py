"""Keeps a history within its memory, and in its folder."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib import metadata
from typing import Literal

from gradviz.errors import HistoryError, RecordingWarning, warn
from gradviz.history.cells import Picture
from gradviz.history.progress import Progress
from gradviz.history.run import overview
from gradviz.history.run.epochs import EPOCHS
from gradviz.history.run.folder import Folder, open_folder
from gradviz.history.run.manifest import MANIFEST, Manifest
from gradviz.history.run.names import PartName
from gradviz.history.run.reader import Reader
from gradviz.history.run.writer import Writer
from gradviz.history.schema import TABLES, Parameter
from gradviz.history.store import Store
from gradviz.sizes import in_words

IfExists = Literal["error", "resume", "overwrite"]
"""What becomes of an earlier run that lies where a run writes."""

IF_EXISTS = ("error", "resume", "overwrite")

MOST_NAMED = 3
"""Parameters that an error names."""

CHECKS = 16
"""Memory is looked at each time that this part of the limit has been appended."""


class Keeper:
    """Writes a store into a folder while a run goes on, and lets go of memory that is there.

    Parameters
    ----------
    store, picture, progress
        Of the history.
    memory_limit : int
        Bytes that rows may take. Without a folder to save to, older ones go into a temporary one.
    save_to : path, address or None
    if_exists : "error", "resume" or "overwrite"
        What to do with a run that is there already.
    flush_interval_s : float
    seed : int or None
        Written down with the run.
    """

    def __init__(
        self,
        store: Store,
        picture: Picture,
        progress: Progress,
        *,
        memory_limit: int,
        save_to: str | os.PathLike[str] | None,
        if_exists: IfExists,
        flush_interval_s: float,
        seed: int | None,
    ) -> None:
        self._store, self._picture, self._progress = store, picture, progress
        self._limit, self._interval_s = memory_limit, flush_interval_s
        self._folder = None if save_to is None else open_folder(save_to)
        self._if_exists, self._seed = if_exists, seed
        self._manifest: Manifest | None = None
        self._writer: Writer | None = None
        self._unchecked = 0
        self._has_told = False
        self.is_full = False
        _keepers.add(self)

    @property
    def address(self) -> str | None:
        """Where the run is saved."""
        return None if self._folder is None else self._folder.address

    @property
    def is_on_disk(self) -> bool:
        """Whether rows go to a folder, of the user's or a temporary one."""
        return self._folder is not None or self._writer is not None

    @property
    def is_writing(self) -> bool:
        """Whether a run goes on that is saved."""
        return self._writer is not None or self._folder is None

    def begin(self, parameters: Sequence[Parameter] | None = None, *, resumes: bool) -> bool:
        """Open the folder for the rows to come; whether rows of an earlier run were taken up.

        Raises
        ------
        HistoryError
            If there is a run in the way, or one of another model, or nothing can be written there. Nothing has been
            touched then.
        """
        folder, found = self._folder, False
        if folder is None or self._writer is not None:
            return False
        folder.lock()
        try:
            if self._manifest is None:
                found = self._first(folder, parameters, resumes=resumes)
            elif not folder.exists(MANIFEST) or Manifest.read(folder).began != self._manifest.began:
                raise HistoryError(
                    f"{folder.address} no longer holds the run of this history: it was overwritten, moved or removed. "
                    'What was recorded is in memory; make a new loop with another folder, save_to="runs/b".'
                )
            assert self._manifest is not None
            self._writer = self._made(folder, self._manifest, self._interval_s)
            self._writer.flush()
        except BaseException as error:
            folder.unlock()
            self._writer = None
            if isinstance(error, OSError):
                raise HistoryError(f"{folder.address} cannot be written: {error}.") from error
            raise
        self._writer.start()
        return found

    def _first(self, folder: Folder, parameters: Sequence[Parameter] | None, *, resumes: bool) -> bool:
        exists = folder.exists(MANIFEST)
        if exists and not resumes and self._if_exists == "error":
            raise HistoryError(_in_the_way(folder))
        if self._if_exists == "overwrite" and not resumes:
            clear(folder)
            exists = False
        if not exists and (left := next(_files(folder), None)) is not None:
            raise HistoryError(
                f"{folder.address} has no {MANIFEST}, but files of a run, such as {left}. Nothing was deleted; "
                'name another folder, or write over them: if_exists="overwrite".'
            )
        if exists:
            if parameters is not None:
                _check_same_model(folder, Manifest.read(folder).parameters, parameters)
            self._manifest = Reader(self._store, folder).read()
            return True
        libraries = {name: metadata.version(name) for name in ("numpy", "pandas", "pyarrow", "torch") if _has(name)}
        now = datetime.now(UTC).isoformat()
        self._manifest = Manifest(began=now, seed=self._seed, libraries=libraries)
        return False

    def _made(self, folder: Folder, manifest: Manifest, interval_s: float) -> Writer:
        return Writer(self._store, self._picture, folder, manifest, self._progress, interval_s)

    def appended(self, n_bytes: int) -> None:
        """Look at memory, now and then, and say once if rows cannot be written."""
        self._unchecked += n_bytes
        if self._writer is not None and self._writer.failure is not None:
            self._tell_failure(self._writer.failure)
        if self._unchecked * CHECKS >= self._limit:
            self._unchecked = 0
            if self._store.nbytes * (CHECKS + 1) > self._limit * CHECKS:  # before the next look it would be over
                try:
                    self._relieve()
                except Exception as error:  # of a disk that is full, or a file that is gone
                    self._tell_failure(error)
                self.is_full = self._store.nbytes > 2 * self._limit

    def _relieve(self) -> None:
        """Let go of what is on disk; put it there first."""
        if self._writer is None and self._folder is not None:  # its run has not begun
            return
        writer = self._writer or self._spill()
        if self._store.evict(self._limit // 2) > self._limit * 3 // 4 and writer.try_flush():
            self._store.evict(self._limit // 2)

    def _spill(self) -> Writer:
        """Begin to write into a temporary folder."""
        path = tempfile.mkdtemp(prefix="gradviz-")
        weakref.finalize(self._store, _remove, path, os.getpid())
        folder = open_folder(path)
        folder.lock()
        self._writer = writer = self._made(folder, Manifest(began=datetime.now(UTC).isoformat()), 0.0)
        warn(
            f"The history has outgrown memory_limit, {in_words(self._limit)}: older iterations are in {path} from now "
            "on, and gone when this history is. Its frames read them from there. To keep them, and not only that long: "
            'save_to="runs/a".',
            RecordingWarning,
        )
        return writer

    def _tell_failure(self, failure: Exception) -> None:
        if not self._has_told:
            self._has_told = True
            where = "a temporary folder" if self._writer is None else self._writer.folder.address
            warn(
                f"The history cannot be written to {where}: {type(failure).__name__}, {failure}. Training goes on, and "
                "rows stay in memory until it can be; beyond twice memory_limit, only their metrics. Said once.",
                RecordingWarning,
            )

    def flush(self) -> None:
        """Write all rows, if they are written at all; what fails is told, and tried again."""
        if self._writer is not None and self._folder is not None and not self._writer.try_flush():
            assert self._writer.failure is not None
            self._tell_failure(self._writer.failure)

    def end(self) -> None:
        """The run is over: write all of it and how it ended, and let others write there."""
        if self._writer is None or self._folder is None:
            return
        try:
            self._writer.end()
        except Exception as error:
            self._tell_failure(error)
        self._writer = None

    def leave(self) -> None:
        """Write no more: this process was forked, and the folder is its parent's."""
        self._writer = None


_keepers: weakref.WeakSet[Keeper] = weakref.WeakSet()


def _leave_to_the_parent() -> None:
    for keeper in _keepers:
        keeper.leave()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_the_parent)


def _remove(path: str, owner: int) -> None:
    if os.getpid() == owner:  # and not a process that was forked from it
        shutil.rmtree(path, ignore_errors=True)


def clear(folder: Folder) -> None:
    """Remove the files of a run, `run.json` last; what is not a run's stays."""
    for file in _files(folder):
        folder.remove(file)
    folder.remove(MANIFEST)


def _files(folder: Folder) -> Iterator[str]:
    for sub in ("gradients", "metrics", "tensors", *TABLES):
        yield from (f"{sub}/{name}" for name in folder.names(sub) if PartName.parse(name) is not None)
    for name in (EPOCHS, overview.FILE):
        if folder.exists(name):
            yield name


def _check_same_model(folder: Folder, saved: Sequence[Parameter], own: Sequence[Parameter]) -> None:
    shapes = {parameter["name"]: parameter["shape"] for parameter in own}
    wrong = [
        f"{parameter['name']!r} is " + (f"{shapes[name]}, not {parameter['shape']}" if name in shapes else "missing")
        for parameter in saved
        if (name := parameter["name"]) not in shapes or shapes[name] != parameter["shape"]
    ]
    if wrong:
        more = f", and {len(wrong) - MOST_NAMED:,} more" if len(wrong) > MOST_NAMED else ""
        raise HistoryError(
            f"{folder.address} holds a run of another model: of its parameters, {', '.join(wrong[:MOST_NAMED])}{more} "
            'in this one. Name another folder, save_to="runs/b", or write over that run: if_exists="overwrite".'
        )


def _in_the_way(folder: Folder) -> str:
    try:
        manifest = Manifest.read(folder)
        what = f"a run of {len(manifest.parameters)} parameters that began {manifest.began[:16].replace('T', ' ')}"
    except HistoryError as error:
        what = f"a run that cannot be read ({error})"
    if folder.names("checkpoints"):
        goes_on = f"To go on with it: loop.resume({folder.address!r})"
    else:
        goes_on = (
            'It has no checkpoints to go on from. To keep its rows: if_exists="resume"; a watch goes on behind them, a '
            'loop begins again at iteration 0, and they stay in select(attempts="all")'
        )
    return (
        f'{folder.address} holds {what}. {goes_on}; to write over it: if_exists="overwrite"; to keep it: '
        'save_to="another folder".'
    )


def _has(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
