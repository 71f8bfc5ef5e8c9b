"""Where a run is kept: a folder on this machine, or one elsewhere, used alike."""

from __future__ import annotations

import os
from typing import Any, Protocol

import pyarrow as pa

from gradviz.errors import HistoryError, described
from gradviz.history.run.local import LocalFolder


class Folder(Protocol):
    """Files by names relative to the folder, such as ``"gradients/backward-00000000-00000003.parquet"``.

    No name leads out of it: one that would, and a link that does, is a HistoryError.
    """

    address: str

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        """Write a file, whole or not at all; it has its name once all of it is stored.

        Folders on the way are made.

        Raises
        ------
        OSError
            If that fails. What had the name before is still there, or the new file is, whole.
        """

    def read(self, name: str) -> bytes:
        """All of a file; FileNotFoundError if there is none."""

    def source(self, name: str) -> Any:
        """A file as pyarrow reads it, piece by piece; FileNotFoundError if there is none. The caller closes it."""

    def names(self, sub: str = "") -> list[str]:
        """The files of the folder, or of one below it: their own names, sorted, without hidden ones and folders.

        Empty if there is no such folder.
        """

    def exists(self, name: str = "") -> bool:
        """Whether there is such a file; without a name, the folder itself."""

    def remove(self, name: str) -> None:
        """Remove a file; fine if it is gone already."""

    def lock(self) -> None:
        """Be the one who writes here. A folder on this machine is made if it is missing.

        The lock is gone when its process is, however that ended. It keeps other processes out of folders on this
        machine only.

        Raises
        ------
        HistoryError
            If somebody else writes here, or nobody can.
        """

    def is_locked(self) -> bool | None:
        """Whether somebody writes here now, by a look that keeps nobody out; None where nobody can know."""

    def unlock(self) -> None:
        """Let others write; fine if it is not locked."""


def open_folder(where: str | os.PathLike[str]) -> Folder:
    """The folder at a path of this machine, or at an fsspec address such as ``"s3://bucket/runs/a"``.

    It need not exist.

    Raises
    ------
    HistoryError
        If that is neither, or the package for such addresses is missing.

    Examples
    --------
    >>> folder = open_folder("memory://runs/a")
    >>> folder.write("run.json", b"{}")
    >>> folder.names(), folder.read("run.json")
    (['run.json'], b'{}')
    """
    address = os.fspath(where) if isinstance(where, str | os.PathLike) else None
    if not isinstance(address, str) or not address or "\0" in address:
        came = repr(where) if isinstance(where, str) else described(where)
        raise HistoryError(
            f'A run\'s folder is a path such as "runs/a", or an address such as "s3://runs/a"; got {came}.'
        )
    if "://" not in address:
        return LocalFolder(address)
    if address.startswith("file://"):
        return LocalFolder(address.removeprefix("file://"))
    from gradviz.history.run.remote import RemoteFolder  # fsspec takes a while, and few need it

    return RemoteFolder(address)
