"""Any of torch's learning rate schedulers, a step at each event."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from gradviz.errors import ScheduleError, described
from gradviz.loop.events import State
from gradviz.loop.same import is_same_handler

Make = Callable[[Optimizer], LRScheduler]

_INSTEAD = "functools.partial(torch.optim.lr_scheduler.StepLR, step_size=2)"


class Schedule:
    """Steps a scheduler.

    Two of one kind are the same handler, whatever their arguments; different ones work together, as in torch.

    Parameters
    ----------
    make : callable or LRScheduler
        A factory, which is given the optimizer, or a scheduler of this very optimizer.
    optimizer : torch.optim.Optimizer

    Raises
    ------
    ScheduleError
        If it is neither, or of another optimizer.
    """

    def __init__(self, make: Make | LRScheduler, optimizer: Optimizer) -> None:
        self._make = make
        self._optimizer = optimizer
        self._scheduler: LRScheduler | None = None
        if isinstance(make, LRScheduler):
            self._scheduler = checked(make, optimizer)
        elif not callable(make) or (isinstance(make, type) and not issubclass(make, LRScheduler)):
            raise ScheduleError(
                f"A schedule is a torch.optim.lr_scheduler, or a factory of one; got {described(make)}. Write "
                f"{_INSTEAD}."
            )
        kind = _kind(make)
        self.name = f"lr_schedule({getattr(kind, '__qualname__', type(kind).__name__)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and is_same_handler(_kind(self._make), _kind(other._make))

    __hash__ = None  # type: ignore[assignment]

    def succeed(self, earlier: Schedule | None) -> None:
        """Begin; or go on where an equal one stands, when a notebook cell runs again.

        Torch's schedulers set the learning rate as soon as they are made.
        """
        if self._scheduler is None and earlier is not None and _is_said_again(earlier._make, self._make):
            self._scheduler = earlier._scheduler
        if self._scheduler is None:
            check_learning_rate(self._optimizer)
            self._scheduler = checked(self._made(), self._optimizer)

    def _made(self) -> Any:
        make: Any = self._make
        try:
            inspect.signature(make).bind(self._optimizer)
        except TypeError as error:
            raise ScheduleError(_more_than_the_optimizer(make, error)) from None
        except ValueError:  # written in C, with a signature that cannot be read
            pass
        try:
            return make(self._optimizer)
        except Exception as error:
            error.add_note(f"In the factory of a schedule, which is given the {type(self._optimizer).__name__}.")
            raise

    @property
    def scheduler(self) -> LRScheduler:
        """Torch's own."""
        assert self._scheduler is not None, "it is made when it is attached"
        return self._scheduler

    def __call__(self, state: State) -> None:
        """Take a step of the schedule."""
        if state.event_counts["iteration_completed"]:
            # Skipped steps count: torch would take the first of them for a mistake in the order of calls, and warn.
            self._optimizer._opt_called = True  # type: ignore[attr-defined]
        self.scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        """What torch's scheduler says it needs."""
        return self.scheduler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there; the learning rates themselves are the optimizer's."""
        self.scheduler.load_state_dict(state)


def checked(made: Any, optimizer: Optimizer) -> LRScheduler:
    """Torch's scheduler, of this optimizer.

    Raises
    ------
    ScheduleError
    """
    kind = type(made).__name__
    if not isinstance(made, LRScheduler):
        raise ScheduleError(
            f"The factory of a schedule returned {described(made)}, not a torch.optim.lr_scheduler. Write {_INSTEAD}."
        )
    if isinstance(made, ReduceLROnPlateau):
        raise ScheduleError(
            'ReduceLROnPlateau follows a metric. Write loop.reduce_lr_on_plateau("loss"), with the metric\'s name.'
        )
    if made.optimizer is not optimizer:
        raise ScheduleError(
            f"The {kind} sets the learning rate of another {type(made.optimizer).__name__} than the "
            f"{type(optimizer).__name__} that this loop trains with. Give a factory, which is given the loop's: "
            f"functools.partial(torch.optim.lr_scheduler.{kind}, ...)."
        )
    return made


def check_learning_rate(optimizer: Optimizer) -> None:
    """Refuse an optimizer that has none.

    Raises
    ------
    ScheduleError
    """
    if not all("lr" in group for group in optimizer.param_groups):
        raise ScheduleError(
            f"The {type(optimizer).__name__} has no learning rate that could change: no 'lr' in its param_groups."
        )


def _more_than_the_optimizer(make: Any, error: TypeError) -> str:
    kind = _kind(make)
    said = f"The factory of a schedule is given the optimizer, and nothing else: {error}. Write "
    if not (isinstance(kind, type) and issubclass(kind, LRScheduler)):
        return f"{said}{_INSTEAD}."
    parameters = list(inspect.signature(make).parameters.values())[1:]
    missing = [
        f"{p.name}=..."
        for p in parameters
        if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    return f"{said}functools.partial(torch.optim.lr_scheduler.{kind.__name__}, {', '.join(missing) or '...'})."


def _is_said_again(earlier: Any, later: Any) -> bool:
    """Whether two factories make the same; a function that was edited does not."""
    if isinstance(earlier, partial) and isinstance(later, partial):
        same_arguments = (earlier.args, earlier.keywords) == (later.args, later.keywords)
        return same_arguments and _is_said_again(earlier.func, later.func)
    same_code = getattr(earlier, "__code__", None) == getattr(later, "__code__", None)
    return same_code and is_same_handler(earlier, later)


def _kind(make: Any) -> Any:
    """What a schedule is known by: its class, or the function that makes it."""
    if isinstance(make, LRScheduler):
        return type(make)
    return make.func if isinstance(make, partial) else make
