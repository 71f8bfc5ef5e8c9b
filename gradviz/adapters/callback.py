"""What the callbacks of all libraries share: a watch that a trainer of somebody else's begins, marks and ends."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypedDict, Unpack

from torch import nn
from torch.optim import Optimizer

from gradviz.errors import HistoryError, RecordingWarning, names_nearest_keyword, warn
from gradviz.grad.capture.capture import Capture
from gradviz.history.history import History
from gradviz.history.run.keeper import IfExists
from gradviz.recorder.settings import Record, Settings
from gradviz.watching.watch import Watch, watch


class Options(TypedDict, total=False):
    """The options of `watch`, but for the scaler, which the trainer has."""

    capture: Capture | None
    record: Record
    every: int
    stages: Iterable[str]
    budget: float | None
    histograms_every: int | None
    save_to: str | os.PathLike[str] | None
    if_exists: IfExists
    flush_interval_s: float
    memory_limit: int | str
    example_ids: Callable[[], Sequence[Any]] | None


_OF_SETTINGS = frozenset(each.name for each in fields(Settings))


class Watching:
    """A callback, but for the calls."""

    @names_nearest_keyword
    def __init__(self, **options: Unpack[Options]) -> None:
        self._options = options
        settings: dict[str, Any] = {name: value for name, value in options.items() if name in _OF_SETTINGS}
        Settings(**settings)  # what is wrong shows here, and not when the training begins
        self._watch: Watch | None = None
        self._left_out: set[str] = set()

    @property
    def watch(self) -> Watch:
        """That of the training under way, or of the last one."""
        if self._watch is None:
            raise HistoryError(
                "There is nothing to see before the training has begun. What other processes train is read from its "
                'folder: with WatchCallback(save_to="runs/a"), gv.History.open("runs/a").'
            )
        return self._watch

    @property
    def history(self) -> History:
        """Gradients and metrics of every iteration so far."""
        return self.watch.history

    def _begin(self, model: nn.Module, optimizer: Optimizer | Iterable[Optimizer], scaler: Any = None) -> None:
        self._watch = watch(model, optimizer, scaler=scaler, **self._options)

    @property
    def _is_open(self) -> bool:
        return self._watch is not None and self._watch.is_open

    def _mark(self, given: Mapping[str, Any]) -> None:
        """Mark the epoch, and what others have named: what the history does not take is left out."""
        for name, value in given.items():
            try:
                self.watch.mark(**{name: value})
            except HistoryError as error:
                if name not in self._left_out:
                    self._left_out.add(name)
                    warn(f"{name} is left out of the history: {error} Said once.", RecordingWarning)

    def _end(self, error: BaseException | None = None) -> None:
        if self._watch is not None:
            self._watch.__exit__(type(error) if error else None, error, None)
