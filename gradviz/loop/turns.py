"""Whose turn it is: a loop does one thing at a time, and a model is trained by one thread at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast
from weakref import WeakSet

from torch import nn

from gradviz.errors import LoopError

if TYPE_CHECKING:
    from gradviz.history.controls import Controls
    from gradviz.loop.background import Worker
    from gradviz.loop.loop import Loop
    from gradviz.loop.stretch import Stretch
    from gradviz.loop.training import Training

_taking = threading.Lock()
_trained: WeakSet[Turns] = WeakSet()
"""Every loop that has ever had a turn, for as long as somebody holds it; whether it has one, it says itself."""


def running() -> list[Loop]:
    """The loops that train right now, in the background or elsewhere, paused or not; the longest under way comes first.

    It reaches a loop whose name has been given to another one, as when a notebook cell is run again while what it
    started still trains.

    Returns
    -------
    list of Loop

    Examples
    --------
    >>> import torch, gradviz as gv
    >>> from torch import nn
    >>> model = nn.Linear(2, 1)
    >>> data = [(torch.ones(4, 2), torch.ones(4, 1))] * 10
    >>> loop = gv.trainer(model, "mean_squared_error", "sgd").start(data, epochs=100_000)
    >>> loop = gv.trainer(model, "mean_squared_error", "sgd")
    >>> for old in gv.running():
    ...     print(old.stop().wait().status)
    halted
    >>> loop.start(data).wait().status
    'completed'
    """
    with _taking:
        return cast("list[Loop]", [loop for loop, _ in _under_way()])


def check_not_trained(model: nn.Module, what: str, instead: str, *, unless_paused: bool = False) -> None:
    """Raise if another thread trains the model.

    Parameters
    ----------
    model : torch.nn.Module
    what : str
        What would be done with it, in words.
    instead : str
        What to do.
    unless_paused : bool
        Whether it may be done while nothing moves.

    Raises
    ------
    LoopError
    """
    with _taking:
        for loop, stretch in _under_way():
            rests = unless_paused and loop._training.state.status == "paused"
            if not rests and not stretch.is_in_this_thread and loop._shares(model) is not None:
                raise LoopError(f"{loop!r} trains this model {loop._where()}, and {what}. {instead}")


def _under_way() -> list[tuple[Turns, Stretch]]:
    """Loops that have a turn, with what they do in it."""
    found = [(loop, stretch) for loop in _trained if (stretch := loop._in_turn()) is not None]
    return sorted(found, key=lambda each: each[1].since)


class Turns:
    """Something that trains, here or in a thread of its own, and whose turn it is or not."""

    _training: Training
    _under_way: Stretch | None = None
    _worker: Worker | None = None

    def _controls(self, stretch: Stretch, in_background: bool) -> Controls:
        raise NotImplementedError

    @contextmanager
    def _turn(self, stretch: Stretch) -> Iterator[None]:
        self._take_turn(stretch)
        try:
            yield
        finally:
            self._give_turn(stretch)

    def _take_turn(self, stretch: Stretch, *, in_background: bool = False) -> None:
        with _taking:
            self._check_own_turn()
            self._check_others(in_background)
            self._worker, self._under_way = None, stretch
            self._training.history.controls = self._controls(stretch, in_background)
            _trained.add(self)

    def _give_turn(self, stretch: Stretch) -> None:
        if self._under_way is stretch:
            self._under_way = self._training.history.controls = None

    def _check_idle(self) -> None:
        """Raise if a run is under way, of this loop, or of another one on what this trains."""
        with _taking:
            self._check_own_turn()
            self._check_others(in_background=False)

    def _in_turn(self) -> Stretch | None:
        """What it does in its turn; None if it has none, or only had to wait for a thread that puts things back."""
        stretch, worker = self._under_way, self._worker
        if stretch is not None and stretch.is_over and worker is not None and not worker.is_here:
            worker.join()
            return None
        return stretch

    def _check_own_turn(self) -> None:
        if self._in_turn() is not None:
            where = "in the background" if self._worker else "already"
            ends = "loop.stop().wait()" if self._worker else "loop.stop()"
            raise LoopError(f"This loop trains {where}, and does one thing at a time; {ends} ends that.")

    def _check_others(self, in_background: bool) -> None:
        """In one thread loops take turns, as two streams do; in two they would write into one model at once."""
        for other, stretch in _under_way():
            shared = None if other is self else other._shares(self._training.step.model)
            if shared is not None and (in_background or not stretch.is_in_this_thread):
                ends = "old.stop().wait()" if other._worker else "old.stop()"
                raise LoopError(
                    f"{other!r} trains {shared} {other._where()}; two at once would write into the same tensors. End "
                    f"it first, whatever it is called by now: for old in gv.running(): {ends}"
                )

    def _shares(self, model: nn.Module) -> str | None:
        """What this trains of a model, in words; None if nothing. Who shares an optimizer shares its parameters."""
        step = self._training.step
        if model is step.model:
            return "the same model"
        mine = {id(tensor) for tensor in (*step.model.parameters(), *step.model.buffers())}
        for kind, named in (("parameter", model.named_parameters()), ("buffer", model.named_buffers())):
            for name, tensor in named:
                if id(tensor) in mine:
                    return f"the {kind} {name!r} too"
        return None

    def _where(self) -> str:
        """Where it trains, and since when."""
        stretch = self._under_way
        assert stretch is not None
        if self._worker is not None:
            where = "in the background"
        else:
            where = "in this thread" if stretch.is_in_this_thread else "in another thread"
        return f"{where} since {time.strftime('%H:%M:%S', time.localtime(stretch.since))}"

    def _check_here(self, what: str) -> None:
        """Raise if a run is under way in another thread."""
        stretch = self._under_way
        if stretch is not None and not stretch.is_over and not stretch.is_in_this_thread:
            raise LoopError(
                f"loop.{what}() would change what the training in the background reads; loop.stop().wait() ends it."
            )

    def _asked(self, what: str) -> Stretch:
        stretch = self._under_way
        if stretch is None or stretch.is_over:
            raise LoopError(f"loop.{what}() is for a run under way, and there is none: loop.start(data) begins one.")
        return stretch
