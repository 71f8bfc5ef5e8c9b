"""How the entries of each gradient are distributed: a row for each parameter, entries by magnitude, octave by octave.

What has no magnitude, and what is beyond the ends of the grid, stands in a panel of its own beside it: with what is in
the octaves, it comes to 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from gradviz.errors import HistoryError
from gradviz.history.dtypes import FIRST, LAST
from gradviz.widgets.figures.chosen import chosen
from gradviz.widgets.figures.depth import DASHES
from gradviz.widgets.figures.run import Run
from gradviz.widgets.figures.style import Style, css

MOST = 40
"""Rows that can be told apart."""
PITCH, AROUND = 44, 150
"""Pixels."""

COUNTED = ("backward", "clipped")
"""Stages that have histograms."""
OTHERS = ("zero", "< 2⁻⁴⁸", "≥ 2¹⁶", "±inf", "NaN")
"""What is not in an octave."""
N_OCTAVES = LAST - FIRST
RARE = 1e-3
"""A share that is not worth the width at first sight; zooming out shows it."""


class _Curves(NamedTuple):
    """One iteration of a run: by parameter its shares of entries, and why others have none."""

    label: str
    colour: str
    dash: str
    shares: dict[str, NDArray[np.float64]]
    lacking: dict[str, str]


def distributions(
    runs: Sequence[Run], style: Style, stage: str, iterations: Sequence[int] | None
) -> tuple[go.Figure, list[str], int]:
    """The figure, what is to be said of it, and its height."""
    names = list(dict.fromkeys(name for run in runs for name in run.parameters))
    if len(names) > MOST:
        raise HistoryError(
            f"The distributions of {len(names):,} parameters cannot be told apart in one figure; {MOST} at most: "
            'history.select(parameters="encoder.*").figure("distributions").'
        )
    curves = []
    for place, run in enumerate(runs):
        taken = _histograms(run, stage)
        shows = chosen(np.unique(taken["iteration"]), iterations, last_alone=bool(run.name))
        colours = style.in_order(len(shows))
        for i, show in enumerate(shows):
            shares = _shares(run, taken[taken["iteration"] == show.iteration])
            colour, dash = (style.run(place), DASHES[i % 4]) if run.name else (colours[i], "solid")
            curves.append(
                _Curves(run.of(str(show)), colour, dash, shares, _lacking(run, stage, show.iteration, shares))
            )
    notes = [
        "share of entries in each octave of magnitude, every row by its own highest",
        "at the right, all of them would reach the next line",
    ]
    return _drawn(names, curves, style), notes, AROUND + PITCH * len(names)


def _histograms(run: Run, stage: str) -> pd.DataFrame:
    taken = run.view.histograms
    taken = taken[taken["stage"] == stage]
    if not len(taken) and run.view.quantity.runs:
        raise HistoryError(
            'A ratio of gradients has no distribution. That of both runs: gv.compare({...}).figure("distributions").'
        )
    if not len(taken) and stage not in COUNTED:
        raise HistoryError(
            f"The entries of gradients are counted, at the stages {' and '.join(map(repr, COUNTED))}, and at {stage!r} "
            f'none are. Its norms: figure("norms", stage={stage!r}).'
        )
    if not len(taken):
        raise HistoryError(
            f"No distribution was counted at the stage {stage!r} in these iterations: that is done at every 100th, and "
            'with record="norms" never. Oftener: gv.trainer(..., histograms_every=10). All that are there: '
            'history.histograms["iteration"].unique().'
        )
    return taken


def _shares(run: Run, taken: pd.DataFrame) -> dict[str, NDArray[np.float64]]:
    """Of each parameter, by its common name, the share of entries in each octave, and of each of OTHERS behind."""
    low, high = taken["low"].to_numpy(), taken["high"].to_numpy()
    near, far = np.minimum(np.abs(low), np.abs(high)), np.maximum(np.abs(low), np.abs(high))
    with np.errstate(all="ignore"):
        octave = np.floor(np.log2(near) + 1e-9) - FIRST  # edges are powers of 2 to the last digit, or far from one
    others = [far == 0, (near == 0) & (far > 0), near == 2.0**LAST, np.isinf(near), np.isnan(low)]
    bins = np.select(others, [N_OCTAVES + place for place in range(len(OTHERS))], octave).astype(int)
    shares = {}
    for own, name in zip(run.view.parameters.index, run.parameters, strict=True):
        lines = (taken["parameter"] == own).to_numpy()
        if lines.any():
            counts = np.bincount(bins[lines], taken["count"].to_numpy()[lines], N_OCTAVES + len(OTHERS))
            shares[name] = counts / counts.sum()
    return shares


def _lacking(run: Run, stage: str, iteration: int, shares: Mapping[str, object]) -> dict[str, str]:
    """The states of the parameters that were not counted."""
    states = run.view.select(iterations=iteration).wide("state", stage=stage).astype(str).to_numpy()
    if not len(states):
        return {}
    by_name = zip(run.parameters, states[0].tolist(), strict=True)
    return {name: state.replace("_", " ") for name, state in by_name if name not in shares and state != "ok"}


def _drawn(names: Sequence[str], curves: Sequence[_Curves], style: Style) -> go.Figure:
    """The figure. Every row has its line, from which its curves rise."""
    shares = np.array([share for each in curves for share in each.shares.values()]).reshape(-1, N_OCTAVES + len(OTHERS))
    others = [place for place in range(len(OTHERS)) if shares[:, N_OCTAVES + place].any()]
    beside = 0.07 * len(others)
    widths = {"column_widths": [1 - beside, beside]} if others else {}
    figure = make_subplots(rows=1, cols=2 if others else 1, shared_yaxes=True, horizontal_spacing=0.015, **widths)
    highest = {
        name: max(each.shares[name][:N_OCTAVES].max() for each in curves if name in each.shares)
        for name in names
        if any(name in each.shares for each in curves)
    }
    for each in curves:
        for name, share in each.shares.items():
            row = names.index(name)
            common = {
                "legendgroup": each.label,
                "meta": [each.label, name],
                "name": each.label,
            }
            figure.add_trace(
                _curve(share[:N_OCTAVES], row, highest[name] or 1).update(
                    line={"color": each.colour, "dash": each.dash, "width": 1.5},
                    showlegend=name == next(iter(each.shares)),
                    **common,
                ),
                row=1,
                col=1,
            )
            if others:
                figure.add_trace(_beside(share[N_OCTAVES:], others, row, each.colour).update(**common), row=1, col=2)
    seen = np.flatnonzero((shares[:, :N_OCTAVES] > RARE).any(axis=0))
    first, last = (int(seen[0]), int(seen[-1])) if len(seen) else (0, N_OCTAVES)
    low, high = (np.log10(2.0) * (octave + FIRST) for octave in (first - 1, last + 2))
    figure.add_trace(_why_none(names, curves, 10 ** ((low + high) / 2), style), row=1, col=1)
    figure.update_yaxes(tickvals=list(range(len(names))), ticktext=list(names), range=[len(names) - 0.7, -1])
    log = {"type": "log", "exponentformat": "power", "dtick": 1, "tickfont": {"size": 10}}
    figure.update_xaxes(range=[low, high], title="magnitude of an entry", row=1, col=1, **log)
    if others:
        kinds = [OTHERS[place] for place in others]
        figure.update_xaxes(type="category", categoryarray=kinds, row=1, col=2)
    figure.update_layout(legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 1, "xanchor": "right"})
    return figure


def _curve(share: NDArray[np.float64], row: int, highest: float) -> go.Scatter:
    """What of a parameter lies in octaves, rising from the row's line, with the empty octave on either side."""
    there = np.flatnonzero(share)
    octaves = np.arange(there[0] - 1, there[-1] + 2) if len(there) else np.empty(0, int)
    heights = np.pad(share, 1)[octaves + 1]
    return go.Scatter(
        x=2.0 ** (octaves + FIRST + 0.5),
        y=row - 0.85 * heights / highest,
        customdata=heights,
        mode="lines",
        hovertemplate="%{meta[1]}<br>%{meta[0]}<br>around %{x:.1e}: %{customdata:.2%}<extra></extra>",
    )


def _beside(share: NDArray[np.float64], others: Sequence[int], row: int, colour: str) -> go.Scatter:
    """What of a parameter lies in none; as high as to the line above where that is all of it."""
    return go.Scatter(
        x=[OTHERS[place] for place in others],
        y=row - share[others],
        customdata=share[others],
        mode="markers",
        marker={"symbol": "line-ew-open", "size": 16, "color": colour, "line": {"width": 2}},
        hovertemplate="%{meta[1]}<br>%{meta[0]}<br>%{x}: %{customdata:.2%}<extra></extra>",
        showlegend=False,
    )


def _why_none(names: Sequence[str], curves: Sequence[_Curves], x: float, style: Style) -> go.Scatter:
    """What is said in a row without a curve."""
    reasons = {
        row: ", ".join(dict.fromkeys(each.lacking.get(name, "not counted") for each in curves))
        for row, name in enumerate(names)
        if not any(name in each.shares for each in curves)
    }
    return go.Scatter(
        x=[x] * len(reasons),
        y=[row - 0.3 for row in reasons],
        text=list(reasons.values()),
        mode="text",
        textfont={"color": css(style.inks.muted), "size": 11},
        hoverinfo="skip",
        showlegend=False,
    )
