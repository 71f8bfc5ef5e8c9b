"""The heatmap: gradient norms of parameters or captured values by iteration, live; or the ratio of two runs' norms."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal, get_args

import traitlets

from gradviz.errors import HistoryError, names_nearest_keyword, nearest
from gradviz.history.activations import activations_of
from gradviz.history.compare import Comparison
from gradviz.history.history import History
from gradviz.history.selection import Selection, selection
from gradviz.widgets.answers import answer, choices
from gradviz.widgets.colours import scale_of
from gradviz.widgets.live import Live, asked_for, built

if TYPE_CHECKING:
    import pandas as pd


Of = Literal["parameters", "activations"]
"""What the rows are."""


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


class Heatmap(Live):
    """A live picture of a history. Made by `heatmap`."""

    _esm = built("heatmap.js")
    _css = built("heatmap.css")
    has_picture = True
    _colours = traitlets.Bytes().tag(sync=True)
    _quantity: traitlets.Dict[str, Any] = traitlets.Dict().tag(sync=True)
    _choices: traitlets.Dict[str, Any] = traitlets.Dict().tag(sync=True)
    selection = traitlets.Instance(Selection, allow_none=True).tag(
        sync=True, echo_update=False, to_json=_brushed, from_json=_selection
    )
    """What is selected in the picture: parameters and iterations, or None. It can be set, and observed."""

    def __init__(self, history: History) -> None:
        super().__init__(
            history,
            _colours=scale_of(history.quantity).table,
            _quantity=asdict(history.quantity),
            _choices=choices(history),
        )

    def _hear(self, kind: str, content: dict[str, Any]) -> None:
        if kind == "ask":
            self._answer(content)

    def _answer(self, question: dict[str, Any]) -> None:
        about = {"kind": "answer", "id": question.get("id")}
        try:
            told, buffers = answer(self.history, question)
        except Exception as error:  # shown where it was asked
            told, buffers = {"error": f"{type(error).__name__}: {error}"}, []
        self.send(about | told, buffers)

    def selected(self) -> pd.DataFrame:
        """The gradients that are selected in the picture: rows of `History.gradients`, or of `History.activations`.

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
        return self.history.chosen(self.selection)


@names_nearest_keyword
def heatmap(x: Any, *, of: Of = "parameters") -> Heatmap:
    """The heatmap of a loop or a history: rows are parameters, columns iterations, colour the gradient's norm.

    Asked for again, as when a notebook cell is run again, it is the same widget in one more view. Of a comparison of
    two runs it shows the norms of the second divided by those of the first, as they are then: grey where they are the
    same, orange where the second run's are larger, blue where they are smaller.

    Parameters
    ----------
    x : Loop, Watch, History or Comparison
    of : "parameters" or "activations"
        Of what the gradients are. With "activations" rows are the intermediate values that were captured
        (``capture=gv.Capture("encoder.*")``): ``"encoder.0"``, and for its second call ``"encoder.0#1"``. Both pictures
        of a run can stand side by side.

    Raises
    ------
    TypeError
        If `x` has no history.
    HistoryError
        If nothing was captured of what is to be shown, nor will be.

    Examples
    --------
    >>> import torch, gradviz as gv
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    >>> loop = gv.trainer(model, "mean_squared_error", "adam", capture=gv.Capture("*"))
    >>> state = loop.run([(torch.ones(2, 3), torch.zeros(2, 1))], display=None)
    >>> w = gv.heatmap(loop, of="activations")
    >>> w.history.norms.columns.tolist()
    ['0', '1', '2']
    """
    if of not in get_args(Of):
        raise HistoryError(f'of is "parameters" or "activations"; got {of!r}: {nearest(str(of), get_args(Of))}')
    if isinstance(x, Comparison):
        if of != "parameters":
            raise HistoryError(
                f"A comparison shows parameters. Of one run's intermediate values: gv.heatmap(history, of={of!r})."
            )
        widget = Heatmap(x.ratios())
        widget.ask_for()
        return widget
    history = getattr(x, "history", x)
    if of == "activations" and isinstance(history, History):
        x = activations_of(history)
    return asked_for(
        Heatmap,
        x,
        "heatmap",
        shows="a loop, a history or a comparison",
        of_a_selection=". Of a selection there are frames: .norms, .gradients, .metrics.",
    )
