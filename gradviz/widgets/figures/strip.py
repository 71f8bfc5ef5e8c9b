"""Lines on a logarithmic axis, and above them a strip of what has no place on one: NaN, infinities, zero, frozen ..."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from gradviz.widgets.figures.run import some
from gradviz.widgets.figures.style import Style
from gradviz.widgets.picture.looks import LEGEND, Look
from gradviz.widgets.picture.words import glance

LINES = 400
"""Pixels for the lines, and for what is around both."""
AROUND = 130
ROW = 20
"""Pixels for a row of the strip."""
APART = 60
"""As many signs in a row have room."""
DECADES = 2
"""An axis that spans so many has ticks enough at the powers of ten."""


@dataclass
class Strip:
    """What has no place on the axis: a row for each look, a point where any line has it."""

    points: dict[Look, list[tuple[object, str]]] = field(default_factory=dict)

    def add(self, x: Sequence[object], at: Sequence[str], looks: NDArray[np.uint8], names: Sequence[str]) -> None:
        """Add the looks of several lines, [points, lines], at some `x`, of which `at` tells what they are."""
        for look in LEGEND:
            hit = looks == look
            for place in np.flatnonzero(hit.any(axis=1)).tolist():
                found = some([names[line] for line in np.flatnonzero(hit[place]).tolist()])
                self.points.setdefault(look, []).append((x[place], f"{at[place]}<br>{LEGEND[look]}: {found}"))

    @property
    def height(self) -> int:
        """Pixels of a figure with it."""
        return LINES + AROUND + ROW * len(self.points)

    def above(self, lines: Iterable[go.Scatter], style: Style, *, along: str, up: str) -> go.Figure:
        """A figure of lines with the strip above them, and titles of the axes."""
        looks = [look for look in LEGEND if look in self.points]
        strip = ROW * len(looks)
        share = strip / (LINES + strip)
        heights = {"row_heights": [share, 1 - share], "vertical_spacing": 0.02} if looks else {}
        figure = make_subplots(rows=2 if looks else 1, cols=1, shared_xaxes=True, **heights)
        figure.add_traces(list(lines), rows=2 if looks else 1, cols=1)
        for look in looks:
            x, texts = zip(*self.points[look], strict=True)
            points = go.Scatter(
                x=x,
                y=[LEGEND[look]] * len(x),
                mode="markers",
                marker=style.sign(look) | ({} if len(x) <= APART else {"size": 4}),
                customdata=texts,
                hovertemplate="%{customdata}<extra></extra>",
                name=LEGEND[look],
                showlegend=False,
            )
            figure.add_trace(points, row=1, col=1)
        if looks:
            rows = [LEGEND[look] for look in reversed(looks)]
            figure.update_yaxes(row=1, col=1, type="category", categoryarray=rows, range=[-0.6, len(rows) - 0.4])
            figure.update_yaxes(row=1, col=1, fixedrange=True)
        drawn = [trace.y for trace in figure.data if trace.mode != "markers"]
        axis = {"type": "log", "tickfont": {"size": 10}} | _ticks(drawn)
        figure.update_yaxes(row=2 if looks else 1, col=1, title=up, **axis)
        figure.update_xaxes(row=2 if looks else 1, col=1, title=along)
        return figure


def _ticks(drawn: Iterable[Any]) -> dict[str, Any]:
    """Powers of ten; where the lines span less than two of them, round numbers in between, or there would be none."""
    values = np.concatenate([np.asarray(y, np.float64) for y in drawn] or [np.empty(0)])
    values = values[np.isfinite(values) & (values > 0)]
    low, high = (math.log10(values.min()), math.log10(values.max())) if values.size else (0.0, DECADES)
    if high - low >= DECADES:
        return {"exponentformat": "power", "dtick": 1}
    digits = (1, 2, 5) if high - low > 1 else range(1, 10)
    ticks = [digit * 10.0**power for power in range(math.floor(low), math.ceil(high) + 1) for digit in digits]
    return {"tickvals": ticks, "ticktext": [glance(tick) for tick in ticks]}
