"""Norms over time: a line for each parameter, on a logarithmic axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from gradviz.history.overview import Columns
from gradviz.widgets.colours import scale_of
from gradviz.widgets.figures.run import MEASURED, Run, plain, shown
from gradviz.widgets.figures.strip import Strip
from gradviz.widgets.figures.style import Style
from gradviz.widgets.picture import words
from gradviz.widgets.picture.looks import LEGEND, Look

COLUMNS, POINTS = 2000, 400_000
"""Points of a line, and of all lines: more make a page slow."""
DOTTED = 50
"""As many points stand apart."""


def norms(runs: Sequence[Run], style: Style, stage: str) -> tuple[go.Figure, list[str], int]:
    """The figure, what is to be said of it, and its height."""
    strip, lines, notes = Strip(), [], []
    n_lines = sum(len(run.parameters) for run in runs)
    for place, run in enumerate(runs):
        names = run.parameters
        columns = run.view.cells(max(min(COLUMNS, POINTS // max(n_lines, 1)), 50), stage=stage)
        values, looks = shown(run, columns)
        at = [words.iterations(*ends) for ends in zip(columns.start.tolist(), columns.stop.tolist(), strict=True)]
        x = _middles(columns)
        strip.add(x.tolist(), at, looks, [run.of(name) for name in names])
        colours = [style.run(place)] * len(names) if run.name else style.in_order(len(names))
        for row, name in enumerate(names):
            y = np.where(np.isin(looks[:, row], MEASURED), values[:, row], np.nan)
            line = go.Scatter(
                x=x,
                y=y,
                mode="lines+markers" if len(x) <= DOTTED or _has_lonely(y) else "lines",
                line={"color": colours[row], "width": 1.4},
                marker={"size": 4},
                customdata=at,
                meta=run.of(name),
                hovertemplate="%{meta}<br>%{customdata}: %{y:.4g}<extra></extra>",
                name=plain(run.name) if run.name else name + _why_none(looks[:, row]),
                legendgroup=plain(run.name) or None,
                showlegend=not (run.name and row),
            )
            lines.append(line)
        notes.append(_merged(run, columns))
    figure = strip.above(lines, style, along="iteration", up=plain(runs[0].view.quantity.noun))
    return figure, sorted(set(notes)), strip.height


def _middles(columns: Columns) -> NDArray[np.float64]:
    return (columns.start.astype(np.float64) + columns.stop - 1) / 2


def _has_lonely(y: NDArray[np.float32]) -> bool:
    """Whether there is a number between two that are none, which no line shows."""
    there = np.pad(np.isfinite(y), 1)
    return bool((there[1:-1] & ~there[:-2] & ~there[2:]).any())


def _why_none(looks: NDArray[np.uint8]) -> str:
    """What is said behind the name of a parameter without any number, if there is one reason."""
    reasons = np.unique(looks)
    return f" ({LEGEND[Look(reasons[0])]})" if len(reasons) == 1 and reasons[0] not in MEASURED else ""


def _merged(run: Run, columns: Columns) -> str:
    most = int((columns.stop.astype(np.int64) - columns.start).max(initial=1))
    which = scale_of(run.view.quantity).which
    return f"each point stands for up to {words.many(most, 'iteration')} ({which})" if most > 1 else ""
