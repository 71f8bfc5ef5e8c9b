"""A folder elsewhere, by an address that fsspec knows."""

from __future__ import annotations

import contextlib
from typing import Any

import fsspec
import pyarrow as pa

from gradviz.errors import HistoryError
from gradviz.history.run.lock import Lock
from gradviz.history.run.names import below, is_hidden


class RemoteFolder:
    """Objects that are there whole or not at all; see `Folder`."""

    def __init__(self, address: str) -> None:
        self.address = address
        try:
            self._files, root = fsspec.core.url_to_fs(address)
        except (ImportError, ValueError) as error:  # the package for it is not installed, or there is none
            raise HistoryError(f"{address} cannot be reached: {error}") from error
        self._root = root.rstrip("/")
        self._lock = Lock(address.rstrip("/"))

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        """Send a file."""
        try:
            self._files.pipe_file(self._path(name), bytes(data))
        except HistoryError:
            raise
        except Exception as error:  # each library has its own
            raise OSError(f"{self.address}: {name} cannot be written: {error}") from error

    def read(self, name: str) -> bytes:
        """All of a file."""
        return bytes(self._files.cat_file(self._path(name)))

    def source(self, name: str) -> Any:
        """A file that is fetched piece by piece."""
        return self._files.open(self._path(name), "rb")

    def names(self, sub: str = "") -> list[str]:
        """The files of the folder, or of one below it."""
        path = self._fresh(sub)
        try:
            entries = self._files.ls(path, detail=True)
        except FileNotFoundError:
            return []
        found = (entry["name"].rsplit("/", 1)[-1] for entry in entries if entry["type"] == "file")
        return sorted(name for name in found if name and not is_hidden(name))

    def exists(self, name: str = "") -> bool:
        """Whether there is such a file, or anything in the folder."""
        return bool(self._files.exists(self._fresh(name)))

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            self._files.rm_file(self._path(name))

    def lock(self) -> None:
        """Be the one writer of this process; other processes are not kept out."""
        if not self._lock.acquire():
            raise HistoryError(
                f"{self.address} is being written by another loop of this process. "
                "Stop that one first, or name another folder for save_to."
            )

    def is_locked(self) -> bool | None:
        """True if somebody in this process writes here; of others nobody can know."""
        return self._lock.is_held()

    def unlock(self) -> None:
        """Let others write."""
        self._lock.release()

    def _fresh(self, name: str) -> str:
        """A path, of which nothing is remembered from before."""
        self._files.invalidate_cache()
        return self._path(name)

    def _path(self, name: str) -> str:
        return f"{self._root}/{below(name)}" if name else self._root
