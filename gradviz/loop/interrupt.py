"""Ctrl-C between iterations instead of in the middle of one."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


class InterruptGuard:
    """Holds back the first Ctrl-C until the loop asks for it; a second one acts at once.

    Signals reach the main thread only. In another thread, or where the handler is not Python's, the guard does nothing.

    Examples
    --------
    >>> with InterruptGuard() as guard:
    ...     signal.raise_signal(signal.SIGINT)
    ...     guard.requested
    True
    """

    def __init__(self) -> None:
        self.requested = False
        self._process = os.getpid()
        self._waits = True
        self._holds = False
        self._at_once = _AtOnce(self)
        self._previous: Callable[[int, FrameType | None], Any] | None = None

    def __enter__(self) -> InterruptGuard:
        previous = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread() and callable(previous):
            self._previous = previous
            signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *error: object) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
            self._previous = None

    def at_once(self) -> _AtOnce:
        """Let Ctrl-C act at once, where nothing is half done: while waiting for data."""
        return self._at_once

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold back a second Ctrl-C too, while something is done that must not be left half done."""
        self._holds = True
        try:
            yield
        finally:
            self._holds = False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process and self._previous is not None:
            # A worker that was forked from the loop's process has the guard's handler, but not its loop.
            self._previous(number, frame)
        elif not self._holds and (self.requested or not self._waits):
            self.__exit__()
            raise KeyboardInterrupt
        else:
            self.requested = True


class _AtOnce:
    """Entered at every batch: a generator's context costs ten times as much."""

    def __init__(self, guard: InterruptGuard) -> None:
        self._guard = guard

    def __enter__(self) -> None:
        self._guard._waits = False

    def __exit__(self, *error: object) -> None:
        self._guard._waits = True
