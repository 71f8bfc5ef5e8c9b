"""Many iterations: epochs over data, with metrics, events and a row of the history for each."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Generator, Iterable, Iterator
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from gradviz.loop.course import Course, Resumption
from gradviz.loop.data import Epochs, length
from gradviz.loop.events import Control, Handlers, OnError, State, Warner
from gradviz.loop.example_ids import ExampleIds
from gradviz.loop.freezing import Freezing
from gradviz.loop.gate import Gate
from gradviz.loop.interrupt import InterruptGuard
from gradviz.loop.metrics.function_metric import LossMetric
from gradviz.loop.metrics.metric import Metric, Shown, floats, results
from gradviz.loop.names import check_watched
from gradviz.loop.validation import Validation
from gradviz.recorder.of_step import StepRecorder
from gradviz.step.step_state import StepState
from gradviz.step.train_step import TrainStep

_BEFORE_A_STEP = ("started", "epoch_started", "iteration_started")


class Training:
    """A step, what follows it, and where it stands. A `Loop` holds one, and says when it goes on."""

    def __init__(
        self,
        step: TrainStep,
        recorder: StepRecorder,
        example_ids: ExampleIds,
        *,
        on_error: OnError = "raise",
    ) -> None:
        self.step = step
        self.state = State()
        self.history = recorder.history
        self.recorder = recorder
        self._example_ids = example_ids
        self._on_error = on_error
        self._warner = Warner()
        self.handlers = Handlers(on_error, self._warner)
        self._loss = LossMetric(step.objective)
        self.metrics: dict[str, Metric] = {"loss": self._loss}
        self.validation: Validation | None = None
        self.validated: dict[str, np.floating[Any]] = {}  # the newest results of this epoch
        self._has_means = False  # whether this epoch's are in the history
        self.iterations_run = 0
        self.course = Course(self._drawing)
        self.folders: set[Path] = set()  # those of checkpoints that this run has written, or goes on from
        self._is_tried = False
        self.guard = InterruptGuard()
        self.gate = Gate()

    def unsaved_streams(self) -> list[str]:
        """The random streams that no checkpoint can hold, in words."""
        validation = [] if self.validation is None else self.validation.unsaved_streams()
        return list(dict.fromkeys([*self.course.unsaved(), *validation]))

    def _drawing(self) -> dict[str, Any]:
        """What may draw random numbers beside the data, by name; of what is ours, what it was given."""
        metrics = {f"metric {name!r}": vars(metric) for name, metric in self.metrics.items()}
        handlers = {
            f"handler {key!r}": vars(handler) if type(handler).__module__.startswith("gradviz.") else handler
            for key, handler in self.handlers.named().items()
        }
        return self.step.drawing | metrics | handlers

    def prepare(self, source: Epochs, iterations: int | None) -> tuple[Any, int | None]:
        """The first epoch's batches, with its first one tried on the model; nothing has moved after it.

        In a later run the iterator is made after the handlers, as in every later epoch, and random numbers are drawn in
        that order. What can be told without one is told here: that there is no batch.
        """
        metrics = self.metrics.values()
        results = None if self.validation is None else self.validation.names(metrics)
        check_watched(self.handlers, self.metrics, self.validate, results)
        batches = self.course.ask(source, self.state.epoch)
        planned = length(batches, iterations)
        if self.state.step_state:  # tried before
            if self._is_tried and source.is_read_once:
                batches = self._begun(source, batches)[1]
            elif planned == 0 and self.course.middle is None:
                raise source.empty(self.state.epoch)
            self.step.expect_anew()
            return batches, planned
        batch, batches = self._begun(source, batches)
        self.state.step_state = self.step.init(self._example_ids.batch(batch), look=self._look)
        self._is_tried = True
        return batches, planned

    def _begun(self, source: Epochs, batches: Iterable[Any]) -> tuple[Any, Iterable[Any]]:
        """The first batch, and all of them, of which it has been taken."""
        self.course.note()
        try:
            with self.guard.at_once:
                iterator = iter(batches)
                batch = next(iterator)
        except StopIteration:
            raise source.empty(self.state.epoch) from None
        return batch, chain([batch], iterator)

    def resume(self, resumption: Resumption) -> None:
        """Go on elsewhere with the next run; the step has been put there, and is tried on the first batch it sees."""
        self.course.resume(resumption)
        self._is_tried = self._has_means = False

    def _try_out(self, batch: Any) -> None:
        """What `prepare` does before the first run, for a step that was put into the middle of one."""
        if not self._is_tried:
            tried = self.step.init(self._example_ids.batch(batch), look=self._look)
            self.state.step_state = StepState(self.state.step_state, optimizer_state=tried["optimizer_state"])
            self._is_tried = True

    def _look(self, tried: StepState) -> None:
        """Try the metrics on a trial step, unless their errors are to be warned of only."""
        if self._on_error == "warn":
            return
        # Whatever a function of the user's puts into the step state before a step is there for a metric too.
        may_grow = any(each.is_users for event in _BEFORE_A_STEP for each in self.handlers.at(event))
        for name, metric in self.metrics.items():
            try:
                if not may_grow:
                    metric.check({*tried, *self.state.step_state})
                metric.try_out(tried)
            except Exception as error:
                error.add_note(f"In the metric {name!r}.")
                raise

    def begin(self, epochs: int, planned: int | None) -> None:
        """Say that training begins, and how far it will go.

        Raises
        ------
        HistoryError
            If rows cannot be saved where they should be. Nothing has moved then.
        """
        self.history.begin_run(self.recorder.described())
        self.state.status, self.state.restored_epoch = "training", None
        progress = self.history.progress
        progress.epoch, progress.epochs = self.state.epoch, self.state.epoch + epochs
        done = 0 if self.course.middle is None else self.course.middle.done
        progress.iteration = self.iterations_run
        progress.iterations = None if planned is None else self.iterations_run - done + planned * epochs
        progress.begin()
        self.recorder.begin(self.iterations_run)
        self.history.freezer = Freezing(self)
        self.history.notify(final=True)

    def epochs(
        self, source: Epochs, epochs: int, limit: int | None, first: tuple[Any, int | None]
    ) -> Generator[None, None, bool]:
        """Run an epoch at each `next`, and return in the end whether the loop was halted."""
        state, batches = self.state, first[0]
        if self.fire("started") is not None or self._between() is not None:
            self.course.leave()
            return True
        self.course.start()
        for turn in range(epochs):
            if turn:
                batches = self.course.ask(source, state.epoch)
            self.course.begin()
            try:
                control = self._epoch(batches, limit, source)
                if control is None:
                    control = self.fire("epoch_completed")
                elif control == "halt_epoch":
                    control = self.fire("epoch_halted")
            finally:  # an epoch that was broken off counts as one, so that its number stays its own
                if self.course.middle is None:  # or it could not be taken up, and waits for other data
                    state.times = state.times | {state.epoch: self.course.took_s}
                    state.epoch += 1
                self.course.leave()
            self.history.notify()  # what a validation found
            if self.guard.requested:
                raise KeyboardInterrupt
            state.iteration = self.iterations_run
            yield
            if control == "halt_loop" or self._between() is not None:
                return True
        return False

    def fire(self, event: str) -> Control | None:
        """Run the handlers of an event; the first control word ends it."""
        return self.handlers.fire(event, self.state, self._around)

    @contextlib.contextmanager
    def _around(self, event: str) -> Iterator[None]:
        """What handlers freeze is theirs, and the step that is to come has no gradients yet."""
        awaiting = self.state.step_state.awaiting() if event == "iteration_started" else contextlib.nullcontext()
        with self.step.mask.acting("handler"), awaiting:
            yield

    def _between(self) -> Control | None:
        """Between two iterations, where nothing is half done: what was asked for from outside."""
        if self.guard.requested:
            raise KeyboardInterrupt
        if not self.gate.asked:
            return None
        self.gate.do_tasks()
        if self.gate.holds:
            self._rest()
        return "halt_loop" if self.gate.stops else None

    def _rest(self) -> None:
        state, progress = self.state, self.history.progress
        began, state.iteration = time.perf_counter(), self.iterations_run
        state.status = "paused"
        progress.pause()
        self.history.notify(final=True)
        with self.guard.at_once:
            if self.guard.requested:  # since it was last asked for
                raise KeyboardInterrupt
            while self.gate.holds:
                self.gate.rest()
                self.gate.do_tasks()
        self.course.leave_out(time.perf_counter() - began)
        state.status = "training"
        progress.go_on()
        self.history.notify(final=True)

    def _epoch(self, batches: Iterable[Any], limit: int | None, source: Epochs) -> Control | None:
        """Run one epoch; the control word that ended it early. Its means are kept however it ends."""
        state, done, control = self.state, 0, None
        if self.course.middle is None:
            control = self._start_epoch()
            if control is not None:
                self.course.end()
                return control
            batches = _interruptible(batches, self.guard)
        else:
            done = self.course.middle.done
            interruptible = partial(_interruptible, guard=self.guard)
            batches, control = self.course.take_up(batches, state.epoch, interruptible, self._try_out)
        try:
            if control is not None:
                return control
            for place, batch in enumerate(islice(batches, None if limit is None else max(limit - done, 0)), done):
                self._try_out(batch)
                control = self._iteration(batch, place)
                if control is not None:
                    return control
                control = self._between()
                if control is not None:
                    return control
        finally:
            run = self.course.end()
            if run:
                with self.guard.held:
                    state.metrics = results(self.metrics.values()) | self.validated
                    nonfinite = self._loss.running.nonfinite
                    self.history.end_epoch(state.epoch, run, floats(state.metrics), nonfinite)
                    self._has_means = True
        if not run:
            raise source.empty(state.epoch)
        return None

    def _start_epoch(self) -> Control | None:
        state = self.state
        state.iteration, state.epoch_iteration = self.iterations_run, 0
        for metric in self.metrics.values():
            metric.start()
        state.metrics, self.validated, self._has_means = {}, {}, False
        control = self.fire("epoch_started")
        self.course.note()
        return control

    def _iteration(self, batch: Any, place: int) -> Control | None:
        state = self.state
        state.iteration, state.epoch_iteration = self.iterations_run, place
        control = self.fire("iteration_started")
        if control is not None:
            return control
        try:
            if self._example_ids.are_told:
                self.recorder.ids = self._example_ids.of(batch)
                batch = self._example_ids.batch(batch)
            state.step_state = self.step(batch, state.step_state)
        except Exception as error:
            error.add_note(
                f"At iteration {state.iteration}, in epoch {state.epoch}; what was recorded before is in loop.history."
            )
            raise
        values, failure = self._measure()
        with self.guard.held:  # a row is written whole
            self._record(values)
        if failure is not None:
            raise failure
        if self.guard.insisted:
            raise KeyboardInterrupt
        return self.fire("iteration_completed")

    def _measure(self) -> tuple[dict[str, float], BaseException | None]:
        """The batch's own values, which join their averages; and an error to raise once the row is written."""
        step_state = self.state.step_state
        values, failure = dict.fromkeys(self.metrics, math.nan), None
        try:
            for name, metric in self.metrics.items():
                try:
                    values[name] = metric(step_state)
                except Exception as error:
                    error.add_note(f"In the metric {name!r}, at iteration {self.state.iteration}.")
                    if self._on_error == "raise":
                        failure = failure or error
                    else:
                        self._warner.warn(error, name)
        except BaseException as error:  # the second Ctrl-C: the step was taken, and its row says so
            return values, error
        return values, failure

    def _record(self, values: dict[str, float]) -> None:
        """An iteration has run: count it, and write its row."""
        state, progress = self.state, self.history.progress
        self.iterations_run += 1
        if self.gate.steps:
            self.gate.took_step()
        self.course.advance()
        metrics = Shown(self.metrics.values(), self.validated)
        state.show(metrics)
        progress.epoch, progress.iteration = state.epoch, self.iterations_run
        progress.metrics, progress.loss = metrics, values["loss"]
        if progress.iterations is not None and progress.iteration > progress.iterations:
            progress.iterations = None  # the data has more than its length said
        is_last = self.guard.requested or self.gate.stops  # or an error or a handler will say so
        self.recorder.commit(state.iteration, state.epoch, values, is_last=is_last)

    def complete(self, *, is_ours: bool) -> None:
        """The run ends here: record its last iteration; `is_ours`: nobody else's code has run between the epochs."""
        since = ("iteration_completed", "epoch_completed", "epoch_halted", "epoch_started", "iteration_started")
        is_untouched = is_ours and not any(each.is_users for event in since for each in self.handlers.at(event))
        self.recorder.complete(self.state.step_state.get("gradients"), is_untouched=is_untouched)

    def validate(self, state: State) -> None:
        """The handler of `validate`, in its place among the user's own; its results stay until the epoch is over."""
        if self.validation is None:
            return
        self.validated = self.validation(self.metrics.values(), state.epoch, self._until_interrupted)
        state.metrics = state.metrics | self.validated
        if self._has_means:
            self.history.extend_epoch(state.epoch, floats(self.validated))
        self.history.progress.metrics = floats(state.metrics)

    def _until_interrupted(self, batches: Iterable[Any]) -> Iterator[Any]:
        for batch in _interruptible(batches, self.guard):
            yield batch
            if self.guard.requested:
                raise KeyboardInterrupt


Training.validate.__qualname__ = "validate"  # what errors call it by


def _interruptible(batches: Iterable[Any], guard: InterruptGuard) -> Iterator[Any]:
    with guard.at_once:
        iterator = iter(batches)
    while True:
        try:
            with guard.at_once:
                batch = next(iterator)
        except StopIteration:
            return
        yield batch
