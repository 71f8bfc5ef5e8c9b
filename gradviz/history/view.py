"""`View`: a run, or a part of it, as pandas frames."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, Never, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gradviz.errors import HistoryError, names_nearest_keyword, nearest
from gradviz.history import cells, frames, overview
from gradviz.history.quantity import NORM, Quantity
from gradviz.history.rows import PLANES, Places, Rows, Segment, Thinned, gathered
from gradviz.history.schema import COUNTS, STAGES
from gradviz.history.selection import Attempted, Selection, selection
from gradviz.history.store import Store
from gradviz.history.table import Column, Columns
from gradviz.history.tensors import KeptTensor
from gradviz.history.update_ratio import NEEDS, update_ratio
from gradviz.sizes import in_words

if TYPE_CHECKING:
    import plotly.graph_objects as go

FigureKind = Literal["norms", "heatmap", "depth", "distributions"]
Theme = Literal["light", "dark"]

TRIES = 20
"""A run that somebody else writes has its files merged now and then, while a frame is made of them."""

T = TypeVar("T")

_COPIES_ON_WRITE = int(pd.__version__.split(".")[0]) >= 3


class View:
    """What a run recorded, or a selection of it. Frames are made when they are asked for, and kept until the next row.

    A frame is the reader's own: what is written into it does not reach the history.
    """

    quantity: Quantity = NORM
    """What the numbers in its picture are."""

    def __init__(
        self, store: Store, memory_limit: int, selections: tuple[Selection, ...] = (), attempts: Attempted = "latest"
    ) -> None:
        self._store = store
        self.memory_limit = memory_limit
        self._selections = selections
        self.has_all_attempts = attempts == "all"
        self._frames: dict[str, pd.DataFrame] = {}
        self._frames_of = store.version

    def __len__(self) -> int:
        """Number of iterations."""
        with self._store.lock:
            if not self._selections and not self.has_all_attempts:
                return len(self._store.iterations)
            return len(self._metrics()["iteration"].values)

    @property
    def iterations(self) -> NDArray[np.int64]:
        """The numbers of its iterations, int64; with all attempts, those of one after the other."""
        with self._store.lock:
            if not self._selections and not self.has_all_attempts:
                return np.array(self._store.iterations, np.int64)
            return self._metrics()["iteration"].values.copy()

    @property
    def thinned(self) -> NDArray[np.int64]:
        """The numbers of those of which only metrics were to be recorded, int64: "not_recorded" in every frame."""
        with self._store.lock:
            pieces = self._thinned()
        return np.concatenate([np.empty(0, np.int64), *(segment.iteration for segment, _ in pieces)])

    def measured(self, stage: str = "backward") -> NDArray[np.int64]:
        """The numbers of those that have numbers of gradients at a stage, int64, ascending."""
        with self._store.lock:
            pieces = self._recorded(stage)
        there = [segment.iteration[rows] for segment, rows in pieces if segment.n_parameters]
        return np.unique(np.concatenate([np.empty(0, np.int64), *there]))

    def __repr__(self) -> str:
        return f"{len(self):,} iterations of {len(self._places):,} parameters"

    def __getattr__(self, name: str) -> Never:
        if hasattr(type(self), name):  # a property that failed: its own error
            object.__getattribute__(self, name)
        if name in ("refresh", "follow"):
            raise AttributeError(
                f"history.{name} is for a run that gv.History.open reads; the history of a loop is always current."
            )
        known = [each for each in dir(type(self)) if not each.startswith("_")]
        raise AttributeError(f"A history has no {name!r}: {nearest(name, known)}")

    # Frames -----------------------------------------------------------------------------------------------------

    @property
    def gradients(self) -> pd.DataFrame:
        """Tidy: one line for each iteration, stage and parameter.

        Columns: iteration, epoch, attempt (int64, from 0), parameter, stage, state (categories), norm, mean, std,
        max_abs, zero_fraction (float64), nan, posinf, neginf and their sum nonfinite (Int64 counts of entries).

        `attempt` counts how often the run was resumed by then; an iteration that was recorded again is there once, as
        the latest attempt has it. `stage` says what was measured: "backward", the gradient as autograd gave it;
        "clipped", as the optimizer received it; "update", how the parameter moved; "weight", the parameter before that.
        `state` is "ok"; "unused", no path from the loss; "frozen", ``requires_grad=False``; "not_optimized", measured
        but in no parameter group, or in one whose learning rate is 0; or "not_recorded".

        Numbers are missing where nothing was recorded; ``record="norms"`` records norm and counts only. `std` is
        torch's own, with n - 1 in the denominator, so it is NaN for a parameter of one entry; a NaN or infinite entry
        shows in the norm, and the counts say which.

        Raises
        ------
        HistoryError
            If the frame would take more than the memory limit. `select` makes it smaller.
        """
        return self._frame("gradients", self._tidy)

    @property
    def norms(self) -> pd.DataFrame:
        """Wide: the 2-norm of every parameter's gradient; index iteration, columns parameter."""
        return self.wide("norm")

    @property
    def update_ratios(self) -> pd.DataFrame:
        """Wide: how far each step moved a parameter, as a share of it; index iteration, columns parameter.

        ``norm(after - before) / norm(before)``: the 2-norm of the stage "update" divided by that of the stage "weight",
        at the iterations that have both. NaN where either was not recorded, and of a parameter of zeros that stayed so;
        inf where it was all zeros and moved.

        Raises
        ------
        HistoryError
            If the frame would take more than the memory limit.

        Examples
        --------
        >>> from gradviz.history.history import History
        >>> history = History()
        >>> history.declare([{"name": "w", "shape": (2,), "dtype": "float32"}])
        >>> norm = lambda value: (np.array([[value, 0, 0, 0, 0, 0, 0, 0]]), np.array([0], np.uint8))
        >>> history.append(0, 0, *norm(5.0), {}, stages={"update": norm(0.01), "weight": norm(10.0)})
        >>> history.update_ratios
        parameter      w
        iteration
        0          0.001
        """
        return self._frame("update_ratios", self._update_ratios)

    def _update_ratios(self) -> pd.DataFrame:
        update, weight = (self._rows(stage, ("norm",), "update_ratios") for stage in NEEDS)
        ratio, has_both = update_ratio(update, weight)
        return frames.wide(ratio[has_both], "norm", self._names, self._index(update)[has_both])

    def wide(self, statistic: str, *, stage: str = "backward") -> pd.DataFrame:
        """One statistic, or ``"state"``, of every parameter; index iteration, columns parameter.

        Parameters
        ----------
        statistic : str
            Any of the columns of `gradients` but the first ones.
        stage : "backward", "clipped", "update" or "weight"
            When the numbers were taken, and of what.

        Raises
        ------
        HistoryError
            If no such statistic or stage is kept, or the frame would take more than the memory limit.
        """
        known = (*PLANES[:-1], "nonfinite", "state")
        if statistic not in known:
            raise HistoryError(f"No statistic is called {statistic!r}: {nearest(str(statistic), known)}")
        if stage not in STAGES:
            raise HistoryError(f"No stage is called {stage!r}: {nearest(str(stage), STAGES)}")
        return self._frame(f"wide {statistic} {stage}", lambda: self._wide(statistic, stage))

    @property
    def metrics(self) -> pd.DataFrame:
        """The loss and metrics of every batch, its own values; index iteration.

        There is a column for the loss, and for a metric, where any row of the run has one.
        `loss_scale` is what the loss was multiplied by for this step's backward pass, 1 without a loss scale; `skipped`
        says that the optimizer took no step because gradients were not finite. An optimizer that evaluates the loss
        itself, as LBFGS does, has a row for each of its steps, and `closure_calls` counts how often it did. Where a
        loop has several optimizers, `optimizer` (category) says which one took the step. A metric that some rows do
        not have is Float64, and missing there: NaN is a value.
        """
        return self._frame("metrics", self._metrics_frame)

    @property
    def epochs(self) -> pd.DataFrame:
        """The means of every epoch, also of one that was broken off, by examples, over finite values; index epoch.

        Where none of an epoch's values is finite, it is inf if all are inf, -inf if all are -inf, and otherwise NaN.
        `nonfinite` counts the iterations whose loss was NaN or infinite.
        """
        with self._store.lock:
            return frames.epochs(self._store.epochs).set_index("epoch")

    @property
    def events(self) -> pd.DataFrame:
        """Parameters that were frozen or unfrozen, and buffers without them.

        Columns: iteration (the first it held for), event, parameter, by (categories). `by` is "widget" for a click in a
        picture, "handler" for what a handler of the loop did, and "user" for all else.
        """
        return self._table("events")

    @property
    def parameters(self) -> pd.DataFrame:
        """Shape, dtype and size of every parameter, in declaration order; index name."""
        described = self._store.parameters
        return frames.parameters([described[place] for place in self._places])

    @property
    def dtypes(self) -> pd.DataFrame:
        """Which dtype a parameter, its gradient and what the optimizer keeps had, on which device, since when.

        Columns: iteration, parameter, of, dtype, device. `of` is "parameter", "gradient", "master" (the float32 copy
        that the optimizer moves in place of a 16-bit parameter), or a moment such as "exp_avg". There is a line where a
        dtype or a device began to hold, and none while neither changed.
        """
        return self._table("dtypes")

    @property
    def histograms(self) -> pd.DataFrame:
        """How a gradient's entries were distributed, at the iterations for which that was counted.

        Columns: iteration, parameter, stage, low, high (float64), count (int64): a line for each bin that is not
        empty. The bins are the same for all, four an octave of either sign, so that counts of several lines can be
        added. Zeros have low = high = 0, NaN has NaN at both ends, infinities an infinity.
        """
        return self._table("histograms")

    @property
    def precision(self) -> pd.DataFrame:
        """What narrower dtypes would make of a gradient's entries, at the iterations that have histograms.

        Columns: iteration, parameter, stage, dtype ("float16", "bfloat16", "float8_e4m3fn" or "float8_e5m2"), and
        numbers of entries, int64: `entries`, all of them; `zero`, zeros in any dtype; `underflow`, others that would be
        rounded to zero; `subnormal`, that would have fewer digits than others; `overflow`, finite ones that are too
        large (they would be infinite, and in float8_e4m3fn, which has no infinity, NaN or 448, its largest number);
        `nonfinite`, infinite or NaN as they are. The rest would be normal numbers. Counted of every entry, for torch's
        cast to the nearest number, without a loss scale.

        Examples
        --------
        >>> import torch, gradviz as gv
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> loop = gv.trainer(model, lambda prediction, targets: 1e-9 * prediction.mean(), "sgd")
        >>> state = loop.run([(torch.ones(1, 1), torch.ones(1, 1))], display=None)
        >>> loop.history.precision[["dtype", "entries", "underflow", "subnormal"]]
                   dtype  entries  underflow  subnormal
        0        float16        1          1          0
        1       bfloat16        1          0          0
        2  float8_e4m3fn        1          1          0
        3    float8_e5m2        1          1          0
        """
        return self._table("precision")

    @property
    def activations(self) -> pd.DataFrame:
        """Tidy: gradients of intermediate values by iteration, name and call, with the statistics of `gradients`."""
        return self._table("activations")

    @property
    def examples(self) -> pd.DataFrame:
        """The examples of a batch whose gradients were largest: iteration, name, call, example, example_id, norm."""
        return self._table("examples")

    def tensors(
        self, name: str, *, iteration: int | None = None, call: int | None = None, example: int | None = None
    ) -> list[KeptTensor]:
        """The tensors that were kept whole under a name, as numpy arrays, each with what it is of.

        Parameters
        ----------
        name : str
        iteration, call, example : int, optional
            Only those of this iteration, this call within it, this example of the batch: of a tensor of the whole
            batch its part.

        Returns
        -------
        list of KeptTensor
            Pairs `kept` (name, iteration, attempt, call, example, and the dtype it had) and `array`, in the order in
            which they were kept; empty if there are none.

        Examples
        --------
        >>> from gradviz.history.history import History
        >>> history = History()
        >>> _ = history.keep_tensor("head.weight", 3, np.ones((2, 2), np.float32))
        >>> [(tensor.kept.iteration, tensor.array.shape) for tensor in history.tensors("head.weight")]
        [(3, (2, 2))]
        """
        with self._store.lock:
            found = self._reading(lambda: self._store.tensors.find(name, iteration, call, example))
            kept = np.array([(each.kept.iteration, each.kept.attempt) for each in found], np.int64).reshape(-1, 2)
            holds = self._store.attempts.holds(kept[:, 0], kept[:, 1]) | self.has_all_attempts
            meant = np.zeros(len(found), np.bool_)
            meant[self._selected(kept[:, 0])] = True
        held = [each for each, is_held in zip(found, holds & meant, strict=True) if is_held]
        return [each.of(example) for each in held if each.has(example)]

    # Parts of it ------------------------------------------------------------------------------------------------

    @names_nearest_keyword
    def select(
        self,
        *,
        parameters: object = None,
        iterations: object = None,
        every: int = 1,
        attempts: Attempted | None = None,
    ) -> View:
        """A part of the run, with the same frames. Nothing is read before one of them is asked for.

        Parameters
        ----------
        parameters : str or list of str, optional
            Names, or patterns such as ``"encoder.*"``.
        iterations : slice, int or list of int, optional
            By their own numbers, half-open as in Python: ``slice(1000, 2000)``. Negative ones count from the newest.
        every : int
            Only every so manieth of these iterations.
        attempts : "latest" or "all", optional
            With "all" also the rows of iterations that were recorded again after a resume; the column `attempt` tells
            them apart.

        Raises
        ------
        HistoryError
            If no parameter fits, or an argument is of another kind.

        Examples
        --------
        >>> from gradviz.history.history import History
        >>> history = History()
        >>> names = "encoder.weight", "head.weight"
        >>> history.declare([{"name": name, "shape": (2,), "dtype": "float32"} for name in names])
        >>> for i in range(20):
        ...     table = np.array([[i, 3.5, 0.7, 4.0, 0.0, 0, 0, 0]] * 2)
        ...     history.append(i, 0, table, np.zeros(2, np.uint8), {"loss": 1.6})
        >>> history.select(parameters="encoder.*", iterations=slice(10, 20), every=4).norms
        parameter  encoder.weight
        iteration
        10                   10.0
        14                   14.0
        18                   18.0
        """
        if not (attempts is None or (isinstance(attempts, str) and attempts in ("latest", "all"))):
            raise HistoryError(f'attempts is "latest" or "all"; got {attempts!r}.')
        chosen = selection(parameters, iterations, every)
        with self._store.lock:
            chosen.places([self._store.names[place] for place in self._places])  # a misspelt name is told now
        kept: Attempted = "all" if self.has_all_attempts else "latest"
        part = View(self._store, self.memory_limit, (*self._selections, chosen), attempts or kept)
        part.quantity = self.quantity
        return part

    def in_pieces(self, cell_bytes: int, *, of: str = "gradients") -> Iterator[View]:
        """The same run, so many iterations at a time that a frame of so many bytes a cell keeps the memory limit.

        `of` says which cells those are: an iteration's "gradients", or its "metrics".

        One of no iterations, where there are none.
        """
        iterations = np.unique(self._metrics()["iteration"].values)
        n_measured = len(self._places) * max(len(self._store.stages), 1)
        n_cells = n_measured if of == "gradients" else len(self._store.metrics.schema)
        at_once = max(self.memory_limit // max(cell_bytes * n_cells, 1), 1)
        for first in range(0, max(len(iterations), 1), at_once):
            part = iterations[first : first + at_once]
            yield self.select(iterations=slice(int(part[0]), int(part[-1]) + 1) if len(part) else ())

    # Pictures ---------------------------------------------------------------------------------------------------

    @names_nearest_keyword
    def figure(
        self,
        kind: FigureKind,
        *,
        theme: Theme = "light",
        stage: str = "backward",
        iterations: int | Iterable[int] | None = None,
    ) -> go.Figure:
        """A plotly figure, to look into and to export: ``figure.write_html(file)``, and ``write_image`` with kaleido.

        What is no number has a look of its own in each: NaN, infinities, zero, unused, frozen, not recorded.

        Parameters
        ----------
        kind : "norms", "heatmap", "depth" or "distributions"
            The norm of every parameter's gradient over the iterations; the same as a heatmap, at most 1,000 x 2,000
            cells; from layer to layer its root mean square, ``norm / sqrt(entries)``, so that large and small ones can
            be compared; or how the entries are distributed, as `histograms` counted them, at most 40 parameters. More
            iterations than fit are merged, and the largest is shown.
        theme : "light" or "dark"
        stage : "backward", "clipped", "update" or "weight"
            When the numbers were taken, and of what.
        iterations : int or iterable of int, optional
            Which iterations "depth" and "distributions" show: the first, the one in the middle and the last if not
            given. Of one that has no numbers the nearest that has, and the legend says so.

        Returns
        -------
        plotly.graph_objects.Figure

        Raises
        ------
        HistoryError
            If there is no such kind, theme or stage, or nothing that it could show.

        Examples
        --------
        >>> from gradviz.history.history import History
        >>> history = History.from_frame(pd.DataFrame({"body": [0.5, 0.25], "head": [2.0, np.inf]}))
        >>> figure = history.figure("norms")
        >>> [(trace.name, trace.y.tolist()) for trace in figure.data[:2]]
        [('body', [0.5, 0.25]), ('head', [2.0, nan])]
        """
        from gradviz.widgets.figures.figure import Run, figure

        return figure([Run("", self)], kind, theme=theme, stage=stage, iterations=iterations)

    def cells(self, most: int, *, stage: str = "backward") -> overview.Columns:
        """Norms as at most so many columns of a picture, a row for each parameter; the last, the loss, is left out."""

        def read() -> Iterator[Rows]:
            for part in self.in_pieces(8 * len(cells.PLANES)):
                yield part._rows(stage, cells.PLANES, "figure")

        return self._reading(lambda: cells.bounded(read(), self.thinned, most))

    # Elsewhere --------------------------------------------------------------------------------------------------

    def to_csv(self, path: str | os.PathLike[str], *, frame: str | None = None) -> None:
        """Write the frames as CSV, each into a file of its own; any length, in pieces that fit in memory.

        Numbers read back exactly. A cell is empty where nothing was recorded or there is no such number; NaN and
        infinities are ``nan``, ``inf`` and ``-inf``. `pandas.read_csv` takes both the empty cell and ``nan`` as NaN,
        and the column `state` tells them apart; `pyarrow.csv.read_csv` keeps them apart by itself, with
        ``ConvertOptions(null_values=[""])``. A shape is ``2x3``.

        Parameters
        ----------
        path : path
            Of a folder, which is made if it is not there: ``gradients.csv``, ``metrics.csv``, ``epochs.csv`` ... With
            `frame`, of the file.
        frame : str, optional
            Only this one: "gradients", "metrics", "epochs", "parameters", "events", "dtypes", "histograms",
            "precision", "activations" or "examples".

        Raises
        ------
        HistoryError
            If no frame is called that, or the folder is a file.
        OSError
            If it cannot be written; a file that was there before is then as it was.

        Examples
        --------
        >>> import tempfile
        >>> from gradviz.history.history import History
        >>> history = History.from_frame(pd.DataFrame({"weight": [0.1, np.inf]}))
        >>> file = tempfile.mkdtemp() + "/gradients.csv"
        >>> history.to_csv(file, frame="gradients")
        >>> pd.read_csv(file)["norm"].tolist()
        [0.1, inf]
        """
        from gradviz.history.as_csv import write_csv

        write_csv(self, path, frame)

    def to_tensorboard(self, folder: str | os.PathLike[str]) -> None:
        """Write an event file for TensorBoard into a folder.

        Scalars: the loss and metrics under their names, ``gradients/norm/<parameter>``, and ``clipped/...``,
        ``update/...`` and ``weight/...`` where these stages were recorded. Histograms, where they were kept:
        ``gradients/histogram/<parameter>``, of the finite entries. A scalar is float32 there: NaN and infinities are
        as they are, and finite numbers beyond its ends stand at the end. Where nothing was recorded there is no point.

        Parameters
        ----------
        folder : path
            Made if it is not there. Every call writes one more file, so name another folder for another run.

        Raises
        ------
        HistoryError
            If TensorBoard is not installed, or the folder is a file.
        OSError
            If it cannot be written.
        """
        from gradviz.history.as_tensorboard import write_events

        write_events(self, folder)

    # ------------------------------------------------------------------------------------------------------------

    @property
    def _places(self) -> NDArray[np.int64]:
        """The parameters that are meant."""
        names = self._store.names
        places = np.arange(len(names))
        for chosen in self._selections:
            if chosen.parameters is not None:
                places = places[chosen.places([names[place] for place in places])]
        return places

    @property
    def _names(self) -> list[str]:
        return [self._store.names[place] for place in self._places]

    def _selected(self, iteration: NDArray[np.int64]) -> NDArray[np.int64] | slice:
        """Which rows of these iterations are meant. Every so manieth counts among all that were recorded."""
        if not self._selections:
            return slice(None)
        if self.has_all_attempts:
            chosen = np.unique(self._store.read_metrics(all_attempts=True)["iteration"].values)
        else:
            chosen = np.array(self._store.iterations, np.int64)
        for part in self._selections:
            chosen = chosen[part.rows(chosen)]
        return np.flatnonzero(np.isin(iteration, chosen))

    def _pieces(self, stage: str) -> list[tuple[Segment, Places]]:
        """Where the rows of a stage lie; thinned iterations, which have none, are among those of backward."""
        return self._recorded(stage) + (self._thinned() if stage == "backward" else [])

    def _thinned(self) -> list[tuple[Segment, Places]]:
        if not self._store.thins:
            return []
        columns = self._metrics()
        iteration, epoch, attempt, is_thinned = (
            columns[name].values for name in ("iteration", "epoch", "attempt", "thinned")
        )
        for segment, rows in self._store.held("backward", all_attempts=True):  # what was recorded late
            is_thinned = is_thinned & ~((attempt == segment.attempt) & np.isin(iteration, segment.iteration[rows]))
        pieces: list[tuple[Segment, Places]] = []
        for k in np.unique(attempt[is_thinned]).tolist():
            those = is_thinned & (attempt == k)
            pieces.append((Thinned(k, iteration[those], epoch[those]), slice(None)))
        return pieces

    def _recorded(self, stage: str) -> list[tuple[Segment, Places]]:
        held = self._store.held(stage, all_attempts=self.has_all_attempts)
        if not self._selections:
            return held
        pieces: list[tuple[Segment, Places]] = []
        for segment, rows in held:
            chosen = self._selected(segment.iteration[rows])
            if isinstance(chosen, np.ndarray) and len(chosen):
                assert isinstance(rows, slice)
                pieces.append((segment, chosen + rows.start))
        return pieces

    def _frame(self, name: str, build: Callable[[], pd.DataFrame]) -> pd.DataFrame:
        # A reader's own edits must not reach the cache; since pandas 3 a shallow copy is one until somebody writes.
        def read() -> pd.DataFrame:
            if self._frames_of != self._store.version:
                self._frames.clear()
                self._frames_of = self._store.version
            if name not in self._frames:
                self._frames[name] = build()
            return self._frames[name].copy(deep=not _COPIES_ON_WRITE)

        return self._reading(read)

    def _reading(self, read: Callable[[], T]) -> T:
        """Read rows, once more where their files were merged meanwhile."""
        store = self._store
        with store.lock:
            for _ in range(TRIES):
                try:
                    return read()
                except FileNotFoundError as error:
                    reload = None if store.reload is None else store.reload()
                    if reload is None:
                        raise HistoryError(f"A file of the run is gone, and its rows with it: {error}") from error
                    reload()
            raise HistoryError("Files of the run go away as fast as they are found. Ask again when it has ended.")

    def refuse_if_large(self, n_bytes: int, frame: str, of: str = "history") -> None:
        """Refuse to make a frame of so many bytes, if that is more than the memory limit."""
        if n_bytes > self.memory_limit:
            raise HistoryError(
                f"{of}.{frame} would take {in_words(n_bytes)}, and the memory limit is {in_words(self.memory_limit)}. "
                f'Ask for a part of it: {of}.select(parameters="encoder.*", iterations=slice(0, 1000), every=10)'
                f'.{frame}; or let it take more: memory_limit="4GB".'
            )

    def _tidy(self) -> pd.DataFrame:
        places = self._places
        by_stage = {stage: self._pieces(stage) for stage in STAGES}
        n_rows = sum(len(segment.iteration[rows]) for pieces in by_stage.values() for segment, rows in pieces)
        self.refuse_if_large(n_rows * len(places) * frames.TIDY_BYTES, "gradients")
        read = {stage: gathered(pieces, PLANES, places) for stage, pieces in by_stage.items() if pieces}
        names = [self._store.names[place] for place in places]
        rows, stage = _interleaved(read) if read else (gathered([], PLANES, places), np.empty(0, np.int8))
        return frames.tidy(rows, stage, names, STAGES)

    def _wide(self, statistic: str, stage: str) -> pd.DataFrame:
        planes = COUNTS if statistic == "nonfinite" else (statistic,)
        rows = self._rows(stage, planes, f"wide({statistic!r})")
        plane = np.sum([rows.planes[name] for name in planes], axis=0) if len(planes) > 1 else rows.planes[statistic]
        return frames.wide(plane, "nan" if statistic == "nonfinite" else statistic, self._names, self._index(rows))

    def _rows(self, stage: str, planes: Sequence[str], frame: str) -> Rows:
        """The rows of a stage in the order of iterations, for a frame of a number of each."""
        places, pieces = self._places, self._pieces(stage)
        n_rows = sum(len(segment.iteration[rows]) for segment, rows in pieces)
        self.refuse_if_large(n_rows * len(places) * 8, frame)
        rows, _ = _interleaved({stage: gathered(pieces, planes, places)})
        return rows

    def _index(self, rows: Rows) -> pd.Index:
        return frames.index(rows.iteration, rows.attempt if self.has_all_attempts else None)

    def _metrics(self) -> Columns:
        columns = self._store.read_metrics(all_attempts=self.has_all_attempts)
        rows = self._selected(columns["iteration"].values)
        return {name: column[rows] for name, column in columns.items()}

    def _metrics_frame(self) -> pd.DataFrame:
        columns = self._metrics()
        self.refuse_if_large(frames.METRIC_BYTES * len(columns) * len(columns["iteration"].values), "metrics")
        index = frames.index(columns["iteration"].values, columns["attempt"].values if self.has_all_attempts else None)
        table = self._store.metrics
        schema = table.schema
        if not len(table):  # nobody knows yet, but nearly every run has one
            schema, columns = {**schema, "loss": "value"}, {**columns, "loss": Column(np.empty(0))}
        last = [name for name in ("loss_scale", "skipped", "optimizer") if name in columns]
        first = [name for name in ("epoch", "loss") if name in columns]
        hidden = ["iteration", "attempt", *(["thinned"] if self._store.thins else [])]
        order = [*first, *[name for name in columns if name not in (*hidden, *first, *last)], *last]
        return frames.table({name: columns[name] for name in order}, schema, table.vocabulary).set_index(index)

    def _table(self, name: str) -> pd.DataFrame:
        return self._frame(name, lambda: self._table_frame(name))

    def _table_frame(self, name: str) -> pd.DataFrame:
        table = self._store.tables[name]
        columns = self._store.read_table(name, all_attempts=self.has_all_attempts)
        if self._selections and "parameter" in table.vocabulary:
            texts, names = table.vocabulary["parameter"].texts, self._store.names
            meant = {names[place] for place in self._places}
            chosen = np.array([text in meant for text in texts], np.bool_)
            keep = chosen[columns["parameter"].values] if len(texts) else slice(0)
            columns = {key: column[keep] for key, column in columns.items()}
        rows = self._selected(columns["iteration"].values)
        columns = {key: column[rows] for key, column in columns.items()}
        if not self.has_all_attempts:
            del columns["attempt"]
        return frames.table(columns, table.schema, table.vocabulary)


def _interleaved(read: dict[str, Rows]) -> tuple[Rows, NDArray[np.int8]]:
    """The rows of stages, in the order of iterations, and of each the stage."""
    stage = np.repeat(np.array([STAGES.index(name) for name in read], np.int8), [len(rows) for rows in read.values()])
    several = list(read.values())
    if len(several) == 1 and not _is_mixed(several[0]):
        return several[0], stage
    iteration, epoch, attempt = (
        np.concatenate([getattr(rows, name) for rows in several]) for name in ("iteration", "epoch", "attempt")
    )
    order = np.lexsort((stage, iteration, attempt))
    planes = {name: np.concatenate([rows.planes[name] for rows in several])[order] for name in several[0].planes}
    return Rows(iteration[order], epoch[order], attempt[order], planes), stage[order]


def _is_mixed(rows: Rows) -> bool:
    """Whether there are iterations behind later ones, as thinned ones are."""
    attempts = np.diff(rows.attempt)
    return bool(((attempts < 0) | ((attempts == 0) & (np.diff(rows.iteration) < 0))).any())
