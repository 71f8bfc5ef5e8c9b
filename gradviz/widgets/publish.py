"""When to send what to the browser.

The kernel is deaf while a cell trains, so nothing here waits for an answer: Python sends, the browser draws. At most
ten messages a second leave, each with only the columns that are new. Where more are waiting than a message should
hold, neighbours merge first (maximum, minimum and flags are kept), and the fine picture follows when the run ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradviz.errors import RecordingWarning, warn
from gradviz.history.history import History
from gradviz.history.overview import Columns
from gradviz.widgets.wire import pack

Send = Callable[[dict[str, Any], list[bytes]], None]

MIN_INTERVAL_S = 0.1
"""Ten messages a second look live; Jupyter's server drops all of them above a thousand."""

SEND_SHARE = 100
"""Between two messages passes at least this many times the cost of one, so that sending stays under 1 % of a run."""

MAX_INTERVAL_S = 2.0
"""And never more than this: what waits longer costs more to send, which would make the next wait longer still."""

LIVE_BYTES = 40_000
"""Columns in one live message: 400 kB a second at most, however many parameters and iterations there are."""
WHOLE_BYTES = 4_000_000
"""Columns in a message that carries the whole picture."""
KEPT_BYTES = 100_000
"""Columns in the picture that is kept for a page without a kernel: a saved notebook holds it, a third longer."""


@dataclass
class Sent:
    """What a publisher has cost so far."""

    messages: int = 0
    n_bytes: int = 0
    columns: int = 0
    seconds: float = 0.0


class Publisher:
    """Sends a history to one widget as it grows, from its first view on.

    Parameters
    ----------
    history : History
    send : callable
        Takes a JSON-able dict and a list of buffers.
    keep : callable, optional
        Takes the same, at the first view and when a run ends: the whole picture, in few columns.
    """

    def __init__(
        self, history: History, send: Send, keep: Send | None = None, *, min_interval_s: float = MIN_INTERVAL_S
    ) -> None:
        self.min_interval_s = min_interval_s
        self.sent = Sent()
        self._history = history
        self._send = send
        self._keep = keep
        self._lock = threading.RLock()  # a hello may come on another thread than the training's
        self._live = False
        self._failed = False
        self._seq = 0
        self._next_s = 0.0
        self._cost_s = 0.0  # of the message before
        self._columns_sent = 0
        self._epochs_sent = 0
        self._coarse = False

    def on_append(self, final: bool) -> None:
        """Send what is new, if it is time or the run has ended."""
        if self._live and (final or time.perf_counter() >= self._next_s):
            was_cut = self._columns_sent > len(self._history)
            self._guarded(lambda: self._publish(fresh=was_cut or (final and self._coarse)))
            if final:
                self._guarded(self._keep_whole)

    def show(self) -> None:
        """Begin to send: a view is there. Before that nothing is built."""
        if not self._live:
            self._begin()
            self._guarded(lambda: self._publish(fresh=True))
            self._guarded(self._keep_whole)

    def hello(self, have: int, *, view: bool) -> None:
        """Answer a browser that has the messages up to `have`: with the whole picture, if it lacks any.

        A view says hello too; it may have come inside a box, which Python is not told of otherwise.
        """
        if view and not self._live:
            self.show()
        elif self._live and have != self._seq:
            self._guarded(lambda: self._publish(fresh=True))

    def _begin(self) -> None:
        self._live, self._failed = True, False
        self._history.subscribe(self.on_append)

    def close(self) -> None:
        """Send nothing any more."""
        self._live = False
        self._history.unsubscribe(self.on_append)

    def _guarded(self, publish: Callable[[], None]) -> None:
        """Our own failure never breaks a training step."""
        with self._lock:
            try:
                publish()
            except Exception as error:
                self.close()
                if not self._failed:
                    self._failed = True
                    warn(
                        f"The live picture stopped ({type(error).__name__}: {error}); training and recording go on.",
                        RecordingWarning,
                    )

    def _publish(self, *, fresh: bool) -> None:
        began = time.perf_counter()
        columns = self._whole() if fresh else self._new()
        starts = self._history.epoch_starts[0 if fresh else self._epochs_sent :]
        self._epochs_sent = len(self._history.epoch_starts)
        self._seq += 1
        told, buffers = self._message(columns, starts, fresh=fresh)
        self._send(told, buffers)
        now = time.perf_counter()
        # Of the last two the cheaper one: the first message, and one that was held up, say nothing of the next.
        pause_s = min(SEND_SHARE * min(now - began, self._cost_s), MAX_INTERVAL_S)
        self._cost_s = now - began
        self._next_s = now + max(self.min_interval_s, pause_s)
        self.sent.messages += 1
        self.sent.n_bytes += sum(map(len, buffers))
        self.sent.columns += len(columns)
        self.sent.seconds += now - began

    def _keep_whole(self) -> None:
        columns, n_seen = self._history.overview()
        if self._keep is not None and n_seen:
            starts = self._history.epoch_starts
            self._keep(*self._message(_within(columns, KEPT_BYTES), starts, fresh=True))

    def _message(self, columns: Columns, starts: Sequence[int], *, fresh: bool) -> tuple[dict[str, Any], list[bytes]]:
        progress = self._history.progress
        metrics = progress.metrics  # read once: a thread that trains may put others in their place meanwhile
        buffers = [
            pack(columns),
            np.array([*metrics.values(), progress.loss], "<f8").tobytes(),
            np.array(starts, "<u4").tobytes(),
        ]
        told = {"kind": "columns", "seq": self._seq, "fresh": fresh, "level": columns.level}
        return {**told, "stages": list(self._history.stages), "run": self._run(metrics)}, buffers

    def _whole(self) -> Columns:
        columns, self._columns_sent = self._history.overview()
        self._coarse = False
        return _within(columns, WHOLE_BYTES)

    def _new(self) -> Columns:
        fresh = self._history.columns(self._columns_sent)
        self._columns_sent += len(fresh)
        columns = fresh.at_level(0)  # what belongs to the column before it needs none of its own
        merged = _within(columns, LIVE_BYTES)
        self._coarse = self._coarse or len(merged) < len(columns)
        return merged

    def _run(self, metrics: Mapping[str, float]) -> dict[str, Any]:
        progress = self._history.progress
        return {
            "status": progress.status,
            "epoch": progress.epoch,
            "epochs": progress.epochs,
            "iteration": progress.iteration,
            "iterations": progress.iterations,
            "left_s": progress.left_s,
            "metric_names": list(metrics),
            "message": progress.message,
        }


def _within(columns: Columns, n_bytes: int) -> Columns:
    """Merge columns until they fit in a message; one column always goes."""
    return columns.at_most(n_bytes // (9 * max(columns.rows, 1)))
