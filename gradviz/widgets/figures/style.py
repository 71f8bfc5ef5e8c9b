"""How figures look: the colours of gradviz's other pictures as a template of plotly's, on light paper and on dark."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from gradviz.history.quantity import Quantity
from gradviz.widgets.colours import Scale, scale_of
from gradviz.widgets.picture.inks import DARK, LIGHT, Colour, Theme
from gradviz.widgets.picture.looks import Look

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
STOPS = 65
"""Of a scale of colours: between two, colours are mixed."""


@dataclass(frozen=True)
class Style:
    """What is drawn with on a paper.

    Attributes
    ----------
    inks : Theme
    runs : tuple of Colour
        For things that have no order.
    first, last : int
        The part of viridis that stands out from the paper.
    looks : dict of Look to Colour
        Of cells that have no number.
    """

    inks: Theme
    runs: tuple[Colour, ...]
    first: int
    last: int
    looks: dict[Look, Colour]

    def run(self, place: int) -> str:
        """The colour of one of several runs."""
        return css(self.runs[place % len(self.runs)])

    def in_order(self, n: int) -> list[str]:
        """So many colours for what has an order, from dark to bright."""
        table = np.frombuffer(scale_of(Quantity("", "", "")).table, np.uint8).reshape(256, 3)
        places = np.linspace(self.first, self.last, n).round().astype(int) if n > 1 else [self.first]
        return [css(tuple(table[place].tolist())) for place in places]

    def sign(self, look: Look) -> dict[str, object]:
        """How a point of such a look is drawn."""
        bad = look in (Look.NAN, Look.POSINF, Look.NEGINF, Look.BOTHINF)
        ink = css(self.inks.bad if bad else self.inks.muted)
        return {"symbol": SYMBOLS[look], "size": 8, "color": ink, "line": {"color": ink, "width": 1.5}}

    def template(self) -> go.layout.Template:
        """For plotly."""
        inks = self.inks
        axis = {
            "gridcolor": css(inks.line),
            "linecolor": css(inks.line),
            "zeroline": False,
            "ticks": "",
            "tickfont": {"color": css(inks.muted)},
            "title": {"font": {"color": css(inks.muted), "size": 12}},
            "automargin": True,
        }
        return go.layout.Template(
            layout={
                "font": {"family": FONT, "size": 12, "color": css(inks.text)},
                "title": {
                    "font": {"size": 16},
                    "x": 0,
                    "xref": "paper",
                    "y": 1,
                    "yref": "container",
                    "yanchor": "top",
                    "pad": {"t": 14},
                    "subtitle": {"font": {"size": 12, "color": css(inks.muted)}},
                },
                "paper_bgcolor": css(inks.paper),
                "plot_bgcolor": css(inks.paper),
                "colorway": [css(colour) for colour in self.runs],
                "xaxis": axis,
                "yaxis": axis,
                "legend": {"font": {"size": 11}, "itemsizing": "constant", "tracegroupgap": 6},
                "hoverlabel": {
                    "align": "left",
                    "bgcolor": css(inks.track),
                    "bordercolor": css(inks.line),
                    "font": {"family": FONT, "size": 12, "color": css(inks.text)},
                },
                "margin": {"l": 60, "r": 20, "t": 72, "b": 48},
            }
        )


SYMBOLS = {
    Look.FROZEN: "asterisk-open",
    Look.UNUSED: "circle-x-open",
    Look.ZERO: "circle-open",
    Look.NAN: "x",
    Look.POSINF: "triangle-up",
    Look.NEGINF: "triangle-down",
    Look.BOTHINF: "diamond",
    Look.VALUE_NOT_OPTIMIZED: "square-open",
    Look.NOT_RECORDED: "line-ns-open",
}

STYLES = {
    "light": Style(
        LIGHT,
        ((37, 99, 201), (181, 92, 8), (22, 122, 88), (124, 64, 182), (85, 89, 99)),
        0,
        200,
        {
            Look.FROZEN: (168, 196, 226),
            Look.UNUSED: (222, 212, 190),
            Look.ZERO: (150, 155, 165),
            Look.NAN: (194, 48, 74),
            Look.POSINF: (236, 112, 20),
            Look.NEGINF: (158, 40, 150),
            Look.BOTHINF: (120, 10, 40),
            Look.NOT_RECORDED: (235, 236, 239),
        },
    ),
    "dark": Style(
        DARK,
        ((125, 176, 255), (240, 163, 94), (95, 208, 165), (199, 155, 255), (179, 181, 185)),
        90,
        255,
        {
            Look.FROZEN: (74, 104, 140),
            Look.UNUSED: (104, 94, 72),
            Look.ZERO: (150, 155, 165),
            Look.NAN: (255, 123, 143),
            Look.POSINF: (255, 160, 80),
            Look.NEGINF: (224, 130, 240),
            Look.BOTHINF: (255, 60, 100),
            Look.NOT_RECORDED: (40, 42, 46),
        },
    ),
}


def titled(figure: go.Figure, style: Style, title: str, notes: list[str], *, height: float) -> go.Figure:
    """The same with its title, what is to be known below it, and the look of its theme."""
    subtitle = {"subtitle": {"text": " · ".join(filter(None, notes))}} if any(notes) else {}
    figure.update_layout(template=style.template(), title={"text": title, **subtitle}, height=height)
    return figure


def colours_of(scale: Scale) -> list[list[object]]:
    """A scale of colours for plotly."""
    table = np.frombuffer(scale.table, np.uint8).reshape(256, 3)
    stops = np.linspace(0, 1, STOPS)
    return [[stop, css(tuple(table[round(255 * stop)].tolist()))] for stop in stops.tolist()]


def css(colour: Colour | tuple[int, ...], opacity: float = 1) -> str:
    """A colour as a style sheet has it.

    >>> css((37, 99, 201)), css((37, 99, 201), 0.25)
    ('rgb(37,99,201)', 'rgba(37,99,201,0.25)')
    """
    red, green, blue = colour
    return f"rgb({red},{green},{blue})" if opacity == 1 else f"rgba({red},{green},{blue},{opacity:g})"
