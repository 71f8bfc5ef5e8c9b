"""Many iterations: `Loop`, which `trainer` makes."""

from __future__ import annotations

import contextlib
import math
import operator
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Literal

from gradviz.errors import DataError, ModelError, OptimizerError, RecordingWarning, names_nearest_keyword, warn
from gradviz.history.history import History
from gradviz.loop.apart import Apart
from gradviz.loop.data import Data, Epochs, length
from gradviz.loop.events import Control, Handler, Handlers, OnError, State, Warner
from gradviz.loop.interrupt import InterruptGuard
from gradviz.loop.metrics import Measured, Metric, floats, loss_metric, results, shown
from gradviz.loop.validation import Validation
from gradviz.recorder import Record, Recorder
from gradviz.step.eval_step import EvalStep
from gradviz.step.step_state import StepState
from gradviz.step.tensors import drop_gradients
from gradviz.step.train_step import TrainStep

if TYPE_CHECKING:
    from gradviz.widgets.notebook import Output


class Loop(Measured):
    """A training loop. Made by `trainer`; its methods change it and return it.

    Attributes
    ----------
    state : State
        Where the loop stands.
    history : History
        Gradients and metrics of every iteration so far.
    """

    def __init__(self, step: TrainStep, *, record: Record = "all", on_error: OnError = "raise") -> None:
        self.state = State()
        self.history = History()
        self._step = step
        self._recorder = Recorder(step, self.history, record)
        self._on_error = on_error
        self._warner = Warner()
        self._handlers = Handlers(on_error, self._warner)
        self._iterations_run = 0
        self._apart: Apart | None = None
        self._metrics: dict[str, Metric] = {"loss": loss_metric(step.objective)}
        self._validation: Validation | None = None
        self._guard = InterruptGuard()
        self._output: Output | None = None

    def __repr__(self) -> str:
        model, state = type(self._step.model).__name__, self.state
        return f"Loop of {model}: {state.iteration:,} iterations, {state.epoch} epochs ({state.status})"

    @names_nearest_keyword
    def handle_event(self, event: str, fn: Handler) -> Loop:
        """Call a function at an event.

        Parameters
        ----------
        event : str
            ``"started"``, ``"epoch_started"``, ``"iteration_started"``, ``"iteration_completed"`` or
            ``"epoch_completed"``.
        fn : callable
            Takes the `State`; returns None, ``"halt_epoch"`` or ``"halt_loop"``. When a notebook cell is run again, the
            function it defines anew takes the place of the older one; other functions are added.

        Examples
        --------
        >>> import torch, gradviz as gv
        >>> from torch import nn
        >>> loop = gv.trainer(nn.Linear(2, 1), "mean_squared_error", "sgd")
        >>> loop = loop.handle_event("epoch_completed", lambda state: print(state.epoch, state.iteration))
        >>> data = [(torch.ones(4, 2), torch.ones(4, 1))]
        >>> loop.run(data, epochs=2).status
        0 0
        1 1
        'completed'
        """
        self._handlers.add(event, fn)
        return self

    def validate(self, data: Data) -> Loop:
        """Evaluate other data whenever an epoch is completed; once more, and this data takes the place of the earlier.

        Every metric of the loop becomes ``"validation_" + name`` in `state.metrics` and in `history.epochs`, over all
        examples and by its own accumulator, for handlers attached later and for readers. A loss becomes
        ``"validation_loss"``. An objective becomes ``"validation_objective"``: the model is in eval mode, so it is not
        the loss that is trained by. Metrics of what only training has, such as gradients, are left out and named once.

        Parameters
        ----------
        data : iterable of (inputs, targets), or callable
            Gone through once an epoch; a callable is given the epoch's index and returns the iterable.

        Raises
        ------
        DataError
            If it is neither, or an iterator that can be read only once.

        Examples
        --------
        >>> import torch, gradviz as gv
        >>> from torch import nn
        >>> model = nn.Linear(1, 1, bias=False)
        >>> _ = nn.init.constant_(model.weight, 0.4)
        >>> data = [(torch.tensor([[1.0], [2.0]]), torch.ones(2, 1))]
        >>> loop = gv.trainer(model, "mean_squared_error", torch.optim.SGD(model.parameters(), lr=0.0))
        >>> loop = loop.metric("mean_absolute_error").validate(data)
        >>> print(loop.run(data).metrics["validation_mean_absolute_error"])
        0.4
        >>> loop.history.epochs.filter(like="validation").round(6).to_dict("records")
        [{'validation_loss': 0.2, 'validation_mean_absolute_error': 0.4}]
        """
        step = EvalStep(self._step.model, self._step.objective, self._step.precision, self._step.cast)
        self._validation = Validation(step, data)
        self._handlers.add("epoch_completed", self._validate)
        return self

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
            self._guard = guard
            with ExitStack() as stack:
                if not in_place:
                    stack.enter_context(self._apart_from_the_model())
                first = self._prepare(source, iterations)
                stack.enter_context(self._step.training())
                stack.callback(self._end)
                self._begin(epochs, first[1])
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
            halted = self._epochs(source, epochs, limit, first, guard)
            if guard.requested:  # in the last handlers
                raise KeyboardInterrupt
            self.state.status = "halted" if halted else "completed"
        except BaseException as error:
            # Ctrl-C reaches the workers of a DataLoader too, and what they raise then is still the interrupt.
            if isinstance(error, KeyboardInterrupt) or (guard.requested and isinstance(error, Exception)):
                self.state.status = "interrupted"
                interrupt = error if isinstance(error, KeyboardInterrupt) else KeyboardInterrupt()
                ran = f"{self._iterations_run:,} iterations are in loop.history"
                interrupt.add_note(f"Interrupted: {ran}, and loop.run(...) goes on with the next epoch.")
                if interrupt is error:
                    raise
                raise interrupt from error
            self.state.status = "failed"
            self.history.progress.message = f"{type(error).__name__}: {error}".splitlines()[0]
            raise

    # One stretch of training -----------------------------------------------------------------------------------

    def _prepare(self, source: Epochs, iterations: int | None) -> tuple[Any, int | None]:
        """The first epoch's batches, with its first one tried on the model; nothing has moved after it."""
        batches = source(self.state.epoch)
        planned = length(batches, iterations)
        if self.state.step_state:  # tried before; the iterator is made after the handlers, as in every later epoch
            self._step.expect_anew()
            return batches, planned
        iterator = iter(batches)
        try:
            batch = next(iterator)
        except StopIteration:
            raise source.empty(self.state.epoch) from None
        self.state.step_state = self._step.init(batch)
        return chain([batch], iterator), planned

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

    def _begin(self, epochs: int, planned: int | None) -> None:
        """Say that training begins, and how far it will go."""
        self.state.status = "training"
        progress = self.history.progress
        progress.epoch, progress.epochs = self.state.epoch, self.state.epoch + epochs
        progress.iterations = None if planned is None else self._iterations_run + planned * epochs
        progress.begin()
        self._recorder.begin()
        self.history.notify(final=True)

    def _epochs(
        self, source: Epochs, epochs: int, limit: int | None, first: tuple[Any, int | None], guard: InterruptGuard
    ) -> bool:
        """Run epochs; whether a handler halted the loop."""
        state, batches = self.state, first[0]
        if self._handlers.fire("started", state) is not None:
            return True
        for turn in range(epochs):
            if turn:
                batches = source(state.epoch)
            began = time.perf_counter()
            try:
                control = self._epoch(islice(batches, limit), source, guard)
                if control is None:
                    control = self._handlers.fire("epoch_completed", state)
            finally:  # an epoch that was broken off counts as one, so that its number stays its own
                state.times[state.epoch] = time.perf_counter() - began
                state.epoch += 1
            if control == "halt_loop":
                return True
        return False

    def _epoch(self, batches: Any, source: Epochs, guard: InterruptGuard) -> Control | None:
        """Run one epoch; the control word that ended it early. Its means are kept however it ends."""
        state = self.state
        begun_with = self._iterations_run
        state.iteration, state.epoch_iteration = begun_with, 0
        for metric in self._metrics.values():
            metric.start()
        state.metrics = {}
        control = self._handlers.fire("epoch_started", state)
        if control is not None:
            return control
        try:
            for place, batch in enumerate(_interruptible(batches, guard)):
                control = self._iteration(batch, place)
                if control is not None:
                    return control
                if guard.requested:
                    raise KeyboardInterrupt
        finally:
            run = self._iterations_run - begun_with
            if run:
                state.metrics = results(self._metrics.values())
                self.history.end_epoch(state.epoch, run, floats(state.metrics), self._metrics["loss"].running.nonfinite)
        if not run:
            raise source.empty(state.epoch)
        return None

    def _iteration(self, batch: Any, place: int) -> Control | None:
        state, progress = self.state, self.history.progress
        state.iteration, state.epoch_iteration = self._iterations_run, place
        control = self._handlers.fire("iteration_started", state)
        if control is not None:
            return control
        try:
            state.step_state = self._step(batch, state.step_state)
        except Exception as error:
            error.add_note(
                f"At iteration {state.iteration}, in epoch {state.epoch}; what was recorded before is in loop.history."
            )
            raise
        self._iterations_run += 1
        values, failure = self._measure_all()
        state.metrics = shown(self._metrics.values())
        progress.epoch, progress.iteration = state.epoch, self._iterations_run
        progress.metrics, progress.loss = floats(state.metrics), values["loss"]
        if progress.iterations is not None and progress.iteration > progress.iterations:
            progress.iterations = None  # the data has more than its length said
        self._recorder.commit(state.iteration, state.epoch, values)
        if failure is not None:
            raise failure
        return self._handlers.fire("iteration_completed", state)

    def _measure_all(self) -> tuple[dict[str, float], Exception | None]:
        """The batch's own values, which join their averages; and an error to raise once the row is written."""
        step_state = self.state.step_state
        values, failure = dict.fromkeys(self._metrics, math.nan), None
        for name, metric in self._metrics.items():
            try:
                values[name] = metric(step_state)
            except Exception as error:
                error.add_note(f"In the metric {name!r}, at iteration {self.state.iteration}.")
                if self._on_error == "raise":
                    failure = failure or error
                else:
                    self._warner.warn(error, name)
        return values, failure

    def _validate(self, state: State) -> None:
        """The handler of `validate`, in its place among the user's own."""
        if self._validation is None:
            return
        found = self._validation(self._metrics.values(), state.epoch, self._until_interrupted)
        state.metrics = state.metrics | found
        self.history.extend_epoch(state.epoch, floats(found))
        self.history.progress.metrics = floats(state.metrics)

    def _until_interrupted(self, batches: Iterable[Any]) -> Iterator[Any]:
        for batch in _interruptible(batches, self._guard):
            yield batch
            if self._guard.requested:
                raise KeyboardInterrupt

    def _end(self) -> None:
        """What every run ends with: no gradients left behind, and the last state shown."""
        self.state.iteration = self._iterations_run
        drop_gradients(self._step.model_state.parameters.values())
        self.history.progress.status = self.state.status
        with self._guard.held():
            try:
                self._freeze()
            finally:
                self.history.notify(final=True)
        if self._guard.requested and self.state.status == "failed":  # while the picture was drawn: never swallowed
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


def _interruptible(batches: Iterable[Any], guard: InterruptGuard) -> Iterator[Any]:
    with guard.at_once():
        iterator = iter(batches)
    while True:
        try:
            with guard.at_once():
                batch = next(iterator)
        except StopIteration:
            return
        yield batch


def _count(name: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if number < 0:
        raise DataError(f"{name} is a whole number from 0 on; got {value!r}.")
    return number
