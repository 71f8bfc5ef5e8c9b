"""One of the figures of a run, or of several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import plotly.graph_objects as go

from gradviz.errors import HistoryError, nearest
from gradviz.history.history import History
from gradviz.history.schema import STAGES
from gradviz.history.selection import selection
from gradviz.widgets.figures.depth import depth
from gradviz.widgets.figures.distributions import distributions
from gradviz.widgets.figures.heatmap import heatmap
from gradviz.widgets.figures.norms import norms
from gradviz.widgets.figures.run import Run, plain
from gradviz.widgets.figures.style import STYLES, titled

__all__ = ["Run", "figure"]

OVER_TIME = {"norms": norms, "heatmap": heatmap}
AT_ITERATIONS = {"depth": depth, "distributions": distributions}
KINDS = (*OVER_TIME, *AT_ITERATIONS)

_OF_STAGE = {"backward": "gradients", "clipped": "clipped gradients", "update": "updates", "weight": "parameters"}


def figure(runs: Sequence[Run], kind: object, *, theme: object, stage: object, iterations: object) -> go.Figure:
    """See `History.figure` and `Comparison.figure`."""
    kind = _one_of("figure", kind, KINDS)
    theme = _one_of("theme", theme, STYLES)
    stage = _one_of("stage", stage, STAGES)
    for run in runs:
        _check(run, stage)
    style = STYLES[theme]
    if kind in OVER_TIME:
        if iterations is not None:
            raise HistoryError(
                f'figure("{kind}") shows all iterations. A part of them: '
                f'history.select(iterations=slice(0, 100)).figure("{kind}").'
            )
        drawn, notes, height = OVER_TIME[kind](runs, style, stage)
    else:
        drawn, notes, height = AT_ITERATIONS[kind](runs, style, stage, _asked(iterations))
    return titled(drawn, style, _title(runs[0], kind, stage), notes, height=height)


def _title(run: Run, kind: str, stage: str) -> str:
    quantity, what = run.view.quantity, _OF_STAGE[stage]
    norms_of = quantity.title if stage == "backward" else f"norms of {what}"
    title = {
        "norms": f"{norms_of} over time",
        "heatmap": f"{norms_of} by {quantity.of} and iteration",
        "depth": f"{what} from layer to layer",
        "distributions": f"distributions of {what}",
    }[kind]
    return plain(title[:1].upper() + title[1:])


def _one_of(what: str, value: object, known: Iterable[str]) -> str:
    known = list(known)
    if not isinstance(value, str) or value not in known:
        raise HistoryError(f"No {what} is called {value!r}: {nearest(str(value), known)}")
    return value


def _check(run: Run, stage: str) -> None:
    """Refuse a figure of nothing."""
    of = f" of the run {run.name!r}" if run.name else ""
    if run.view.has_all_attempts:
        raise HistoryError(
            f"A figure{of} shows an iteration once, and here are all attempts. Those that hold: "
            'history.select(attempts="latest").'
        )
    if not isinstance(run.view, History) and not (len(run.view) and len(run.view.parameters)):
        raise HistoryError(f"Nothing{of} is there to be drawn: the selection has {run.view!r}.")
    if len(run.view.measured(stage)) or run.view.quantity.runs:
        return
    if len(run.view.measured()):
        hint = {
            "clipped": "There is something where clip= made a difference.",
            "update": 'To record it: gv.trainer(..., stages=["backward", "update"]).',
            "weight": 'It comes with that of updates: gv.trainer(..., stages=["backward", "update"]).',
        }[stage]
        raise HistoryError(f"Nothing{of} was recorded at the stage {stage!r} in these iterations. {hint}")
    raise HistoryError(
        f"No gradient{of} is there to be drawn: of {len(run.view):,} iterations none was recorded. A figure needs one "
        "that ran: loop.run(batches), without record=None."
    )


def _asked(iterations: object) -> tuple[int, ...] | None:
    asked = selection(iterations=iterations).iterations
    if isinstance(asked, slice) or asked == ():
        raise HistoryError(f"iterations is a number or a list of numbers here; got {iterations!r}.")
    return asked
