"""How far a run is, on a terminal or in a log file."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import Any, TextIO

from gradviz.errors import RecordingWarning, warn
from gradviz.history.history import History
from gradviz.loop.handlers.beside import Beside
from gradviz.loop.metrics.measured import VALIDATION
from gradviz.widgets.picture.words import glance


class ProgressLines:
    """A line every so many iterations, one at the end of an epoch that was validated, and one when the run is over.

    It listens to a history, which costs a fraction of a microsecond at each iteration in between.

    Parameters
    ----------
    history : History
    every : int
        Iterations from one line to the next.
    file : text file
    """

    def __init__(self, history: History, every: int, file: TextIO) -> None:
        self._history, self._every, self._file = history, every, file
        self._progress = history.progress
        self._heard = self._progress.iteration
        self._said: dict[str, float] = {}
        self._next = self._multiple_after(self._heard)
        history.subscribe(self.hear)

    def hear(self, final: bool) -> None:
        """Say how far it is, if it is time."""
        at = self._progress.iteration
        if final or at >= self._next or (at == self._heard and self._has_news()):
            self._next = self._multiple_after(at)
            self._guarded(final)
        self._heard = at

    def close(self) -> None:
        """Say no more, after what there is to say of the end; an error says itself."""
        self._history.unsubscribe(self.hear)
        if self._progress.message is not None and self._progress.status != "failed":
            with contextlib.suppress(Exception):  # a terminal that is gone
                print(self._progress.message, file=self._file, flush=True)

    def _has_news(self) -> bool:
        """Whether there is something to say of an epoch that is over: what a validation found."""
        metrics = self._progress.metrics
        return metrics != self._said and any(name.startswith(VALIDATION) for name in metrics)

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
        self._said = self._progress.metrics
        print(*status, self._epoch(), self._iteration(), *_items(self._said), sep=", ", file=self._file, flush=True)

    def _epoch(self) -> str:
        of = "" if self._progress.epochs is None else f"/{self._progress.epochs}"
        return f"epoch {self._progress.epoch + 1}{of}"

    def _iteration(self) -> str:
        of = "" if self._progress.iterations is None else f"/{self._progress.iterations}"
        left = f", {duration(left_s)} left" if (left_s := self._progress.left_s) else ""
        return f"iteration {self._progress.iteration}{of}{left}"


class ProgressBar(ProgressLines):
    """A bar that is refreshed every so many iterations, at the end of each epoch, and when the run is over.

    It is full when this run is over, whatever ran before. Where a line has not room for all metrics, the last ones are
    left out as a whole. The results of a validation stay on show until the next one.
    """

    def __init__(self, history: History, every: int, file: TextIO) -> None:
        from tqdm import tqdm  # only a terminal pays for it

        super().__init__(history, every, file)
        self._began_at = self._progress.iteration
        self._validated: dict[str, float] = {}
        # We say when it is refreshed: no thread has to watch over that.
        kind: Any = type("Bar", (tqdm,), {"monitor_interval": 0, "metrics": {}, "trains": True, "__str__": _fitted})
        self._bar = kind(desc=self._epoch(), total=self._total(), file=file, mininterval=0, miniters=0)
        self._beside = Beside(self._bar)

    def close(self) -> None:
        """End its line; what somebody has begun to print comes below it."""
        try:
            with contextlib.suppress(Exception):  # a terminal that is gone
                self._bar.close()
            super().close()
        finally:
            self._beside.end()

    def _has_news(self) -> bool:
        return True

    def _total(self) -> int | None:
        planned = self._progress.iterations
        return None if planned is None else planned - self._began_at

    def _say(self, final: bool) -> None:
        bar, status, metrics = self._bar, self._progress.status, self._progress.metrics
        self._validated |= {name: value for name, value in metrics.items() if name.startswith(VALIDATION)}
        bar.trains = status == "training"
        bar.metrics = _by_weight(metrics | self._validated)
        bar.total = self._total()
        bar.set_description_str(self._epoch() if bar.trains else f"{self._epoch()}, {status}", refresh=False)
        bar.update(self._progress.iteration - self._began_at - bar.n)


def _by_weight(metrics: dict[str, float]) -> dict[str, float]:
    """Each metric, with its validation next to it: what stands first stays longest where there is little room.

    >>> list(_by_weight({"loss": 0.1, "accuracy": 0.5, "validation_loss": 0.2, "validation_accuracy": 0.4}))
    ['loss', 'validation_loss', 'accuracy', 'validation_accuracy']
    """
    trained = [name for name in metrics if not name.startswith(VALIDATION)]
    names = [each for name in trained for each in (name, VALIDATION + name) if each in metrics]
    return {name: metrics[name] for name in [*names, *metrics]}


_WIDE = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_fmt}{postfix}]"
_NARROW = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{remaining} left{postfix}]"
_BARE = "{desc}: {n_fmt}/{total_fmt} [{remaining} left{postfix}]"
_OPEN = "{desc}: {n_fmt} [{elapsed}, {rate_fmt}{postfix}]", "{desc}: {n_fmt} [{elapsed}{postfix}]"
"""Where nobody knows how many there will be."""

_LEAST_BAR = 4


def _fitted(bar: Any) -> str:
    """A bar's line, as wide as the terminal at most: no number is ever cut."""
    columns = _columns(bar.fp) - 1
    for form, postfix in _forms(bar.metrics, is_open=not bar.total):
        if not bar.trains:  # nothing is left to wait for
            form = form.replace("<{remaining}", "").replace("{remaining} left", "{elapsed}")
        known = bar.format_dict | {"bar_format": form, "postfix": postfix}
        width = _width(bar.format_meter(**known | {"ncols": None}))
        if "{bar}" in form:
            width += _LEAST_BAR - 10  # tqdm's own, where no width is given
        if width <= columns:
            return str(bar.format_meter(**known | {"ncols": columns}))
    return ""


def _forms(metrics: dict[str, float], is_open: bool) -> Iterator[tuple[str, str]]:
    """Ways to write a line, the best first: what is said of the pace goes before a metric does."""
    wide, narrow, bare = (*_OPEN, _OPEN[1]) if is_open else (_WIDE, _NARROW, _BARE)
    items = _items(metrics)
    yield wide, ", ".join(items)
    yield narrow, ", ".join(items)
    items = [item.replace(VALIDATION, "val_", 1).removeprefix("mean ") for item in items]
    yield narrow, ", ".join(items)
    for form, least in ((narrow, 2), (bare, 0)):  # the loss and its validation are more than a bar
        for n in range(len(items) - 1, least - 1, -1):
            yield form, ", ".join([*items[:n], "…"])
    yield "{desc}: {n_fmt}" if is_open else "{desc}: {n_fmt}/{total_fmt}", ""
    yield "{n_fmt}" if is_open else "{n_fmt}/{total_fmt}", ""


def _items(metrics: dict[str, float]) -> list[str]:
    return [f"{'mean loss' if name == 'loss' else name} {glance(value)}" for name, value in metrics.items()]


def _width(line: str) -> int:
    from tqdm.utils import disp_len

    return int(disp_len(line))


def _columns(file: Any) -> int:
    """How wide a terminal is, or as good as any where it does not say."""
    try:
        columns = os.get_terminal_size(file.fileno()).columns
    except (OSError, ValueError, AttributeError):  # no terminal after all
        columns = 0
    return columns or shutil.get_terminal_size().columns


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
