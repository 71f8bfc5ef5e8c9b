"""The heatmap: every parameter's gradient norm at every iteration, live."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import anywidget
import traitlets

from gradviz.history.history import History
from gradviz.widgets.colours import VIRIDIS
from gradviz.widgets.publish import Publisher


def _built(name: str) -> str:
    file = files("gradviz") / "static" / name
    if not file.is_file():
        raise FileNotFoundError(
            f"gradviz/static/{name} is not there: this checkout's widgets are not built. Run: make build"
        )
    return file.read_text(encoding="utf-8")


class Heatmap(anywidget.AnyWidget):
    """A live picture of a history. Made by `heatmap`."""

    _esm = _built("heatmap.js")
    _css = _built("heatmap.css")
    _parameters: traitlets.List[Any] = traitlets.List().tag(sync=True)
    _colours = traitlets.Bytes(VIRIDIS).tag(sync=True)

    def __init__(self, history: History) -> None:
        super().__init__()
        self.history = history
        self.publisher = Publisher(history, self._send_columns)
        self.on_msg(self._on_message)

    def _send_columns(self, content: dict[str, Any], buffers: list[bytes]) -> None:
        described = [dict(parameter, shape=list(parameter["shape"])) for parameter in self.history.described]
        if described != self._parameters:
            self._parameters = described
        self.send(content, buffers)

    def _on_message(self, _: Any, content: Any, buffers: Any) -> None:
        if isinstance(content, dict) and content.get("kind") == "hello":
            self.publisher.hello(int(content.get("have", 0)), view=bool(content.get("view")))

    def __repr__(self) -> str:
        return f"Heatmap of {self.history}"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(**kwargs)
        self.publisher.show()
        return bundle

    def close(self) -> None:
        """Send nothing any more and leave the page; closing twice is fine."""
        self.publisher.close()
        _open.pop(id(self.history), None)
        super().close()


_open: dict[int, Heatmap] = {}
"""Widgets that are not closed, by the identity of their history (which they keep alive)."""


def heatmap(x: Any) -> Heatmap:
    """The heatmap of a loop or a history: rows are parameters, columns iterations, colour the gradient's norm.

    Asked for again, as when a notebook cell is run again, it is the same widget in one more view.

    Parameters
    ----------
    x : Loop or History

    Raises
    ------
    TypeError
        If `x` has no history.
    """
    history = getattr(x, "history", x)
    if not isinstance(history, History):
        raise TypeError(f"heatmap() shows a loop or a history; got a {type(x).__name__}. Write gv.heatmap(loop).")
    if id(history) not in _open:
        _open[id(history)] = Heatmap(history)
    return _open[id(history)]
