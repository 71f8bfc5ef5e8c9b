"""`History`: what happened in a run, every iteration of it, as pandas."""

from __future__ import annotations

import functools
import math
import os
import threading
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, Never

import numpy as np
from numpy.typing import NDArray

from gradviz.errors import HistoryError, RecordingWarning, described, nearest, warn, whole
from gradviz.history.cells import Picture
from gradviz.history.changes import Change, changes
from gradviz.history.controls import Controls
from gradviz.history.dtypes import DtypePicture
from gradviz.history.first_nonfinite import FirstNonfinite, first_nonfinite
from gradviz.history.freezer import Freezer
from gradviz.history.imported import Imported
from gradviz.history.lines import Lines
from gradviz.history.metrics import MetricPicture
from gradviz.history.overview import Columns
from gradviz.history.progress import Progress
from gradviz.history.run.keeper import IF_EXISTS, IfExists, Keeper
from gradviz.history.schema import EVENTS, METRICS, OPTIONAL, STAGES, STATES, STATISTICS, TABLES, Parameter
from gradviz.history.selection import Selection
from gradviz.history.store import Store
from gradviz.history.table import Table
from gradviz.history.tensors import Kept
from gradviz.history.view import View
from gradviz.sizes import n_bytes

if TYPE_CHECKING:
    import pandas as pd

    from gradviz.history.inspected import Inspected
    from gradviz.history.opened import Opened

Listener = Callable[[bool], None]
"""Called after an append; True when the run has ended, so that nothing may wait any longer."""

Row = tuple[NDArray[np.float64], NDArray[np.uint8]]
"""[parameters, statistics] values and [parameters] states."""


_BY: Mapping[str, str] = {}
"""Nobody in particular did it."""


class History(View):
    """Gradients and metrics of a run by iteration. Made by a loop; it needs no torch to be read.

    Parameters
    ----------
    memory_limit : int or str
        What rows may take in memory, and a frame may at most: a number of bytes, or ``"512MB"``. Older rows are on disk
        beyond that, and read from there.
    save_to : path or address, optional
        Of the folder in which the run is kept: ``"runs/a"``, or an fsspec address such as ``"s3://bucket/runs/a"``.
    if_exists : "error", "resume" or "overwrite"
        What to do with a run that is there already.
    flush_interval_s : float
        What a killed process may lose at most.
    seed : int, optional
        Written down with the run.

    Examples
    --------
    >>> history = History()
    >>> history.declare([Parameter(name="w", shape=(2,), dtype="float32")])
    >>> history.append(0, 0, np.array([[5.0, 3.5, 0.7, 4.0, 0.0, 0, 0, 0]]), np.array([0], np.uint8), {"loss": 1.6})
    >>> history.norms
    parameter    w
    iteration
    0          5.0
    >>> history.metrics
               epoch  loss  loss_scale  skipped
    iteration
    0              0   1.6         1.0    False
    """

    def __init__(
        self,
        *path: Never,
        memory_limit: int | str = "512MB",
        save_to: str | os.PathLike[str] | None = None,
        if_exists: IfExists = "error",
        flush_interval_s: float = 2.0,
        seed: int | None = None,
    ) -> None:
        if path:
            written = repr(path[0]) if isinstance(path[0], str) else "path"
            raise HistoryError(
                f"A run that was saved is read by gv.History.open({written}); a loop makes its own history."
            )
        limit = n_bytes("memory_limit", memory_limit, error=HistoryError)
        super().__init__(Store(limit), limit)
        if if_exists not in IF_EXISTS:
            raise HistoryError(f'if_exists is "error", "resume" or "overwrite"; got {if_exists!r}.')
        if save_to is not None and not isinstance(save_to, str | os.PathLike):
            raise HistoryError(f'save_to is a folder, such as save_to="runs/a"; got {described(save_to)}.')
        if not isinstance(flush_interval_s, int | float) or not 0 < flush_interval_s <= threading.TIMEOUT_MAX:
            raise HistoryError(f"flush_interval_s is a number of seconds above 0; got {flush_interval_s!r:.80}.")
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, Integral)):
            raise HistoryError(f"seed is a whole number; got {seed!r}.")
        self.identity = uuid.uuid4().hex
        """Of this history for its life: by it the widgets of a run find each other in a page."""
        self._right: dict[str, Row] = {}  # the last that was checked, by stage
        self.progress = Progress()
        self.freezer: Freezer | None = None
        """Of the run that is under way; None where there is none that can be asked."""
        self.controls: Controls | None = None
        """Of the same run."""
        self.n_completed = 0
        """How often something was added to an iteration that pictures may have shown without it: see `complete`."""
        self.captures: bool | None = False
        """Whether gradients of intermediate values are captured; None where nobody can say."""
        self._picture = Picture(self._store)
        self._resumed_at: tuple[int, int] | None = None
        self._keeper = Keeper(
            self._store,
            self._picture,
            self.progress,
            memory_limit=limit,
            save_to=save_to,
            if_exists=if_exists,
            flush_interval_s=float(flush_interval_s),
            seed=None if seed is None else int(seed),
        )
        weakref.finalize(self, self._keeper.end)
        self._listeners: list[weakref.WeakMethod[Listener]] = []

    def __repr__(self) -> str:
        n = len(self._store.parameters)
        return f"History of {len(self):,} iterations of {n} parameters ({self.progress.status})"

    @staticmethod
    def open(path: str | os.PathLike[str], *, skip_damaged: bool = False, memory_limit: int | str = "512MB") -> Opened:
        """A run that was saved, or is being saved by another process: read, never written.

        Parameters
        ----------
        path : path or address
            Of the run's folder.
        skip_damaged : bool
            Leave out files that cannot be read, with a warning that names them, instead of an error. Without its
            ``run.json`` a run's status, shapes and dtypes are unknown.
        memory_limit : int or str
            What a frame may take at most.

        Returns
        -------
        Opened
            A history with `refresh`, which takes up what was written since, and `follow`, which does so by itself.

        Raises
        ------
        HistoryError
            If there is no such folder, it is no run or one of a newer gradviz, or a file is damaged.

        Examples
        --------
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> history = History(save_to=folder + "/a")
        >>> history.declare([{"name": "w", "shape": (2,), "dtype": "float32"}])
        >>> history.append(0, 0, np.array([[5.0, 3.5, 0.7, 4.0, 0.0, 0, 0, 0]]), np.array([0], np.uint8), {"loss": 1.6})
        >>> history.flush()
        >>> History.open(folder + "/a").norms
        parameter    w
        iteration
        0          5.0
        """
        from gradviz.history.opened import Opened

        return Opened(path, skip_damaged=skip_damaged, memory_limit=memory_limit)

    @classmethod
    def from_frame(cls, frame: pd.DataFrame, *, memory_limit: int | str = "512MB") -> History:
        """A history made of gradients in a frame, in memory; ``History.from_frame(h.gradients).gradients`` is the same.

        Parameters
        ----------
        frame : DataFrame
            Tidy: the columns iteration (whole numbers), parameter (texts) and norm, and any others of `gradients`;
            such as ``pd.read_parquet("runs/a/gradients")``. Or wide: index iteration, and a column of norms for each
            parameter. Lines may be in any order.
        memory_limit : int or str
            As for `History`.

        Returns
        -------
        History
            What the frame does not have was not recorded, and shapes and dtypes are unknown. Without the column
            `state`, a NaN counts as the gradient's own, and only ``pd.NA`` as not recorded. There is no loss in
            `metrics`; `loss_scale` is NaN, and `skipped` says nothing.

        Raises
        ------
        HistoryError
            If a column is missing, unknown, or of another type than it should be, or a line is there twice.

        Examples
        --------
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"iteration": [1, 0], "parameter": ["weight", "weight"], "norm": [0.5, 0.25]})
        >>> History.from_frame(frame).norms
        parameter  weight
        iteration
        0            0.25
        1            0.50
        """
        imported = Imported(frame)
        history = cls(memory_limit=memory_limit)
        history.declare(imported.parameters)
        for each in imported:
            while history._store.attempts.current < each.attempt:
                history._store.begin_attempt(each.iteration, each.epoch)
            stages = dict(each.stages)
            statistics, states = stages.pop("backward", (_NO_STATISTICS, _NO_STATES))
            history.append(
                each.iteration, each.epoch, statistics, states, {}, loss_scale=math.nan, stages=stages or None
            )
        history.progress.iteration = len(history)
        return history

    @property
    def address(self) -> str | None:
        """Where the run is saved; None if it is not."""
        return self._keeper.address

    @property
    def stages(self) -> tuple[str, ...]:
        """At which points numbers were taken, as far as there are any."""
        return tuple(self._store.stages)

    @property
    def has_gradients(self) -> bool:
        """Whether there is anything but iterations that were not recorded."""
        with self._store.lock:
            return any(piece.of.n_parameters for rows in self._store.stages.values() for piece in rows.pieces())

    @property
    def measures(self) -> tuple[str, ...]:
        """What `asked` can have numbers of: no "rms" where no shape is known, and nothing but the ratio of two runs."""
        from gradviz.history.asked import MEASURES

        if self.quantity.runs:
            return ()
        has_sizes = not self.described or any(parameter["shape"] is not None for parameter in self.described)
        return tuple(name for name in MEASURES if has_sizes or name != "rms")

    def asked(self, measure: str, stage: str, start: int, stop: int, most: int) -> Columns:
        """The iterations [start, stop) as at most so many columns of a picture, the loss as the last row.

        Parameters
        ----------
        measure : "norm", "rms", "max_abs", "mean", "zero_fraction" or "update_ratio"
        stage : "backward", "clipped", "update" or "weight"
        start, stop : int
        most : int

        Raises
        ------
        HistoryError
            If there is no such measure or stage.
        """
        from gradviz.history.asked import asked

        return self._reading(lambda: asked(self._store, measure, stage, start, stop, most))

    def inspected(self, name: str, iteration: int | None = None) -> Inspected:
        """All that is known of one row of its picture at an iteration; None is the newest.

        Raises
        ------
        HistoryError
            If no row has this name.
        """
        return self._inspected(name, name, iteration)

    def _inspected(self, name: str, captured: str, iteration: int | None) -> Inspected:
        """`captured` is the name that its examples have."""
        from gradviz.history.inspected import inspected

        since = self.progress.clipped_from
        return self._reading(lambda: inspected(self._store, self._lines, name, captured, iteration, clipped_from=since))

    @functools.cached_property
    def _lines(self) -> dict[str, Lines]:
        by = {"histograms": "parameter", "examples": "name"}
        return {table: Lines(self._store, self._reading, table, column) for table, column in by.items()}

    # Written by recorders --------------------------------------------------------------------------------------

    def begin_run(self, parameters: Sequence[Parameter] | None = None, *, goes_on: bool = False) -> None:
        """Open the folder that rows are saved to, before the first of them.

        Parameters
        ----------
        parameters : list of Parameter, optional
            Of the model whose rows will come.
        goes_on : bool
            Where ``if_exists="resume"`` takes up an earlier run without a word of `begin_attempt`, the rows to come go
            on behind its last one, and hide none: ``history.iterations[-1] + 1`` is the next, in epoch
            ``history.progress.epoch`` or a later one.

        Raises
        ------
        HistoryError
            If there is a run in the way, or one of another model, or nothing can be written there. Nothing has been
            touched then.

        Warns
        -----
        RecordingWarning
            W0201: a run that is there is begun again at iteration 0, as nothing says where it goes on.
        """
        at = self._resumed_at
        if self._keeper.begin(parameters, resumes=at is not None):
            if at is not None:
                self._begin_attempt(*at)
            elif goes_on and len(self):
                self._go_on()
            elif n := len(self):
                warn(
                    f"{self.address} holds {n:,} iterations of an earlier run, without a checkpoint to go on from: "
                    'this run begins again at iteration 0. The old rows are in history.select(attempts="all"). To go '
                    f"on where a run stood, it needs checkpoints: loop.checkpoint({self.address!r}) before its first "
                    "run.",
                    RecordingWarning,
                )
                self._begin_attempt(0, 0)
        self._resumed_at = None

    def flush(self) -> None:
        """Write to disk what is in memory alone, now; without `save_to` there is nothing to do."""
        self._keeper.flush()

    def end_run(self) -> None:
        """A run is over, for now: all of it is on disk after this, and the folder is free for others."""
        self._keeper.end()

    def declare(self, parameters: Sequence[Parameter]) -> None:
        """Name the parameters of the rows to come; those already known must come first, in the same order."""
        store = self._store
        names = [parameter["name"] for parameter in parameters]
        if names[: len(store.parameters)] != store.names:
            raise HistoryError("Parameters can be added to a history, but not taken away or put in another order.")
        if len(set(names)) < len(names):
            raise HistoryError(f"Each parameter has a name of its own; {_repeated(names)!r} is there twice.")
        with store.lock:
            store.declare(parameters)

    @property
    def described(self) -> list[Parameter]:
        """The parameters as they were declared; a new list when there are others, and only then."""
        return self._store.parameters

    def append(
        self,
        iteration: int,
        epoch: int,
        statistics: NDArray[np.float64] | None,
        states: NDArray[np.uint8] | None,
        metrics: Mapping[str, Any],
        loss_scale: float = 1.0,
        skipped: bool = False,
        *,
        stages: Mapping[str, Row] | None = None,
        optimizer: str | None = None,
    ) -> None:
        """Record one iteration.

        Parameters
        ----------
        iteration, epoch : int
        statistics : float64 array of shape [parameters, statistics], or None
        states : uint8 array of shape [parameters], or None
            Both None where nothing was to be recorded of this iteration's gradients, but of every tenth only, say:
            frames have it as "not_recorded", and in the picture its loss joins the iteration recorded before it.
        metrics : mapping of str to number
            The batch's own values; tensors and numpy's numbers of one entry are taken as what they say.
        loss_scale : float
        skipped : bool
        stages : mapping of str to (statistics, states), optional
            What was measured at other stages than "backward".
        optimizer : str, optional
            What the optimizer is called that took the step, where there are several.

        Raises
        ------
        HistoryError
            If a metric is no number, or is called as a column of another meaning is; if the optimizer is no name; if
            the iteration does not come after those before, or its epoch before theirs; if a stage or a state is none,
            or an array has another shape. Nothing is written then.
        """
        store, keeper = self._store, self._keeper
        measured = dict(stages) if stages else {}
        if statistics is not None and states is not None:
            measured["backward"] = statistics, states
        elif statistics is not None or states is not None:
            raise HistoryError("Statistics and states are given together, or neither: None twice.")
        if not keeper.is_writing:
            self.begin_run()
        self._check(iteration, epoch)
        self._check_measured(measured)
        values = self.check_metrics(metrics)
        row: dict[str, Any] = {
            "iteration": iteration,
            "attempt": store.attempts.current,
            "epoch": epoch,
            **values,
            "loss_scale": loss_scale,
            "skipped": skipped,
        }
        optional: dict[str, Any] = {}
        if optimizer is not None:
            optional["optimizer"] = optimizer
        if "backward" not in measured:
            optional["thinned"] = True
        if optional:
            _check_optional(optional, store.metrics)
        with store.lock:
            if epoch >= len(store.epoch_starts):
                store.epoch_starts.extend([iteration] * (epoch + 1 - len(store.epoch_starts)))
            n_bytes = 8 * len(row) + self._write_stages(iteration, epoch, measured)
            if not values.keys() <= store.metrics.schema.keys():
                store.metrics.grow(values)
            for name, value in optional.items():
                store.metrics.grow([name], OPTIONAL[name])
                row[name] = store.metrics.vocabulary[name].place(value) if OPTIONAL[name] == "text" else value
            store.metrics.append(row)
            store.iterations.append(iteration)
            store.change()
        keeper.appended(n_bytes)
        self.notify()

    def complete(
        self, statistics: NDArray[np.float64], states: NDArray[np.uint8], *, stages: Mapping[str, Row]
    ) -> None:
        """Add its gradients to the newest iteration, of which nothing was to be recorded until it was the last.

        Parameters
        ----------
        statistics, states, stages
            As `append` takes them.

        Raises
        ------
        HistoryError
            If there is no iteration, it has gradients already, or a stage, a state or a shape is wrong. Nothing is
            written then.
        """
        store = self._store
        newest = store.read_metrics(len(self) - 1) if store.thins and len(self) else {}
        if not newest or not newest["thinned"].values[0] or store.held("backward", first=store.iterations[-1]):
            raise HistoryError("The newest iteration has its gradients already, or there is none.")
        measured = {"backward": (statistics, states), **stages}
        self._check_measured(measured)
        iteration, epoch = store.iterations[-1], len(store.epoch_starts) - 1
        with store.lock:
            n_bytes = self._write_stages(iteration, epoch, measured)
            self._picture.redraw_newest()
            self.n_completed += 1
            store.change()
        self._keeper.appended(n_bytes)

    def check_metrics(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        """Metrics as `append` would write them, before a row is due.

        Parameters
        ----------
        metrics : mapping of str to number
            Tensors and numpy's numbers of one entry are taken as what they say, and True as 1.

        Returns
        -------
        dict of str to float

        Raises
        ------
        HistoryError
            If one is no number, or is called as a column of another meaning is: the same that `append` raises.

        Examples
        --------
        >>> History().check_metrics({"loss": np.float32(0.5), "is_good": True})
        {'loss': 0.5, 'is_good': 1.0}
        """
        values = dict(metrics)
        if not _FLOATS.issuperset(map(type, values.values())):
            values = {name: _number(name, value) for name, value in values.items()}
        if not _OTHERS.isdisjoint(values):
            name = next(name for name in values if name in _OTHERS)
            raise HistoryError(f"A metric cannot be called {name!r}: its table has a column of that name.")
        if not values.keys() <= self._store.metrics.schema.keys():
            _check_names(values)
        return values

    def _check(self, iteration: int, epoch: int) -> None:
        # Once it is among the rows, no file could be written of what does not fit, nor of anything after it.
        store = self._store
        newest = store.iterations[-1] if store.iterations else -1
        newest_epoch = len(store.epoch_starts) - 1
        if type(iteration) is not int or type(epoch) is not int or iteration < 0 or epoch < 0:
            whole("iteration", iteration, error=HistoryError)
            whole("epoch", epoch, error=HistoryError)
        if iteration <= newest:
            raise HistoryError(
                f"Iterations go up: {iteration} cannot come after {newest}. To record it once more: "
                f"history.begin_attempt({iteration}, epoch)."
            )
        if epoch < newest_epoch:
            raise HistoryError(
                f"Epochs go up: iteration {iteration} cannot be of epoch {epoch}, as those before it are of epoch "
                f"{newest_epoch}. Give each a number of its own, counted over the whole run."
            )

    def _check_measured(self, measured: Mapping[str, Row]) -> None:
        store = self._store
        for stage, (table, own) in measured.items():
            right = self._right.get(stage)
            if right is not None and right[0] is table and right[1] is own and not own.flags.writeable:
                continue  # the next row in the same arrays, of states that nobody can have changed
            if stage not in STAGES:
                raise HistoryError(f"No stage is called {stage!r}: {nearest(str(stage), STAGES)}")
            n = len(own)
            if (
                table.shape != (n, len(STATISTICS))
                or table.dtype != np.float64
                or own.shape != (n,)
                or n > len(store.parameters)
            ):
                raise HistoryError(
                    f"The statistics have the shape [parameters, {len(STATISTICS)}], in float64, and the states "
                    f"[parameters], of {len(store.parameters)} parameters; got {table.shape}, {table.dtype}, and "
                    f"{own.shape}."
                )
            # Deleting from bytes what is a place takes a twentieth of the time that a maximum takes.
            if n and (own.dtype != np.uint8 or own.tobytes().translate(None, _PLACES)):
                raise HistoryError(f"States are places in {STATES}, in uint8; got {own.max()} in {own.dtype}.")
            self._right[stage] = table, own

    def _write_stages(self, iteration: int, epoch: int, measured: Mapping[str, Row]) -> int:
        """Write what was measured at each stage; how many bytes that are."""
        store, n_bytes = self._store, 0
        for stage, (table, own) in measured.items():
            n_bytes += table.nbytes
            if self._keeper.is_full:
                table, own = table[:0], own[:0]  # what a row lacks was not recorded
            rows = store.stages[stage] if stage in store.stages else store.stage(stage)
            rows.append(iteration, epoch, store.attempts.current, table, own)
        return n_bytes

    def add_rows(self, table: str, columns: Mapping[str, Sequence[Any] | NDArray[Any]]) -> None:
        """Write rows of a tidy table: "events", "dtypes", "histograms", "precision", "activations" or "examples".

        Parameters
        ----------
        table : str
        columns : mapping of str to sequence
            All columns of the table but `attempt`, of one length. A text or a count that is missing is None, or masked.

        Raises
        ------
        HistoryError
            If there is no such table, or the columns are not its own. Nothing is written then.
        """
        if table not in TABLES:
            raise HistoryError(f"No table is called {table!r}: {nearest(table, TABLES)}")
        if columns.keys() != TABLES[table].keys() - {"attempt"}:
            raise HistoryError(f"Rows of {table} have {', '.join(TABLES[table])}; got {', '.join(columns)}.")
        lengths = {name: np.shape(values)[:1] for name, values in columns.items()}
        if len(set(lengths.values())) > 1 or () in lengths.values():
            raise HistoryError(f"The columns of {table} have one length; got {lengths}.")
        store = self._store
        with store.lock:
            attempt = np.full(len(columns["iteration"]), store.attempts.current, np.int64)
            try:
                store.tables[table].extend({**columns, "attempt": attempt})
            except (TypeError, ValueError) as error:
                raise HistoryError(f"Rows of {table} cannot be taken: {error}.") from error
            store.change()
        self._keeper.appended(8 * len(attempt) * (len(columns) + 1))

    def keep_tensor(
        self,
        name: str,
        iteration: int,
        array: NDArray[Any],
        *,
        call: int = 0,
        example: int | None = None,
        dtype: str | None = None,
        batch_dim: int | None = None,
        most: int | None = None,
    ) -> int:
        """Keep a tensor whole, for `tensors` to find.

        Parameters
        ----------
        name : str
        iteration : int
        array : numpy array
            Of any shape, copied. numpy has no bfloat16: such a tensor comes as float32, with its own dtype as text.
        call : int
            Which call of that name within the iteration.
        example : int, optional
            Index within the batch, if it is of one example alone.
        dtype : str, optional
            What it had where it was recorded; numpy's own, if not given.
        batch_dim : int, optional
            The axis of the examples, if it is of a whole batch.
        most : int, optional
            Bytes that kept tensors may take where rows are in memory alone: beyond, the oldest go.

        Returns
        -------
        int
            How many tensors had to go.
        """
        if not self._keeper.is_writing:
            self.begin_run()
        store = self._store
        with store.lock:
            attempt, dtype = store.attempts.current, dtype or str(array.dtype)
            kept = Kept(name, iteration, attempt, call, example, dtype, batch_dim)
            store.tensors.keep(kept, array)
            dropped = 0 if most is None or self._keeper.is_on_disk else store.tensors.drop(most)
        self._keeper.appended(array.nbytes)
        return dropped

    def add_events(self, iteration: int, event: str, parameters: Iterable[str], *, by: Mapping[str, str] = _BY) -> None:
        """Write down what happened to parameters: "frozen" or "unfrozen".

        Parameters
        ----------
        iteration : int
        event : str
        parameters : iterable of str
        by : mapping of str to str
            Who did it: "handler" or "widget", by parameter; "user" where it says nothing.

        Raises
        ------
        HistoryError
            If there is no such event.
        """
        if event not in EVENTS:
            raise HistoryError(f"No event is called {event!r}: {nearest(event, EVENTS)}")
        names = list(parameters)
        if names:
            n = len(names)
            authors = [by.get(name, "user") for name in names]
            what: dict[str, Sequence[Any]] = {
                "iteration": [iteration] * n,
                "event": [event] * n,
                "parameter": names,
                "by": authors,
            }
            self.add_rows("events", what)

    def end_epoch(self, epoch: int, iterations: int, means: Mapping[str, float], nonfinite: int) -> None:
        """Keep the means of an epoch that is over."""
        with self._store.lock:
            self._store.epochs.append({"epoch": epoch, **means, "iterations": iterations, "nonfinite": nonfinite})

    def extend_epoch(self, epoch: int, values: Mapping[str, float]) -> None:
        """Add to an epoch's means what was found out after it, such as validation results."""
        with self._store.lock:
            record = next((record for record in reversed(self._store.epochs) if record["epoch"] == epoch), None)
            if record is None:
                raise HistoryError(f"No means of epoch {epoch} are kept; end_epoch comes first.")
            record.update(values)

    def begin_attempt(self, iteration: int, epoch: int) -> None:
        """A run goes on there once more: what was recorded from this iteration and epoch on no longer holds.

        It is kept all the same: ``select(attempts="all")``.
        """
        if len(self._store.metrics):
            self._begin_attempt(iteration, epoch)
        else:
            self._resumed_at = iteration, epoch  # rows before it may be in the folder that is yet to be opened
            self.progress.iteration, self.progress.epoch = iteration, epoch

    def _go_on(self) -> None:
        # A new attempt all the same: of one that was killed, rows may lie there that have no metrics.
        epoch = len(self._store.epoch_starts) - 1
        self._begin_attempt(int(self._store.iterations[-1]) + 1, epoch + 1)
        self.progress.epoch = epoch

    def _begin_attempt(self, iteration: int, epoch: int) -> None:
        with self._store.lock:
            self._store.begin_attempt(iteration, epoch)
            self.progress.iteration, self.progress.epoch = iteration, epoch
        self.notify(final=True)

    # Where it went wrong ---------------------------------------------------------------------------------------

    def first_nonfinite(self) -> FirstNonfinite | None:
        """The first NaN or infinity in the loss or in a gradient as autograd gave it: where it was, and what led there.

        Of several parameters that had one at that iteration it is the one that was declared last: backward comes
        from the end of the model, and spreads a NaN to all that stands before it. That is a guess where a model is not
        declared in the order of its use; ``history.select(iterations=found.iteration).wide("nonfinite")`` has all. If
        the loss was not finite either, it is the loss: it came before backward.

        Returns
        -------
        (iteration, parameter, kind, growth), or None
            The iteration; the parameter's name, or "loss"; "nan", "posinf" or "neginf": what most of the gradient's
            entries that are not finite were, the first of these where as many were of two, or what the loss was; and
            the newest norm, or loss, of the 12 iterations before divided by their oldest, NaN if unknown.

        Examples
        --------
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"body": [1.0, 10.0, 100.0, np.inf], "head": [1.0, 1.0, 1.0, 1.0]})
        >>> tuple(History.from_frame(frame).first_nonfinite())
        (3, 'body', 'posinf', 100.0)
        """
        return self._reading(lambda: first_nonfinite(self._store, self._picture.overview()[0]))

    def nonfinite_since(self, start: int) -> FirstNonfinite | None:
        """The same, of the iterations from the row `start` on: for whoever knows of none before."""
        return self._reading(lambda: first_nonfinite(self._store, self._picture.columns(start)))

    # Read by widgets -------------------------------------------------------------------------------------------

    @property
    def epoch_starts(self) -> list[int]:
        """The iteration each epoch began with."""
        return self._store.epoch_starts

    def columns(self, start: int = 0) -> Columns:
        """The iterations from `start` on as columns of a picture: a row for each parameter's norm, the loss last."""
        return self._reading(lambda: self._picture.columns(start))

    def overview(self) -> tuple[Columns, int]:
        """The whole run in a bounded number of columns, and how many iterations they show."""
        return self._reading(self._picture.overview)

    def drawn(self, most: int) -> Columns:
        """The whole run in at most so many columns: finer than `overview` where that is more than it has."""
        return self._reading(lambda: self._picture.drawn(most))

    def chosen(self, selection: Selection) -> pd.DataFrame:
        """The numbers behind a part of its picture, tidy."""
        part = self.select(parameters=selection.parameters, iterations=selection.iterations, every=selection.every)
        return part.gradients

    def changes(self, start: int = 0) -> tuple[list[Change], int]:
        """What the events from their row `start` on tell, in few words, and how many rows there are."""
        return self._reading(lambda: (changes(self._store, start), len(self._store.tables["events"])))

    def dtype_picture(self) -> DtypePicture:
        """One for each who asks: the loss scale, dtypes, and how the newest gradients are distributed."""
        return DtypePicture(self._store, self._reading)

    def metric_picture(self) -> MetricPicture:
        """One for each who asks: the loss and metrics, by iteration and by epoch."""
        return MetricPicture(self._store, self._reading)

    def subscribe(self, listener: Listener) -> None:
        """Call a bound method after every append, for as long as its object lives."""
        self._listeners.append(weakref.WeakMethod(listener))

    def unsubscribe(self, listener: Listener) -> None:
        """Call it no more."""
        self._listeners = [held for held in self._listeners if held() not in (None, listener)]

    def notify(self, final: bool = False) -> None:
        """Tell the listeners that something is new."""
        for held in self._listeners:
            listener = held()
            if listener is not None:
                listener(final)


_OTHERS = frozenset({*METRICS, *OPTIONAL})
"""Columns of the metrics that are none."""

_FLOATS = {float}

_PLACES = bytes(range(len(STATES)))

_NO_STATISTICS, _NO_STATES = np.empty((0, len(STATISTICS))), np.empty(0, np.uint8)
"""A row without numbers: what a row lacks was not recorded."""


def _number(name: str, value: Any) -> float:
    """What a metric says, as Python's own number: a tensor that lived on would break what writes it hours later."""
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        detach = getattr(value, "detach", None)  # torch warns of a number made of a tensor that has a graph
        return float(value if detach is None else detach())
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise HistoryError(
            f"The metric {name!r} is one number for each iteration; got {described(value)}. "
            "What is text or has several entries is kept elsewhere, for example in a handler."
        ) from None


def _check_optional(values: Mapping[str, Any], metrics: Table) -> None:
    """Refuse what no file could hold beside what is there."""
    name = values.get("optimizer", "SGD")
    if not isinstance(name, str) or not name or _has_surrogates(name):
        raise HistoryError(f'optimizer is the name of the one that took the step, such as "generator"; got {name!r}.')
    for column in values:
        if metrics.schema.get(column, OPTIONAL[column]) != OPTIONAL[column]:
            raise HistoryError(f"The run has a metric called {column!r}, so that no other column can be called so.")


def _check_names(metrics: Iterable[str]) -> None:
    """Refuse a metric whose name no file could hold."""
    for name in metrics:
        if not isinstance(name, str) or _has_surrogates(name):
            raise HistoryError(f"The name of a metric is a text; got {name!r}.")


def _has_surrogates(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text)


def _repeated(names: Sequence[str]) -> str:
    return next(name for place, name in enumerate(names) if name in names[:place])
