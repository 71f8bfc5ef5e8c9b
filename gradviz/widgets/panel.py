"""The panel: how a run stands, its curves, where it first went wrong, and the buttons that steer it."""

from __future__ import annotations

import math
from typing import Any, cast

from gradviz.history.controls import VERBS, Verb
from gradviz.history.first_nonfinite import BEFORE, FirstNonfinite
from gradviz.history.history import History
from gradviz.widgets.feed import ColumnFeed, Message
from gradviz.widgets.live import Live, built
from gradviz.widgets.wire import pack

KEPT_BYTES = 30_000
"""Columns that are kept for a page without a kernel."""

_OVER = "That run is over; nothing was done."


class PanelFeed(ColumnFeed):
    """Metrics as columns, a row for each; in further buffers, and in words, what else the panel shows.

    Behind the buffers of a `ColumnFeed`, little-endian::

        float64 newest[m + 1]       the newest iteration's own metrics and loss
        columns                     by epoch: what is known by epoch alone, the mean loss last (see `wire`)
    """

    kept_bytes = KEPT_BYTES

    def __init__(self, history: History) -> None:
        self._metrics = history.metric_picture()
        super().__init__(history, self._metrics)
        self._epochs_told = 0
        self._found: FirstNonfinite | None = None
        self._looked = 0  # at so many rows

    def must_begin_anew(self, *, final: bool) -> bool:
        """Also where epochs were taken back."""
        return super().must_begin_anew(final=final) or self._metrics.n_epochs < self._epochs_told

    def message(self, *, fresh: bool) -> Message:
        """Columns, and what is new beside them."""
        self._look(fresh=fresh)
        # The newest epoch once more: a validation may have added to it.
        start = 0 if fresh else max(self._epochs_told - 1, 0)
        self._epochs_told = self._metrics.n_epochs
        return self._with(super().message(fresh=fresh), start, _controls(self._history))

    def kept(self) -> Message | None:
        """The same of all there is, without buttons: nobody would hear of them."""
        kept = super().kept()
        return kept and self._with(kept, 0, None)

    def _with(self, message: Message, first_epoch: int, controls: dict[str, Any] | None) -> Message:
        told, buffers = message
        metrics, overhead = self._metrics, self._history.progress.overhead
        epochs = metrics.epochs(first_epoch)  # which finds out what they are called
        about = {
            "metrics": metrics.names,
            "epoch_metrics": metrics.by_epoch[: epochs.rows - 1],
            "more_metrics": metrics.n_more,
            "overhead": overhead if math.isfinite(overhead) else None,
            "verdict": _told(self._found),
            "controls": controls,
        }
        more = [metrics.newest().astype("<f8").tobytes(), pack(epochs)]
        return {**told, **about}, [*buffers, *more]

    def _look(self, *, fresh: bool) -> None:
        """Look for what is not finite, in the rows that are new; the first one stays the first."""
        history = self._history
        if fresh:
            self._found = history.first_nonfinite()
        elif self._found is None:
            self._found = history.nonfinite_since(self._looked)
        self._looked = len(history)


def _told(found: FirstNonfinite | None) -> dict[str, Any] | None:
    if found is None:
        return None
    growth = found.growth if math.isfinite(found.growth) else None
    return {**found._asdict(), "growth": growth, "before": min(BEFORE, found.iteration)}


def _controls(history: History) -> dict[str, Any] | None:
    """What the buttons act on; None where there is no run under way that could hear of them."""
    controls = history.controls
    if controls is None or history.progress.status not in ("training", "paused"):
        return None
    return {"run": controls.run, "blocks": controls.blocks}


class Panel(Live):
    """How a run stands. Part of a `Dashboard`.

    The page asks ``{"kind": "control", "id", "verb", "run"}``, with the number of the run that the button was shown
    for, and gets ``{"kind": "answered", "id", "said", "error"}``.
    """

    _esm = built("panel.js")
    _css = built("panel.css")

    def _feed(self) -> PanelFeed:
        return PanelFeed(self.history)

    def _hear(self, kind: str, content: dict[str, Any]) -> None:
        if kind != "control":
            return
        said, error = "", ""
        try:
            said = self._steer(content)
        except Exception as failure:  # shown where it was asked
            error = str(failure) or type(failure).__name__
        self.send({"kind": "answered", "id": content.get("id"), "said": said, "error": error})

    def _steer(self, wish: dict[str, Any]) -> str:
        verb = wish.get("verb")
        if verb not in VERBS:
            raise ValueError(f"No button is called {verb!r}.")
        controls = self.history.controls  # read once: the run may end meanwhile
        if controls is None or controls.run != wish.get("run"):
            return _OVER
        return controls(cast(Verb, verb))
