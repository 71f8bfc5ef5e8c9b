"""Training in a thread of its own, and what can be asked of a run while it is under way."""

from __future__ import annotations

import atexit
import contextvars
import sys
import threading
from collections.abc import Callable
from typing import Self

from gradviz.errors import LoopError, at_least_0, names_nearest_keyword
from gradviz.loop.controls import RunControls
from gradviz.loop.data import Data
from gradviz.loop.display import Display
from gradviz.loop.events import State
from gradviz.loop.gate import Gate
from gradviz.loop.settings import ThreadSettings
from gradviz.loop.stretch import Stretch
from gradviz.loop.turns import Turns

EXIT_S = 30.0
"""How long a program that ends waits for the iteration that is under way in the background."""


class Worker:
    """A thread that goes on with a stretch to its end.

    It is a daemon, so that a step that hangs does not keep a program from ending; a program that ends stops it, and
    waits until its last row is written.
    """

    def __init__(self, stretch: Stretch, done: Callable[[Stretch], None]) -> None:
        self._stretch, self._done = stretch, done
        self._error: BaseException | None = None
        self._handed_over = False
        self._ended = threading.Event()  # Thread.join, interrupted by Ctrl-C, takes a thread for ended that is not
        self._settings = ThreadSettings()
        # Messages from the thread find the cell by the context it was started in.
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._train,), name="gradviz training", daemon=True)

    @property
    def is_here(self) -> bool:
        """Whether this very thread is the one that asks."""
        return self._thread is threading.current_thread()

    def start(self) -> None:
        """Go on with it in the thread."""
        atexit.register(self._at_exit)
        self._thread.start()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until it has ended; whether it has."""
        return self._ended.wait(timeout)

    def hand_over(self) -> None:
        """Show, and raise, what it ended with; once."""
        error, self._error = self._error, None
        if not self._handed_over:
            self._handed_over = True
            self._stretch.shown.send_again()
        if error is not None:
            raise error

    def _train(self) -> None:
        try:
            with self._settings.in_force():
                self._stretch.run()
        except BaseException as error:
            self._error = error
            if not self._stretch.shown.in_notebook and sys.stderr is not None:
                said = f"{type(error).__name__}: {error}".splitlines()[0]
                print(f"gradviz: training in the background failed, and loop.wait() raises it: {said}", file=sys.stderr)
        finally:
            self._done(self._stretch)
            atexit.unregister(self._at_exit)
            self._ended.set()

    def _at_exit(self) -> None:
        if not self._thread.is_alive():  # in a process that was forked, which has none of its parent's threads
            return
        self._stretch.stop()
        self._ended.wait(EXIT_S)


class Controlled(Turns):
    """Something that trains, here or in a thread of its own, and hears what is asked of it meanwhile."""

    def _stretch(
        self, data: Data, epochs: int, iterations: int | None, in_place: bool, display: Display
    ) -> Stretch | None:
        raise NotImplementedError

    def _controls(self, stretch: Stretch, in_background: bool) -> RunControls:
        return RunControls(self, stretch, in_background=in_background)

    @names_nearest_keyword
    def start(
        self,
        data: Data,
        *,
        epochs: int = 1,
        iterations: int | None = None,
        in_place: bool = True,
        display: Display = "auto",
    ) -> Self:
        """Train in the background: `run` in a thread of its own, with the cell free for other things.

        The first batch is tried at once, in the caller's thread; then the thread takes over, under the caller's grad
        mode, autocast, default device and number of threads. While it trains, the frames of `loop.history` can be read
        at any time, each up to the last finished iteration. `loop.state` can be read as well: each of its attributes is
        replaced as a whole, but two of them may be of two iterations. Parameters move while one looks at them, and the
        model is in train mode; `pause` first to look at it. Handlers can be attached meanwhile, metrics not. Random
        numbers that are drawn meanwhile come from the stream that training draws from, unless the loop has a ``seed=``.

        Python lets one thread run at a time: who asks over and over, without a rest, holds the training up; put a
        ``time.sleep(0.1)`` in between.

        A program that ends stops the training, after the iteration that is under way; `wait` waits for its end.

        Parameters
        ----------
        data, epochs, iterations, in_place, display
            As in `run`. What is shown is shown here, under the cell that starts it.

        Returns
        -------
        Loop
            Itself, at once.

        Raises
        ------
        DataError, ModelError, LossError, OptimizerError
            Before anything has moved, if the data, the model or the loss cannot be trained, or not so; as in `run`.
        LoopError
            If a run of this loop is under way, or another loop trains the same parameters (see `running`).

        Examples
        --------
        >>> import torch, gradviz as gv
        >>> from torch import nn
        >>> loop = gv.trainer(nn.Linear(2, 1), "mean_squared_error", "sgd")
        >>> data = [(torch.ones(4, 2), torch.ones(4, 1))] * 10
        >>> loop = loop.start(data, epochs=3)
        >>> loop.wait().iteration
        30
        """
        stretch = self._stretch(data, epochs, iterations, in_place, display)
        if stretch is None:
            return self
        self._take_turn(stretch, in_background=True)
        try:
            stretch.begin()
            self._worker = Worker(stretch, self._give_turn)
            self._worker.start()
        except BaseException as error:
            self._worker = None
            self._give_turn(stretch)
            stretch.abandon(error)
            raise
        return self

    def pause(self) -> Self:
        """Let training wait between two iterations, and come back when it does; the state says "paused".

        Nothing moves then until `unpause`, so that the model can be looked at; it is in train mode. Pauses count in
        neither the time that is left nor `state.times`.

        Raises
        ------
        LoopError
            If no run is under way, or it is in this very thread, where nobody could let it go on.

        Examples
        --------
        >>> import torch, gradviz as gv
        >>> from torch import nn
        >>> loop = gv.trainer(nn.Linear(2, 1), "mean_squared_error", "sgd")
        >>> data = [(torch.ones(4, 2), torch.ones(4, 1))] * 10
        >>> loop = loop.start(data, epochs=100_000).pause()
        >>> loop.state.status, len(loop.history) == loop.state.iteration
        ('paused', True)
        >>> loop.unpause().stop().wait().status
        'halted'
        """
        gate = self._shut()
        if self._worker is None or not self._worker.is_here:
            gate.wait_until_it_rests()
        return self

    def _shut(self) -> Gate:
        """Have the run wait after the iteration that is under way; its gate."""
        stretch = self._asked("pause")
        if stretch.is_in_this_thread and (self._worker is None or not self._worker.is_here):
            raise LoopError(
                "loop.pause() waits for another thread to unpause, and this run is in the one that asks. Run it in the "
                "background: loop.start(data)."
            )
        stretch.gate.close()
        return stretch.gate

    def step(self) -> Self:
        """Let a run that is paused take one iteration, and come back when it waits again, or is over.

        Between the last iteration of an epoch and the first of the next one lie the epoch's handlers and its
        validation: they run with the step that follows. In a handler it comes back at once: the iteration is taken
        when the handler is done.

        Raises
        ------
        LoopError
            If no run is under way, or it is not paused.

        Examples
        --------
        >>> import torch, gradviz as gv
        >>> from torch import nn
        >>> loop = gv.trainer(nn.Linear(2, 1), "mean_squared_error", "sgd")
        >>> loop = loop.start([(torch.ones(4, 2), torch.ones(4, 1))] * 10, epochs=100_000).pause()
        >>> before = loop.state.iteration
        >>> loop.step().step().state.iteration - before, loop.state.status
        (2, 'paused')
        >>> loop.stop().wait().status
        'halted'
        """
        stretch = self._let_one_pass()
        if not stretch.is_in_this_thread:
            stretch.gate.wait_until_it_rests()
        return self

    def _let_one_pass(self) -> Stretch:
        """Have the run take one iteration; the run."""
        stretch = self._asked("step")
        if not stretch.gate.shut:
            raise LoopError("loop.step() takes one iteration of a run that is paused: loop.pause() first.")
        stretch.gate.step()
        return stretch

    def unpause(self) -> Self:
        """Let training go on after `pause`.

        Raises
        ------
        LoopError
            If no run is under way.
        """
        self._asked("unpause").gate.open()
        return self

    def stop(self) -> Self:
        """End the run normally, after the iteration that is under way: its status is "halted".

        From a handler, from another thread, and while it is paused too. A validation under way is finished first. Where
        nothing runs, nothing happens. In the body of a `stream` the run ends at once.
        """
        stretch = self._under_way
        if stretch is not None:
            stretch.stop()
            if stretch.is_over:
                self._give_turn(stretch)
        return self

    def wait(self, timeout: float | None = None) -> State:
        """Wait until the training in the background has ended.

        Ctrl-C ends the waiting only; the training goes on.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait at most; 0 asks only whether it has ended.

        Returns
        -------
        State

        Raises
        ------
        ValueError
            If `timeout` is no number from 0 on.
        TimeoutError
            If it takes longer; the training goes on.
        LoopError
            From the training itself, or if what is under way is no training in the background.
        Exception
            What ended the training, with its traceback; the first time that it is waited for.
        """
        if timeout is not None:
            timeout = at_least_0("timeout", timeout)
        worker = self._worker
        if worker is None:
            if self._under_way is not None:
                raise LoopError("loop.wait() waits for a run in the background, and this one is none.")
            return self._training.state
        if worker.is_here:
            raise LoopError("loop.wait() in a handler would wait for itself; loop.stop() ends the run.")
        if not worker.join(timeout):
            raise TimeoutError(f"The training goes on after {timeout:g} s: {self!r}. loop.stop() ends it.")
        worker.hand_over()
        return self._training.state
