"""Several runs side by side, by iteration and by the name of a parameter."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any, Never

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gradviz.errors import HistoryError, RecordingWarning, described, names_nearest_keyword, nearest, warn
from gradviz.history import frames, schema
from gradviz.history.names import unwrapped
from gradviz.history.overview import FROZEN, NAN, NEGINF, NOT_RECORDED, POSINF, UNUSED, ZERO, Columns
from gradviz.history.ratios import Ratios
from gradviz.history.schema import STATES, STATISTICS, Parameter
from gradviz.history.selection import selection
from gradviz.history.view import FigureKind, Theme, View

if TYPE_CHECKING:
    import plotly.graph_objects as go

LOOKS = ("number", "zero", "nan", "inf", "-inf", "unused", "frozen", "not recorded", "missing")
"""What there is of a parameter at an iteration; "missing" where the run has no such iteration."""

_NUMBER, _ZERO, _NAN, _POSINF, _NEGINF, _UNUSED, _FROZEN, _NOT_RECORDED, _MISSING = range(len(LOOKS))
_LOOK_OF_STATE = {"unused": _UNUSED, "frozen": _FROZEN, "not_recorded": _NOT_RECORDED}
_FLAG_OF_LOOK = np.array([0, ZERO, NAN, POSINF, NEGINF, UNUSED, FROZEN, NOT_RECORDED, NOT_RECORDED], np.uint8)
_FLOAT32 = np.finfo(np.float32)

NAMED = 3
"""Parameters that are named before the rest are only counted."""


def compare(runs: Mapping[str, Any], *others: Never) -> Comparison:
    """Runs side by side.

    Parameters
    ----------
    runs : dict of str to History, loop or selection
        At least two, by the names they are to have. The first is the reference that others are divided by.

    Raises
    ------
    HistoryError
        If there are fewer than two, or one is no run.

    Warns
    -----
    RecordingWarning
        W0201: a run has no parameter, or no iteration, in common with the first.

    Examples
    --------
    >>> import pandas as pd
    >>> from gradviz.history.history import History
    >>> a = History.from_frame(pd.DataFrame({"head.weight": [2.0, 4.0], "head.bias": [1.0, 1.0]}))
    >>> b = History.from_frame(pd.DataFrame({"module.head.weight": [4.0, 2.0], "module.extra": [1.0, 1.0]}))
    >>> both = compare({"a": a, "b": b})
    >>> both.ratio()
    parameter  head.weight
    iteration
    0                  2.0
    1                  0.5
    >>> both.only
    {'a': ['head.bias'], 'b': ['extra']}
    """
    write = 'gv.compare({"a": history, "b": other})'
    if others or not isinstance(runs, Mapping):
        raise HistoryError(f"compare takes runs by name; got {described(runs)}. Write {write}.")
    views: dict[str, View] = {}
    for name, run in runs.items():
        if not isinstance(name, str) or not name:
            raise HistoryError(f"A run's name is text; got {name!r}. Write {write}.")
        view = getattr(run, "history", run)
        if isinstance(run, str | os.PathLike):
            raise HistoryError(
                f"The run {name!r} is a path. To read what lies there: gv.compare({{{name!r}: "
                f"gv.History.open({os.fspath(run)!r}), ...}})."
            )
        if not isinstance(view, View):
            raise HistoryError(f"The run {name!r} is {described(run)}, not a history. Write {write}.")
        if view.has_all_attempts:
            raise HistoryError(
                f"The run {name!r} shows all attempts, so that an iteration may be there twice. Compare one of each: "
                f'history.select(attempts="latest").'
            )
        views[name] = view
    if len(views) < 2:
        raise HistoryError(f"compare takes at least two runs, the first as the reference; got {len(views)}: {write}.")
    comparison = Comparison(views)
    comparison._warn_of_nothing_in_common()
    return comparison


class Comparison:
    """Runs side by side. Made by `compare`; frames are made when they are asked for.

    Runs are aligned by iteration, and parameters by name, without the prefixes that wrappers such as
    ``DistributedDataParallel`` and ``torch.compile`` put before it. An iteration that only some runs have is kept.
    """

    def __init__(self, runs: dict[str, View]) -> None:
        self._runs = runs
        self._reference = next(iter(runs))

    def __repr__(self) -> str:
        others = ", ".join(list(self._runs)[1:])
        alone = "; ".join(f"only in {run}: {', '.join(names)}" for run, names in self.only.items() if names)
        return f"Comparison of {others} with {self._reference}" + (f" ({alone})" if alone else "")

    def _warn_of_nothing_in_common(self) -> None:
        names = [set(names.values()) for names in self._names]
        iterations = [view.iterations for view in self._runs.values()]
        for place, run in enumerate(self._runs):
            lacks = [
                what
                for what, is_lacking in (
                    ("parameter", not names[0] & names[place]),
                    ("iteration", not np.isin(iterations[0], iterations[place]).any()),
                )
                if is_lacking and len(iterations[0]) and len(iterations[place])
            ]
            if place and lacks:
                warn(
                    f"{run} and {self._reference} have no {' and no '.join(lacks)} in common, so that neither can be "
                    "divided by the other; their frames side by side are there all the same.",
                    RecordingWarning,
                )

    # Side by side ---------------------------------------------------------------------------------------------

    @property
    def norms(self) -> pd.DataFrame:
        """Wide: the 2-norm of every gradient; index iteration, columns (run, parameter)."""
        return self.wide("norm")

    def wide(self, statistic: str, *, stage: str = "backward") -> pd.DataFrame:
        """One statistic, or ``"state"``, of every parameter; index iteration, columns (run, parameter).

        Numbers are missing where a run has no such iteration, and so is the state there. The frame goes through
        Parquet as it is, as do all frames of a comparison.

        Raises
        ------
        HistoryError
            If no such statistic or stage is kept, or the frame would take more than the memory limit.
        """
        parts = {}
        for (run, view), names in zip(self._runs.items(), self._names, strict=True):
            parts[run] = view.wide(statistic, stage=stage)
            parts[run].columns = pd.Index([names[name] for name in parts[run].columns], name="parameter", dtype=object)
        index = _union([part.index for part in parts.values()])
        self._refuse_if_large(
            len(index) * sum(len(part.columns) for part in parts.values()) * 8, f"wide({statistic!r})"
        )
        return pd.concat({run: part.reindex(index) for run, part in parts.items()}, axis=1, names=["run", "parameter"])

    @property
    def gradients(self) -> pd.DataFrame:
        """Tidy: the lines of every run's `gradients`, one run after the other, with a column `run` (category)."""
        parts = [view.gradients for view in self._runs.values()]
        self._refuse_if_large(sum(map(len, parts)) * (frames.TIDY_BYTES + 1), "gradients")
        known = pd.Index(list(dict.fromkeys(name for names in self._names for name in names.values())), dtype=object)
        runs = pd.Index(list(self._runs), dtype=object)
        for place, (part, names) in enumerate(zip(parts, self._names, strict=True)):
            own = part["parameter"].cat
            codes = known.get_indexer(own.categories.map(names))
            part["parameter"] = pd.Categorical.from_codes(codes[own.codes], known)
            part.insert(0, "run", pd.Series(pd.Categorical.from_codes(np.full(len(part), place), runs)))
        return pd.concat(parts, ignore_index=True)

    @property
    def metrics(self) -> pd.DataFrame:
        """Every run's loss and metrics; index iteration, columns (run, metric).

        Where a run has no such iteration, all of them are missing (``pd.NA``); NaN is a value.
        """
        return self._joined(lambda view: view.metrics)

    @property
    def epochs(self) -> pd.DataFrame:
        """The means of every run's epochs; index epoch, columns (run, metric). Missing as in `metrics`."""
        return self._joined(lambda view: view.epochs)

    def _joined(self, frame_of: Callable[[View], pd.DataFrame]) -> pd.DataFrame:
        parts = {run: frame_of(view) for run, view in self._runs.items()}
        index = _union([part.index for part in parts.values()])
        if all(len(part) == len(index) for part in parts.values()):
            spread = {run: part.reindex(index) for run, part in parts.items()}
        else:  # the same kind of column for every run
            spread = {run: _spread(part, index) for run, part in parts.items()}
        return pd.concat(spread, axis=1, names=["run", "metric"])

    @property
    def parameters(self) -> pd.DataFrame:
        """Who has which parameter; index name.

        Columns: `runs`, who has it; `shape` and `dtype` in the first of these; `differs`, in words, where another one
        has it in another shape or dtype.
        """
        held: dict[str, dict[str, Mapping[Any, Any]]] = {}
        for (run, view), names in zip(self._runs.items(), self._names, strict=True):
            described = view.parameters.to_dict("index")
            for name, common in names.items():
                held.setdefault(common, {})[run] = described[name]
        lines = [
            {
                "name": name,
                "runs": ", ".join(by_run),
                "shape": next(iter(by_run.values()))["shape"],
                "dtype": next(iter(by_run.values()))["dtype"],
                "differs": "; ".join(_differences(by_run)),
            }
            for name, by_run in held.items()
        ]
        return pd.DataFrame(lines, columns=["name", "runs", "shape", "dtype", "differs"]).set_index("name")

    @property
    def only(self) -> dict[str, list[str]]:
        """By run, the parameters that no other one has."""
        common = [set(names.values()) for names in self._names]
        others = [set().union(*(common[:place] + common[place + 1 :])) for place in range(len(common))]
        return {
            run: [name for name in names.values() if name not in elsewhere]
            for run, names, elsewhere in zip(self._runs, self._names, others, strict=True)
        }

    # One divided by the other -----------------------------------------------------------------------------------

    def ratio(self, statistic: str = "norm", *, run: str | None = None, stage: str = "backward") -> pd.DataFrame:
        """A run's statistic divided by the reference's; index iteration, columns parameter (those that both have).

        Where it cannot be divided, there is NaN, and `why` says why: a division by zero is neither 1 nor infinite.

        Parameters
        ----------
        statistic : str
            Any that `History.wide` takes, but ``"state"``.
        run : str, optional
            Which run, if there are more than two.
        stage : "backward", "clipped", "update" or "weight"
            When the numbers were taken, and of what.

        Raises
        ------
        HistoryError
            If no such statistic, run or stage is kept, or the frame would take more than the memory limit.
        """
        pair = self._pair(statistic, run, stage)
        return pd.DataFrame(pair.ratio, index=pair.index, columns=pair.names)

    def why(self, statistic: str = "norm", *, run: str | None = None, stage: str = "backward") -> pd.DataFrame:
        """Where `ratio` has a number ("ok"), and why not: ``"zero in a"``, ``"frozen in a, unused in b"``, ...

        The frame is of the same shape, of categories. "zero in a and b" is 0 / 0; "missing" means that a run has no
        such iteration; "out of range", that no float64 can hold the ratio.

        Examples
        --------
        >>> import pandas as pd
        >>> from gradviz.history.history import History
        >>> a = History.from_frame(pd.DataFrame({"weight": [2.0, 0.0, 0.0]}))
        >>> b = History.from_frame(pd.DataFrame({"weight": [3.0, 0.0]}))
        >>> compare({"a": a, "b": b}).why()
        parameter              weight
        iteration
        0                          ok
        1              zero in a and b
        2          zero in a, missing in b
        """
        pair = self._pair(statistic, run, stage)
        texts = list(dict.fromkeys(pair.words.values()))
        code_of = np.array([[texts.index(pair.words[a, b]) for b in range(len(LOOKS))] for a in range(len(LOOKS))])
        codes = code_of[pair.looks, pair.other_looks]
        codes[pair.is_out_of_range] = len(texts)
        categories = pd.Index([*texts, "out of range"], dtype=object)
        columns = {
            name: pd.Categorical.from_codes(codes[:, place], categories) for place, name in enumerate(pair.names)
        }
        return pd.DataFrame(columns, index=pair.index, columns=pair.names)

    def ratios(self, *, run: str | None = None) -> Ratios:
        """The ratio of the norms as a history, for a picture: its `norms` are `ratio()`.

        A cell without a ratio is frozen or unused where one of the two runs has that, NaN or infinite likewise, and
        else not recorded. Epochs are those of the reference, and the run's own where it went on for longer.
        """
        pair = self._pair("norm", run, "backward")
        run = run or list(self._runs)[1]
        reference = self._runs[self._reference]
        described = reference.parameters
        own = {common: name for name, common in self._names[0].items()}
        cells = _cells(pair)
        statistics, states = _rows(cells, pair.ratio)
        _join_thinned(cells, np.union1d(reference.thinned, self._runs[run].thinned))
        history = Ratios(run, self._reference, cells, memory_limit=reference.memory_limit)
        history.declare(
            [
                Parameter(name=name, shape=described["shape"][own[name]], dtype=described["dtype"][own[name]])
                for name in pair.names
            ]
        )
        epochs = [view.metrics["epoch"].reindex(pair.index) for view in (reference, self._runs[run])]
        epoch = epochs[0].fillna(epochs[1]).cummax().ffill().fillna(0).to_numpy(np.int64)
        for place, iteration in enumerate(pair.index):
            history.append(int(iteration), int(epoch[place]), statistics[place], states[place], {})
        progress = history.progress
        progress.status, progress.message = "completed", self._alone(run)
        progress.iteration, progress.iterations = len(pair.index), int(cells.stop.max(initial=0))
        return history

    def _alone(self, run: str) -> str | None:
        """Which parameters have no ratio, since only one of the two runs has them."""
        by_run = dict(zip(self._runs, self._names, strict=True))
        told = []
        for one, other in ((self._reference, run), (run, self._reference)):
            names = [name for name in by_run[one].values() if name not in by_run[other].values()]
            more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
            told += [f"Only in {one}: {', '.join(names[:NAMED])}{more}."] if names else []
        return " ".join(told) or None

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
        """A plotly figure of all runs: see `History.figure`.

        Heatmaps stand side by side, with one scale of colours; in the others each run has a colour of its own. "depth"
        and "distributions" show each run's last iteration, if none is given. The ratio of two runs as a heatmap is
        ``comparison.ratios().figure("heatmap")``.

        Raises
        ------
        HistoryError
            If there is no such kind, theme or stage, or nothing that it could show.
        """
        from gradviz.widgets.figures.figure import Run, figure

        runs = [Run(run, view, names) for (run, view), names in zip(self._runs.items(), self._names, strict=True)]
        return figure(runs, kind, theme=theme, stage=stage, iterations=iterations)

    # Parts of it ------------------------------------------------------------------------------------------------

    @names_nearest_keyword
    def select(self, *, parameters: object = None, iterations: object = None, every: int = 1) -> Comparison:
        """A part of every run, by the common names and among the iterations of all; see `History.select`."""
        chosen = selection(parameters, iterations, every)
        common = list(dict.fromkeys(name for names in self._names for name in names.values()))
        meant = {common[place] for place in chosen.places(common)}
        among: list[int] | None = None
        if iterations is not None or chosen.every > 1:
            index = _union([view.metrics.index for view in self._runs.values()])
            among = index.to_numpy()[chosen.rows(index.to_numpy())].tolist()
        return Comparison(
            {
                run: view.select(parameters=[own for own, name in names.items() if name in meant], iterations=among)
                for (run, view), names in zip(self._runs.items(), self._names, strict=True)
            }
        )

    # ------------------------------------------------------------------------------------------------------------

    @property
    def _names(self) -> list[dict[str, str]]:
        """By run, the common names of its parameters."""
        return unwrapped([view.parameters.index.tolist() for view in self._runs.values()])

    def _refuse_if_large(self, n_bytes: int, frame: str) -> None:
        self._runs[self._reference].refuse_if_large(n_bytes, frame, "comparison")

    def _pair(self, statistic: str, run: str | None, stage: str) -> _Pair:
        if statistic == "state":
            raise HistoryError('States cannot be divided. Side by side: comparison.wide("state").')
        others = list(self._runs)[1:]
        if run is None and len(others) > 1:
            raise HistoryError(f"Which run is to be divided by {self._reference!r}? Write run={others[0]!r}.")
        run = others[0] if run is None else run
        if run not in others:
            raise HistoryError(f"No run is called {run!r}: {nearest(str(run), others)}")
        by_run = dict(zip(self._runs, self._names, strict=True))
        own, other = ({name: mine for mine, name in by_run[each].items()} for each in (self._reference, run))
        names = [name for name in own if name in other]
        return _Pair(
            _part(self._runs[self._reference], [own[name] for name in names]),
            _part(self._runs[run], [other[name] for name in names]),
            names=names,
            statistic=statistic,
            stage=stage,
            called=(self._reference, run),
        )


class _Pair:
    """A statistic of two runs, of the parameters that both have."""

    def __init__(
        self,
        reference: Callable[..., pd.DataFrame],
        other: Callable[..., pd.DataFrame],
        *,
        names: list[str],
        statistic: str,
        stage: str,
        called: tuple[str, str],
    ) -> None:
        own, others = (wide(statistic, stage=stage) for wide in (reference, other))
        self.index = _union([own.index, others.index])
        self.names = pd.Index(names, name="parameter", dtype=object)
        values, self.looks = _looks(own, reference, self.index, statistic, stage)
        other_values, self.other_looks = _looks(others, other, self.index, statistic, stage)
        self.divides = (self.looks == _NUMBER) & (self.other_looks <= _ZERO)
        with np.errstate(all="ignore"):
            self.quotient = other_values / values
        lost = (self.quotient == 0) != (other_values == 0)
        self.is_out_of_range = self.divides & (lost | ~np.isfinite(self.quotient))
        self.ratio = np.where(self.divides & ~self.is_out_of_range, self.quotient, np.nan)
        self.words = dict(_words(*called))


def _cells(pair: _Pair) -> Columns:
    """The ratios as columns of a picture, with what stands in the way of either run; the last row was not recorded."""
    # As ever, what a float32 cannot hold is drawn at its end.
    lowest = np.where(pair.other_looks == _ZERO, 0, _FLOAT32.smallest_subnormal)
    values = np.where(pair.divides, np.clip(pair.quotient, lowest, _FLOAT32.max), np.nan)
    picture = np.pad(values.astype(np.float32), ((0, 0), (0, 1)), constant_values=np.nan)
    flags = np.full(picture.shape, NOT_RECORDED, np.uint8)
    flags[:, :-1] = _FLAG_OF_LOOK[pair.looks] | _FLAG_OF_LOOK[pair.other_looks]
    start = pair.index.to_numpy(np.uint32)
    return Columns(start, start + np.uint32(1), picture, picture, flags)


def _join_thinned(cells: Columns, thinned: NDArray[np.int64]) -> None:
    """Let iterations that either run thinned join those before, unless something went wrong in the other."""
    flags = cells.flags[:, :-1]
    stands = ~np.isin(cells.start, thinned)
    is_bad = (flags & (NAN | POSINF | NEGINF) > 0).any(axis=1)
    flags[~stands & ~is_bad & np.logical_or.accumulate(stands)] = 0


def _rows(cells: Columns, ratio: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    """The ratios as rows of a history: [iterations, parameters, statistics] and states."""
    flags = cells.flags[:, :-1]
    is_ok = np.isfinite(ratio) | (flags & (NAN | POSINF | NEGINF) > 0)
    states = np.select(
        [is_ok, flags & UNUSED > 0, flags & FROZEN > 0],
        [np.uint8(schema.OK), np.uint8(schema.UNUSED), np.uint8(schema.FROZEN)],
        np.uint8(schema.NOT_RECORDED),
    )
    statistics = np.full((*ratio.shape, len(STATISTICS)), np.nan)
    statistics[..., STATISTICS.index("norm")] = ratio
    for kind, flag in zip(schema.COUNTS, (NAN, POSINF, NEGINF), strict=True):
        statistics[..., STATISTICS.index(kind)] = np.where(is_ok, flags & flag > 0, np.nan)
    return statistics, states


def _part(view: View, own: list[str]) -> Callable[..., pd.DataFrame]:
    """Frames of these parameters, in their order."""
    chosen = view.select(parameters=own)
    return lambda statistic, *, stage: chosen.wide(statistic, stage=stage)[own]


def _looks(
    frame: pd.DataFrame, wide: Callable[..., pd.DataFrame], index: pd.Index, statistic: str, stage: str
) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    """Numbers for these iterations, and what they are."""
    shape = len(index), frame.shape[1]
    values, looks = np.full(shape, np.nan), np.full(shape, _MISSING, np.uint8)
    rows = index.get_indexer(frame.index)
    own = frame.to_numpy(np.float64, na_value=np.nan)
    seen = np.select([np.isnan(own), own == 0, own == np.inf, own == -np.inf], [_NAN, _ZERO, _POSINF, _NEGINF], _NUMBER)
    if statistic != "norm":  # a norm that was taken is NaN for entries that are; others may not have been taken
        finite = wide("nonfinite", stage=stage).to_numpy(np.float64, na_value=np.nan) == 0
        seen[(seen == _NAN) & finite] = _NOT_RECORDED
    states = wide("state", stage=stage)
    for place in range(frame.shape[1]):
        codes = states.iloc[:, place].cat.codes.to_numpy()
        for state, look in _LOOK_OF_STATE.items():
            seen[codes == STATES.index(state), place] = look
    values[rows], looks[rows] = own, seen
    return values, looks


def _words(reference: str, other: str) -> Iterator[tuple[tuple[int, int], str]]:
    """What to say of each pair of looks."""
    for a, look in enumerate(LOOKS):
        for b, other_look in enumerate(LOOKS):
            if a == _NUMBER and b <= _ZERO:
                yield (a, b), "ok"
            elif a == b:
                yield (a, b), f"{look} in {reference} and {other}"
            else:
                troubles = [f"{look} in {reference}"] * (a != _NUMBER) + [f"{other_look} in {other}"] * (b > _ZERO)
                yield (a, b), ", ".join(troubles)


def _union(indices: list[Any]) -> Any:
    union = reduce(lambda left, right: left.union(right), indices)
    return union.rename(indices[0].name)


def _spread(frame: pd.DataFrame, index: pd.Index) -> pd.DataFrame:
    """The same by another index. What a line lacks is missing in a mask: NaN is a value."""
    rows = frame.index.get_indexer(index)
    masked: dict[str, Any] = {
        "i": pd.arrays.IntegerArray,
        "f": pd.arrays.FloatingArray,
        "b": pd.arrays.BooleanArray,
    }
    columns: dict[Any, Any] = {}
    for name in frame.columns:
        values: Any = frame[name].array
        if isinstance(frame[name].dtype, np.dtype):
            values = masked[frame[name].dtype.kind](values.to_numpy().copy(), np.zeros(len(values), np.bool_))
        columns[name] = values.take(rows, allow_fill=True)
    return pd.DataFrame(columns, index=index, columns=frame.columns)


def _differences(by_run: Mapping[str, Mapping[Any, Any]]) -> Iterator[str]:
    for of in ("shape", "dtype"):
        told = {run: described[of] for run, described in by_run.items()}
        if len({str(value) for value in told.values()}) > 1:
            yield f"{of} " + ", ".join(f"{value} in {run}" for run, value in told.items())
