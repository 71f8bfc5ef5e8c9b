"""`Opened`: a run read from its folder, while it is written or after."""

from __future__ import annotations

import contextvars
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Self

from gradviz.errors import HistoryError
from gradviz.history.history import History
from gradviz.history.overview import Overview
from gradviz.history.run.folder import open_folder
from gradviz.history.run.manifest import Manifest
from gradviz.history.run.overview import read_overview
from gradviz.history.run.reader import UNKNOWN, Reader

_NO_METRICS = ("epoch", "iterations", "nonfinite")


class Opened(History):
    """What `History.open` gives: the frames of a history, of what its folder holds."""

    def __init__(
        self, path: str | os.PathLike[str], *, skip_damaged: bool = False, memory_limit: int | str = "512MB"
    ) -> None:
        super().__init__(memory_limit=memory_limit)
        self.captures = None
        self._reader = Reader(self._store, open_folder(path), skip_damaged=skip_damaged)
        self._store.reload = weakref.WeakMethod(self._find_again)
        self._closed = threading.Event()
        self._follower: threading.Thread | None = None
        manifest = self._reader.read()
        drawn = read_overview(self._reader.folder, len(self._store.parameters) + 1, self._store.attempts.current)
        if drawn is not None and drawn[1] <= len(self):
            self._picture.begin(Overview.of(drawn[0]), drawn[1])
        self._show(manifest)

    def __repr__(self) -> str:
        return f"{super().__repr__()}, opened from {self._reader.folder.address}"

    @property
    def address(self) -> str:
        """Where the run is saved."""
        return self._reader.folder.address

    def refresh(self) -> Self:
        """Take up what was written since; itself.

        Raises
        ------
        HistoryError
            If the run is no longer there, or damaged.
        """
        self._show(self._reader.read())
        self.notify(final=self._has_ended)
        return self

    def follow(self, *, every_s: float = 1.0) -> Self:
        """Refresh by itself, in the background, until the run has ended or `close` is called; itself.

        Parameters
        ----------
        every_s : float
            Seconds from one look to the next.
        """
        if self._follower is None or not self._follower.is_alive():
            self._closed.clear()
            # In the caller's context: a bare thread cannot send to the browser with some versions of ipykernel.
            run, look = contextvars.copy_context().run, weakref.WeakMethod(self._look)
            self._follower = threading.Thread(target=run, args=(_follow, look, self._closed, every_s), daemon=True)
            self._follower.start()
        return self

    def close(self) -> None:
        """Follow no more. Frames can still be read."""
        self._closed.set()

    def append(self, *_: Any, **__: Any) -> None:
        """Refused: rows come from the folder."""
        raise HistoryError("A run that was opened is only read. To go on with it: gv.trainer(..., save_to=...).resume.")

    def _look(self) -> bool:
        """Refresh; whether more may come."""
        return not self.refresh()._has_ended

    def _find_again(self) -> None:
        self._reader.read(only_what_was_there=True)

    def _has_died(self, manifest: Manifest) -> bool:
        """Whether nobody writes what has not ended."""
        folder = self._reader.folder
        if manifest.ended is not None or folder.is_locked() is not False:
            return False
        again = self._reader.manifest()
        return (
            again == manifest or again.status == UNKNOWN
        )  # or it has ended, or another writer has begun, in this moment

    def _show(self, manifest: Manifest) -> None:
        has_died = self._has_died(manifest)
        self._has_ended = manifest.ended is not None or has_died
        progress, told = self.progress, manifest.progress
        progress.status, progress.message = manifest.status, told.get("message")
        if manifest.status == UNKNOWN:
            progress.message = "its run.json is damaged"
        elif has_died:
            progress.status, progress.message = "interrupted", "its process ended without a word"
        progress.epochs, progress.iterations = told.get("epochs"), told.get("iterations")
        progress.every, progress.clipped_from = told.get("every", 1), told.get("clipped_from")
        progress.iteration = len(self)
        progress.epoch = told.get("epoch") or max(len(self.epoch_starts) - 1, 0)
        means = self._store.epochs[-1] if self._store.epochs else {}
        progress.metrics = {name: value for name, value in means.items() if name not in _NO_METRICS}
        loss = self._reading(lambda: self._store.read_loss(max(len(self) - 1, 0)))
        if len(loss.values) and (loss.missing is None or not loss.missing[0]):
            progress.loss = float(loss.values[0])


def _follow(look: Callable[[], Callable[[], bool] | None], closed: threading.Event, every_s: float) -> None:
    # Holds no history: one that nobody else holds is not followed any more.
    while not closed.wait(every_s):
        seen = look()
        if seen is None or not seen():
            return
        del seen
