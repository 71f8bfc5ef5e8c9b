"""Histories made by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from hypothesis import strategies as st

from gradviz.history.history import History
from gradviz.history.schema import FROZEN, NOT_OPTIMIZED, NOT_RECORDED, OK, STATISTICS, UNUSED, Parameter

NAN, INF = math.nan, math.inf
NOTHING = [NAN] * len(STATISTICS)
Cell = tuple[list[float], int]


def row(norm: float, nan: float = 0, posinf: float = 0, neginf: float = 0) -> list[float]:
    return [norm, 0.1, 0.2, 0.3, 0.0, nan, posinf, neginf]


LOOKS: list[Cell] = [
    (row(0.5), OK),
    (row(0.0), OK),
    (row(NAN, nan=2), OK),
    (row(INF, posinf=1), OK),
    (row(INF, neginf=3), NOT_OPTIMIZED),
    (NOTHING, UNUSED),
    (NOTHING, FROZEN),
    (NOTHING, NOT_RECORDED),
]


def history_of(*iterations: Sequence[Cell], names: Sequence[str] = "abcdefgh", loss: Sequence[float] = ()) -> History:
    """One of these cells, a list for each iteration; the loss is the iteration's number if none is given."""
    history = History()
    history.declare([Parameter(name=name, shape=(2, 3), dtype="float32") for name in names[: len(iterations[0])]])
    for i, cells in enumerate(iterations):
        table, states = zip(*cells, strict=True)
        metrics = {"loss": float(loss[i] if loss else i)}
        history.append(i, i // 2, np.array(table), np.array(states, np.uint8), metrics)
    return history


def norms(*values: Sequence[float], names: Sequence[str] = "abcdefgh") -> History:
    """Measured norms, a list for each iteration."""
    return history_of(
        *[[(row(v, nan=float(math.isnan(v)), posinf=float(v == INF)), OK) for v in line] for line in values],
        names=names,
    )


def capturing(**options: Any) -> History:
    """Of a run that captures, without an iteration."""
    history = History(**options)
    history.captures = True
    return history


def capture(
    history: History,
    iteration: int,
    norms: Mapping[str, float],
    *,
    state: Mapping[str, str] = MappingProxyType({}),
    thinned: bool = False,
    ends: bool = True,
) -> None:
    """An iteration in which these values were captured; ``"a#1"`` is the second call of a.

    `ends`: whether it gets a row of its own, which makes it count.
    """
    of = [name.partition("#") for name in norms]
    norm = np.array(list(norms.values()), float)
    taken = np.array([name not in state for name in norms], bool)
    counts = {"nan": np.isnan(norm), "posinf": norm == INF, "neginf": norm == -INF}
    lines: dict[str, Any] = {
        "iteration": [iteration] * len(of),
        "epoch": [0] * len(of),
        "name": [name for name, _, _ in of],
        "call": [int(call or 0) for _, _, call in of],
        "state": [state.get(name, "ok") for name in norms],
        "norm": norm,
        **dict.fromkeys(("mean", "std", "zero_fraction"), np.where(taken, 0.25, NAN)),
        "max_abs": norm / 2,
        **{name: np.ma.MaskedArray((count & taken).astype(int), ~taken) for name, count in counts.items()},
    }
    history.add_rows("activations", lines)
    if ends:
        nothing = (None, None) if thinned else (np.empty((0, len(STATISTICS))), np.empty(0, np.uint8))
        history.append(iteration, 0, *nothing, {"loss": float(iteration)})


def cells() -> st.SearchStrategy[Cell]:
    measured = st.floats(0, allow_nan=False, allow_infinity=False).map(lambda norm: (row(norm), OK))
    return st.one_of(measured, st.sampled_from(LOOKS), st.just((row(3.0), NOT_OPTIMIZED)))


@st.composite
def histories(draw: st.DrawFn, most: int = 6) -> History:
    """Any history: attempts, stages, parameters that joined, every look."""
    history, n = History(), draw(st.integers(1, 3))
    epoch = iteration = 0
    for _ in range(draw(st.integers(1, most))):
        n = min(n + draw(st.integers(0, 1)), 5)
        history.declare([Parameter(name=name, shape=(2,), dtype="float32") for name in "vwxyz"[:n]])
        if iteration and draw(st.booleans()) and draw(st.booleans()):
            iteration = draw(st.integers(0, iteration - 1))
            epoch = sum(start < iteration for start in history.epoch_starts[1:])
            history.begin_attempt(iteration, epoch)
        made = {}
        for stage in (
            "backward",
            *draw(st.sampled_from([(), ("clipped",), ("clipped", "update"), ("update", "weight")])),
        ):
            table, states = zip(*draw(st.lists(cells(), min_size=n, max_size=n)), strict=True)
            made[stage] = np.array(table), np.array(states, np.uint8)
        statistics, states = made.pop("backward")
        history.append(iteration, epoch, statistics, states, {"loss": 1.0}, stages=made)
        iteration += draw(st.integers(1, 3))
        epoch += draw(st.integers(0, 1))
    return history
