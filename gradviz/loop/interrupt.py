"""Ctrl-C between iterations instead of in the middle of one."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


class InterruptGuard:
    """Holds back the first Ctrl-C until the loop asks for it; a second one acts at once.

    Signals reach the main thread only. In another thread, or where the handler is not Python's, the guard does nothing.

    Attributes
    ----------
    requested : bool
        Whether there was a Ctrl-C that has not acted yet.
    insisted : bool
        Whether a second one came while it was `held` back.
    at_once : context manager
        Lets Ctrl-C act at once, where nothing is half done: while waiting for data.
    held : context manager
        Holds back every Ctrl-C, while something is done that must not be left half done.

    Examples
    --------
    >>> with InterruptGuard() as guard:
    ...     signal.raise_signal(signal.SIGINT)
    ...     guard.requested
    True
    """

    def __init__(self) -> None:
        self.requested = self.insisted = False
        self._process = os.getpid()
        self._waits = True
        self._holds = 0
        self.at_once, self.held = _AtOnce(self), _Held(self)
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

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process and self._previous is not None:
            # A worker that was forked from the loop's process has the guard's handler, but not its loop.
            self._previous(number, frame)
        elif not self._holds and (self.requested or not self._waits):
            self.requested = True  # where Python ignores what is raised, as when it forks, the loop still hears of it
            raise KeyboardInterrupt
        else:
            self.insisted = self.requested
            self.requested = True


class _AtOnce:
    """Entered at every batch: a generator's context costs ten times as much."""

    def __init__(self, guard: InterruptGuard) -> None:
        self._guard = guard

    def __enter__(self) -> None:
        self._guard._waits = False

    def __exit__(self, *error: object) -> None:
        self._guard._waits = True


class _Held:
    """Entered at every iteration, and inside itself."""

    def __init__(self, guard: InterruptGuard) -> None:
        self._guard = guard

    def __enter__(self) -> None:
        self._guard._holds += 1

    def __exit__(self, *error: object) -> None:
        self._guard._holds -= 1
