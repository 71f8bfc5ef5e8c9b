"""A folder on this machine, or on a disk that is mounted here."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pyarrow as pa

from gradviz.errors import HistoryError
from gradviz.history.run.lock import Lock
from gradviz.history.run.names import below, is_hidden

_LOCK = ".lock"


class LocalFolder:
    """Files that are on the disk once they have their name; see `Folder`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._root = Path(os.path.realpath(os.path.expanduser(address)))  # also when the program changes its folder
        self._lock = Lock(str(self._root), self._root / _LOCK)

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        """Write a file aside, sync it, and give it its name."""
        if self._lock.is_lost:  # and another run may be there by now
            raise OSError("it was moved or removed since this run began to write there")
        target = self._path(name)
        _make(target.parent)
        aside = target.with_name(f".{target.name}.tmp")
        aside.unlink(missing_ok=True)  # of a writer that was killed
        try:
            with aside.open("xb", buffering=0) as file:
                view = memoryview(data)
                while view:
                    view = view[file.write(view) :]
                os.fsync(file.fileno())
            os.replace(aside, target)
            sync(target.parent)
        finally:
            with contextlib.suppress(OSError):
                aside.unlink(missing_ok=True)

    def read(self, name: str) -> bytes:
        """All of a file."""
        return self._path(name).read_bytes()

    def source(self, name: str) -> Any:
        """A file as pyarrow reads it."""
        # Not mapped into memory: where a file is cut short, or its disk goes away, that ends the process.
        return pa.OSFile(str(self._path(name)))

    def names(self, sub: str = "") -> list[str]:
        """The files of the folder, or of one below it."""
        try:
            with os.scandir(self._path(sub)) as entries:
                return sorted(entry.name for entry in entries if not is_hidden(entry.name) and not entry.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def exists(self, name: str = "") -> bool:
        """Whether there is such a file, or the folder itself."""
        return self._path(name).exists()

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        self._path(name).unlink(missing_ok=True)

    def lock(self) -> None:
        """Make the folder if need be, and be its one writer."""
        try:
            _make(self._root)
            self._path(_LOCK)
            taken = self._lock.acquire()
        except OSError as error:
            raise HistoryError(
                f"{self.address} cannot be written: {error.strerror or error}. "
                'Name a folder that can be, such as save_to="runs/a", or none.'
            ) from error
        if not taken:
            raise HistoryError(
                f"{self.address} is being written by another process, or by another loop of this one. "
                'Stop that one first, or name another folder: save_to="runs/b".'
            )

    def is_locked(self) -> bool | None:
        """Whether somebody writes here now; None where nobody can know."""
        return self._lock.is_held()

    def unlock(self) -> None:
        """Let others write."""
        self._lock.release()

    def _path(self, name: str) -> Path:
        path = self._root / below(name) if name else self._root
        if not Path(os.path.realpath(path)).is_relative_to(self._root):
            raise HistoryError(
                f"{self.address}: {name} is a link that leads out of the run's folder, which is not followed. "
                "Put the file itself there."
            )
        return path


def _make(folder: Path) -> None:
    """Make a folder and those above it, each on the disk as part of the one above."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def sync(folder: Path) -> None:
    """Let the names of a folder's files be on the disk."""
    if os.name != "nt":  # which opens no folders
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
