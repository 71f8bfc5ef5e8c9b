"""What a widget on display costs the loop that it shows, in the kernel: early in a run, and after 100,000 iterations.

    make bench                                   as a part of it
    python -m tests.benchmarks.bench_widgets     alone, about a minute; --json FILE

A run of 200 parameters goes on at 50 iterations a second, with histograms every 100, and its widget sends ten times a
second, through a comm as ipykernel has it, up to the socket. Rows are appended as fast as they go, and the widget is
told the time that the run would have taken. Measured is all that the training's thread does when the widget hears of a
row, whether it sends or not, in that thread's own time: what else the machine does is not counted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median
from unittest.mock import patch

import comm
import numpy as np

from gradviz.grad import histograms
from gradviz.grad.rounding import FATES
from gradviz.history.history import History
from gradviz.history.schema import NARROW, OK, STATISTICS
from gradviz.widgets import publish
from gradviz.widgets.dtype_table import dtype_table
from gradviz.widgets.frozen_mask import frozen_mask
from gradviz.widgets.heatmap import heatmap
from tests.benchmarks.bench_heatmap import names
from tests.benchmarks.bench_history import Result, tell
from tests.benchmarks.ours import ToBrowser

PARAMETERS, RATE, HISTOGRAMS_EVERY = 200, 50, 100
SECONDS = 20
"""That are measured of the run, of its own time."""
EARLY, LATE = 1_000, 100_000
WIDGETS = {"heatmap": heatmap, "frozen mask": frozen_mask, "dtype table": dtype_table}
SHARE, GROWTH = 1.0, 1.25
"""Per cent of the loop, and late in a run as a multiple of early in it."""


class Clock:
    """The time module, as it is for a widget of a run that goes on at its rate."""

    def __init__(self, history: History) -> None:
        self._history = history

    def perf_counter(self) -> float:
        """Seconds that the run has taken; the least bit more, so that a tenth of a second is over when it is."""
        return len(self._history) / RATE * (1 + 1e-6)


class Run:
    """A history that grows, and what its listeners take of the time."""

    def __init__(self) -> None:
        self.history = History(memory_limit="8GB")
        self.history.declare([{"name": name, "shape": (64, 32), "dtype": "float32"} for name in names(PARAMETERS)])
        self.history.progress.status = "training"
        draw = np.random.default_rng(0)
        self._statistics = np.abs(draw.normal(size=(PARAMETERS, len(STATISTICS))))
        self._states = np.full(PARAMETERS, OK, np.uint8)
        self._bins = draw.integers(100, 200, (PARAMETERS, 40))
        self.spent: list[float] = []
        notify = self.history.notify

        def timed(final: bool = False) -> None:
            began = time.thread_time()
            notify(final)
            self.spent.append(time.thread_time() - began)

        self.history.notify = timed  # type: ignore[method-assign]

    def go_on(self, iterations: int) -> None:
        """So many iterations more."""
        history = self.history
        for i in range(len(history), len(history) + iterations):
            history.progress.iteration = i + 1
            if i % HISTOGRAMS_EVERY == 0:
                self._count(i)
            history.append(i, 0, self._statistics, self._states, {"loss": 1.0})

    def _count(self, iteration: int) -> None:
        """Histograms, and what fewer bits would make of the entries."""
        name = np.array(names(PARAMETERS))
        places = self._bins.ravel()
        about = {"iteration": np.full(places.size, iteration), "stage": ["backward"] * places.size}
        bounds = {"low": histograms.LOW[places], "high": histograms.HIGH[places]}
        counted = {"parameter": np.repeat(name, self._bins.shape[1]).tolist(), "count": np.ones(places.size, np.int64)}
        self.history.add_rows("histograms", about | bounds | counted)
        n = PARAMETERS * len(NARROW)
        about = {"iteration": np.full(n, iteration), "stage": ["backward"] * n, "dtype": [*NARROW] * PARAMETERS}
        fates = {fate: np.ones(n, np.int64) for fate in FATES}
        self.history.add_rows("precision", {**about, "parameter": np.repeat(name, len(NARROW)).tolist(), **fates})


def share(widget: str, iterations: int) -> float:
    """Per cent of the loop that a widget takes from there on; what it costs to show it is not of it."""
    run = Run()
    with patch.object(publish, "time", Clock(run.history)), patch.object(comm, "create_comm", ToBrowser):
        shown = WIDGETS[widget](run.history)
        shown._repr_mimebundle_()  # what a notebook asks for to show it
        run.go_on(iterations)
        run.spent.clear()
        before = shown.publisher.sent.messages
        run.go_on(SECONDS * RATE)
        assert shown.publisher.sent.messages - before >= 9 * SECONDS
        shown.close()
    seconds = np.reshape(run.spent, (SECONDS, -1)).sum(axis=1)
    return 100 * median(seconds.tolist())


def measure() -> Iterator[Result]:
    """Of each widget, what it takes early in a run, and how much more late."""
    for widget in WIDGETS:
        early, late = share(widget, EARLY), share(widget, LATE)
        what = f"{widget} on display, ten updates a second of {PARAMETERS} parameters"
        yield Result(f"{what}, share of the loop", SHARE, early, "%")
        yield Result(f"the same after {LATE:,} iterations", SHARE, late, "%")
        yield Result("late as a multiple of early", GROWTH, late / early, "x")


if __name__ == "__main__":
    tell(__doc__, measure)
