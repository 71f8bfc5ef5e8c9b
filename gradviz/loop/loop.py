"""Many iterations: `Loop`, which `trainer` makes."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal

from gradviz.errors import DataError, ModelError, OptimizerError, RecordingWarning, names_nearest_keyword, warn
from gradviz.history.history import History
from gradviz.loop.apart import Apart
from gradviz.loop.data import Data, Epochs
from gradviz.loop.events import OnError, State
from gradviz.loop.handled import Handled
from gradviz.loop.interrupt import InterruptGuard
from gradviz.loop.metrics.measured import Measured
from gradviz.loop.metrics.metric import Metric
from gradviz.loop.training import Training
from gradviz.recorder import Record
from gradviz.step.step_state import StepState
from gradviz.step.tensors import drop_gradients
from gradviz.step.train_step import TrainStep

if TYPE_CHECKING:
    from gradviz.widgets.notebook import Output


class Loop(Handled, Measured):
    """A training loop. Made by `trainer`; its methods change it and return it."""

    def __init__(self, step: TrainStep, *, record: Record = "all", on_error: OnError = "raise") -> None:
        self._step = step
        self._training = Training(step, record=record, on_error=on_error)
        self._apart: Apart | None = None
        self._output: Output | None = None

    @property
    def state(self) -> State:
        """Where the loop stands."""
        return self._training.state

    @property
    def history(self) -> History:
        """Gradients and metrics of every iteration so far."""
        return self._training.history

    @property
    def _metrics(self) -> dict[str, Metric]:
        return self._training.metrics

    def __repr__(self) -> str:
        model, state = type(self._step.model).__name__, self.state
        return f"Loop of {model}: {state.iteration:,} iterations, {state.epoch} epochs ({state.status})"

    @names_nearest_keyword
    def run(
        self,
        data: Data,
        *,
        epochs: int = 1,
        iterations: int | None = None,
        in_place: bool = True,
        display: Literal["auto", "live"] | None = "auto",
    ) -> State:
        """Train. Called again, it goes on from where it stands, with the next epoch.

        An epoch that was broken off, by Ctrl-C, an error or a handler, counts as one; it is not taken up in its middle.

        Parameters
        ----------
        data : iterable of (inputs, targets), or callable
            Gone through once an epoch; a callable is given the epoch's index and returns the iterable.
        epochs : int
            How many epochs to run now.
        iterations : int, optional
            At most so many iterations in each epoch.
        in_place : bool
            False leaves the model's parameters and buffers as they were; what is trained is
            ``state.step_state["model_state"]``, a copy, and the next run goes on with it. The loop needs an optimizer
            of its own then: a name or a factory.
        display : {"auto", "live", None}
            In a notebook, ``"auto"`` shows the run while it trains; when it is over, however it ended, a still picture
            takes its place, which stays when the notebook is opened without a kernel or exported. ``"live"`` keeps the
            live heatmap instead, which lasts as long as the kernel. None shows nothing.

        Returns
        -------
        State
            Also in `loop.state`, and there after an interrupt or an error too.

        Raises
        ------
        DataError, ModelError, LossError, OptimizerError
            Before anything has moved, if the data, the model or the loss cannot be trained, or not so.
        StateTypeError
            If a leaf of the step state changes its type, unless ``strict=False``; see `train_step`.
        KeyboardInterrupt
            After Ctrl-C, once the iteration is finished and recorded; a second Ctrl-C stops at once.
        """
        epochs, iterations = _count("epochs", epochs), None if iterations is None else _count("iterations", iterations)
        source = Epochs(data, epochs, self._step.accumulate)
        if display not in ("auto", "live", None):
            raise ValueError(f'display is "auto", "live" or None; got {display!r}.')
        self._check_in_place(in_place)
        if epochs == 0 or iterations == 0:
            return self.state
        with InterruptGuard() as guard:
            self._training.guard = guard
            with ExitStack() as stack:
                if not in_place:
                    stack.enter_context(self._apart_from_the_model())
                first = self._training.prepare(source, iterations)
                stack.enter_context(self._step.training())
                stack.callback(self._end)
                self._training.begin(epochs, first[1])
                self._show(display)
                self._run(source, epochs, iterations, first, guard)
            if guard.requested:  # while the last picture was sent: never swallowed
                raise KeyboardInterrupt
        return self.state

    def _run(
        self, source: Epochs, epochs: int, limit: int | None, first: tuple[Any, int | None], guard: InterruptGuard
    ) -> None:
        """Run epochs, and say in the state how it ended."""
        try:
            halted = self._training.epochs(source, epochs, limit, first)
            if guard.requested:  # in the last handlers
                raise KeyboardInterrupt
            self.state.status = "halted" if halted else "completed"
            self.state.iteration = self._training.iterations_run
            self._training.handlers.fire(self.state.status, self.state)
        except BaseException as error:
            # Ctrl-C reaches the workers of a DataLoader too, and what they raise then is still the interrupt.
            if isinstance(error, KeyboardInterrupt) or (guard.requested and isinstance(error, Exception)):
                self.state.status = "interrupted"
                interrupt = error if isinstance(error, KeyboardInterrupt) else KeyboardInterrupt()
                ran = f"{self._training.iterations_run:,} iterations are in loop.history"
                interrupt.add_note(f"Interrupted: {ran}, and loop.run(...) goes on with the next epoch.")
                if interrupt is error:
                    raise
                raise interrupt from error
            self.state.status = "failed"
            self.history.progress.message = f"{type(error).__name__}: {error}".splitlines()[0]
            raise

    # One stretch of training -----------------------------------------------------------------------------------

    def _check_in_place(self, in_place: bool) -> None:
        if in_place and self._apart is not None:
            raise ModelError(
                "This loop trained apart from its model before, and the model has none of it. Go on with "
                "run(in_place=False), or make a trainer of the copy: state.step_state['model_state'].module."
            )
        if not in_place and not self._step.owns_optimizer:
            kind = type(self._step.optimizer).__name__
            raise OptimizerError(
                f"run(in_place=False) leaves your model as it is, and so it must your {kind}. Give the trainer a "
                f"factory instead: functools.partial(torch.optim.{kind}, ...)."
            )

    @contextlib.contextmanager
    def _apart_from_the_model(self) -> Iterator[None]:
        apart = self._apart or Apart(self._step.model)
        try:
            with apart.lent():
                if self.state.step_state:  # another one, since the reader of the last run's still has it
                    live = {"model_state": self._step.model_state}
                    self.state.step_state = StepState(self.state.step_state | live)
                yield
        finally:
            if self.state.step_state:  # or the first batch did not pass, and nothing was trained
                self._apart = apart
                self.state.step_state["model_state"] = apart.model_state

    def _end(self) -> None:
        """What every run ends with: no gradients left behind, and the last state shown."""
        self.state.iteration = self._training.iterations_run
        drop_gradients(self._step.model_state.parameters.values())
        self.history.progress.status = self.state.status
        with self._training.guard.held():
            try:
                self._freeze()
            finally:
                self.history.notify(final=True)
        if (
            self._training.guard.requested and self.state.status == "failed"
        ):  # while the picture was drawn: never swallowed
            raise KeyboardInterrupt

    def _show(self, display: Literal["auto", "live"] | None) -> None:
        if display is None:
            return
        try:
            from gradviz.widgets.notebook import show_run  # only a notebook pays for the widgets

            self._output = show_run(self.history, display)
        except Exception as error:  # our own failure never breaks a run
            said = f"The run cannot be shown ({type(error).__name__}: {error}); training goes on."
            warn(said, RecordingWarning)

    def _freeze(self) -> None:
        output, self._output = self._output, None
        if output is None:
            return
        try:
            output.freeze()
        except Exception as error:
            said = f"The run's picture cannot be drawn ({type(error).__name__}: {error}); the live one stays."
            warn(said, RecordingWarning)


def _count(name: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if number < 0:
        raise DataError(f"{name} is a whole number from 0 on; got {value!r}.")
    return number
