"""The heatmap: every parameter's gradient norm at every iteration, live; or the ratio of two runs' norms."""

from __future__ import annotations

import os
from dataclasses import asdict
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from gradviz.errors import HistoryError, described
from gradviz.history.compare import Comparison
from gradviz.history.history import History
from gradviz.history.schema import Parameter
from gradviz.history.selection import Selection, selection
from gradviz.history.view import View
from gradviz.widgets.answers import answer, choices
from gradviz.widgets.colours import scale_of
from gradviz.widgets.publish import Publisher

if TYPE_CHECKING:
    import pandas as pd


def _built(name: str) -> str:
    file = files("gradviz") / "static" / name
    if not file.is_file():
        raise FileNotFoundError(
            f"gradviz/static/{name} is not there: this checkout's widgets are not built. Run: make build"
        )
    return file.read_text(encoding="utf-8")


def _brushed(selection: Selection | None, widget: Heatmap) -> dict[str, Any] | None:
    """A selection as the page knows it: every parameter by name, and the iterations from the first to the last."""
    if selection is None:
        return None
    history = widget.history
    names = [parameter["name"] for parameter in history.described]
    iterations = history.iterations[selection.rows(history.iterations)]
    edges = [int(iterations[0]), int(iterations[-1]) + 1] if len(iterations) else [0, 0]
    return {"parameters": [names[place] for place in selection.places(names).tolist()], "iterations": edges}


def _selection(brushed: dict[str, Any] | None, widget: Heatmap) -> Selection | None:
    return None if brushed is None else selection(brushed["parameters"], slice(*brushed["iterations"]))


class Heatmap(anywidget.AnyWidget):
    """A live picture of a history. Made by `heatmap`."""

    _esm = _built("heatmap.js")
    _css = _built("heatmap.css")
    _parameters: traitlets.List[Any] = traitlets.List().tag(sync=True)
    _colours = traitlets.Bytes().tag(sync=True)
    _quantity: traitlets.Dict[str, Any] = traitlets.Dict().tag(sync=True)
    _choices: traitlets.Dict[str, Any] = traitlets.Dict().tag(sync=True)
    _kept: traitlets.Dict[str, Any] = traitlets.Dict().tag(sync=True)
    """The picture as it was when the run ended, for a page that finds no kernel: a message and its buffers."""
    selection = traitlets.Instance(Selection, allow_none=True).tag(
        sync=True, echo_update=False, to_json=_brushed, from_json=_selection
    )
    """What is selected in the picture: parameters and iterations, or None. It can be set, and observed."""

    def __init__(self, history: History) -> None:
        self.history = history
        super().__init__(
            _colours=scale_of(history.quantity).table, _quantity=asdict(history.quantity), _choices=choices(history)
        )
        self._asked_for = False
        self._over = False
        self._views = 0
        self.publisher = Publisher(history, self._send_columns, self._keep)
        self._described: list[Parameter] | None = None
        self.on_msg(self._on_message)

    def _send_columns(self, content: dict[str, Any], buffers: list[bytes]) -> None:
        if self.history.described is not self._described:  # a new list when there are others, and only then
            self._described = self.history.described
            self._parameters = [_sent(parameter) for parameter in self._described]
        self.send(content, buffers)

    def _keep(self, content: dict[str, Any], buffers: list[bytes]) -> None:
        self._kept = {"message": content, "buffers": buffers}

    def _on_message(self, _: Any, content: Any, buffers: Any) -> None:
        if isinstance(content, dict) and content.get("kind") == "hello":
            self._views += bool(content.get("view"))
            self.publisher.hello(int(content.get("have", 0)), view=bool(content.get("view")))
        elif isinstance(content, dict) and content.get("kind") == "bye":
            self._views = max(self._views - 1, 0)
            self._rest()
        elif isinstance(content, dict) and content.get("kind") == "ask":
            self._answer(content)

    def _answer(self, question: dict[str, Any]) -> None:
        about = {"kind": "answer", "id": question.get("id")}
        try:
            told, buffers = answer(self.history, question)
        except Exception as error:  # shown where it was asked
            told, buffers = {"error": f"{type(error).__name__}: {error}"}, []
        self.send(about | told, buffers)

    def __repr__(self) -> str:
        return f"Heatmap of {self.history}"

    def selected(self) -> pd.DataFrame:
        """The gradients that are selected in the picture, tidy as in `History.gradients`.

        Raises
        ------
        HistoryError
            If nothing is selected.

        Examples
        --------
        >>> import numpy as np
        >>> from gradviz.history.selection import selection
        >>> history = History()
        >>> history.declare([{"name": name, "shape": (2,), "dtype": "float32"} for name in ("a.weight", "b.weight")])
        >>> for i in range(20):
        ...     history.append(i, 0, np.full((2, 8), float(i)), np.zeros(2, np.uint8), {"loss": 1.6})
        >>> w = heatmap(history)
        >>> w.selection = selection("b.*", slice(10, 12))
        >>> w.selected()[["iteration", "parameter", "norm"]]
           iteration parameter  norm
        0         10  b.weight  10.0
        1         11  b.weight  11.0
        """
        if self.selection is None:
            raise HistoryError(
                "Nothing is selected: drag over the heatmap, or press Shift and the arrow keys. Without the picture: "
                'history.select(parameters="encoder.*", iterations=slice(100, 200)).gradients'
            )
        chosen = self.selection
        part = self.history.select(parameters=chosen.parameters, iterations=chosen.iterations, every=chosen.every)
        return part.gradients

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(**kwargs)
        self.publisher.show()
        return bundle

    def run_begins(self) -> None:
        """A run shows this widget."""
        self._over = False

    def run_is_over(self) -> None:
        """The run shows it no longer: nothing is sent until a page says that it has a view, or the user wants one."""
        self._over = True
        self._rest()

    def ask_for(self) -> None:
        """The user wants this widget, which therefore lives on."""
        self._asked_for = True

    @property
    def unwanted(self) -> bool:
        """Whether it was shown by a run that is over, and nobody looks at it, as far as we have heard."""
        return self._over and not self._asked_for and not self._views

    def _rest(self) -> None:
        if self.unwanted:
            self.publisher.close()

    def close(self) -> None:
        """Send nothing any more and leave the page; closing twice is fine."""
        self.publisher.close()
        if _open.get(id(self.history)) is self:
            del _open[id(self.history)]
        if self.comm is not None:
            # nbclient keeps the last state of closed widgets too, and saves it in the notebook. A message of a method
            # that no browser knows takes back what weighs; an update would make a browser load the empty module.
            emptied = {"_esm": "", "_css": "", "_parameters": [], "_kept": {}}
            self.comm.send({"method": "forget", "state": emptied, "buffer_paths": []})
        self.layout.close()
        super().close()


def _sent(parameter: Parameter) -> dict[str, Any]:
    shape = parameter["shape"]
    return dict(parameter, shape=None if shape is None else list(shape))


_open: dict[int, Heatmap] = {}
"""Widgets that are not closed, by the identity of their history (which they keep alive)."""


def for_run(history: History) -> Heatmap:
    """The widget of a history, for a run to show while it lasts; those of earlier runs are closed."""
    for widget in list(_open.values()):
        if widget.unwanted and widget.history is not history:
            widget.close()
    widget = _of(history)
    widget.run_begins()
    return widget


def _of(history: History) -> Heatmap:
    if id(history) not in _open:
        _open[id(history)] = Heatmap(history)
    return _open[id(history)]


def _instead(x: Any) -> str:
    if isinstance(x, View):
        return (
            "a selection, and it shows whole histories: gv.heatmap(history). Of a selection there are frames: "
            ".norms, .gradients, .metrics."
        )
    if isinstance(x, str | os.PathLike):
        return f"a path. Write gv.heatmap(gv.History.open({os.fspath(x)!r}))."
    return f"{described(x)}. Write gv.heatmap(loop)."


def heatmap(x: Any) -> Heatmap:
    """The heatmap of a loop or a history: rows are parameters, columns iterations, colour the gradient's norm.

    Asked for again, as when a notebook cell is run again, it is the same widget in one more view. Of a comparison of
    two runs it shows the norms of the second divided by those of the first, as they are then: grey where they are the
    same, orange where the second run's are larger, blue where they are smaller.

    Parameters
    ----------
    x : Loop, History or Comparison

    Raises
    ------
    TypeError
        If `x` has no history.
    """
    if isinstance(x, Comparison):
        return Heatmap(x.ratios())
    history = getattr(x, "history", x)
    if not isinstance(history, History):
        raise TypeError(f"heatmap() shows a loop, a history or a comparison; got {_instead(x)}")
    widget = _of(history)
    widget.ask_for()
    return widget
