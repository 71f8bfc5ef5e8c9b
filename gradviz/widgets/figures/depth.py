"""The depth profile: the root mean square of each layer's gradient, from the first layer to the last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from gradviz.errors import HistoryError
from gradviz.widgets.figures.chosen import chosen
from gradviz.widgets.figures.run import MEASURED, Run, shown
from gradviz.widgets.figures.strip import Strip
from gradviz.widgets.figures.style import Style
from gradviz.widgets.picture.looks import Look

DASHES = ("solid", "dash", "dot", "dashdot")
_TROUBLE = (Look.NAN, Look.BOTHINF, Look.POSINF, Look.NEGINF)


class _Layer(NamedTuple):
    """A module with parameters of its own: their places."""

    name: str
    places: list[int]


def depth(
    runs: Sequence[Run], style: Style, stage: str, iterations: Sequence[int] | None
) -> tuple[go.Figure, list[str], int]:
    """The figure, what is to be said of it, and its height."""
    strip, lines, names = Strip(), [], {}
    for place, run in enumerate(runs):
        sizes = _sizes(run)
        layers = _layers(run.parameters)
        names.update(dict.fromkeys(layer.name for layer in layers))
        shows = chosen(run.view.measured(stage), iterations, last_alone=bool(run.name))
        colours = style.in_order(len(shows))
        for i, show in enumerate(shows):
            rms, looks = _profile(run, stage, show.iteration, layers, sizes)
            label = run.of(str(show))
            at = [f"{label}<br>{layer.name}" for layer in layers]
            strip.add([layer.name for layer in layers], at, looks[:, None], [""])
            line = go.Scatter(
                x=[layer.name for layer in layers],
                y=rms,
                mode="lines+markers",
                line={"color": style.run(place) if run.name else colours[i], "dash": DASHES[i % 4 if run.name else 0]},
                marker={"size": 6},
                meta=label,
                hovertemplate="%{x}<br>%{meta}: %{y:.4g}<extra></extra>",
                name=label,
            )
            lines.append(line)
    figure = strip.above(lines, style, along="layer", up="rms")
    figure.update_xaxes(type="category", categoryorder="array", categoryarray=list(names))
    figure.update_layout(legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 1, "xanchor": "right"})
    return figure, ["root mean square of a layer's entries: norm / √entries"], strip.height


def _sizes(run: Run) -> NDArray[np.float64]:
    if run.view.quantity.runs:
        raise HistoryError(
            'A ratio of gradients has no root mean square. That of both runs: gv.compare({...}).figure("depth").'
        )
    described = run.view.parameters
    unknown = described.index[described["shape"].isna()].tolist()
    if unknown:
        raise HistoryError(
            f'figure("depth") divides by the number of entries, and nobody knows how many {unknown[0]!r} has: '
            'captured values, and a history made of a frame, have no shapes. The norms themselves: figure("norms").'
        )
    return described["size"].to_numpy(np.float64)


def _layers(names: Sequence[str]) -> list[_Layer]:
    """The modules that the parameters belong to, in the order of their first."""
    by_module: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        by_module.setdefault(name.rpartition(".")[0] or name, []).append(place)
    return [_Layer(*layer) for layer in by_module.items()]


def _profile(
    run: Run, stage: str, iteration: int, layers: Sequence[_Layer], sizes: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    """The root mean square of each layer, over those of its parameters that were measured, and its look."""
    part = run.view.select(iterations=iteration)
    norms = part.wide("norm", stage=stage).to_numpy()[0]
    _, looks = shown(Run(run.name, part, run.names), part.cells(1, stage=stage))
    looks = looks[0]
    rms, layer_looks = np.full(len(layers), np.nan), np.empty(len(layers), np.uint8)
    for i, layer in enumerate(layers):
        own = looks[layer.places]
        measured = np.isin(own, (*MEASURED, Look.ZERO))
        trouble = [look for look in _TROUBLE if look in own]
        if trouble:
            layer_looks[i] = trouble[0]
        elif not measured.any():
            layer_looks[i] = own[0]
        else:
            there = np.array(layer.places)[measured]
            rms[i] = np.hypot.reduce(norms[there]) / np.sqrt(sizes[there].sum())
            layer_looks[i] = Look.VALUE if rms[i] > 0 else Look.ZERO
    return np.where(rms > 0, rms, np.nan), layer_looks
