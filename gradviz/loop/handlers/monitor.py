"""When a metric no longer improves: `Watched`, and `Monitor`, which calls a function then."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from gradviz.errors import MetricError, at_least_0, described, nearest, whole
from gradviz.loop.data import not_of_the_state, takes_one
from gradviz.loop.events import Control, Handler, State
from gradviz.loop.metrics.measured import VALIDATION
from gradviz.loop.same import is_same_handler
from gradviz.step.model_state import ModelState

Mode = Literal["min", "max"]
Verdict = Literal["improved", "waiting", "stalled"]


@dataclass
class Watched:
    """A metric, the best it has been, and for how many looks in a row it has not improved.

    Parameters
    ----------
    metric : str
        A key of `state.metrics`.
    mode : {"min", "max"}
        Whether lower or higher is better.
    patience : int
        How many looks in a row without an improvement are borne; the next one finds it stalled, and counting begins
        anew. The best stays.
    min_delta : float
        It improves by more than this or not at all. NaN never does.
    keeps_model : bool
        Whether the model is kept at its best. With NaN or infinite parameters it is none, even where the mean of an
        epoch is better: that leaves out the batches from where on there were no numbers.

    Raises
    ------
    ValueError
        If an argument is not of its kind.

    Examples
    --------
    >>> watched = Watched("loss", patience=1)
    >>> [watched.look(State(metrics={"loss": loss})) for loss in (3.0, 2.0, 2.0, 2.5, 2.0)]
    ['improved', 'improved', 'waiting', 'stalled', 'waiting']
    """

    metric: str
    mode: Mode = "min"
    patience: int = 3
    min_delta: float = 0.0
    keeps_model: bool = False
    best: float = field(init=False, compare=False)
    since: int = field(init=False, compare=False, default=0)

    def __post_init__(self) -> None:
        if not isinstance(self.metric, str):
            raise ValueError(f'A metric is watched by its name, such as "loss"; got {described(self.metric)}.')
        if self.mode not in ("min", "max"):
            raise ValueError(f'mode is "min" or "max"; got {self.mode!r}.')
        self.patience = whole("patience", self.patience)
        self.min_delta = at_least_0("min_delta", self.min_delta)
        self.best = math.inf if self.mode == "min" else -math.inf

    def look(self, state: State) -> Verdict:
        """Take in the metric as it is now.

        Raises
        ------
        MetricError
            If it is not there.
        """
        value = value_of(self.metric, state)
        gained = self.best - value if self.mode == "min" else value - self.best
        if gained > self.min_delta and (not self.keeps_model or _is_finite(state.step_state.model_state)):
            self.best, self.since = value, 0
            return "improved"
        self.since += 1
        if self.since <= self.patience:
            return "waiting"
        self.since = 0
        return "stalled"

    def state_dict(self) -> dict[str, Any]:
        """The best value and the looks since it, as numbers."""
        return {"best": self.best, "since": self.since}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.best, self.since = state["best"], state["since"]


class Monitor:
    """Calls a function whenever a metric has not improved for more than `patience` events."""

    def __init__(self, watched: Watched, fn: Handler) -> None:
        if not callable(fn):
            raise ValueError(f"monitor calls a function of the state; got {described(fn)}.")
        if not takes_one(fn):
            raise ValueError(not_of_the_state("fn"))
        self._watched = watched
        self._fn = fn
        self.metric = watched.metric
        self.name = f"monitor({watched.metric})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Monitor)
            and self._watched.metric == other._watched.metric
            and is_same_handler(self._fn, other._fn)
        )

    __hash__ = None  # type: ignore[assignment]

    def succeed(self, earlier: Monitor | None) -> None:
        """Know what the one has seen whose place this takes."""
        if earlier is not None and earlier._watched.mode == self._watched.mode:
            self.load_state_dict(earlier.state_dict())

    def __call__(self, state: State) -> Control | None:
        """Look, and call the function if it is time."""
        return self._fn(state) if self._watched.look(state) == "stalled" else None

    def state_dict(self) -> dict[str, Any]:
        """What it has seen: the best value, and how many events have passed since."""
        return self._watched.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._watched.load_state_dict(state)


def _is_finite(model: ModelState) -> bool:
    """Whether each parameter that is trained has nothing but numbers in it."""
    trained = [p.detach() for p in model.parameters.values() if p.requires_grad]
    return all(bool(torch.isfinite(p).all()) for p in trained)


def value_of(metric: str, state: State) -> float:
    """The value of a metric now.

    Raises
    ------
    MetricError
        If it is not there; metrics that a validation finds are there only after it.
    """
    if metric in state.metrics:
        return float(state.metrics[metric])
    if not state.metrics:
        hint = (
            "there are none at this event, before the first batch of an epoch. Name another one, such as "
            'event="epoch_completed"'
        )
    else:
        hint = nearest(metric, state.metrics)
    if metric.startswith(VALIDATION):
        hint += (
            ". The results of a validation are there after it, until its epoch is over: attach validate first, at the "
            "same event and with the same filters."
        )
    raise MetricError(f"No metric is called {metric!r}: {hint}")
