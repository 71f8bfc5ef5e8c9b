"""What an inspector may be told in a page without a kernel: every parameter at some iterations, within some bytes."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from gradviz.errors import HistoryError
from gradviz.history.activations import Activations
from gradviz.history.history import History
from gradviz.widgets.inspection import inspect

INSPECTED_BYTES = 200_000
"""Of all answers, deflated: with the norms' own they fit into a page of 3 MB."""
MOST = 4000
"""Answers: half a millisecond each."""
MOMENTS = 32
"""Iterations of each parameter."""


def inspected(history: History) -> tuple[bytes, bytes]:
    """Answers to what an inspector asks, as JSON and as the buffers of all, one behind the other; both deflated.

    The JSON is a list of pairs: an answer, and how many bytes each of its buffers has.
    """
    names = [parameter["name"] for parameter in history.described]
    of = "activations" if isinstance(history, Activations) else "parameters"
    n = min(MOMENTS, MOST // max(len(names), 1))
    while True:
        told, parts = [], []
        for iteration in moments(history, n):
            for name in names:
                message, buffers = inspect(history, {"id": "", "of": of, "name": name, "iteration": iteration})
                if "error" not in message:
                    told.append([message, list(map(len, buffers))])
                    parts += buffers
        deflated = zlib.compress(json.dumps(told).encode(), 9), zlib.compress(b"".join(parts), 9)
        if n <= 1 or sum(map(len, deflated)) <= INSPECTED_BYTES:
            return deflated
        n //= 2


def moments(history: History, most: int) -> list[int]:
    """At most so many iterations, the newest among them: those with histograms where there are any, else evenly spread.

    Examples
    --------
    >>> history = History()
    >>> for i in range(10):
    ...     history.append(i, 0, None, None, {"loss": 1.6})
    >>> moments(history, 4)
    [0, 3, 6, 9]
    """
    every = history.iterations
    if not len(every) or most < 1:
        return []
    binned: Sequence[int] = []
    with suppress(HistoryError):  # more lines than a frame may have
        binned = np.unique(history.histograms["iteration"]).tolist()
    found = history.first_nonfinite()
    chosen = [*_some(binned or every.tolist(), most - 1 - (found is not None)), int(every[-1])]
    return sorted({*chosen, *([] if found is None or most < 2 else [found.iteration])})


def _some(iterations: Sequence[int], most: int) -> list[int]:
    """At most so many of them, evenly spread, the first among them."""
    places = np.unique(np.linspace(0, len(iterations) - 1, max(most + 1, 1)).astype(int))[: max(most, 0)]
    return [iterations[place] for place in places.tolist()]
