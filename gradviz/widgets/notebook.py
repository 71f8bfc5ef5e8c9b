"""A run's output in the notebook cell that runs: live while it trains, and a still picture afterwards.

The model behind the live view outlives the run until the next one is shown. A page that was away meanwhile (reloaded,
or closed and opened again) did not hear of the still picture; it has the live view, and may ask for what it missed.
"""

from __future__ import annotations

import sys
import threading
from typing import Any, Literal

from gradviz.errors import RecordingWarning, warn
from gradviz.history.history import History

Display = Literal["auto", "live"]


def in_kernel() -> bool:
    """Whether a Jupyter kernel runs this code."""
    if "IPython" not in sys.modules:
        return False
    shell = sys.modules["IPython"].get_ipython()
    return shell is not None and hasattr(shell, "kernel")


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this code, on the thread whose output the cell shows."""
    return in_kernel() and threading.current_thread() is threading.main_thread()


FALLBACK_BYTES = 200_000
"""Of what stands beside a widget for a page that cannot show it."""


def with_fallback(bundle: Any, history: History, *, has_picture: bool) -> Any:
    """A widget's mime bundle, and in it what a page shows that lacks the front-end part of widgets.

    Nothing is added before there is an iteration.
    """
    if bundle is None or not len(history):
        return bundle
    from gradviz.widgets.static_view import static_bundle

    data, *metadata = bundle if isinstance(bundle, tuple) else (bundle,)
    try:
        still = static_bundle(history, code_for(history), limit=FALLBACK_BYTES, has_picture=has_picture)
    except Exception as error:  # the widget itself is there
        warn(f"There is no still picture beside the widget ({type(error).__name__}: {error}).", RecordingWarning)
        return bundle
    whole = {**data, **still}
    return (whole, *metadata) if isinstance(bundle, tuple) else whole


_in_colab_told = False


def prepare_colab() -> None:
    """Colab shows widgets of others only if they are asked for, once; nothing happens elsewhere."""
    global _in_colab_told
    if "google.colab" not in sys.modules or _in_colab_told:
        return
    _in_colab_told = True
    try:
        from google.colab import output

        output.enable_custom_widget_manager()
    except Exception:
        print("To see widgets in Colab: from google.colab import output; output.enable_custom_widget_manager()")


class Output:
    """What `show_run` put under the cell."""

    def __init__(self, widget: Any, handle: Any) -> None:
        self._widget = widget
        self._handle = handle
        self._bundle: dict[str, str] | None = None

    def freeze(self) -> None:
        """Put a still picture in the place of the live view; other views of the widget live on."""
        from gradviz.widgets.static_view import static_bundle

        history = self._widget.history
        self._bundle = static_bundle(history, code_for(history))
        self.send_again()
        self._widget.run_is_over()

    def send_again(self) -> None:
        """Send the still picture once more, from the cell that runs now.

        Whoever executes a notebook without a page, as nbclient does, listens to that cell alone.
        """
        if self._bundle is not None:
            self._handle.update(self._bundle, raw=True)


def show_run(history: History, display: Display) -> Output | None:
    """Put the dashboard of a history under the running cell; nothing happens outside a notebook.

    With "auto" there is something to `Output.freeze` when the run is over.
    """
    if not in_notebook():
        return None
    from IPython.display import display as show

    from gradviz.widgets.dashboard import for_run

    widget = for_run(history)
    if display == "live":
        widget.ask_for()
        show(widget)
        return None
    return Output(widget, show(widget, display_id=True))


def code_for(history: History) -> str:
    """The line that shows the dashboard of a history, in the names that the user's notebook has for things."""
    names = sys.modules["IPython"].get_ipython().user_ns if in_kernel() else {}
    public = {name: value for name, value in list(names.items()) if name.isidentifier() and not name.startswith("_")}
    module = next((name for name, value in public.items() if value is sys.modules["gradviz"]), "gv")
    owners = [name for name, value in public.items() if _has(value, history)]
    itself = [name for name, value in public.items() if value is history]
    # Without a name, as in a function, one that is free: under a name that is taken would come another run's.
    free = next(name for name in ("loop", "this_loop", "the_loop_of_this_run") if name not in names)
    return f"{module}.dashboard({[*owners, *itself, free][0]})"


def _has(value: Any, history: History) -> bool:
    try:
        if type(value).__module__.startswith("gradviz."):
            return getattr(value, "history", None) is history
        return vars(value).get("history") is history  # asking for the attribute itself could run a user's code
    except Exception:
        return False
