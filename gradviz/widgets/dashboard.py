"""The dashboard: all pictures of a run as one, which a run shows while it lasts."""

from __future__ import annotations

from typing import Any

import ipywidgets

from gradviz.errors import HistoryError, names_nearest_keyword
from gradviz.history.activations import activations_of
from gradviz.history.history import History
from gradviz.history.selection import Selection
from gradviz.widgets.dtype_table import DtypeTable
from gradviz.widgets.frozen_mask import FrozenMask
from gradviz.widgets.heatmap import Heatmap
from gradviz.widgets.inspector import Inspector
from gradviz.widgets.layout import Layout
from gradviz.widgets.live import Live, asked_for, close_unwanted, forget, live_of
from gradviz.widgets.notebook import prepare_colab, with_fallback
from gradviz.widgets.panel import Panel


class Dashboard(ipywidgets.Box):  # type: ignore[misc]
    """All pictures of a history, one of a kind: those that `heatmap`, `frozen_mask` ... give. Made by `dashboard`.

    Attributes
    ----------
    panel : Panel
        How the run stands, its curves, and the buttons that steer it.
    heatmap : Heatmap
    inspector : Inspector
        One parameter at one iteration: that which is looked into in any of the others.
    frozen_mask : FrozenMask
    dtype_table : DtypeTable
    activations : Heatmap or None
        That of captured intermediate values; None where nothing is captured.
    """

    def __init__(self, history: History) -> None:
        self.history = history
        self.panel = live_of(Panel, history)
        self.heatmap = live_of(Heatmap, history)
        self.inspector = live_of(Inspector, history)
        self.frozen_mask = live_of(FrozenMask, history)
        self.dtype_table = live_of(DtypeTable, history)
        self.activations = _activations(history)
        self._wanted_by: set[str] = set()
        pictures: dict[str, Live | None] = {
            "heatmap": self.heatmap,
            "frozen mask": self.frozen_mask,
            "dtypes": self.dtype_table,
            "activations": self.activations,
        }
        shown = {title: widget for title, widget in pictures.items() if widget is not None}
        tabs = ipywidgets.Tab(list(shown.values()), titles=tuple(shown), selected_index=0, layout=Layout())
        parts = ipywidgets.Box([self.panel, tabs, self.inspector], layout=Layout())
        self.parts: tuple[Live, ...] = (self.panel, *shown.values(), self.inspector)
        self._behind = [widget for widget in shown.values() if widget is not self.heatmap]
        for part in self.parts:
            part.part_of = self
        self._boxes = (tabs, parts)
        parts.add_class("gv-parts")
        super().__init__([parts], layout=Layout())
        self.add_class("gv-dashboard")

    def __repr__(self) -> str:
        return f"Dashboard of {self.history}"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        prepare_colab()
        bundle = super()._repr_mimebundle_(**kwargs)
        controls = self.history.controls
        for part in self.parts:
            if part not in self._behind:
                part.publisher.show()
            elif controls is not None and controls.blocks:  # it could not hear of whoever looks behind a tab
                part.publisher.show(is_hidden=True)
        return with_fallback(bundle, self.history, has_picture=True)

    @property
    def selection(self) -> Selection | None:
        """What is selected in the heatmap: parameters and iterations, or None. It can be set."""
        found: Selection | None = self.heatmap.selection
        return found

    @selection.setter
    def selection(self, selection: Selection | None) -> None:
        self.heatmap.selection = selection

    def run_begins(self) -> None:
        """A run shows it."""
        self._wanted_by.add("run")
        for part in self.parts:
            part.run_begins()

    def run_is_over(self) -> None:
        """The run shows it no longer."""
        self._wanted_by.discard("run")
        for part in self.parts:
            part.run_is_over()

    def ask_for(self) -> None:
        """The user wants it, so that it lives on."""
        self._wanted_by.add("user")

    @property
    def unwanted(self) -> bool:
        """Whether no run shows it, the user did not ask for it, and nobody looks at it, as far as we have heard."""
        return not self._wanted_by and self.panel.unwanted

    def close(self) -> None:
        """End it, and those of its parts that the user did not ask for by themselves; closing twice is fine."""
        forget(self)
        for part in self.parts:
            if part.part_of is self:
                part.part_of = None
                if not part.is_asked_for:
                    part.close()
        for box in self._boxes:
            box.layout.close()
            box.close()
        self.layout.close()
        super().close()


def _activations(history: History) -> Heatmap | None:
    try:
        return live_of(Heatmap, activations_of(history))
    except HistoryError:
        return None


def for_run(history: History) -> Dashboard:
    """The dashboard of a history, for a run to show while it lasts; those of earlier runs are closed."""
    close_unwanted(but=history)
    widget = live_of(Dashboard, history)
    widget.run_begins()
    return widget


@names_nearest_keyword
def dashboard(x: Any) -> Dashboard:
    """All pictures of a loop, a watch or a history as one: what a run shows while it lasts.

    Above stands how the run is, what recording costs, its curves, and buttons that pause, step and stop it; below, one
    behind the other, the heatmap, the frozen mask, the table of dtypes and, if any are captured, the intermediate
    values. What is pointed at, looked into or selected in one of them is so in all. Where a gradient first was NaN or
    infinite is said in words.

    The buttons act on a run that is under way: at once with ``loop.start``; while a cell trains, most kernels hear of
    them only when it is done, and the page says so.

    Parameters
    ----------
    x : Loop, Watch or History

    Returns
    -------
    Dashboard
        Asked for again, as when a notebook cell is run again, the same in one more view.

    Raises
    ------
    TypeError
        If `x` has no history.

    Examples
    --------
    >>> history = History()
    >>> d = dashboard(history)
    >>> d is dashboard(history), d.heatmap.history is history, d.activations
    (True, True, None)
    >>> d.close()
    """
    return asked_for(Dashboard, x, "dashboard", shows="a loop, a watch or a history")
