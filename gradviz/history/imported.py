"""Frames read as rows: what `History.gradients` gave, or what people have of other tools."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gradviz.errors import HistoryError, described, nearest
from gradviz.history.schema import COUNTS, NOT_RECORDED, OK, STAGES, STATES, STATISTICS, Parameter

_TIDY = ("iteration", "parameter", "norm")
_KNOWN = ("iteration", "epoch", "attempt", "parameter", "stage", "state", *STATISTICS, "nonfinite")

MOST_ATTEMPTS = 10_000
"""Resumed more often, a column is taken for something else."""


@dataclass(frozen=True)
class Iteration:
    """One iteration of an attempt.

    Attributes
    ----------
    attempt, iteration, epoch : int
    stages : dict of str to (statistics, states)
        float64 array of shape [parameters, statistics] and uint8 array of shape [parameters].
    """

    attempt: int
    iteration: int
    epoch: int
    stages: dict[str, tuple[NDArray[np.float64], NDArray[np.uint8]]]


class Imported:
    """A frame, checked.

    Parameters
    ----------
    frame : DataFrame
        Tidy, with the columns iteration, parameter, norm and any others of `History.gradients`; or wide, with the
        norms of a parameter in each column, and iterations as the index.

    Raises
    ------
    HistoryError
        If a column is missing, unknown or of another type than it should be, or a line is there twice.
    """

    def __init__(self, frame: pd.DataFrame) -> None:
        if not isinstance(frame, pd.DataFrame):
            raise HistoryError(
                f"A pandas frame is read; got {described(frame)}. Of a file: "
                'gv.History.from_frame(pd.read_parquet("runs/a/gradients")).'
            )
        if frame.columns.nlevels > 1:
            raise HistoryError(
                f"Columns of {frame.columns.nlevels} levels are several runs; take one: frame[{_first(frame)!r}]."
            )
        _check_what_it_is(frame)
        named = [name for name in frame.index.names if name in _KNOWN]
        is_tidy = "parameter" in frame.columns or "parameter" in named
        tidy = (frame.reset_index(level=named) if named else frame) if is_tidy else _melted(frame)
        self._read(tidy)

    def _read(self, frame: pd.DataFrame) -> None:
        _check_has(frame, _TIDY)
        for name in frame.columns:
            if name not in _KNOWN:
                raise HistoryError(
                    f"No column of a history is called {name!r} ({nearest(str(name), _KNOWN)}). "
                    f"To leave it out: frame.drop(columns=[{name!r}])."
                )
        self._iteration, self._epoch, self._attempt = (
            _whole(frame, name) for name in ("iteration", "epoch", "attempt")
        )
        if len(frame) and self._attempt.max() > MOST_ATTEMPTS:
            raise HistoryError(
                f"The column 'attempt' counts how often a run was resumed; got {self._attempt.max()}. "
                'To leave it out: frame.drop(columns=["attempt"]).'
            )
        self._parameter, self.names = _texts(frame["parameter"])
        self._stage = _known_texts(frame, "stage", STAGES, 0)
        self._values = np.full((len(frame), len(STATISTICS)), np.nan)
        masked = np.zeros(len(frame), np.bool_)
        for place, name in enumerate(STATISTICS):
            if name in frame.columns:
                self._values[:, place], missing = _numbers(frame, name)
                masked |= missing if name == "norm" else False
        self._check_counts(frame)
        # Only what is missing in a mask was surely not recorded: a NaN may be the gradient's own.
        self._state = _known_texts(frame, "state", STATES, OK).astype(np.uint8)
        if "state" not in frame.columns:
            self._state[masked] = NOT_RECORDED
        self._sort()

    def _check_counts(self, frame: pd.DataFrame) -> None:
        given = [name for name in COUNTS if name in frame.columns]
        if given and len(given) < len(COUNTS):
            raise HistoryError(
                f"nan, posinf and neginf are counted together or not at all; got {' and '.join(given)} alone. "
                f"To leave it out: frame.drop(columns={given})."
            )
        counts = self._values[:, [STATISTICS.index(name) for name in COUNTS]]
        unequal = np.isnan(counts).any(axis=1) != np.isnan(counts).all(axis=1)
        whole = np.isnan(counts) | ((counts >= 0) & (counts == np.floor(counts)))
        for wrong, why in ((unequal, "some of nan, posinf and neginf are missing"), (~whole.all(axis=1), "no counts")):
            if wrong.any():
                raise HistoryError(f"{self._line(int(wrong.argmax()))}: {why}.")

    def _sort(self) -> None:
        keys = self._parameter, self._stage, self._iteration, self._attempt
        order = np.lexsort(keys)
        same = np.ones(max(len(order) - 1, 0), np.bool_)
        for key in keys:
            same &= np.diff(key[order]) == 0
        if same.any():
            raise HistoryError(
                f"{self._line(int(order[same.argmax()]))} is there twice. An iteration has one line for each "
                "parameter, stage and attempt; to keep the last: "
                'frame.drop_duplicates(["iteration", "parameter"], keep="last").'
            )
        for name in ("_iteration", "_epoch", "_attempt", "_parameter", "_stage", "_values", "_state"):
            setattr(self, name, getattr(self, name)[order])
        begins = (np.diff(self._iteration) != 0) | (np.diff(self._attempt) != 0)
        odd = ~begins & (np.diff(self._epoch) != 0)
        if odd.any():
            raise HistoryError(f"{self._line(int(odd.argmax()))}: other lines of the iteration have another epoch.")
        self._begins = np.flatnonzero(np.append(len(order) > 0, begins))

    def _line(self, place: int) -> str:
        return f"Iteration {self._iteration[place]} of {self.names[self._parameter[place]]!r}"

    @property
    def parameters(self) -> list[Parameter]:
        """The parameters; a frame of gradients does not know their shapes and dtypes."""
        return [Parameter(name=name, shape=None, dtype="unknown") for name in self.names]

    def __iter__(self) -> Iterator[Iteration]:
        """Every iteration, by attempt."""
        bounds = [*self._begins.tolist(), len(self._iteration)]
        for begin, end in pairwise(bounds):
            stages = {}
            for code in np.unique(self._stage[begin:end]).tolist():
                rows = begin + np.flatnonzero(self._stage[begin:end] == code)
                statistics = np.full((len(self.names), len(STATISTICS)), np.nan)
                states = np.full(len(self.names), NOT_RECORDED, np.uint8)
                statistics[self._parameter[rows]] = self._values[rows]
                states[self._parameter[rows]] = self._state[rows]
                stages[STAGES[code]] = statistics, states
            attempt, iteration, epoch = (int(of[begin]) for of in (self._attempt, self._iteration, self._epoch))
            yield Iteration(attempt, iteration, epoch, stages)


_OTHER_NAMES = {
    "iteration": ("step", "global_step", "iter", "batch"),
    "parameter": ("name", "param", "layer", "variable"),
    "norm": ("grad_norm", "gradient_norm", "value"),
}
"""What people call these columns, where they keep such frames."""


def _check_has(frame: pd.DataFrame, columns: tuple[str, ...]) -> None:
    for name in columns:
        if name not in frame.columns:
            own = next((each for each in _OTHER_NAMES[name] if each in frame.columns), f"what you call the {name}")
            raise HistoryError(
                f"The frame has no column {name!r}; it has {', '.join(map(str, frame.columns))}. "
                f'Write frame.rename(columns={{"{own}": "{name}"}}).'
            )


def _check_what_it_is(frame: pd.DataFrame) -> None:
    """Refuse what can be told by its columns to be neither tidy nor wide."""
    for name, own in (("metrics", {"loss_scale", "skipped"}), ("epochs", {"iterations", "nonfinite"})):
        if own <= set(frame.columns):
            raise HistoryError(f"That is history.{name}: from_frame wants history.gradients, or history.norms.")
    if "parameter" in frame.columns or "parameter" in frame.index.names:
        return
    has_texts = any(not pd.api.types.is_numeric_dtype(kind) for kind in frame.dtypes)
    is_named = any(other in frame.columns for other in ("norm", "state", "stage", *_OTHER_NAMES["iteration"]))
    if is_named or (has_texts and any(other in frame.columns for other in _OTHER_NAMES["parameter"])):
        _check_has(frame.reset_index() if frame.index.names != [None] else frame, _TIDY)


def _advice(column: pd.Series[Any], kind: str) -> str:
    """A line that helps."""
    if np.issubdtype(getattr(column.dtype, "type", object), np.complexfloating):
        return f"Of complex numbers take the size: frame[{column.name!r}].abs()."
    try:
        column.astype(kind)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        if column.isna().any():
            return f"Write frame.dropna(subset=[{column.name!r}])."
        return f"Of it, {column.iloc[0]!r} is none."
    return f'Write frame.astype({{{column.name!r}: "{kind}"}}).'


def _first(frame: pd.DataFrame) -> Any:
    return frame.columns[0][0] if len(frame.columns) else "a"


def _melted(frame: pd.DataFrame) -> pd.DataFrame:
    """Lines of a wide frame."""
    if frame.index.nlevels > 1:
        raise HistoryError(
            f"A wide frame has iterations as its index; got {', '.join(map(str, frame.index.names))}. "
            'With attempts as well: frame.xs(0, level="attempt").'
        )
    if "iteration" in frame.columns:
        frame = frame.set_index("iteration")
    for name in frame.columns:
        if not isinstance(name, str):
            raise HistoryError(
                f"A wide frame has a column for each parameter, by name; one is called {name!r}. A tidy one has the "
                "columns iteration, parameter and norm."
            )
        _numbers(frame, name)  # so that an error names the column
    # Column after column, so that what is missing in a mask stays so; float64 beside Float64 would be object.
    values = [_numbers(frame, name) for name in frame.columns]
    numbers = np.concatenate([number for number, _ in values] or [np.empty(0)])
    missing = np.concatenate([lacks for _, lacks in values] or [np.empty(0, np.bool_)])
    names = pd.Index(frame.columns, dtype=object)
    codes = np.repeat(np.arange(len(names)), len(frame))
    return pd.DataFrame(
        {
            "iteration": np.tile(frame.index.to_numpy(), len(names)),
            "parameter": pd.Categorical.from_codes(codes, names),
            "norm": pd.arrays.FloatingArray(numbers, missing),
        }
    )


def _whole(frame: pd.DataFrame, name: str) -> NDArray[np.int64]:
    if name not in frame.columns:
        return np.zeros(len(frame), np.int64)
    column = frame[name]
    if not pd.api.types.is_integer_dtype(column.dtype) or column.isna().any():
        raise HistoryError(
            f"The column {name!r} has whole numbers; got {column.dtype}"
            f"{', of which some are missing' if column.isna().any() else ''}. "
            f"{_advice(column, 'int64')}"
        )
    numbers = column.to_numpy(np.int64)
    if len(numbers) and numbers.min() < 0:
        raise HistoryError(f"The column {name!r} counts from 0; got {numbers.min()}.")
    return numbers


def _numbers(frame: pd.DataFrame, name: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Values, and where they are missing in a mask, which NaN is not."""
    column = frame[name]
    kind = column.dtype
    if not pd.api.types.is_numeric_dtype(kind) or pd.api.types.is_bool_dtype(kind) or kind == np.complex128:
        raise HistoryError(f"The column {name!r} has numbers; got {kind}. {_advice(column, 'float64')}")
    array = column.array
    if isinstance(array, pd.arrays.FloatingArray | pd.arrays.IntegerArray):
        return array.to_numpy(np.float64, na_value=np.nan), np.array(array.isna())
    values = column.to_numpy(np.float64, na_value=np.nan)
    return values, np.zeros(len(values), np.bool_) if isinstance(kind, np.dtype) else np.array(column.isna())


def _texts(column: pd.Series[Any]) -> tuple[NDArray[np.int64], list[str]]:
    """Places in a list of texts; that of a categorical column is its own, so that the order of parameters stays."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        found, texts = column.cat.codes.to_numpy(), column.cat.categories.tolist()
    else:
        found, kinds = pd.factorize(column)
        texts = list(kinds)
    codes = found.astype(np.int64)
    if (codes < 0).any() or not all(isinstance(text, str) for text in texts):
        wrong = "some are missing" if (codes < 0).any() else f"got {column.dtype}"
        raise HistoryError(f"The column {column.name!r} has texts; {wrong}.")
    return codes, texts


def _known_texts(frame: pd.DataFrame, name: str, known: tuple[str, ...], otherwise: int) -> NDArray[np.int8]:
    if name not in frame.columns:
        return np.full(len(frame), otherwise, np.int8)
    codes, texts = _texts(frame[name])
    for text in texts:
        if text not in known:
            raise HistoryError(f"No {name} is called {text!r}: {nearest(text, known)}")
    return np.array([known.index(text) for text in texts], np.int8)[codes] if texts else codes.astype(np.int8)
