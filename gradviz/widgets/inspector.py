"""The inspector: one parameter or captured value at one iteration, and how it came there."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import traitlets

from gradviz.errors import HistoryError, names_nearest_keyword, nearest, whole
from gradviz.history.activations import Activations, activations_of
from gradviz.history.history import History
from gradviz.widgets.heatmap import Of
from gradviz.widgets.inspection import OF, inspect
from gradviz.widgets.live import Live, asked_for, built


class Inspector(Live):
    """What is known of one parameter of a history. Made by `inspector`."""

    _esm = built("inspector.js")
    _css = built("inspector.css")
    _quantity: traitlets.Dict[str, Any] = traitlets.Dict().tag(sync=True)
    _inspected: traitlets.Dict[str, Any] = traitlets.Dict().tag(sync=True)
    """The answer as it was when the run ended, for a page that finds no kernel: a message and its buffers."""
    parameter = traitlets.Unicode("").tag(sync=True, echo_update=False)
    """The name of what is looked into; "" where nothing was chosen yet: then it is the first."""
    iteration = traitlets.Int(None, allow_none=True).tag(sync=True, echo_update=False)
    """The iteration that is looked at; None for the newest."""

    def __init__(self, history: History) -> None:
        super().__init__(history, _quantity=asdict(history.quantity))

    @property
    def of(self) -> Of:
        """What it looks into: "parameters" or "activations"."""
        return "activations" if isinstance(self.history, Activations) else "parameters"

    def _hear(self, kind: str, content: dict[str, Any]) -> None:
        if kind == "inspect":
            self.send(*inspect(self.history, content))

    def _keep(self, content: dict[str, Any], buffers: list[bytes]) -> None:
        super()._keep(content, buffers)
        names = [parameter["name"] for parameter in self.history.described]
        name = self.parameter or next(iter(names), "")
        if name in names:
            asked = {"id": "", "of": self.of, "name": name, "iteration": self.iteration}
            message, parts = inspect(self.history, asked)
            self._inspected = {"message": message, "buffers": parts}


@names_nearest_keyword
def inspector(x: Any, name: str | None = None, *, iteration: int | None = None, of: Of = "parameters") -> Inspector:
    """One parameter's gradient at one iteration, and over time; or that of a captured value.

    Its norm over time with the loss above it, how its entries are distributed, its norm at each recorded stage, and the
    examples that pull hardest at it, where example norms were captured. In a page it follows what is pointed at
    and clicked in the heatmap, the frozen mask and the table of dtypes of the same run.

    Asked for again, as when a notebook cell is run again, it is the same widget in one more view.

    Parameters
    ----------
    x : Loop, Watch or History
    name : str, optional
        Of the parameter, ``"encoder.0.weight"``; of a captured value, and of its second call ``"encoder.0#1"``. If not
        given, what was looked into before, or the first.
    iteration : int, optional
        If not given, the newest, whichever that is. Both can be set later, and observed: ``w.parameter``,
        ``w.iteration``.
    of : "parameters" or "activations"

    Raises
    ------
    TypeError
        If `x` has no history.
    HistoryError
        If no parameter has this name, or nothing was captured.

    Examples
    --------
    >>> import torch, gradviz as gv
    >>> loop = gv.trainer(torch.nn.Linear(3, 1), "mean_squared_error", "adam")
    >>> state = loop.run([(torch.ones(2, 3), torch.zeros(2, 1))], display=None)
    >>> w = gv.inspector(loop, "weight", iteration=0)
    >>> w.parameter, w.iteration
    ('weight', 0)
    """
    if of not in OF:
        raise HistoryError(f'of is "parameters" or "activations"; got {of!r}: {nearest(str(of), OF)}')
    if name is not None and not isinstance(name, str):
        raise HistoryError(f'name is that of a parameter, such as "encoder.0.weight"; got {name!r}.')
    if iteration is not None:
        iteration = whole("iteration, unless it is None for the newest,", iteration, error=HistoryError)
    history = getattr(x, "history", x)
    if isinstance(history, History):
        if of == "activations":
            x = history = activations_of(history)
        names = [parameter["name"] for parameter in history.described]
        if name is not None and names and name not in names:
            raise HistoryError(f"There is no {name!r} in this run: {nearest(name, names)}")
    widget = asked_for(
        Inspector,
        x,
        "inspector",
        shows="a loop, a watch or a history",
        of_a_selection=". Of a selection there are frames: .norms, .gradients, .histograms.",
    )
    if name is not None:
        widget.parameter = name
    if iteration is not None:
        widget.iteration = iteration
    return widget
