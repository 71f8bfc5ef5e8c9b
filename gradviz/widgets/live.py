"""`Live`: what every live picture of a history has in common, from its first view to its end."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, Protocol, TypeVar

import anywidget
import traitlets

from gradviz.errors import described
from gradviz.history.compare import Comparison
from gradviz.history.history import History
from gradviz.history.schema import Parameter
from gradviz.history.view import View
from gradviz.widgets.feed import ColumnFeed, Feed
from gradviz.widgets.layout import Layout
from gradviz.widgets.notebook import prepare_colab, with_fallback
from gradviz.widgets.publish import Publisher


def built(name: str) -> str:
    """The text of a file that the build makes of js/."""
    file = files("gradviz") / "static" / name
    if not file.is_file():
        raise FileNotFoundError(
            f"gradviz/static/{name} is not there: this checkout's widgets are not built. Run: make build"
        )
    return file.read_text(encoding="utf-8")


class Live(anywidget.AnyWidget):
    """A picture of a history that follows it. One of a kind for each history: see `live_of`.

    Parameters
    ----------
    history : History
    **traits
        Those of the kind.
    """

    _run = traitlets.Unicode().tag(sync=True)
    """The history's identity: all widgets of one in a page show what is pointed at in any of them."""
    _parameters: traitlets.List[Any] = traitlets.List().tag(sync=True)
    _kept: traitlets.Dict[str, Any] = traitlets.Dict().tag(sync=True)
    """The picture as it was when the run ended, for a page that finds no kernel: a message and its buffers."""

    has_picture = False
    """Whether the still picture of a run is one of this."""

    def __init__(self, history: History, **traits: Any) -> None:
        self.history = history
        super().__init__(_run=history.identity, layout=Layout(), **traits)
        self._wanted_by: set[str] = set()
        self._views = 0
        self.part_of: Whole | None = None
        """What goes with it, if anything does: that one says when it is closed."""
        self.publisher = Publisher(history, self._feed(), self._send_message, self._keep)
        self._described: list[Parameter] | None = None
        self.on_msg(self._on_message)

    def _feed(self) -> Feed:
        """What is sent; a kind may have a feed of its own."""
        return ColumnFeed(self.history)

    def __repr__(self) -> str:
        return f"{type(self).__name__} of {self.history}"

    def _send_message(self, content: dict[str, Any], buffers: list[bytes]) -> None:
        if self.history.described is not self._described:  # a new list when there are others, and only then
            self._described = self.history.described
            self._parameters = [_sent(parameter) for parameter in self._described]
        self.send(content, buffers)

    def _keep(self, content: dict[str, Any], buffers: list[bytes]) -> None:
        self._kept = {"message": content, "buffers": buffers}

    def _on_message(self, _: Any, content: Any, buffers: Any) -> None:
        kind = content.get("kind") if isinstance(content, dict) else None
        if kind == "hello":
            self._views += bool(content.get("view"))
            self.publisher.hello(int(content.get("have", 0)), view=bool(content.get("view")))
        elif kind == "bye":
            self._views = max(self._views - 1, 0)
            self._rest()
        elif kind is not None:
            self._hear(kind, content)

    def _hear(self, kind: str, content: dict[str, Any]) -> None:
        """A page says something that is the kind's own."""

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        prepare_colab()
        bundle = super()._repr_mimebundle_(**kwargs)
        self.publisher.show()
        return with_fallback(bundle, self.history, has_picture=self.has_picture)

    def run_begins(self) -> None:
        """A run shows this widget."""
        self._wanted_by.add("run")

    def run_is_over(self) -> None:
        """The run shows it no longer: nothing is sent until a page says that it has a view, or the user wants one."""
        self._wanted_by.discard("run")
        self._rest()

    def ask_for(self) -> None:
        """The user wants this widget, which therefore lives on."""
        self._wanted_by.add("user")

    @property
    def is_asked_for(self) -> bool:
        """Whether the user wants it by itself."""
        return "user" in self._wanted_by

    @property
    def unwanted(self) -> bool:
        """Whether no run shows it, the user did not ask for it, and nobody looks at it, as far as we have heard."""
        return not self._wanted_by and not self._views

    def _rest(self) -> None:
        if self.unwanted:
            self.publisher.close()

    def close(self) -> None:
        """Send nothing any more and leave the page; closing twice is fine."""
        self.publisher.close()
        forget(self)
        whole, self.part_of = self.part_of, None
        if whole is not None:
            whole.close()
        if self.comm is not None:
            # nbclient keeps the last state of closed widgets too, and saves it in the notebook. A message of a method
            # that no browser knows takes back what weighs; an update would make a browser load the empty module.
            emptied, paths = _emptied(self.get_state([key for key in self.keys if key not in _NOT_OURS]))
            self.comm.send({"method": "forget", "state": emptied, "buffer_paths": paths}, buffers=[b""] * len(paths))
        self.layout.close()
        super().close()


def _emptied(state: Mapping[str, Any]) -> tuple[dict[str, Any], list[list[str | int]]]:
    """What is left of a widget's state, and where it had buffers: whoever reads it puts them there, empty or not."""
    emptied: dict[str, Any] = dict.fromkeys(state)
    paths: list[list[str | int]] = []
    for key, value in state.items():
        if isinstance(value, bytes):
            paths.append([key])
        elif isinstance(value, dict) and value.get("buffers"):
            emptied[key] = {"buffers": [None] * len(value["buffers"])}
            paths += [[key, "buffers", place] for place in range(len(value["buffers"]))]
    return emptied | {"_esm": "", "_css": ""}, paths


_NOT_OURS = frozenset(anywidget.AnyWidget.class_trait_names(sync=True))
"""What every widget says of itself."""


def _sent(parameter: Parameter) -> dict[str, Any]:
    shape = parameter["shape"]
    return dict(parameter, shape=None if shape is None else list(shape))


class Whole(Protocol):
    """A widget that others are parts of; it ends with any of them."""

    def close(self) -> None:
        """End it."""


class OfHistory(Protocol):
    """A widget of which a history has one."""

    history: History

    def __init__(self, history: History) -> None: ...

    @property
    def unwanted(self) -> bool:
        """Whether it can be closed once another run is shown."""

    def ask_for(self) -> None:
        """The user wants it."""

    def close(self) -> None:
        """End it."""


L = TypeVar("L", bound=OfHistory)

_open: dict[tuple[type[OfHistory], int], OfHistory] = {}
"""Widgets that are not closed, by their kind and the identity of their history (which they keep alive)."""


def live_of(kind: type[L], history: History) -> L:
    """The widget of this kind that a history has, made where it has none."""
    widget = _open.get((kind, id(history)))
    if not isinstance(widget, kind):
        widget = _open[kind, id(history)] = kind(history)
    return widget


@contextmanager
def lent(kind: type[L], history: History) -> Iterator[L]:
    """The widget of this kind that a history has, or else one that is closed afterwards."""
    own = _open.get((kind, id(history)))
    widget = own if isinstance(own, kind) else kind(history)
    try:
        yield widget
    finally:
        if widget is not own:
            widget.close()


def forget(widget: OfHistory) -> None:
    """The history has it no longer."""
    for key in [key for key, each in _open.items() if each is widget]:
        del _open[key]


def asked_for(kind: type[L], x: Any, name: str, *, shows: str, of_a_selection: str = "") -> L:
    """The widget of this kind that the user asks for by a function of this name; it lives on.

    Parameters
    ----------
    kind : type
    x : anything
        What is to be shown: a history, or what has one.
    name : str
    shows, of_a_selection : str
        For the message: what can be shown, and what to ask a selection for.

    Raises
    ------
    TypeError
        If `x` has no history.
    """
    history = getattr(x, "history", x)
    if not isinstance(history, History):
        more = of_a_selection if isinstance(x, View) else ""
        raise TypeError(f"{name}() shows {shows}; got {instead(x, f'gv.{name}({{}})')}{more}")
    widget = live_of(kind, history)
    widget.ask_for()
    return widget


def instead(x: Any, call: str) -> str:
    """What came in the place of a history, and what to write: `call` with what should stand there instead.

    Examples
    --------
    >>> instead("runs/a", "gv.heatmap({})")
    "a path. Write gv.heatmap(gv.History.open('runs/a'))."
    """
    if isinstance(x, View):
        return f"a selection, and it shows whole histories: {call.format('history')}"
    if isinstance(x, Comparison):
        return "a comparison, of which there is the heatmap: gv.heatmap(comparison)"
    if isinstance(x, str | os.PathLike):
        return f"a path. Write {call.format(f'gv.History.open({os.fspath(x)!r})')}."
    return f"{described(x)}. Write {call.format('loop')}."


def close_unwanted(but: History) -> None:
    """Close what was shown by runs that are over and is looked at no longer, unless it is of this history."""
    for widget in list(_open.values()):
        if widget.unwanted and widget.history is not but and getattr(widget, "part_of", None) is None:
            widget.close()
