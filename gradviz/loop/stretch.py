"""One stretch of training: what a single `run`, `stream` or `start` does, from its trial to its last event."""

from __future__ import annotations

import atexit
import inspect
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from gradviz.loop.data import Epochs
from gradviz.loop.display import Shown
from gradviz.loop.events import State
from gradviz.loop.gate import Gate
from gradviz.loop.interrupt import InterruptGuard
from gradviz.loop.training import Training
from gradviz.step.tensors import drop_gradients

_BARE = "generator raised StopIteration"
"""What Python says where one is raised inside a generator."""


class Stretch:
    """Some epochs, and what is in force while they run: Ctrl-C waits, and the model is in train mode.

    It goes on from place to place: first to where the trial has passed and the run is shown, then epoch by epoch.
    There nothing of ours is in force, so that it can go on in another thread, or somebody else's code can run first.

    Parameters
    ----------
    training : Training
    source : Epochs
    epochs : int
    limit : int, optional
        Iterations of each epoch.
    apart : callable
        Gives the context in which the tensors that are trained are the model's.
    shown : Shown

    Attributes
    ----------
    since : float
        When it was asked for, as `time.time` counts.
    """

    def __init__(
        self,
        training: Training,
        source: Epochs,
        epochs: int,
        limit: int | None,
        apart: Callable[[], AbstractContextManager[None]],
        shown: Shown,
    ) -> None:
        self._training = training
        self._n_epochs, self._limit = epochs, limit
        self._apart = apart
        self._epochs = self._all(source)
        self._thread: int | None = None
        self._is_suspended = False
        self._is_left = False
        self._is_ours = True  # nobody else's code has run in between
        self.gate = Gate()
        self.shown = shown
        self.since = time.time()

    @property
    def is_over(self) -> bool:
        """Whether it has ended, however it did."""
        return inspect.getgeneratorstate(self._epochs) == inspect.GEN_CLOSED

    @property
    def is_in_this_thread(self) -> bool:
        """Whether it runs, or waits to go on, in the thread that asks."""
        return self.is_in(threading.current_thread())

    def is_in(self, thread: threading.Thread) -> bool:
        """Whether it runs, or waits to go on, in this thread."""
        return self._thread == thread.ident

    def begin(self) -> None:
        """Try it, and show it; nothing has moved then.

        Raises
        ------
        DataError, ModelError, LossError, OptimizerError
            If the data, the model or the loss cannot be trained, or not so.
        """
        self._advance()
        self._thread = None  # whichever goes on with it, also one that is only starting

    def run(self) -> None:
        """Go on to the end."""
        with self._in_force():
            for _ in self._epochs:
                pass

    def stream(self) -> Iterator[State]:
        """Go on epoch by epoch; whoever stops asking for more has halted it."""
        self.begin()
        atexit.register(self._leave_if_suspended)  # whoever holds the iterator to the program's end asks no more either
        try:
            while self._advance():
                self._is_suspended, self._is_ours = True, False
                yield self._training.state
                self._is_suspended = False
        finally:
            atexit.unregister(self._leave_if_suspended)
            self._leave()

    def stop(self) -> None:
        """End it where it stands, or after the iteration that is under way."""
        self.gate.stop()
        if self.is_in_this_thread:
            self._leave_if_suspended()

    def abandon(self, error: BaseException) -> None:
        """End it where it stands, because of an error that came while nothing was in force."""
        if not self.is_over:
            self._epochs.throw(error)

    # --- the parts ---------------------------------------------------------------------------------------------

    def _advance(self) -> bool:
        """Go on to the next place; whether there is one."""
        try:
            with self._in_force():
                return next(self._epochs, self) is not self
        except BaseException as error:
            self.abandon(error)
            raise

    def _leave_if_suspended(self) -> None:
        if self._is_suspended:
            self._leave()

    def _leave(self) -> None:
        self._is_suspended = False
        if not self.is_over:
            self._is_left = True
            with self._in_force():
                self._epochs.close()

    @contextmanager
    def _in_force(self) -> Iterator[None]:
        training, self._thread = self._training, threading.get_ident()
        with InterruptGuard() as training.guard:
            guard = training.guard
            with guard.held, ExitStack() as entering:
                entering.enter_context(self._apart())
                entering.enter_context(training.step.training())
                inside = entering.pop_all()
            try:
                yield
            finally:
                with guard.held:
                    inside.close()
            if guard.requested:  # in the last moment: never swallowed
                raise KeyboardInterrupt

    def _all(self, source: Epochs) -> Generator[None, None, None]:
        """All of it, with a yield at each place where nothing needs to be in force."""
        training = self._training
        try:
            first = training.prepare(source, self._limit)
            if training.guard.requested:
                raise KeyboardInterrupt
            training.gate = self.gate
            training.begin(self._n_epochs, first[1])
        except BaseException:
            training.course.let_go()
            raise
        try:
            self.shown.show()
            try:
                yield
                halted = yield from training.epochs(source, self._n_epochs, self._limit, first)
            except GeneratorExit:
                if self._is_left:  # and not raised by somebody's handler
                    self._conclude(halted=True)
                raise
            self._conclude(halted)
        except BaseException as error:
            if self._is_left and isinstance(error, GeneratorExit):
                raise
            shown = self._broken_off(error)
            try:
                if shown is error:
                    raise
                raise shown from error
            finally:
                del shown  # which would hold, by its traceback, this frame that holds it
        finally:
            self._end()

    def _conclude(self, halted: bool) -> None:
        training = self._training
        training.complete(is_ours=self._is_ours)
        if training.guard.requested:  # in the last handlers
            raise KeyboardInterrupt
        training.state.status = "halted" if halted else "completed"
        training.state.iteration = training.iterations_run
        training.fire(training.state.status)
        if training.state.restored_epoch is not None:
            progress, epoch = training.history.progress, training.state.restored_epoch + 1
            progress.message = f"the model is that of epoch {epoch} of {progress.epochs} again"  # as the head counts

    def _broken_off(self, error: BaseException) -> BaseException:
        """Say in the state how it ended; the error to raise."""
        training = self._training
        training.complete(is_ours=self._is_ours)
        # Ctrl-C reaches the workers of a DataLoader too, and what they raise then is still the interrupt.
        if isinstance(error, KeyboardInterrupt) or (training.guard.requested and isinstance(error, Exception)):
            training.state.status = "interrupted"
            interrupt = error if isinstance(error, KeyboardInterrupt) else KeyboardInterrupt()
            ran = f"{training.iterations_run:,} iterations are in loop.history"
            interrupt.add_note(f"Interrupted: {ran}, and loop.run(...) goes on with the next epoch.")
            return interrupt
        error = _explained(error)
        training.state.status = "failed"
        training.history.progress.message = f"{type(error).__name__}: {error}".splitlines()[0]
        return error

    def _end(self) -> None:
        """What each ends with: no gradients left behind, and the last state shown."""
        training = self._training
        with training.guard.held:
            training.state.iteration = training.iterations_run
            if training.state.status in ("training", "paused"):  # by a second Ctrl-C, before anybody could say so
                training.state.status = "interrupted"
            parameters = list(training.step.model_state.parameters.values())
            drop_gradients([*parameters, *training.step.masters.of_all(parameters)])
            training.history.progress.status = training.state.status
            training.history.freezer = None
            training.history.end_run()
            training.course.let_go()
            try:
                self.shown.end()
            finally:
                self.gate.leave()
        if training.guard.requested and training.state.status == "failed":  # while the picture was drawn
            raise KeyboardInterrupt


def _explained(error: BaseException) -> BaseException:
    """A StopIteration of somebody's code says why it came, and where; Python makes it a bare RuntimeError here."""
    stopped = error if isinstance(error, StopIteration) else error.__cause__
    if not isinstance(stopped, StopIteration) or (error is not stopped and str(error) != _BARE):
        return error
    explained = RuntimeError("StopIteration was raised: next() was asked of an iterator that is used up.")
    for note in getattr(stopped, "__notes__", []):
        explained.add_note(note)
    return explained
