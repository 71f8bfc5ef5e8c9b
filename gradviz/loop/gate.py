"""What can be asked of a run from outside, at any time: to pause, to go on, to stop, to do something in between."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Condition

HEARD_S = 0.2
"""So long a run rests in one go. Python hears of a signal that came in another thread only when it does something."""


class Gate:
    """Between two iterations: where a run waits while it is paused, and hears that it should stop.

    Attributes
    ----------
    asked : bool
        Whether the run has to look here at all.
    shut : bool
        Whether it should wait.
    steps : int
        Iterations that may pass although it is shut.
    stops : bool
        Whether it should stop.

    Examples
    --------
    >>> gate = Gate()
    >>> gate.close()
    >>> gate.asked, gate.shut
    (True, True)
    >>> gate.stop()
    >>> gate.stops, gate.shut
    (True, False)
    """

    def __init__(self) -> None:
        self.asked = self.shut = self.stops = False
        self.steps = 0
        self._tasks: deque[Callable[[bool], None]] = deque()
        self._rests = self._over = False
        self._changed = Condition()

    def close(self) -> None:
        """Ask the run to wait here."""
        with self._changed:
            if not self.stops:
                self.shut = self.asked = True

    def open(self) -> None:
        """Let it go on."""
        with self._changed:
            self.shut = self._rests = False
            self.steps = 0
            self.asked = self.stops or bool(self._tasks)
            self._changed.notify_all()

    def step(self) -> None:
        """Let one iteration pass; the gate stays shut behind it."""
        with self._changed:
            if self.shut:
                self.steps += 1
                self._rests = False
                self._changed.notify_all()

    def took_step(self) -> None:
        """An iteration has passed."""
        with self._changed:
            self.steps = max(self.steps - 1, 0)

    def stop(self) -> None:
        """Ask it to stop, also while it waits."""
        with self._changed:
            self.stops = self.asked = True
            self.shut = self._rests = False
            self.steps = 0
            self._changed.notify_all()

    def put(self, task: Callable[[bool], None]) -> None:
        """Have the run do something between two iterations, also while it rests.

        Parameters
        ----------
        task : callable
            Is given True by the run, or False where the run is over and will not do it.
        """
        with self._changed:
            if not self._over:
                self._tasks.append(task)
                self.asked = True
                self._changed.notify_all()
                return
        task(False)

    def do_tasks(self) -> None:
        """The run does what was put here."""
        while self._tasks:
            self._tasks.popleft()(True)
        with self._changed:
            self.asked = self.shut or self.stops or bool(self._tasks)

    @property
    def holds(self) -> bool:
        """Whether the run waits here now."""
        return self.shut and not self.steps

    def rest(self) -> None:
        """The run waits until it may pass, or there is something to do."""
        with self._changed:
            while self.holds and not self._tasks:
                self._rests = True
                self._changed.notify_all()
                self._changed.wait(HEARD_S)

    def leave(self) -> None:
        """The run is over; nobody need wait for it to rest, nor for what was put here."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
        while self._tasks:
            self._tasks.popleft()(False)

    def wait_until_it_rests(self) -> None:
        """Wait until the run stands here, so that nothing moves; or is over, or may go on."""
        with self._changed:
            self._changed.wait_for(lambda: self._rests or self._over or not self.shut)
