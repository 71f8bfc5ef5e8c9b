"""At which of the times that an event fires a handler is called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from gradviz.errors import EventError, described, whole
from gradviz.loop.data import not_of_the_state, takes_one

Per = Literal["run", "epoch"]


class Filters(TypedDict, total=False):
    """The arguments of `Filter`, as methods take them that attach a handler."""

    every: int | None
    after: int | None
    before: int | None
    once: int | None
    first: bool
    when: Callable[[Any], bool] | None
    per: Per


@dataclass(frozen=True)
class Filter:
    """Conditions on an event's count, which is 1 the first time; all of them must hold.

    Parameters
    ----------
    every : int, optional
        The 1st time, the (every + 1)-th, and so on.
    after, before : int, optional
        Later than that time, or earlier; neither includes it.
    once : int, optional
        That time only.
    first : bool
        The very first time, over the whole run, only.
    when : callable, optional
        Takes the `State`, and returns whether the handler is called.
    per : {"run", "epoch"}
        Whether times are counted over the whole run or anew in each epoch.

    Raises
    ------
    EventError
        If a number is none, or an argument is not of its kind.

    Examples
    --------
    >>> [count for count in range(1, 12) if Filter(every=3, after=2)(None, count, count)]
    [4, 7, 10]
    """

    every: int | None = None
    after: int | None = None
    before: int | None = None
    once: int | None = None
    first: bool = False
    when: Callable[[Any], bool] | None = None
    per: Per = "run"

    def __post_init__(self) -> None:
        for name, least in (("every", 1), ("after", 0), ("before", 1), ("once", 1)):
            value = getattr(self, name)
            if name == "once" and value is True:
                raise EventError(
                    "once is the number of a time, once=3 the 3rd only; the first time only is once=1; got True."
                )
            if value is not None:
                object.__setattr__(self, name, whole(name, value, least=least, error=EventError))
        if not isinstance(self.first, bool):
            is_count = isinstance(self.first, int) and self.first > 0
            hint = f" For the first {self.first} times write before={self.first + 1}." if is_count else ""
            raise EventError(f"first is True or False; got {self.first!r}.{hint}")
        if self.when is not None and not callable(self.when):
            raise EventError(f"when is a function of the state that says yes or no; got {described(self.when)}.")
        if self.when is not None and not takes_one(self.when):
            raise EventError(not_of_the_state("when"))
        if self.per not in ("run", "epoch"):
            raise EventError(f'per is "run" or "epoch"; got {self.per!r}.')

    def __call__(self, state: Any, in_run: int, in_epoch: int) -> bool:
        """Whether the handler is called, the event having fired so often."""
        count = in_epoch if self.per == "epoch" else in_run
        return (
            (self.every is None or (count - 1) % self.every == 0)
            and (self.after is None or count > self.after)
            and (self.before is None or count < self.before)
            and (self.once is None or count == self.once)
            and (not self.first or in_run == 1)
            and (self.when is None or bool(self.when(state)))
        )


ALWAYS = Filter()
