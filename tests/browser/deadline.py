"""Waiting for something to become true, never for time to pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# A cold JupyterLab page with a kernel that imports torch takes 4 to 12 s on two idle cores; loaded machines
# take several times that, and one that starves for a while took 120.
PATIENCE_S = 300.0


def until(probe: Callable[[], T | None], what: str, timeout_s: float = PATIENCE_S, every_s: float = 0.05) -> T:
    """Call `probe` until it returns something true, and return that; a `TimeoutError` says what was awaited.

    >>> until(lambda: "ready", "the answer")
    'ready'
    """
    deadline = time.monotonic() + timeout_s
    while True:
        answer = probe()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s (the last answer was {answer!r}).")
        time.sleep(every_s)
