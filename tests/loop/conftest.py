"""What every test of a loop leaves behind: no thread that trains."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import gradviz as gv


@pytest.fixture(autouse=True)
def no_loop_trains_on() -> Iterator[None]:
    """A training that a failed test has left in the background would fail the tests after it."""
    yield
    for loop in gv.running():
        loop.stop()
    for thread in threading.enumerate():
        if thread.name == "gradviz training":
            thread.join(10)
            assert not thread.is_alive()
