"""One writer of a folder at a time: a lock on a file, which the system takes back when its holder dies."""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import sys
import threading
import weakref
from pathlib import Path

_holders: dict[str, int] = {}
"""The process that holds each lock; after a fork the child reads here that its parent does."""
_guard = threading.Lock()

_CANNOT_LOCK = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
"""What a file system says that has no locks. A lock there holds within this process only."""


class Lock:
    """A lock within this process, by name, and across processes if there is a file for it."""

    def __init__(self, name: str, file: Path | None = None) -> None:
        self._name, self._file = name, file
        self._descriptor: int | None = None
        self._release: weakref.finalize[..., Lock] | None = None  # so that one that is forgotten is let go

    def acquire(self) -> bool:
        """Take the lock; False if somebody holds it."""
        # A file's lock is the process's own: it does not keep out a second writer here, and outlives no fork.
        with _guard:
            if _holders.get(self._name) == os.getpid():
                return False
            descriptor = None
            if self._file is not None:
                descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o666)
                try:
                    taken = _try_lock(descriptor)
                except BaseException:
                    os.close(descriptor)
                    raise
                if not taken:
                    os.close(descriptor)
                    return False
            _holders[self._name] = os.getpid()
        self._descriptor = descriptor
        self._release = weakref.finalize(self, _let_go, self._name, descriptor)
        self._release.atexit = False  # a program that ends still writes; its lock goes when it is gone
        return True

    @property
    def is_lost(self) -> bool:
        """Whether the file of a lock that is held is no longer where it was: its folder was moved or removed."""
        if self._descriptor is None or self._file is None:
            return False
        try:
            return not os.path.samestat(os.fstat(self._descriptor), self._file.stat())
        except FileNotFoundError:
            return True

    def is_held(self) -> bool | None:
        """Whether somebody holds it, here or in another process; None where nobody can know. It is not taken for it."""
        with _guard:  # within it, as closing a file lets go of all locks that this process has on it
            if _holders.get(self._name) == os.getpid():
                return True
            if self._file is None:
                return None
            try:
                descriptor = os.open(self._file, os.O_RDONLY)
            except FileNotFoundError:  # every writer makes it
                return False
            except OSError:
                return None
            try:
                return _is_locked(descriptor)
            finally:
                os.close(descriptor)

    def release(self) -> None:
        """Let it go; fine if it is not held."""
        self._descriptor = None
        if self._release is not None:
            self._release()


def _let_go(name: str, descriptor: int | None) -> None:
    with _guard:
        _holders.pop(name, None)
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _is_locked(_: int) -> bool | None:
        return None  # that cannot be asked without taking it

else:
    import fcntl

    _LAYOUT, _KIND = ("qqihh", 3) if sys.platform == "darwin" else ("hhqqi", 0)
    """Of the system's ``struct flock``, and where in it the kind of lock stands."""

    def _is_locked(descriptor: int) -> bool | None:
        asked = [0] * len(_LAYOUT)
        asked[_KIND] = fcntl.F_WRLCK
        room = struct.pack(_LAYOUT + "8x", *asked)
        try:
            found = struct.unpack(_LAYOUT + "8x", fcntl.fcntl(descriptor, fcntl.F_GETLK, room))[_KIND]
        except OSError:
            return None
        return bool(found != fcntl.F_UNLCK)

    def _try_lock(descriptor: int) -> bool:
        try:
            # Not flock: workers that were forked would go on holding it when their parent is killed.
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False
            if error.errno not in _CANNOT_LOCK:
                raise
        return True
