"""Which names `state.metrics` will have: what goes by another one is refused before anything moves."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from gradviz.errors import MetricError, nearest
from gradviz.loop.events import ENDS, Handler, Handlers
from gradviz.loop.metrics.measured import VALIDATION

_ORDER = (
    *("started", "epoch_started", "iteration_completed", "iteration_started"),
    *("epoch_completed", "epoch_halted", *ENDS),
)
"""In which events see what others left in `state.metrics`; an iteration that starts sees what the last one left."""

_INHERITS = ("iteration_started", *ENDS)
"""Before the others `state.metrics` is made anew, and what a function put there is gone."""


def check_watched(
    handlers: Handlers, metrics: Collection[str], validate: Handler, results: Collection[str] | None
) -> None:
    """Refuse a handler that goes by a metric which is not there when it is called.

    A function of the user's may put more into `state.metrics`, so what is called after one at the same event is left to
    find out for itself.

    Parameters
    ----------
    handlers : Handlers
        One that goes by a metric has its name as `metric`.
    metrics : collection of str
        Those of the loop.
    validate : callable
        The handler after which the results of a validation are there.
    results : collection of str, optional
        Their names; None without a validation.

    Raises
    ------
    MetricError
    """
    known, were_users = list(metrics), False
    for event in _ORDER:
        is_open = were_users and event in _INHERITS
        for attached in handlers.at(event):
            if attached.handler == validate:
                known += results or []
            metric = getattr(attached.handler, "metric", None)
            if attached.is_users:
                is_open = were_users = True
            elif isinstance(metric, str) and not is_open and metric not in known:
                raise MetricError(_no_such(metric, str(getattr(attached.handler, "name", "")), known, results))


def _no_such(metric: str, handler: str, known: Iterable[str], results: Collection[str] | None) -> str:
    kind = handler.partition("(")[0]
    said = f"No metric is called {metric!r}, which {kind} follows: "
    is_late = results is not None and metric in results
    metric = VALIDATION + metric.removeprefix("val_") if metric.startswith("val_") else metric
    if results is None and metric.startswith(VALIDATION):
        return f"{said}the loop has no validation. Write loop.validate(data).{kind}(...)."
    if is_late:
        return (
            f"{said}it is called before the validation whose result that is. Attach validate first, at the same event: "
            f"loop.validate(data).{kind}(...)."
        )
    return f"{said}{nearest(metric, {*known, *(results or ())})}"
