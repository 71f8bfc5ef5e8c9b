"""`watch`: the history of a loop that is not ours."""

from __future__ import annotations

import atexit
import functools
import math
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, ParamSpec, Self, TypeVar

from torch import nn
from torch.optim import Optimizer

from gradviz.errors import (
    DataError,
    HistoryError,
    RecordingWarning,
    described,
    names_nearest_keyword,
    warn,
    whole,
)
from gradviz.grad.capture.capture import Capture, as_capture
from gradviz.grad.capture.captured import Captured
from gradviz.grad.capture.session import Session
from gradviz.history.history import History
from gradviz.history.run.keeper import IfExists
from gradviz.recorder.captured import CaptureRecorder
from gradviz.recorder.pace import Pace
from gradviz.recorder.recorder import Outcome, Recorder
from gradviz.recorder.settings import Record, Settings
from gradviz.step.surrogate import needs_closure
from gradviz.watching import scalers
from gradviz.watching.arguments import as_models, as_optimizers, check_held, check_scaler, inner, names_of
from gradviz.watching.backward import BackwardEnd
from gradviz.watching.captured import CapturedOfLoop, Seen
from gradviz.watching.marks import Marks, Means
from gradviz.watching.models import Models
from gradviz.watching.stepping import StepHooks
from gradviz.watching.tap import Taken, Tap

MANY_PASSES = 1000
"""Backward passes without a step that are told of: nobody accumulates so many."""


class Finished(NamedTuple):
    """An iteration that is over, and not yet written."""

    taken: Taken
    outcome: Outcome
    captured: Seen | None


P = ParamSpec("P")
R = TypeVar("R")


@names_nearest_keyword
def watch(
    model: nn.Module | Mapping[str, nn.Module],
    optimizer: Optimizer | Iterable[Optimizer],
    *,
    scaler: Any = None,
    capture: Capture | None = None,
    record: Record = "all",
    every: int = 1,
    stages: Iterable[str] = ("backward", "clipped"),
    budget: float | None = None,
    histograms_every: int | None = 100,
    save_to: str | os.PathLike[str] | None = None,
    if_exists: IfExists = "error",
    flush_interval_s: float = 2.0,
    memory_limit: int | str = "512MB",
    example_ids: Callable[[], Sequence[Any]] | None = None,
) -> Watch:
    """Record the gradients of a loop of your own, whatever it is like; it stays as it is, to the bit.

    Every step of an optimizer is an iteration. Gradients are read when a backward pass is over, and again before the
    optimizer steps if something was written into them in between. So it is right with accumulation, clipping,
    `torch.amp.GradScaler`, closures, several optimizers and models, and under `torch.compile`. Used as a context it
    ends with it; else call `Watch.close`. A second watch of the same model or optimizer, as when a notebook cell is run
    again, takes the first one's place.

    Parameters
    ----------
    model : Module or dict of str to Module
        A dict's keys come before the names of the parameters: ``{"G": g, "D": d}`` has ``"G.fc.weight"``.
    optimizer : Optimizer or list of them
        With several, the column `optimizer` of ``history.metrics`` tells which one has stepped: by the name of its
        model, if it alone moves that one, or else by its place. A parameter has numbers in the iterations of the
        optimizer that holds it, and is ``not_recorded`` in those of others; one that none holds is ``not_optimized``,
        and its numbers are those of its ``.grad``, which nobody clears unless you do.
    scaler : GradScaler, optional
        Gradients are told without its scale, and a step that it leaves out is a row with ``skipped``. Torch's own is
        found without being given.
    capture : Capture, optional
        Capture gradients of intermediate values as well, for ``history.activations``, ``history.examples`` and
        ``history.tensors``: those of the backward passes that reach a parameter, from one step of an optimizer to the
        next. The newest are in `Watch.captured`. By default their statistics are kept, and no tensor.
    record : {"all", "norms", None}
        All statistics of every gradient; its norm and counts of what is not finite; or no gradients at all.
    every : int
        Of so many steps of an optimizer one is recorded, and the last before `Watch.close`, if its gradients are in
        ``.grad`` then as the step had them: nothing was cleared since, no loss scale was in them, and its row was not
        read from `Watch.history` before. The others have a row in ``history.metrics``, and ``"not_recorded"`` as the
        state of each gradient. If you clip, the last one has the stage ``"clipped"`` alone.
    stages : list of str
        ``"backward"``: as the backward passes have left it, accumulated and without the scaler's scale. ``"clipped"``:
        as the optimizer gets it, where that differs; a write of yours through ``.data`` that leaves nearly all entries
        as they were may be seen some iterations late. ``"update"``: how far the optimizer moved each parameter, with
        the parameter itself before as the stage ``"weight"``; a copy of all parameters is held during the step then.
    budget : float, optional
        What recording may cost at most, as a share of the step without it, such as 0.05 for 5 %. Iterations are left
        out, as `every` does, to stay under it.
    histograms_every : int, optional
        With ``record="all"``, steps of an optimizer from one histogram of every gradient to the next; None for none.
    save_to, if_exists, flush_interval_s, memory_limit
        As `trainer` has them, but that ``if_exists="resume"`` goes on behind the last row that is there.
    example_ids : callable, optional
        Gives the ids of the examples of the batch that is under way; it is called when the optimizer has stepped.
        They are written down beside the norms by example: ``example_ids=lambda: indices``.

    Returns
    -------
    Watch

    Raises
    ------
    ModelError, OptimizerError, HistoryError, CaptureError, UnknownKeywordError, ValueError
        Before anything was hooked or written.

    Warns
    -----
    RecordingWarning
        If an optimizer holds parameters of no model that is watched; or, once, if something cannot be recorded: your
        step goes on.

    Examples
    --------
    >>> import torch, gradviz as gv
    >>> model = torch.nn.Linear(1, 1, bias=False)
    >>> _ = torch.nn.init.constant_(model.weight, 1.0)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> with gv.watch(model, optimizer) as w:
    ...     for epoch in range(2):
    ...         optimizer.zero_grad()
    ...         loss = model(torch.tensor([[3.0]])).square().sum()
    ...         loss.backward()
    ...         torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0)
    ...         optimizer.step()
    ...         w.mark(epoch=epoch, loss=loss)
    tensor(18.)
    tensor(14.4000)
    >>> w.history.gradients[["iteration", "stage", "norm"]].round(3).values.tolist()
    [[0, 'backward', 18.0], [0, 'clipped', 2.0], [1, 'backward', 14.4], [1, 'clipped', 2.0]]
    >>> w.history.metrics[["epoch", "loss"]].round(3).values.tolist()
    [[0.0, 9.0], [1.0, 5.76]]
    """
    settings = Settings(record, stages, every, budget, histograms_every)
    captures = as_capture(capture)
    if example_ids is not None and not callable(example_ids):
        raise DataError(
            f"example_ids is a function that gives the ids of the batch under way; got {described(example_ids)}. Write "
            "example_ids=lambda: indices."
        )
    models = as_models(model)
    optimizers = as_optimizers(optimizer)
    check_scaler(scaler)
    followed = Models({f"{name}." if name else "": each for name, each in models.items()}, optimizers)
    names = names_of(models, optimizers)
    check_held(followed, optimizers, names)
    history = History(
        memory_limit=memory_limit, save_to=save_to, if_exists=if_exists, flush_interval_s=flush_interval_s
    )
    for other in list(_open):
        if other.shares(models.values(), optimizers):
            other.close()
    captured = None
    if captures is not None:
        session = Session(captures, "statistics", followed.by_prefix)
        captured = CapturedOfLoop(session, CaptureRecorder(history, captures, session.keep), example_ids)
    return Watch(followed, list(models.values()), optimizers, names, history, settings, scaler, captured)


def _guarded(work: Callable[P, R]) -> Callable[P, R | None]:
    """What is ours costs the user nothing but time, and that is counted: what goes wrong is warned of."""

    @functools.wraps(work)
    def guarded(*args: P.args, **keys: P.kwargs) -> R | None:
        self: Watch = args[0]  # type: ignore[assignment]
        with self._lock, self._pace:
            try:
                if not self._is_open:  # closed within a pass or a step, or by another thread
                    return None
                return work(*args, **keys)
            except RecordingWarning:  # of a user who wants errors for warnings
                raise
            except Exception as error:
                self._recorder.warn(error)
        return None

    return guarded


class Watch:
    """Records a loop that is not ours. Made by `watch`."""

    def __init__(
        self,
        followed: Models,
        models: Sequence[nn.Module],
        optimizers: Sequence[Optimizer],
        names: Sequence[str] | None,
        history: History,
        settings: Settings,
        scaler: Any,
        captured: CapturedOfLoop | None = None,
    ) -> None:
        self._models = followed
        self._watched = list(models)
        self._history = history
        self._recorder = Recorder(followed, history, settings, samples="clipped" in settings.stages)
        self._pace = Pace(settings.every, settings.budget)
        self._taps = [
            Tap(place, optimizer, followed, self._recorder, self._pace, self._look)
            for place, optimizer in enumerate(optimizers)
        ]
        self._names = names
        self._lock = threading.RLock()  # a notebook reads while a thread trains
        self._marks = Marks()
        self._means = Means()
        self._finished: Finished | None = None  # the last one; it may yet be told its loss
        self._captured = captured
        self._in_iteration = False
        self._n_passes = 0  # without a step
        self._is_scaled = scaler is not None and scaler.is_enabled()
        self._is_open = True
        self._has_warned_of_mark = False
        history.begin_run(self._recorder.described(), goes_on=True)
        self._recorder.declare()
        self._iteration = int(history.iterations[-1]) + 1 if len(history) else 0
        self._began_at = history.progress.iteration = self._iteration
        self._epoch = self._means_of = max(len(history.epoch_starts) - 1, 0)
        history.progress.begin()
        every = None if settings.record is None else settings.every
        history.progress.records(every, self._iteration, clipped="clipped" in self._recorder.stages)
        self._backward_end = BackwardEnd(self._backward_ended)
        self._backward_end.follow(followed.trainable)
        self._hooks = [
            StepHooks(
                tap.optimizer, functools.partial(self._before_step, tap), functools.partial(self._after_step, tap)
            )
            for tap in self._taps
        ]
        scalers.listen(self, scaler)
        if captured is not None:
            captured.begin(is_due=any(tap.is_due for tap in self._taps))
        _open.add(self)
        _close_at_exit()

    def __repr__(self) -> str:
        models = " and ".join(type(model).__name__ for model in self._watched)
        return f"Watch of {models}: {self._iteration:,} iterations ({self._history.progress.status})"

    @property
    def history(self) -> History:
        """Gradients and metrics of every iteration so far.

        A row that is read here is finished: tell its loss, by `mark`, before.
        """
        with self._lock:
            self._commit()
        return self._history

    @property
    def overhead(self) -> float:
        """What recording costs now, as a share of the step without it; NaN before it is known.

        Measured as it runs: the seconds spent on gradients and rows, those of a display included. An iteration weighs
        less the longer it is past; after 200 it weighs 1/e.
        """
        return self._pace.overhead

    @property
    def captured(self) -> Captured | None:
        """What was captured in the last iteration that was recorded; None without `capture`, or before the first."""
        return None if self._captured is None else self._captured.newest

    @property
    def is_open(self) -> bool:
        """Whether it still records: until it is closed, or another watch has taken its place."""
        return self._is_open

    def mark(self, *, epoch: int | None = None, **metrics: Any) -> None:
        """Tell the epoch, the loss and other metrics of an iteration, by name.

        Call it after the step, or between the backward pass and the step. A value that is given before the backward
        pass belongs to the step to come if its name was given before the first backward pass of all too, and else to
        the last.

        Parameters
        ----------
        epoch : int
            That of this iteration and those to come; epochs go up.
        **metrics : number
            Tensors and numpy's numbers of one entry are taken as what they say. Given twice for one iteration, the
            last one counts. Without `loss` the history has no column for it.

        Raises
        ------
        HistoryError
            If a value is no number, a name is that of a column of another meaning, or the epoch is an earlier one.

        Warns
        -----
        RecordingWarning
            Once, if the row was read from `history` already, and is left as it is.
        """
        if not self._is_open:
            raise HistoryError(
                "This watch is closed: it has ended, or a later one of the same model has taken its place. Mark that "
                "one, or make another: w = gv.watch(model, optimizer)."
            )
        values: dict[str, Any] = dict(self._history.check_metrics(metrics))
        if epoch is not None:
            values["epoch"] = whole("epoch", epoch, error=HistoryError)
            if values["epoch"] < self._epoch:
                raise HistoryError(self._epoch_is_over(epoch))
        with self._lock:
            past = self._marks.give(values, in_iteration=self._in_iteration, n_done=self._iteration - self._began_at)
            if past:
                self._mark_last(past)

    def _epoch_is_over(self, epoch: int) -> str:
        if self._began_at and self._iteration - self._began_at < 2:
            return (
                f"Epochs go up, and the run at {self._history.address} that this one goes on from has reached epoch "
                f"{self._epoch}; got {epoch}. Count on from there, or write over that run: if_exists='overwrite'."
            )
        return (
            f"Epochs go up, and {self._epoch} was marked before {epoch}. Another run has a watch of its own: "
            "w = gv.watch(model, optimizer)."
        )

    def _mark_last(self, values: dict[str, Any]) -> None:
        if self._finished is None:
            if not self._has_warned_of_mark:
                self._has_warned_of_mark = True
                given = ", ".join(values)
                warn(
                    f"{given} of iteration {self._iteration - 1} came after its row was read from w.history, and is "
                    "left out. Call w.mark(...) first. Said once.",
                    RecordingWarning,
                )
            self._epoch = values.get("epoch", self._epoch)
            return
        outcome = self._finished.outcome
        self._epoch = values.pop("epoch", self._epoch)
        outcome = outcome._replace(epoch=self._epoch, metrics={**outcome.metrics, **values})
        self._finished = self._finished._replace(outcome=outcome)

    def close(self) -> None:
        """Stop recording and leave no hook behind; closing twice is fine."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(error)

    def _close(self, error: BaseException | None = None) -> None:
        with self._lock:
            if not self._is_open:
                return
            self._is_open = False
            _open.discard(self)
            scalers.ignore(self)
            for hooks in self._hooks:
                hooks.close()
            self._backward_end.close()
            if self._captured is not None:
                self._captured.close()
            self._complete_last()
            self._commit()
            self._end_epoch()
        progress = self._history.progress
        progress.status = "completed"
        if error is not None:
            progress.status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            progress.message = None if progress.status == "interrupted" else f"{type(error).__name__}: {error}"
        try:
            self._history.end_run()
        except Exception as error:
            self._recorder.warn(error, "The last rows")
        self._history.notify(final=True)
        # One may be that of a step under way.
        if self._iteration == self._began_at and 1 < self._n_passes < MANY_PASSES:
            self._warn_of_no_step()

    def _complete_last(self) -> None:
        """Measure the last iteration after all, where its gradients are there still."""
        if self._finished is None:
            return
        taken = self._finished.taken
        if taken.draft is None and not taken.skipped and taken.loss_scale == 1:
            try:
                left = self._taps[taken.place].of_what_is_left()
                self._finished = self._finished._replace(taken=taken._replace(draft=left))
            except Exception as error:
                self._recorder.warn(error)

    def shares(self, models: Iterable[nn.Module], optimizers: Iterable[Optimizer]) -> bool:
        """Whether it watches one of these."""
        mine = {id(each) for each in (*self._watched, *(tap.optimizer for tap in self._taps))}
        return any(id(each) in mine for each in (*models, *optimizers))

    # What happens in the loop -----------------------------------------------------------------------------------

    @_guarded
    def _backward_ended(self, reached: set[int]) -> None:
        self._commit()
        for hooks in self._hooks:
            hooks.come_last()
        # Of what is new to us, as what was unfrozen for this pass, there was no hook to say whether it was reached.
        reached |= self._look()
        self._in_iteration = True
        if self._captured is not None:
            self._captured.passed(self._models.parameters())
        self._n_passes += 1
        if self._n_passes == MANY_PASSES:
            self._warn_of_no_step()
        for tap in self._taps:
            tap.backward_ended(reached, is_scaled=self._is_scaled)

    def _warn_of_no_step(self) -> None:
        kinds = " and ".join(type(tap.optimizer).__name__ for tap in self._taps)
        warn(
            f"{self._n_passes} backward passes came, and no step of the {kinds} that is watched, so there is nothing "
            "to record. If another optimizer steps now, watch that one: gv.watch(model, optimizer).",
            RecordingWarning,
        )

    def _look(self) -> set[int]:
        """Follow the models; the ids of parameters that were not followed before."""
        if not self._models.look():
            return set()
        if self._captured is not None:
            self._captured.follow()
        return self._backward_end.follow(self._models.trainable)

    def _before_step(self, tap: Tap, optimizer: Optimizer, args: tuple[Any, ...], keys: dict[str, Any]) -> Any:
        itself, *given = args
        closure = given[0] if given else keys.get("closure")
        self._begin_step(tap, has_closure=callable(closure))
        if not callable(closure):
            return None
        counted = self._counted(tap, closure)
        # What a pre-hook returns is what the step is called with.
        return ((itself, counted, *given[1:]), keys) if given else (args, {**keys, "closure": counted})

    @_guarded
    def _begin_step(self, tap: Tap, *, has_closure: bool) -> None:
        self._commit()
        if self._backward_end.was_missed():
            tap.missed_backward()
        if not self._in_iteration:  # else the pass has looked
            self._look()
        tap.begins_step(has_closure=has_closure)

    def _counted(self, tap: Tap, closure: Callable[[], R]) -> Callable[[], R]:
        """The closure, which tells of its calls and of the gradients that they leave."""

        @functools.wraps(closure)
        def counted() -> R:
            tap.calls_closure()
            result = closure()
            self._has_called(tap)
            return result

        return counted

    @_guarded
    def _has_called(self, tap: Tap) -> None:
        tap.has_called_closure()
        if self._captured is not None:  # the first evaluation is the step's
            self._captured.rest()

    def _after_step(self, tap: Tap, optimizer: Optimizer, args: Any, keys: Any) -> None:
        if tap.is_stepping:
            self._end(tap)

    @_guarded
    def _end(self, tap: Tap, *, skipped: bool = False) -> None:
        self._commit()  # one may have stepped within the step of another
        taken = tap.ends(skipped=skipped)
        given = self._marks.take()
        self._epoch = given.pop("epoch", self._epoch)
        if taken.closure_calls and needs_closure(tap.optimizer):
            given["closure_calls"] = float(taken.closure_calls)
        name = None if self._names is None else self._names[tap.place]
        changes = self._models.changes()
        outcome = Outcome(self._iteration, self._epoch, given, taken.loss_scale, taken.skipped, *changes, name)
        captured = None
        if self._captured is not None:
            captured = self._captured.take(taken, self._models.parameters())
            self._captured.go_on(is_due=any(each.is_due for each in self._taps))
        self._finished = Finished(taken, outcome, captured)
        self._iteration += 1
        self._in_iteration, self._n_passes = False, 0
        self._pace.end_iteration(was_recorded=taken.draft is not None)
        self._history.progress.overhead = self._pace.overhead

    def _commit(self) -> None:
        """Write the row of the last iteration: nothing more is told of it."""
        if self._finished is None:
            return
        (taken, outcome, captured), self._finished = self._finished, None
        progress = self._history.progress
        progress.epoch, progress.iteration = outcome.epoch, outcome.iteration + 1
        progress.metrics = dict(outcome.metrics)
        progress.loss = progress.metrics.get("loss", math.nan)
        if outcome.epoch != self._means_of:
            self._end_epoch()
        self._means_of = outcome.epoch
        self._means.add(outcome.metrics)
        try:
            if captured is not None and self._captured is not None:
                self._captured.write(captured, outcome)
        finally:  # last: who hears of the row finds all there is of the iteration
            self._recorder.commit(taken.draft, outcome)

    def _end_epoch(self) -> None:
        means, self._means = self._means, Means()
        if means.iterations:
            self._history.end_epoch(self._means_of, means.iterations, means.values(), means.nonfinite)

    # What a GradScaler does -------------------------------------------------------------------------------------

    def scales(self, scaler: Any) -> None:
        """A loss is multiplied."""
        self._is_scaled = self._is_scaled or scaler.is_enabled()

    @_guarded
    def unscales(self, scaler: Any, optimizer: Optimizer) -> None:
        """Gradients are about to be divided."""
        for tap in self._tapped(optimizer):
            if scaler.is_enabled() and tap.scaler is None:
                tap.is_unscaled_by(scaler)

    @_guarded
    def has_unscaled(self, scaler: Any, optimizer: Optimizer) -> None:
        """They have been."""
        for tap in self._tapped(optimizer):
            if tap.scaler is scaler:
                tap.has_been_unscaled()

    def steps(self, scaler: Any, optimizer: Optimizer) -> None:
        """The optimizer is about to step, or not to."""
        for tap in self._tapped(optimizer):
            tap.is_awaited = True

    @_guarded
    def has_stepped(self, scaler: Any, optimizer: Optimizer) -> None:
        """Either has happened."""
        for tap in self._tapped(optimizer):
            if tap.is_awaited:
                self._leave_out(tap)

    @_guarded
    def updates(self, scaler: Any) -> None:
        """The iteration of this scaler is over; whoever has unscaled and not stepped has left the step out."""
        for tap in self._taps:
            if tap.scaler is scaler:
                self._leave_out(tap)

    def _leave_out(self, tap: Tap) -> None:
        self._commit()
        tap.has_gradients()
        self._end(tap, skipped=True)

    def _tapped(self, optimizer: Optimizer) -> list[Tap]:
        itself = inner(optimizer)
        return [tap for tap in self._taps if tap.optimizer is itself]


_open: weakref.WeakSet[Watch] = weakref.WeakSet()


@functools.cache
def _close_at_exit() -> None:
    """The last row of a program that ends waits for no loss. Histories end after this: they asked to before."""

    def close() -> None:
        for each in list(_open):
            each._close(getattr(sys, "last_value", None))

    atexit.register(close)
