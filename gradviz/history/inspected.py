"""All that is known of one parameter, or of one captured value, at one iteration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gradviz.errors import HistoryError, nearest
from gradviz.history.lines import Found, Lines
from gradviz.history.rows import Rows, gathered
from gradviz.history.schema import NOT_RECORDED, STAGES, STATES
from gradviz.history.store import Store

MOST_EXAMPLES = 8
"""Examples that are told of."""


@dataclass(frozen=True)
class Measured:
    """A norm at one stage; `state` says why there is none."""

    norm: float
    state: str


@dataclass(frozen=True)
class Example:
    """An example of a batch, and the norm of its part of the gradient. `example_id` is None where none was told."""

    call: int
    example: int
    example_id: str | None
    norm: float


@dataclass(frozen=True)
class Inspected:
    """What is known.

    Attributes
    ----------
    iteration : int or None
        The recorded one nearest to the one asked for: not after it, if there is one before. None before the first.
    skipped : bool
        Whether the optimizer took no step.
    stages : dict of str to Measured
        By stage.
    unclipped : bool
        Whether the optimizer received what the backward pass gave; then "clipped" has the numbers of "backward".
    gradient_dtype : str or None
        What the gradient had then.
    bins_iteration : int or None
        The iteration of the histogram, the nearest one that has one.
    bins : float64 array of shape [bins, 3]
        Both ends of each bin that is not empty, and how many entries it has: see `History.histograms`.
    examples_iteration : int or None
        That of the examples, the nearest one that has some.
    examples : list of Example
        The largest, in order.
    """

    iteration: int | None
    skipped: bool
    stages: Mapping[str, Measured]
    unclipped: bool
    gradient_dtype: str | None
    bins_iteration: int | None
    bins: NDArray[np.float64]
    examples_iteration: int | None
    examples: list[Example]


def inspected(
    store: Store,
    lines: Mapping[str, Lines],
    name: str,
    captured: str,
    iteration: int | None,
    *,
    clipped_from: int | None = None,
) -> Inspected:
    """What is known of a row of a store; `captured` is the name that its examples have, `clipped_from` see `Progress`.

    Raises
    ------
    HistoryError
        If no row has this name.
    """
    names = store.names
    if name not in names:
        raise HistoryError(f"There is no {name!r} in this run: {nearest(name, names)}")
    recorded = _recorded(store, iteration)
    at = recorded if recorded is not None else iteration or 0
    stages, skipped = _stages(store, names.index(name), recorded)
    is_known = not skipped and stages["backward"].state != STATES[NOT_RECORDED]
    unclipped = is_known and recorded is not None and _is_unclipped(store, recorded, clipped_from)
    if unclipped:
        stages["clipped"] = stages["backward"]
    bins = lines["histograms"].nearest(name, at)
    # By a parameter of a captured module, or else by the module's own output.
    examples = lines["examples"].nearest(captured, at) or lines["examples"].nearest(captured.rpartition(".")[0], at)
    return Inspected(
        iteration=recorded,
        skipped=skipped,
        stages=stages,
        unclipped=unclipped,
        gradient_dtype=_gradient_dtype(store, name, at),
        bins_iteration=bins and bins.iteration,
        bins=np.column_stack([bins.columns[key].values for key in ("low", "high", "count")]).astype(np.float64)
        if bins
        else np.empty((0, 3)),
        examples_iteration=examples and examples.iteration,
        examples=_examples(store, examples),
    )


def _recorded(store: Store, iteration: int | None) -> int | None:
    """The nearest one with gradients: not after this one, if there is one before; any, if none has gradients."""
    held = [segment.iteration[rows] for segment, rows in store.held("backward") if segment.n_parameters]
    all_of_it = np.concatenate(held) if held else np.array(store.iterations, np.int64)
    if not len(all_of_it):
        return None
    wanted = int(all_of_it[-1]) if iteration is None else iteration
    return int(all_of_it[max(int(np.searchsorted(all_of_it, wanted, "right")) - 1, 0)])


def _stages(store: Store, place: int, iteration: int | None) -> tuple[dict[str, Measured], bool]:
    measured = {stage: Measured(np.nan, STATES[NOT_RECORDED]) for stage in STAGES}
    if iteration is None:
        return measured, False
    for stage in STAGES:
        rows = _rows(store, stage, place, iteration)
        if len(rows):
            measured[stage] = Measured(float(rows.planes["norm"][0, 0]), STATES[rows.planes["state"][0, 0]])
    row = int(np.searchsorted(np.array(store.iterations, np.int64), iteration))
    return measured, bool(store.read_metrics(row, row + 1)["skipped"].values.any())


def _is_unclipped(store: Store, iteration: int, clipped_from: int | None) -> bool:
    """Whether nothing was written at the stage "clipped" because it would have been the same."""
    is_measured = clipped_from is not None and clipped_from <= iteration
    return is_measured and not len(_rows(store, "clipped", 0, iteration))


def _rows(store: Store, stage: str, place: int, iteration: int) -> Rows:
    return gathered(store.held(stage, first=iteration, last=iteration), ("norm", "state"), np.array([place]))


def _gradient_dtype(store: Store, name: str, iteration: int) -> str | None:
    table = store.tables["dtypes"]
    columns = store.read_table("dtypes")
    meant = columns["iteration"].values <= iteration
    for key, text in (("parameter", name), ("of", "gradient")):
        texts = table.vocabulary[key].texts
        meant = meant & (columns[key].values == (texts.index(text) if text in texts else -2))
    at = np.flatnonzero(meant)
    return table.vocabulary["dtype"].texts[columns["dtype"].values[at[-1]]] if len(at) else None


def _examples(store: Store, found: Found | None) -> list[Example]:
    if found is None:
        return []
    columns, ids = found.columns, store.tables["examples"].vocabulary["example_id"].texts
    norm = columns["norm"].values
    order = np.argsort(np.where(np.isnan(norm), -np.inf, -norm), kind="stable")[:MOST_EXAMPLES]  # NaN pulls hardest
    return [
        Example(
            int(columns["call"].values[i]),
            int(columns["example"].values[i]),
            None if (place := int(columns["example_id"].values[i])) < 0 else ids[place],
            float(norm[i]),
        )
        for i in order.tolist()
    ]
