"""The heatmap of a run, or those of several side by side, on one scale of colours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from gradviz.history.overview import Columns
from gradviz.history.schema import Parameter
from gradviz.widgets.colours import Domain, domain_of, scale_of
from gradviz.widgets.figures.run import MEASURED, Run, plain, shown, some
from gradviz.widgets.figures.style import Style, colours_of, css
from gradviz.widgets.picture import words
from gradviz.widgets.picture.looks import LEGEND, Look
from gradviz.widgets.picture.rows import group, merge_rows

COLUMNS, ROWS, CELLS = 2000, 1000, 1_000_000
"""At most so many, or a page becomes slow."""
SIGNS = 2000
"""Cells at most whose NaN or infinity is a sign as well, not a colour alone."""
PITCH, LEAST, MOST = 17, 180, 1000
"""Pixels of a row, and of all rows."""
AROUND = 170
NAMED = 60
"""Rows whose names all have room."""


@dataclass(frozen=True)
class _Panel:
    """One heatmap: numbers and looks [rows, columns]."""

    names: list[str]
    columns: Columns
    values: NDArray[np.float32]
    looks: NDArray[np.uint8]

    @property
    def edges(self) -> NDArray[np.float64]:
        """Where columns begin; the last one's end."""
        return np.append(self.columns.start, self.columns.stop[-1:]).astype(np.float64) - 0.5


def heatmap(runs: Sequence[Run], style: Style, stage: str) -> tuple[go.Figure, list[str], int]:
    """The figure, what is to be said of it, and its height."""
    scale = scale_of(runs[0].view.quantity)
    panels = [_panel(run, stage) for run in runs]
    numbers = [panel.values[np.isin(panel.looks, MEASURED)] for panel in panels]
    domain = domain_of(np.concatenate(numbers), np.empty(0, np.float32), scale) or Domain(0, 1)
    is_same = all(panel.names == panels[0].names for panel in panels)
    figure = make_subplots(
        rows=1,
        cols=len(runs),
        subplot_titles=[plain(run.name) for run in runs] if len(runs) > 1 else None,
        shared_yaxes=is_same,
        horizontal_spacing=(0.06 if is_same else 0.24) / len(runs),
    )
    seen: set[Look] = set()
    for place, panel in enumerate(panels, 1):
        figure.add_traces(list(_traces(panel, style, seen, domain)), rows=1, cols=place)
        axis = {"dtick": 1} if len(panel.names) <= NAMED else {}
        figure.update_yaxes(
            type="category", autorange="reversed", showgrid=False, ticklabelstandoff=4, row=1, col=place, **axis
        )
        figure.update_xaxes(title="iteration", showgrid=False, row=1, col=place)
    label = plain(runs[0].view.quantity.label) if stage == "backward" else "norm"
    exponents = np.unique(np.linspace(domain.lo, domain.hi, 7).round()).astype(int).tolist()
    figure.update_layout(
        coloraxis={
            "colorscale": colours_of(scale),
            "cmin": domain.lo,
            "cmax": domain.hi,
            "colorbar": {
                "title": {"text": label, "side": "right"},
                "tickvals": exponents,
                "ticktext": [f"{domain.base}<sup>{exponent}</sup>".replace("-", "−") for exponent in exponents],
                "thickness": 12,
                "outlinewidth": 0,
            },
        },
        legend={"orientation": "h", "y": -0.02, "yref": "container", "yanchor": "bottom", "x": 0},
    )
    most_rows = max((len(panel.names) for panel in panels), default=0)
    height = AROUND + min(max(PITCH * most_rows, LEAST), MOST)
    return figure, sorted(set(_notes(runs, panels))), height


def _panel(run: Run, stage: str) -> _Panel:
    described = run.view.parameters
    parameters = [
        Parameter(name=name, shape=shape, dtype=dtype)
        for name, shape, dtype in zip(run.parameters, described["shape"], described["dtype"], strict=True)
    ]
    groups = group(parameters, ROWS)
    most = min(COLUMNS, max(CELLS // max(len(groups), 1), 1))
    columns = _without_gaps(merge_rows(run.view.cells(most, stage=stage), groups))
    values, looks = shown(run, columns)
    looks[columns.start == columns.stop] = Look.NONE
    return _Panel([row.name for row in groups], columns, values.T, looks.T)


def _without_gaps(columns: Columns) -> Columns:
    """With a column of no iterations where several in a row are not shown: its cells stay empty."""
    if len(columns) < 2:
        return columns
    start, stop = columns.start.astype(np.int64), columns.stop.astype(np.int64)
    usual = int(np.median(np.diff(start)))
    ends = np.maximum(stop, start + usual)[:-1]
    gaps = np.flatnonzero(ends < start[1:])
    places = np.insert(np.arange(len(start)), gaps + 1, gaps)
    is_gap = np.insert(np.zeros(len(start), np.bool_), gaps + 1, True)
    start, stop = start[places], stop[places]
    start[is_gap] = stop[is_gap] = ends[gaps]
    return Columns(
        start.astype(np.uint32),
        stop.astype(np.uint32),
        columns.maximum[places],
        columns.minimum[places],
        columns.flags[places],
        columns.level,
    )


def _traces(panel: _Panel, style: Style, seen: set[Look], domain: Domain) -> Iterator[go.Heatmap | go.Scatter]:
    """The numbers, the cells of each other look, and signs on those that went wrong."""
    is_merged = bool((panel.columns.stop > panel.columns.start + np.uint32(1)).any())
    first, last = panel.columns.start, panel.columns.stop - np.uint32(1)
    common = {"x": panel.edges, "y": panel.names, "hoverongaps": False, "ygap": 1 if len(panel.names) <= NAMED else 0}
    has_number = np.isin(panel.looks, MEASURED)
    values = np.where(has_number, panel.values, np.nan)
    shape = values.shape
    told = np.stack([values, np.broadcast_to(first, shape), np.broadcast_to(last, shape)], axis=-1)
    with np.errstate(all="ignore"):
        z = (np.log(values.astype(np.float64)) / np.log(domain.base)).astype(np.float32)
    yield go.Heatmap(
        z=z,
        customdata=told,
        coloraxis="coloraxis",
        hovertemplate="%{y}<br>iterations %{customdata[1]} to %{customdata[2]}: %{customdata[0]:.4g}<extra></extra>"
        if is_merged
        else "%{y}<br>iteration %{customdata[1]}: %{customdata[0]:.4g}<extra></extra>",
        **common,
    )
    for look, word in LEGEND.items():
        hit = panel.looks == look
        if not hit.any() or look == Look.VALUE_NOT_OPTIMIZED:
            continue
        colour = css(style.looks[look])
        yield go.Heatmap(
            z=np.where(hit, np.float32(1), np.float32(np.nan)),
            colorscale=[[0, colour], [1, colour]],
            showscale=False,
            hovertemplate=f"%{{y}}<br>{'around' if is_merged else 'iteration'} %{{x}}: {word}<extra></extra>",
            name=word,
            **common,
        )
        signs = look in (Look.NAN, Look.POSINF, Look.NEGINF, Look.BOTHINF) and hit.sum() <= SIGNS
        rows, places = np.nonzero(hit) if signs else (np.empty(0, int), np.empty(0, int))
        mark = {**style.sign(look), "color": css(style.inks.glyph), "line": {"width": 0}, "size": 6}
        yield go.Scatter(
            x=((panel.edges[:-1] + panel.edges[1:]) / 2)[places],
            y=[panel.names[row] for row in rows.tolist()],
            mode="markers",
            marker=mark,
            hoverinfo="skip",
            showlegend=False,
        )
        yield go.Scatter(  # a heatmap has no square in the legend
            x=[None],
            y=[None],
            mode="markers",
            marker={"symbol": "square", "size": 11, "color": colour},
            name=word,
            showlegend=look not in seen,
        )
        seen.add(look)


def _notes(runs: Sequence[Run], panels: Sequence[_Panel]) -> Iterator[str]:
    for run, panel in zip(runs, panels, strict=True):
        which = scale_of(run.view.quantity).which
        sizes = panel.columns.stop.astype(np.int64) - panel.columns.start
        if (most := int(sizes.max(initial=1))) > 1:
            yield words.column_note(panel.columns.level, most, which)
        if (n := len(run.parameters)) > len(panel.names):
            yield f"{words.many(n, 'parameter')} in {words.many(len(panel.names), 'row')} ({which})"
        outside = (panel.looks == Look.VALUE_NOT_OPTIMIZED).any(axis=1)
        if outside.any():
            names = [name for name, is_outside in zip(panel.names, outside.tolist(), strict=True) if is_outside]
            yield f"{LEGEND[Look.VALUE_NOT_OPTIMIZED]}: {run.of(some(names))}"
