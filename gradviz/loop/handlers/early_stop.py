"""A run that ends once a metric no longer improves, with the values that the model had at its best if one likes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gradviz.errors import EventError, ModelError
from gradviz.loop.events import ENDS, Control, State
from gradviz.loop.handlers.monitor import Watched
from gradviz.step.tensors import write
from gradviz.step.train_step import TrainStep


class EarlyStop:
    """Halts the loop once a metric is stalled; at the end of a run, with `best_of`, it puts the best values back.

    Two of one metric at one event are the same handler: the one of less patience would decide anyway.

    Parameters
    ----------
    watched : Watched
    events : list of str
        At which it looks.
    best_of : TrainStep, optional
        Whose parameters and buffers are kept whenever the metric improves, with what the optimizer has in place of
        16-bit ones.
    """

    def __init__(self, watched: Watched, events: list[str], best_of: TrainStep | None = None) -> None:
        if at_the_end := [event for event in events if event in ENDS]:
            raise EventError(f"At {at_the_end[0]!r} the run is over, and there is nothing left to stop.")
        self._watched = watched
        self._events = events
        self._best_of = best_of
        self._best: dict[str, dict[str, Tensor]] | None = None
        self._best_epoch: int | None = None
        self.metric = watched.metric
        self.name = f"early_stop({watched.metric})"

    def __eq__(self, other: object) -> bool:
        mine = (self._watched.metric, self._events)
        return isinstance(other, EarlyStop) and mine == (other._watched.metric, other._events)

    __hash__ = None  # type: ignore[assignment]

    def succeed(self, earlier: EarlyStop | None) -> None:
        """Know what the one has seen whose place this takes."""
        if earlier is not None and earlier._watched.mode == self._watched.mode:
            self.load_state_dict(earlier.state_dict())

    def __call__(self, state: State) -> Control | None:
        """Look; at the end of a run, restore."""
        if state.status in ENDS:
            self._restore(state)
            return None
        verdict = self._watched.look(state)
        if verdict == "improved" and self._best_of is not None:
            self._best, self._best_epoch = _copied(self._best_of), state.epoch
        return "halt_loop" if verdict == "stalled" else None

    def _restore(self, state: State) -> None:
        if self._best_of is not None and self._best is not None:
            _put_back(self._best, self._best_of, self.name)
            state.restored_epoch = self._best_epoch

    def state_dict(self) -> dict[str, Any]:
        """What it has seen; the best values by name, if they are kept: parameters, buffers and float32 copies."""
        return {**self._watched.state_dict(), "values": self._best, "epoch": self._best_epoch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._watched.load_state_dict(state)
        self._best = None if self._best_of is None else state["values"]
        self._best_epoch = state.get("epoch")


def _tensors(step: TrainStep) -> dict[str, dict[str, Tensor]]:
    """What a step trains, by name; the float32 copies of 16-bit parameters first, since those follow them."""
    parameters = step.model_state.parameters
    copies = {name: step.masters.of(p) for name, p in parameters.items() if step.masters.of(p) is not p}
    return {"masters": copies, "model": dict(step.model_state)}


def _copied(step: TrainStep) -> dict[str, dict[str, Tensor]]:
    return {
        kind: {name: tensor.detach().clone() for name, tensor in tensors.items()}
        for kind, tensors in _tensors(step).items()
    }


def _put_back(best: dict[str, dict[str, Tensor]], step: TrainStep, name: str) -> None:
    now = _tensors(step)
    for kind, tensors in now.items():
        for changed in sorted(tensors.keys() ^ best[kind].keys()):
            raise ModelError(f"{name} cannot put the best values back: {changed!r} has joined or left the model since.")
        for changed in (key for key, tensor in tensors.items() if tensor.shape != best[kind][key].shape):
            raise ModelError(f"{name} cannot put the best values back: {changed!r} has another shape since.")
    with torch.no_grad():
        for kind, tensors in now.items():
            for key, tensor in tensors.items():
                write(best[kind][key].to(tensor.device), tensor)
