"""Events of a loop, and the handlers that listen to them."""

from __future__ import annotations

import operator
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from gradviz.errors import EventError, HandlerWarning, described, nearest, warn
from gradviz.loop.data import takes_one
from gradviz.loop.filters import ALWAYS, Filter
from gradviz.loop.metrics.metric import Shown
from gradviz.loop.same import is_same_handler
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
CONTROLS = ("halt_epoch", "halt_loop")
ENDS = ("completed", "halted")
"""Those after which nothing is left to halt, so that every handler is called."""

Status = Literal["idle", "training", "paused", "completed", "halted", "interrupted", "failed"]


@dataclass
class State:
    """Where a loop stands; what handlers are given.

    Attributes
    ----------
    iteration : int
        Index of the current iteration over the whole run, in every handler; the number run once a run is over, for
        handlers of ``"completed"`` and ``"halted"`` too.
    epoch, epoch_iteration : int
        Index of the current epoch, and of the iteration within it; once a run is over, the number of epochs run, those
        that were broken off too.
    metrics : dict of str to numpy scalar
        What each metric comes to in this epoch so far: means weighted by the number of examples, or what it is
        accumulated by; float32, or float64 where the values are. Where the newest value is not finite it shows itself;
        what the finite ones come to is back at the next iteration, and when the epoch is completed. Results of a
        validation join it, until the epoch is over and the next begins.
    step_state : StepState
        What the last step left behind; empty before the first run.
    status : str
        "idle", "training", "paused", "completed", "halted", "interrupted" or "failed".
    event_counts : dict of str to int
        How often each event fired over the whole run; once each time, however many handlers it has.
    epoch_event_counts : dict of str to int
        How often ``"iteration_started"`` and ``"iteration_completed"`` fired in this epoch; 0 again once it is over.
    times : dict of int to float
        Seconds each epoch took, pauses left out.
    restored_epoch : int or None
        Index of the epoch whose values the model has since the run was over, by ``early_stop(..., restore_best=True)``;
        `metrics` are those of the last epoch all the same. None in a run, and after one that nothing was restored in.
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
    restored_epoch: int | None = None

    def show(self, metrics: Shown) -> None:
        """Let `metrics` be these, made when somebody looks."""
        self.__dict__["_shown"] = metrics
        self.__dict__.pop("metrics", None)

    def __getattr__(self, name: str) -> Any:
        # It never becomes an attribute of this name: another thread that looks could put an older one over a newer.
        if name == "metrics" and "_shown" in self.__dict__:
            return self.__dict__["_shown"].made
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        metrics = ", ".join(f"{name} {value:.4g}" for name, value in self.metrics.items())
        return f"State: {self.status}, iteration {self.iteration:,}, epoch {self.epoch}" + (
            f"; {metrics}" if metrics else ""
        )


Handler = Callable[[State], Control | None]


@dataclass
class Attached:
    """A handler at an event, when it is called, and whether it is a function of the user's."""

    handler: Handler
    filter: Filter
    comes_last: bool
    is_users: bool


class Handlers:
    """Handlers by event, in the order they were attached.

    A handler with a memory is an object with a `name`, its key in a checkpoint, and with ``state_dict()`` and
    ``load_state_dict(state)``. One that has ``succeed(earlier)`` is told whose place it takes, or None, before it is
    attached.
    """

    def __init__(self, on_error: OnError = "raise", warner: Warner | None = None) -> None:
        self._on_error = on_error
        self._warner = warner or Warner()
        self._attached: dict[str, list[Attached]] = {event: [] for event in EVENTS}
        self.said: Control | None = None
        """Where to halt, as the handlers of the event have said that were called before the one that is."""
        self.loop: weakref.ref[object] | None = None
        """Whose handlers they are: its methods return it, and so may a lambda that calls one."""

    def add(
        self,
        event: str | Iterable[str],
        handler: Handler,
        filter: Filter = ALWAYS,
        *,
        comes_last: bool = False,
        is_users: bool = False,
    ) -> None:
        """Attach a handler; one that a notebook cell, run again, attaches again takes the place of the older.

        While an event goes through its handlers, those attached in it wait for the next one.

        Parameters
        ----------
        event : str or iterable of str
            ``"all"`` for each there is.
        handler : callable
        filter : Filter
        comes_last : bool
            Call it after all others, also after one that has said where to halt: what it writes is how things stand
            when the event is over.
        is_users : bool
            It is a function of the user's, which may do anything.

        Raises
        ------
        EventError
            If there is no such event, it has no counts in an epoch to filter by, or the handler cannot be called;
            nothing is attached then.
        """
        events = named_events(event)
        if not callable(handler):
            raise EventError(
                f"A handler is a function of the state; got {described(handler)}. Write "
                f"loop.handle_event({events[0]!r}, lambda state: ...)."
            )
        if is_users and not takes_one(handler):
            raise EventError(
                f"A handler is called with the state alone, which {_name(handler)} does not take. Write "
                "lambda state: ..., or def handler(state): ..."
            )
        if filter.per == "epoch" and (whole := [event for event in events if event not in PER_ITERATION]):
            raise EventError(
                f'{whole[0]!r} is not counted anew in each epoch; leave out per="epoch", or name another event.'
            )
        places = [self._place(event, handler) for event in events]
        if hasattr(handler, "succeed"):
            earlier = zip(events, places, strict=True)
            handler.succeed(next((self._attached[e][at].handler for e, at in earlier if at is not None), None))
        for event, place in zip(events, places, strict=True):
            attached = self._attached[event]
            if place is None:
                attached.append(Attached(handler, filter, comes_last, is_users))
            else:
                attached[place] = Attached(handler, filter, comes_last, is_users)
            attached.sort(key=operator.attrgetter("comes_last"))

    def remove(self, handler: Handler, events: Iterable[str] = EVENTS) -> None:
        """Call it no more at these events."""
        for event in events:
            place = self._place(event, handler)
            if place is not None:
                del self._attached[event][place]

    def _place(self, event: str, handler: Handler) -> int | None:
        attached = self._attached[event]
        return next((at for at, each in enumerate(attached) if is_same_handler(each.handler, handler)), None)

    def at(self, event: str) -> tuple[Attached, ...]:
        """Those of an event, in the order in which they are called."""
        return tuple(self._attached[event])

    def __iter__(self) -> Iterator[Handler]:
        """Each handler once, at however many events it is."""
        return iter(self.named().values())

    def fire(
        self, event: str, state: State, around: Callable[[str], AbstractContextManager[object]] = nullcontext
    ) -> Control | None:
        """Run the handlers of an event, within what `around` gives; the first control word ends it."""
        state.event_counts[event] += 1
        if event in PER_ITERATION:
            state.epoch_event_counts[event] += 1
        elif event in ("epoch_started", "epoch_completed", "epoch_halted"):
            state.epoch_event_counts.update(dict.fromkeys(PER_ITERATION, 0))
        if not self._attached[event]:
            return None
        control: Control | None = None
        with around(event):
            for each in self.at(event):
                self.said = control
                if control is None or each.comes_last or event in ENDS:
                    said = self._call(each, event, state)
                    control = said if control is None else control
        return control

    def _call(self, attached: Attached, event: str, state: State) -> Control | None:
        handler = attached.handler
        try:
            if not attached.filter(state, state.event_counts[event], state.epoch_event_counts.get(event, 0)):
                return None
            said = handler(state)
            if said is not None and self.loop is not None and said is self.loop():
                return None
            return _control(said, handler, event)
        except Exception as error:
            error.add_note(f"In the handler {_name(handler)} for {event!r}, at iteration {state.iteration}.")
            if self._on_error == "raise":
                raise
            self._warner.warn(error, handler)
            return None

    def state_dict(self) -> dict[str, Any]:
        """What handlers remember, those that have a ``state_dict`` of their own, by event and name."""
        return {key: handler.state_dict() for key, handler in self.named().items() if hasattr(handler, "state_dict")}

    def load_state_dict(self, remembered: dict[str, Any]) -> list[str]:
        """Give handlers back what they remembered; the keys of those that are not attached."""
        named, unknown = self.named(), []
        for key, state in remembered.items():
            handler = named.get(key)
            if handler is not None and hasattr(handler, "load_state_dict"):
                handler.load_state_dict(state)
            else:
                unknown.append(key)
        return unknown

    def named(self) -> dict[str, Handler]:
        """By event, name, and a number where several are alike; one that is attached to several events, once."""
        named: dict[str, Handler] = {}
        seen: set[int] = set()
        alike: Counter[str] = Counter()
        for event, attached in self._attached.items():
            for each in attached:
                if id(each.handler) not in seen:
                    seen.add(id(each.handler))
                    kind = f"{event}: {_name(each.handler)}"
                    named[f"{kind} #{alike[kind]}"] = each.handler
                    alike[kind] += 1
        return named


def named_events(event: str | Iterable[str], known: Sequence[str] = EVENTS) -> list[str]:
    """The events that are meant, each once.

    Raises
    ------
    EventError
        If there is none, or no such event.

    Examples
    --------
    >>> named_events(["completed", "halted", "completed"])
    ['completed', 'halted']
    >>> named_events("all") == list(EVENTS)
    True
    """
    if not isinstance(event, str | Iterable):
        raise EventError(f'An event is a name such as "epoch_completed", or a list of names; got {described(event)}.')
    names = [event] if isinstance(event, str) else list(event)
    if not names:
        raise EventError(f"An empty list names no event; known: {', '.join(known)}.")
    for name in names:
        if name not in (*known, "all"):
            raise EventError(f"No event is called {name!r}: {nearest(str(name), known)}")
    return list(dict.fromkeys(each for name in names for each in (known if name == "all" else [name])))


def _name(handler: Handler) -> str:
    """What a handler goes by, in errors and checkpoints."""
    own = getattr(handler, "name", None)
    return own if isinstance(own, str) else getattr(handler, "__qualname__", type(handler).__name__)


def _control(said: Any, handler: Handler, event: str) -> Control | None:
    if said is None or (isinstance(said, str) and said in CONTROLS):
        return said  # type: ignore[return-value]
    raise EventError(
        f"The handler {_name(handler)} for {event!r} returned {_brief(said)}; it may return None, "
        '"halt_epoch" or "halt_loop". A lambda returns what it calls: write def handler(state): ..., '
        "without a return."
    )


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
