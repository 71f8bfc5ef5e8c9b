"""The built widget in the smallest page that can hold it (host.html): no Jupyter, no kernel, milliseconds."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from playwright.sync_api import Locator, Page, Route

from gradviz.history.history import History
from gradviz.history.overview import Columns
from gradviz.history.quantity import NORM, Quantity
from gradviz.widgets.answers import choices
from gradviz.widgets.colours import scale_of
from gradviz.widgets.wire import pack

from . import looks, pixels
from .traffic import Traffic

PROJECT = Path(__file__).parents[2]
# Answered from the project's files by the browser driver; no such machine exists.
# Secure, or the page would have no clipboard.
ORIGIN = "https://host.test"


class Host:
    """A page with one widget, fed the way Python feeds it."""

    def __init__(
        self, page: Page, theme: str = "light", width: int | None = None, widget: str = "heatmap", form: str = "lab"
    ) -> None:
        self.page = page
        self.traffic = Traffic(page, ORIGIN)
        page.route(f"{ORIGIN}/**", _serve)
        about = f"widget={widget}&theme={theme}&width={width or ''}&form={form}"
        page.goto(f"{ORIGIN}/tests/browser/host.html?{about}")
        page.evaluate("host.ready")
        self._seq = 0
        self._iterations = 0

    @property
    def widget(self) -> Locator:
        return self.page.locator(".gv").first

    def start(
        self,
        names: Sequence[str],
        quantity: Quantity = NORM,
        kept: dict[str, Any] | None = None,
        shapes: Mapping[str, Sequence[int]] | None = None,
        **traits: Any,
    ) -> None:
        """Show a widget for parameters of these names, whose numbers are of this kind; `kept` as Python keeps it."""
        self.page.evaluate("about => host.start(about)", self._about(names, quantity, kept, shapes, traits))

    def beside(self, widget: str, names: Sequence[str], quantity: Quantity = NORM, **traits: Any) -> None:
        """Show one more widget of the same run; it gets the same columns."""
        about = self._about(names, quantity, None, None, traits)
        self.page.evaluate("([widget, about]) => host.beside(widget, about)", [widget, about])

    def _about(
        self,
        names: Sequence[str],
        quantity: Quantity,
        kept: dict[str, Any] | None,
        shapes: Mapping[str, Sequence[int]] | None,
        traits: Mapping[str, Any],
    ) -> dict[str, Any]:
        history = History()
        history.quantity = quantity
        parameters = [
            {"name": name, "dtype": "float32", "shape": list((shapes or {}).get(name, (64, 32)))} for name in names
        ]
        return {
            "parameters": parameters,
            "colours": encoded(scale_of(quantity).table),
            "quantity": asdict(quantity),
            "choices": choices(history),
            "kept": kept and kept | {"buffers": [encoded(part) for part in kept["buffers"]]},
            "traits": dict(traits),
        }

    def send(
        self, norms: npt.ArrayLike, flags: npt.ArrayLike, *, beside: Mapping[str, Any] | None = None, **run: Any
    ) -> None:
        """Iterations that are new: `norms` and `flags` are [iterations, parameters + 1], the loss last.

        `beside` is what else a kind of widget is sent with them.
        """
        values = np.asarray(norms, dtype=np.float32)
        start = self._iterations + np.arange(len(values), dtype=np.uint32)
        columns = Columns(start, start + 1, values, values, np.asarray(flags, dtype=np.uint8))
        self._iterations += len(values)
        self._seq += 1
        about = {
            "status": "training",
            "epoch": 0,
            "epochs": 1,
            "iteration": self._iterations,
            "iterations": None,
            "nothing": None,
            "left_s": None,
            "metric_names": ["loss"],
            "message": None,
        }
        told = {"kind": "columns", "seq": self._seq, "fresh": self._seq == 1, "level": 0, "stages": ["backward"]}
        content = told | {"run": about | run} | dict(beside or {})
        metrics, epochs = np.array([values[-1, -1]] * 2, "<f8"), np.array([0] if self._seq == 1 else [], "<u4")
        self.deliver(content, (pack(columns), metrics.tobytes(), epochs.tobytes()))

    def deliver(self, content: Mapping[str, Any], buffers: Sequence[bytes]) -> None:
        """A message, to every widget in the page."""
        send = "([content, buffers]) => host.models.forEach((_, place) => host.send(content, buffers, place))"
        self.page.evaluate(send, [dict(content), [encoded(part) for part in buffers]])

    def point_at(self, row: str, iteration: int) -> str:
        """Point at a cell and read what is said about it."""
        picture = pixels.grab(self.widget)
        heat = self.widget.locator("canvas.gv-heat").bounding_box()
        assert heat is not None
        x = heat["x"] + (picture.x_of(iteration) + 0.5) * heat["width"] / picture.width
        self.page.mouse.move(x, looks.middle(self.widget, row))
        tooltip = self.widget.locator(".gv-tooltip")
        tooltip.wait_for(state="visible")
        return tooltip.inner_text()


OpenHost = Callable[..., Host]


def _serve(route: Route) -> None:
    path = route.request.url.removeprefix(ORIGIN + "/").partition("?")[0]
    route.fulfill(path=PROJECT / path)


def encoded(data: bytes) -> str:
    """A buffer, for a page."""
    return base64.b64encode(data).decode()
