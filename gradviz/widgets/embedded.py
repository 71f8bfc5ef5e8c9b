"""A widget as a page without a kernel holds it: its script, its traits, its message, and answers to what it may ask.

What is bytes lies apart, each once; what is JSON names it by ``{"blob": place}``. The page makes a model of it, and
answers what the widget sends (`js/src/page/model.ts`)::

    hello                   its message: all there is, as Python would answer it
    ask, statistic, stage   the columns of one of its pictures; what is not among them is an error that says so
    inspect, name           what is known of a parameter at the nearest iteration that the page has
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import anywidget

from gradviz.history.asked import MEASURES
from gradviz.history.history import History
from gradviz.history.quantity import Quantity
from gradviz.widgets.answers import STAGES, looks_of
from gradviz.widgets.colours import scale_of
from gradviz.widgets.feed import ColumnFeed
from gradviz.widgets.inspected import inspected
from gradviz.widgets.inspector import Inspector
from gradviz.widgets.live import Live
from gradviz.widgets.packed import packed

NORM_BYTES = 2_000_000
"""Of the norms, deflated: with the scripts, a page of them is at most 3 MB."""
MORE_BYTES = 1_850_000
"""Of each further statistic: 2.5 MB in the page."""
DRAWN_CELLS = 8_000_000
"""A picture is drawn of at most so many: 72 MB."""

SHOWN = "norm backward"
"""The picture that a widget shows by itself."""

_NOT_TOLD = {"_esm", "_css", "_anywidget_id", "_kept", "_inspected", "_parameters"}

_ALONE = {"controls": None}
"""What a message says in a page: there is no run that could be steered."""

Picture = dict[str, Any]


class Embedding:
    """Widgets of a page, and the bytes that they share.

    Parameters
    ----------
    statistics : sequence of str
        What a heatmap can be asked for beside the norms.

    Attributes
    ----------
    blobs : dict of bytes to int
        Deflated bytes, and their place in the page.
    """

    def __init__(self, statistics: Sequence[str]) -> None:
        self.blobs: dict[bytes, int] = {}
        self._statistics = statistics
        self._drawn: dict[tuple[int, str], dict[str, Picture]] = {}

    def embed(self, widget: Live) -> dict[str, Any]:
        """A widget as JSON; its bytes are taken."""
        feed = widget._feed()
        content, buffers = feed.message(fresh=True)
        traits = self._traits(widget)
        pictures: dict[str, Picture] = {}
        told: list[dict[str, Any]] = []
        if isinstance(feed, ColumnFeed) and feed.is_of_rows:
            pictures = self._pictures(widget.history, self._statistics if "_choices" in traits else ())
            shown = pictures[SHOWN]
            told, buffers = [{"picture": SHOWN}], buffers[1:]
            content = {**content, "level": shown["level"]}
            if "_quantity" in traits:
                traits["_quantity"] = shown["quantity"]
        more = {"inspected": self._inspected(widget.history)} if isinstance(widget, Inspector) else {}
        return {
            **more,
            "script": self._blob(str(widget._esm).encode()),
            "style": self._blob(str(widget._css).encode()),
            "traits": traits,
            "message": {**content, **_ALONE, "seq": 1, "fresh": True},
            "buffers": [*told, *map(self._blob, buffers)],
            "pictures": pictures,
        }

    def _traits(self, widget: Live) -> dict[str, Any]:
        """Those of its own that a page reads."""
        of_all = anywidget.AnyWidget.class_traits(sync=True)
        names = set(type(widget).class_traits(sync=True)) - set(of_all) - _NOT_TOLD
        state = widget.get_state(sorted(names))
        told = {name: self._blob(bytes(value)) if isinstance(value, bytes) else value for name, value in state.items()}
        return {**told, "_parameters": widget.history.described, "_offline": True}

    def _pictures(self, history: History, statistics: Sequence[str]) -> dict[str, Picture]:
        pictures: dict[str, Picture] = {}
        for statistic in dict.fromkeys(("norm", *(each for each in statistics if each in history.measures))):
            key = id(history), statistic
            if key not in self._drawn:
                self._drawn[key] = self._draw(history, statistic)
            pictures |= self._drawn[key]
        return pictures

    def _inspected(self, history: History) -> dict[str, Any]:
        told, buffers = inspected(history)
        return {"told": self._deflated(told), "buffers": self._deflated(buffers)}

    def _draw(self, history: History, statistic: str) -> dict[str, Picture]:
        """A statistic of each stage that there is, all of them within the bytes that it has."""
        most = max(DRAWN_CELLS // (len(history.described) + 1), 1)
        end = int(history.iterations[-1]) + 1 if len(history) else 0
        left = NORM_BYTES if statistic == "norm" else MORE_BYTES
        stages = _stages(history, statistic)
        drawn: dict[str, Picture] = {}
        for place, stage in enumerate(stages):
            name = f"{statistic} {stage}".rstrip()
            if name == SHOWN:
                columns, quantity, scale = history.drawn(most), history.quantity, "norms"
                colours = scale_of(quantity).table
            else:
                columns = history.asked(statistic, stage or "update", 0, end, most)
                quantity, scale, colours = looks_of(history.quantity, statistic, stage)
            data, columns, rounded = packed(columns, left // (len(stages) - place))
            left -= len(data)
            drawn[name] = {
                "columns": self._deflated(data),
                "level": columns.level,
                "end": end,
                "scale": scale,
                "quantity": asdict(_told(quantity) if rounded else quantity),
                "colours": self._blob(colours),
            }
        return drawn

    def _blob(self, data: bytes) -> dict[str, int]:
        return self._deflated(zlib.compress(data, 9))

    def _deflated(self, data: bytes) -> dict[str, int]:
        return {"blob": self.blobs.setdefault(data, len(self.blobs))}


def _told(quantity: Quantity) -> Quantity:
    """The same of numbers that were rounded: wherever they are read, they say so."""
    return replace(quantity, rounded=True, noun=f"{quantity.noun} ≈", title=f"{quantity.title} (≈)")


def _stages(history: History, statistic: str) -> list[str]:
    """Those that have rows, and behind them the gradient as autograd gave it, which takes what the others leave.

    A ratio is of no stage in particular: asked for with any, it is the same.
    """
    if needs := MEASURES[statistic]:
        return [""] if set(needs) <= set(history.stages) else []
    others = [stage for stage in STAGES if stage in history.stages and stage != "backward"]
    return [*others, "backward"]
