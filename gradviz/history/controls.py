"""What a picture may ask of the run that it shows, as a whole: to pause, to go on, to take one iteration, to stop."""

from __future__ import annotations

from typing import Literal, Protocol

Verb = Literal["pause", "unpause", "step", "stop"]
VERBS: tuple[Verb, ...] = ("pause", "unpause", "step", "stop")


class Controls(Protocol):
    """Of a run that is under way; they may be used on any thread.

    Attributes
    ----------
    run : int
        Another number for each run, so that a wish that comes late is not taken for one of the next run.
    """

    run: int

    @property
    def blocks(self) -> bool:
        """Whether the run is in the main thread, which hears of nothing else meanwhile."""

    def __call__(self, verb: Verb) -> str:
        """Do it, at once or after the iteration that is under way, and say in words which.

        Raises
        ------
        LoopError
            If the run is over, or cannot do that.
        """
