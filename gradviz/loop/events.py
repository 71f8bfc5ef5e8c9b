"""Events of a loop, and the handlers that listen to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType
from typing import Any, Literal

import numpy as np

from gradviz.errors import EventError, HandlerWarning, described, nearest, warn
from gradviz.loop.filters import ALWAYS, Filter
from gradviz.step.step_state import StepState

EVENTS = (
    "started",
    "epoch_started",
    "iteration_started",
    "iteration_completed",
    "epoch_completed",
    "epoch_halted",
    "completed",
    "halted",
)
"""In the order of a run. An epoch ends with `epoch_completed`, or with `epoch_halted` after a handler's "halt_epoch"; a
run ends with `completed`, or with `halted` after "halt_loop"."""

PER_ITERATION = ("iteration_started", "iteration_completed")
"""Those that fire several times in an epoch, so that they are counted in each too."""

OnError = Literal["raise", "warn"]
Control = Literal["halt_epoch", "halt_loop"]
CONTROLS = (None, "halt_epoch", "halt_loop")
Status = Literal["idle", "training", "completed", "halted", "interrupted", "failed"]


@dataclass
class State:
    """Where a loop stands; what handlers are given.

    Attributes
    ----------
    iteration : int
        Index of the current iteration over the whole run, in every handler; the number run, afterwards.
    epoch, epoch_iteration : int
        Index of the current epoch, and of the iteration within it; after a run, the number of epochs run.
    metrics : dict of str to numpy scalar
        What each metric comes to in this epoch so far: means weighted by the number of examples, or sums; float32, or
        float64 where the values are. Where the newest value is not finite it shows itself; the mean of the finite ones
        is back at the next iteration, and when the epoch is completed. Results of a validation join it then.
    step_state : StepState
        What the last step left behind; empty before the first run.
    status : str
        "idle", "training", "completed", "halted", "interrupted" or "failed".
    event_counts : dict of str to int
        How often each event fired over the whole run; once each time, however many handlers it has.
    epoch_event_counts : dict of str to int
        How often ``"iteration_started"`` and ``"iteration_completed"`` fired in this epoch; 0 again once it is over.
    times : dict of int to float
        Seconds each completed epoch took.
    """

    iteration: int = 0
    epoch: int = 0
    epoch_iteration: int = 0
    metrics: dict[str, np.floating[Any]] = field(default_factory=dict)
    step_state: StepState = field(default_factory=StepState)
    status: Status = "idle"
    event_counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(EVENTS, 0))
    epoch_event_counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PER_ITERATION, 0))
    times: dict[int, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        metrics = ", ".join(f"{name} {value:.4g}" for name, value in self.metrics.items())
        return f"State: {self.status}, iteration {self.iteration:,}, epoch {self.epoch}" + (
            f"; {metrics}" if metrics else ""
        )


Handler = Callable[[State], Control | None]


@dataclass
class Attached:
    """A handler at an event, and when it is called."""

    handler: Handler
    filter: Filter
    comes_last: bool


class Handlers:
    """Handlers by event, in the order they were attached."""

    def __init__(self, on_error: OnError = "raise", warner: Warner | None = None) -> None:
        self._on_error = on_error
        self._warner = warner or Warner()
        self._attached: dict[str, list[Attached]] = {event: [] for event in EVENTS}

    def add(self, event: str, handler: Handler, filter: Filter = ALWAYS, *, comes_last: bool = False) -> None:
        """Attach a handler; one that a notebook cell, run again, attaches again takes the place of the older.

        Parameters
        ----------
        event : str
        handler : callable
        filter : Filter
        comes_last : bool
            Call it after all others, also after one that has said where to halt: what it writes is how things stand
            when the event is over.

        Raises
        ------
        EventError
            If there is no such event, it has no counts in an epoch to filter by, or the handler cannot be called.
        """
        if event not in self._attached:
            raise EventError(f"No event is called {event!r}: {nearest(str(event), EVENTS)}")
        if not callable(handler):
            raise EventError(f"A handler is a function of the state; got {described(handler)}.")
        if filter.per == "epoch" and event not in PER_ITERATION:
            raise EventError(f'{event!r} is not counted anew in each epoch; leave out per="epoch".')
        new = Attached(handler, filter, comes_last)
        attached = self._attached[event]
        for place, earlier in enumerate(attached):
            if is_same_handler(earlier.handler, handler):
                attached[place] = new
                return
        attached.append(new)

    def fire(self, event: str, state: State) -> Control | None:
        """Run the handlers of an event; the first control word ends it."""
        state.event_counts[event] += 1
        if event in PER_ITERATION:
            state.epoch_event_counts[event] += 1
        elif event in ("epoch_started", "epoch_completed", "epoch_halted"):
            state.epoch_event_counts.update(dict.fromkeys(PER_ITERATION, 0))
        attached = self._attached[event]
        if not attached:
            return None
        control = self._call([each for each in attached if not each.comes_last], event, state)
        last = self._call([each for each in attached if each.comes_last], event, state)
        return control if control is not None else last

    def _call(self, attached: list[Attached], event: str, state: State) -> Control | None:
        for each in attached:
            handler = each.handler
            name = getattr(handler, "__qualname__", type(handler).__name__)
            try:
                if not each.filter(state, state.event_counts[event], state.epoch_event_counts.get(event, 0)):
                    continue
                control = handler(state)
            except Exception as error:
                error.add_note(f"In the handler {name} for {event!r}, at iteration {state.iteration}.")
                if self._on_error == "raise":
                    raise
                self._warner.warn(error, handler)
                continue
            if control not in CONTROLS:
                raise EventError(
                    f"The handler {name} for {event!r} returned {_brief(control)}; it may return None, "
                    '"halt_epoch" or "halt_loop". A lambda returns what it calls: write def handler(state): ..., '
                    "without a return."
                )
            if control is not None:
                return control
        return None

    def state_dict(self) -> dict[str, Any]:
        """What handlers remember, those that have a ``state_dict`` of their own, by event and place."""
        return {
            key: handler.state_dict()  # type: ignore[attr-defined]
            for key, handler in self._named().items()
            if hasattr(handler, "state_dict")
        }

    def load_state_dict(self, remembered: dict[str, Any]) -> list[str]:
        """Give handlers back what they remembered; the keys of those that are not attached."""
        named, unknown = self._named(), []
        for key, state in remembered.items():
            handler = named.get(key)
            if handler is not None and hasattr(handler, "load_state_dict"):
                handler.load_state_dict(state)
            else:
                unknown.append(key)
        return unknown

    def _named(self) -> dict[str, Handler]:
        """By event, kind, and a number where several are alike; one that is attached to several events, once."""
        named: dict[str, Handler] = {}
        seen: set[int] = set()
        for event, attached in self._attached.items():
            for each in attached:
                handler = each.handler
                if id(handler) in seen:
                    continue
                seen.add(id(handler))
                kind = f"{event}: {getattr(handler, 'name', getattr(handler, '__qualname__', type(handler).__name__))}"
                number = sum(key.split(" #")[0] == kind for key in named)
                named[f"{kind} #{number}"] = handler
        return named


def _brief(value: Any) -> str:
    return repr(value) if isinstance(value, str | int | float) else described(value)


class Warner:
    """Says what a user's handlers and metrics raised under ``on_error="warn"``, once for each."""

    def __init__(self) -> None:
        self._said: list[object] = []

    def warn(self, error: Exception, source: object) -> None:
        """Say it, unless the same handler or metric has failed before."""
        if source not in self._said:
            self._said.append(source)
            where = " ".join(getattr(error, "__notes__", []))
            said = f"{where} {type(error).__name__}: {error} (said once)"
            warn(said, HandlerWarning)


def is_same_handler(earlier: Any, later: Any) -> bool:
    """Whether `later` is `earlier` defined once more, as when a notebook cell runs again.

    The same object; or functions of the same module and name with the same defaults and closure, and, for lambdas and
    functions made inside others, the same code.

    Examples
    --------
    >>> def make(n): return lambda state: n
    >>> is_same_handler(make(1), make(1)), is_same_handler(make(1), make(2))
    (True, False)
    """
    if earlier is later or (not isinstance(later, FunctionType) and earlier == later):
        return True
    if isinstance(earlier, partial) and isinstance(later, partial):
        arguments = [[*p.args, *p.keywords.values()] for p in (earlier, later)]
        same_names = list(earlier.keywords) == list(later.keywords)
        return same_names and _same_objects(*arguments) and is_same_handler(earlier.func, later.func)
    if not (isinstance(earlier, FunctionType) and isinstance(later, FunctionType)):
        return False
    if (earlier.__module__, earlier.__qualname__) != (later.__module__, later.__qualname__):
        return False
    if "<" in later.__qualname__ and earlier.__code__ != later.__code__:
        return False
    return _same_objects(_bound(earlier), _bound(later))


def _bound(function: FunctionType) -> list[Any]:
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    return [*cells, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]


def _same_objects(earlier: list[Any], later: list[Any]) -> bool:
    # By identity: comparing tensors or frames by value is no yes or no.
    return len(earlier) == len(later) and all(a is b for a, b in zip(earlier, later, strict=True))
