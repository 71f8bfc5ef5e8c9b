"""When to send what to the browser.

The kernel is deaf while a cell trains, so nothing here waits for an answer: Python sends, the browser draws. At most
ten messages a second leave, each with only what is new.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gradviz.errors import RecordingWarning, warn
from gradviz.history.history import History
from gradviz.widgets.feed import Feed

Send = Callable[[dict[str, Any], list[bytes]], None]

MIN_INTERVAL_S = 0.1
"""Ten messages a second look live; Jupyter's server drops all of them above a thousand."""

HIDDEN_INTERVAL_S = 1.0
"""What nobody sees is only to be there when somebody looks."""

SEND_SHARE = 100
"""Between two messages passes at least this many times the cost of one, so that sending stays under 1 % of a run."""

MAX_INTERVAL_S = 2.0
"""And never more than this: what waits longer costs more to send, which would make the next wait longer still."""


@dataclass
class Sent:
    """What a publisher has cost so far."""

    messages: int = 0
    n_bytes: int = 0
    seconds: float = 0.0


class Publisher:
    """Sends a history to one widget as it grows, from its first view on.

    Parameters
    ----------
    history : History
    feed : Feed
        Says what to send.
    send : callable
        Takes a JSON-able dict and a list of buffers.
    keep : callable, optional
        Takes the same, at the first view and when a run ends: the whole picture, in few columns.
    """

    def __init__(
        self,
        history: History,
        feed: Feed,
        send: Send,
        keep: Send | None = None,
        *,
        min_interval_s: float = MIN_INTERVAL_S,
    ) -> None:
        self.min_interval_s = min_interval_s
        self.sent = Sent()
        self._history = history
        self._feed = feed
        self._send = send
        self._keep = keep
        self._lock = threading.RLock()  # a hello may come on another thread than the training's
        self._live = self._is_hidden = False
        self._failed = False
        self._seq = 0
        self._next_s = 0.0
        self._cost_s = 0.0  # of the message before

    def on_append(self, final: bool) -> None:
        """Send what is new, if it is time or the run has ended."""
        if self._live and (final or time.perf_counter() >= self._next_s):
            self._guarded(lambda: self._publish(fresh=self._feed.must_begin_anew(final=final)))
            if final:
                self._guarded(self._keep_whole)

    def show(self, *, is_hidden: bool = False) -> None:
        """Begin to send: a view is there. Before that nothing is built.

        With `is_hidden` it lies behind others, and gets a message a second until the page says that it is seen.
        """
        if not self._live:
            self._is_hidden = is_hidden
            self._begin()
            self._guarded(lambda: self._publish(fresh=True))
            self._guarded(self._keep_whole)

    def hello(self, have: int, *, view: bool) -> None:
        """Answer a browser that has the messages up to `have`: with the whole picture, if it lacks any.

        A view says hello too; it may have come inside a box, which Python is not told of otherwise.
        """
        if view:
            self._is_hidden = False
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
        content, buffers = self._feed.message(fresh=fresh)
        self._seq += 1
        self._send({**content, "seq": self._seq, "fresh": fresh}, buffers)
        now = time.perf_counter()
        # Of the last two the cheaper one: the first message, and one that was held up, say nothing of the next.
        pause_s = min(SEND_SHARE * min(now - began, self._cost_s), MAX_INTERVAL_S)
        self._cost_s = now - began
        self._next_s = now + max(HIDDEN_INTERVAL_S if self._is_hidden else self.min_interval_s, pause_s)
        self.sent.messages += 1
        self.sent.n_bytes += sum(map(len, buffers))
        self.sent.seconds += now - began

    def _keep_whole(self) -> None:
        kept = None if self._keep is None else self._feed.kept()
        if self._keep is not None and kept is not None:
            content, buffers = kept
            self._keep({**content, "seq": self._seq, "fresh": True}, buffers)
