"""Where a run is shown while it lasts: under the cell of a notebook, on a terminal, or nowhere."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Literal

from gradviz.errors import RecordingWarning, warn
from gradviz.history.history import History

if TYPE_CHECKING:
    from gradviz.loop.handlers.progress import ProgressBar, ProgressLines
    from gradviz.widgets.notebook import Output

Display = Literal["auto", "live"] | None


class Shown:
    """A run on display.

    Parameters
    ----------
    history : History
    display : {"auto", "live", None}
    log : int
        Iterations from one refresh of a terminal's bar to the next; 0 for none.
    """

    def __init__(self, history: History, display: Display, log: int) -> None:
        self._history, self._display, self._log = history, display, log
        self._output: Output | None = None
        self._terminal: ProgressBar | ProgressLines | None = None
        self.in_notebook = False

    def show(self) -> None:
        """Begin: in the notebook cell that runs, or on stderr."""
        if self._display is None:
            return
        try:
            from gradviz.widgets import notebook  # only a notebook pays for the widgets

            self._output = notebook.show_run(self._history, self._display)
            self.in_notebook = notebook.in_notebook()
            if self._log and not notebook.in_kernel() and sys.stderr is not None:
                from gradviz.loop.handlers.beside import itself
                from gradviz.loop.handlers.progress import ProgressBar, ProgressLines

                kind = ProgressBar if sys.stderr.isatty() else ProgressLines
                self._terminal = kind(self._history, self._log, itself(sys.stderr))
        except Exception as error:  # our own failure never breaks a run
            said = f"The run cannot be shown ({type(error).__name__}: {error}); training goes on."
            warn(said, RecordingWarning)

    def end(self) -> None:
        """Put a still picture in the place of the live one, and say the last word."""
        try:
            if self._output is not None:
                self._output.freeze()
        except Exception as error:
            said = f"The run's picture cannot be drawn ({type(error).__name__}: {error}); the live one stays."
            warn(said, RecordingWarning)
        finally:
            self._history.notify(final=True)
            if self._terminal is not None:
                self._terminal.close()

    def send_again(self) -> None:
        """Send the still picture once more, for those who did not hear of it while another cell ran."""
        if self._output is not None:
            self._output.send_again()
