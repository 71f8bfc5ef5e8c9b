"""Showing a widget in the notebook cell that runs."""

from __future__ import annotations

import sys
import threading

from gradviz.history.history import History


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this code, on the thread whose output the cell shows."""
    if "IPython" not in sys.modules or threading.current_thread() is not threading.main_thread():
        return False
    shell = sys.modules["IPython"].get_ipython()
    return shell is not None and hasattr(shell, "kernel")


def show_live(history: History) -> None:
    """Put the heatmap of a history under the running cell; nothing happens outside a notebook."""
    if in_notebook():
        from IPython.display import display

        from gradviz.widgets.heatmap import heatmap

        display(heatmap(history))
