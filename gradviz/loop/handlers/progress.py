"""How far a run is, on a terminal or in a log file."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from gradviz.errors import RecordingWarning, warn
from gradviz.history.history import History
from gradviz.widgets.picture.words import glance


class ProgressLines:
    """A line every so many iterations, and one when the run is over.

    It listens to a history, which costs a fraction of a microsecond at each iteration in between.

    Parameters
    ----------
    history : History
    every : int
        Iterations from one line to the next.
    file : text file
    """

    _says_epochs = False
    """Whether it is time when nothing has run since the last word: an epoch is over."""

    def __init__(self, history: History, every: int, file: TextIO) -> None:
        self._history, self._every, self._file = history, every, file
        self._progress = history.progress
        self._heard = self._progress.iteration
        self._next = self._multiple_after(self._heard)
        history.subscribe(self.hear)

    def hear(self, final: bool) -> None:
        """Say how far it is, if it is time."""
        at = self._progress.iteration
        if final or at >= self._next or (at == self._heard and self._says_epochs):
            self._next = self._multiple_after(at)
            self._guarded(final)
        self._heard = at

    def close(self) -> None:
        """Say no more."""
        self._history.unsubscribe(self.hear)

    def _multiple_after(self, at: int) -> int:
        return at - at % self._every + self._every

    def _guarded(self, final: bool) -> None:
        try:
            self._say(final)
        except Exception as error:  # our own failure never breaks a training step
            self._history.unsubscribe(self.hear)
            warn(f"Progress is shown no longer ({type(error).__name__}: {error}); training goes on.", RecordingWarning)

    def _say(self, final: bool) -> None:
        status = [self._progress.status] if final else []
        print(*status, self._epoch(), self._iteration(), *self._metrics(), sep=", ", file=self._file, flush=True)

    def _epoch(self) -> str:
        of = "" if self._progress.epochs is None else f"/{self._progress.epochs}"
        return f"epoch {self._progress.epoch + 1}{of}"

    def _iteration(self) -> str:
        of = "" if self._progress.iterations is None else f"/{self._progress.iterations}"
        left = f", {duration(left_s)} left" if (left_s := self._progress.left_s) else ""
        return f"iteration {self._progress.iteration}{of}{left}"

    def _metrics(self) -> list[str]:
        metrics = self._progress.metrics.items()
        return [f"{'mean loss' if name == 'loss' else name} {glance(value)}" for name, value in metrics]


class ProgressBar(ProgressLines):
    """A bar that is refreshed every so many iterations, at the end of each epoch, and when the run is over."""

    _says_epochs = True

    def __init__(self, history: History, every: int, file: TextIO) -> None:
        from tqdm import tqdm  # only a terminal pays for it

        super().__init__(history, every, file)
        # We say when it is refreshed: no thread has to watch over that.
        kind: Any = type("Bar", (tqdm,), {"monitor_interval": 0})
        self._bar = kind(
            desc=self._epoch(),
            total=self._progress.iterations,
            initial=self._progress.iteration,
            file=file,
            dynamic_ncols=True,
            mininterval=0,
            miniters=0,
        )

    def close(self) -> None:
        """End its line."""
        super().close()
        with contextlib.suppress(Exception):  # a terminal that is gone
            self._bar.close()

    def _say(self, final: bool) -> None:
        bar, status = self._bar, self._progress.status
        bar.total = self._progress.iterations
        bar.set_description_str(self._epoch() if status == "training" else f"{self._epoch()}, {status}", refresh=False)
        bar.set_postfix_str(", ".join(self._metrics()), refresh=False)
        bar.update(self._progress.iteration - bar.n)


@contextlib.contextmanager
def beside_bars(file: TextIO | None) -> Iterator[None]:
    """Keep progress bars out of the way of a line that is printed to a file, by default `sys.stdout`."""
    if "tqdm" not in sys.modules:
        yield
        return
    from tqdm import tqdm

    with tqdm.external_write_mode(file=file or sys.stdout):
        yield


def duration(seconds: float) -> str:
    """A time in the two units that matter.

    >>> [duration(s) for s in (0.4, 59.6, 75, 3600, 90000)]
    ['0 s', '1:00', '1:15', '1:00:00', '25:00:00']
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
