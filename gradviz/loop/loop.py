"""Many iterations: `Loop`, which `trainer` makes."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Iterator
from typing import Self

from gradviz.errors import DataError, MetricError, ModelError, OptimizerError, names_nearest_keyword, whole
from gradviz.history.history import History
from gradviz.history.run.keeper import IfExists
from gradviz.loop.apart import Apart
from gradviz.loop.background import Controlled
from gradviz.loop.checkpointed import Checkpointed
from gradviz.loop.checkpoints.files import folder_of, load
from gradviz.loop.checkpoints.snapshot import restore
from gradviz.loop.data import Data, Epochs
from gradviz.loop.display import Display, Shown
from gradviz.loop.events import OnError, State
from gradviz.loop.example_ids import ExampleIds, Tells
from gradviz.loop.handled import Handled
from gradviz.loop.metrics.measured import Measured
from gradviz.loop.metrics.metric import Metric
from gradviz.loop.stretch import Stretch
from gradviz.loop.training import Training
from gradviz.recorder.of_step import StepRecorder
from gradviz.step.step_state import StepState
from gradviz.step.train_step import TrainStep


class Loop(Handled, Checkpointed, Measured, Controlled):
    """A training loop. Made by `trainer`; its methods change it and return it."""

    def __init__(
        self,
        step: TrainStep,
        recorder: StepRecorder,
        *,
        if_exists: IfExists = "error",
        example_ids: Tells | None = None,
        on_error: OnError = "raise",
        log: int = 50,
    ) -> None:
        self._step = step
        self._if_exists = if_exists
        self._log = whole("log", log)
        self._training = Training(step, recorder, ExampleIds(example_ids, step.accumulate), on_error=on_error)
        self._training.handlers.loop = weakref.ref(self)
        self._apart: Apart | None = None

    @property
    def state(self) -> State:
        """Where the loop stands."""
        return self._training.state

    @property
    def history(self) -> History:
        """Gradients and metrics of every iteration so far."""
        return self._training.history

    @property
    def overhead(self) -> float:
        """What recording costs now, as a share of the iteration without it; NaN before it is known, or with
        ``record=None``.

        Measured as it runs: the seconds spent on gradients and rows, those of a display included. An iteration weighs
        less the longer it is past; after 200 it weighs 1/e.
        """
        return self._training.recorder.pace.overhead

    @property
    def _metrics(self) -> dict[str, Metric]:
        return self._training.metrics

    def _check_free(self) -> None:
        self._check_here("metric")

    def _check_fields(self, metric: Metric) -> None:
        if "gradients" in metric.fields and not self._step.keep_gradients:
            raise MetricError(
                f"The metric {metric.name!r} asks for 'gradients', and this loop keeps none. Write "
                "gv.trainer(..., keep_gradients=True)."
            )

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
        display: Display = "auto",
    ) -> State:
        """Train. Called again, it goes on from where it stands, with the next epoch.

        An epoch that was broken off, by Ctrl-C, an error or a handler, counts as one; it is taken up in its middle only
        from a checkpoint (see `resume`).

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
            live dashboard instead, which lasts as long as the kernel. Elsewhere both show how far the run is on stderr;
            see ``log`` of `trainer`. None shows nothing.

        Returns
        -------
        State
            Also in `loop.state`, and there after an interrupt or an error too.

        Raises
        ------
        DataError, ModelError, LossError, OptimizerError, MetricError
            Before anything has moved, if the data, the model or the loss cannot be trained, or not so; if a metric
            cannot be computed, or a handler goes by one that there is not. A later run looks no further than whether
            there is a batch, where an iterator or the data's length tells; what else is wrong with one ends the run
            when it comes.
        LoopError
            Before anything has moved, if the folder of a `checkpoint` holds an earlier run; see ``if_exists`` of
            `trainer`. And if a run of this loop is under way.
        StateTypeError
            If a leaf of the step state changes its type, unless ``strict=False``; see `train_step`.
        LoopError
            If a run of this loop is under way, or another thread trains the same parameters (see `running`).
        KeyboardInterrupt
            After Ctrl-C, once the iteration is finished and recorded; a second Ctrl-C stops at once. A handler of your
            own for SIGINT is not called during a run; afterwards it is there again.
        """
        stretch = self._stretch(data, epochs, iterations, in_place, display)
        if stretch is not None:
            with self._turn(stretch):
                stretch.run()
        return self.state

    @names_nearest_keyword
    def stream(
        self,
        data: Data,
        *,
        epochs: int = 1,
        iterations: int | None = None,
        in_place: bool = True,
        display: Display = "auto",
    ) -> Iterator[State]:
        """Train as `run` does, to the bit, and give the state after each epoch, for code between the epochs.

        There the model, its train flags and Ctrl-C are yours, and the next epoch goes on with the model as you leave
        it. Leaving the ``for``, by ``break`` or an error, ends the run: its status is "halted".

        Parameters
        ----------
        data, epochs, iterations, in_place, display
            As in `run`; they are checked at once.

        Returns
        -------
        iterator of State
            `loop.state` each time, with `epoch` and `iteration` the numbers run so far.

        Raises
        ------
        DataError, ModelError, LossError, OptimizerError, MetricError, StateTypeError, KeyboardInterrupt
            As in `run`, when the next epoch is asked for.
        LoopError
            As in `run`.

        Examples
        --------
        >>> import torch, gradviz as gv
        >>> from torch import nn
        >>> model = nn.Linear(1, 1, bias=False)
        >>> _ = nn.init.constant_(model.weight, 0.8)
        >>> loop = gv.trainer(model, "mean_squared_error", torch.optim.SGD(model.parameters(), lr=0.1))
        >>> data = [(torch.tensor([[1.0], [2.0]]), torch.zeros(2, 1))]
        >>> for state in loop.stream(data, epochs=5):
        ...     print(state.epoch, round(model.weight.item(), 3))
        ...     if model.weight.item() < 0.3:
        ...         break
        1 0.4
        2 0.2
        >>> loop
        Loop of Linear: 2 iterations, 2 epochs (halted)
        """
        stretch = self._stretch(data, epochs, iterations, in_place, display)
        self._check_idle()
        return iter(()) if stretch is None else self._streamed(stretch)

    def _streamed(self, stretch: Stretch) -> Iterator[State]:
        with self._turn(stretch):
            yield from stretch.stream()

    def resume(self, path: str | os.PathLike[str]) -> Self:
        """Put the loop where a checkpoint was written; `run` goes on from there, to the bit.

        Parameters, buffers, what is frozen and the optimizer are written at once. The next ``run(data, epochs=3)``
        goes on with the next epoch; or with the one in whose middle the checkpoint was written, which counts as the
        first of the three: its data is begun anew with the random streams as they stood then, and the batches that were
        trained on are passed over. The history goes on at the right iteration; rows from there on, of what this loop
        had trained meanwhile, are taken out.

        Build the loop as it was: the same model, optimizer, metrics and handlers, attached before. Learning rates and
        other options of the optimizer come from the checkpoint. Give the same data. What only the data knows cannot be
        repeated: an iterator that is read once, a generator function's local variables, random numbers that the
        workers of a `DataLoader` with ``persistent_workers=True`` draw. See `checkpoint` for the random streams that
        are saved.

        Parameters
        ----------
        path : path
            Of a checkpoint's file; or of the folder that `checkpoint` was given, for the newest one in it that is good.

        Returns
        -------
        Loop
            Itself.

        Raises
        ------
        CheckpointError
            Before anything has moved: if there is no checkpoint, or one of another format; if the model has other
            parameters, or the loop another optimizer, other parameter groups or another kind of loss scale.

        Warns
        -----
        CheckpointWarning
            W0207: the files that are damaged, and what the checkpoint remembers that this loop does not have.

        Examples
        --------
        >>> import tempfile, torch, gradviz as gv
        >>> from torch import nn
        >>> def make(): return gv.trainer(nn.Linear(1, 1), "mean_squared_error", "adam")
        >>> data = [(torch.ones(4, 1), torch.ones(4, 1))]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     loop = make().checkpoint(folder)
        ...     _ = loop.run(data, epochs=2)
        ...     again = make().checkpoint(folder).resume(folder)
        >>> torch.equal(again.state.step_state.model_state["weight"], loop.state.step_state.model_state["weight"])
        True
        >>> again.run(data, epochs=1).epoch
        3
        """
        self._check_idle()
        saved = load(path)
        folder = folder_of(path).resolve()
        with contextlib.nullcontext() if self._apart is None else self._apart.lent():
            restore(self._training, saved)
        if self._apart is not None and self.state.step_state:
            self.state.step_state["model_state"] = self._apart.model_state
        self.history.begin_attempt(self._training.iterations_run, self.state.epoch)
        self._training.folders.add(folder)
        return self

    # One stretch of training -----------------------------------------------------------------------------------

    def _stretch(
        self, data: Data, epochs: int, iterations: int | None, in_place: bool, display: Display
    ) -> Stretch | None:
        """What was asked for, checked; None where there is nothing to do."""
        epochs = whole("epochs", epochs, error=DataError)
        if iterations is not None:
            iterations = whole("iterations", iterations, error=DataError)
        source = Epochs(data, epochs, self._step.accumulate)
        if display not in ("auto", "live", None):
            raise ValueError(f'display is "auto", "live" or None; got {display!r}.')
        self._check_in_place(in_place)
        if epochs == 0 or iterations == 0:
            return None
        self._resume_earlier(in_place)
        apart = contextlib.nullcontext if in_place else self._apart_from_the_model
        return Stretch(self._training, source, epochs, iterations, apart, Shown(self.history, display, self._log))

    def _resume_earlier(self, in_place: bool) -> None:
        """Go on from the run that lies where this one will write its checkpoints, where that was asked for."""
        found = self._to_go_on_from()
        if not found:
            return
        self._check_idle()
        if not in_place and self._apart is None:
            self._apart = Apart(self._step.model)
        self.resume(found[0].path)
        self._training.folders.update(each.folder.resolve() for each in found)

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
