"""The buttons of a picture: what they ask of a run, whichever thread they are heard on."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING

from gradviz.errors import LoopError
from gradviz.history.controls import Verb

if TYPE_CHECKING:
    from gradviz.loop.background import Controlled
    from gradviz.loop.stretch import Stretch

_numbers = itertools.count(1)


class RunControls:
    """The `Controls` of a run.

    Parameters
    ----------
    loop : Controlled
    stretch : Stretch
        The run.
    in_background : bool
        Whether it goes on in a thread of its own.
    """

    def __init__(self, loop: Controlled, stretch: Stretch, *, in_background: bool) -> None:
        self._loop, self._stretch, self._in_background = loop, stretch, in_background
        self.run = next(_numbers)

    @property
    def blocks(self) -> bool:
        """Whether it runs in the main thread, where a kernel hears of what its pages say."""
        return not self._in_background and self._stretch.is_in(threading.main_thread())

    def __call__(self, verb: Verb) -> str:
        """Ask it of the run."""
        loop = self._loop
        status = loop._training.state.status
        if loop._under_way is not self._stretch or status not in ("training", "paused"):
            raise LoopError("The run is over; nothing was done.")
        is_paused = status == "paused"
        if verb == "pause":
            loop._shut()
            return "paused" if is_paused else "pauses after this iteration"
        if verb == "unpause":
            loop.unpause()
            return "goes on"
        if verb == "step":
            loop._let_one_pass()
            return "takes one iteration"
        loop.stop()
        return "stops" if is_paused else "stops after this iteration"
