"""What was frozen and unfrozen, when and by whom, in few words: what a picture tells of the events of a run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby
from typing import NamedTuple

from gradviz.history.store import Store


class Change(NamedTuple):
    """What one of them did before an iteration.

    Attributes
    ----------
    iteration : int
        The first it held for.
    event : "frozen" or "unfrozen"
    by : "user", "handler", "widget" or None
        None where a run was recorded before that was.
    names : list of str
        Parameters and buffers.
    """

    iteration: int
    event: str
    by: str | None
    names: list[str]


def changes(store: Store, start: int = 0) -> list[Change]:
    """The changes that events from a row of their table on tell of, without those that no longer hold."""
    table = store.tables["events"]
    columns = table.read(start)
    iteration, attempt = columns["iteration"].values, columns["attempt"].values
    holds = store.attempts.holds(iteration, attempt)
    texts = {name: [*table.vocabulary[name].texts, None] for name in ("event", "by", "parameter")}  # -1: None
    event, by, parameter = ([texts[name][place] for place in columns[name].values[holds].tolist()] for name in texts)
    rows = zip(iteration[holds].tolist(), event, by, parameter, strict=True)
    return [
        Change(at, str(event), by, [str(name) for *_, name in each])
        for (at, event, by), each in groupby(rows, key=lambda row: row[:3])
    ]


def condensed(names: Sequence[str], parameters: Collection[str]) -> list[str]:
    """Names with those of a module that are all there as one, by its path; "" is the whole model.

    Parameters
    ----------
    names : sequence of str
        Of parameters and buffers.
    parameters : collection of str
        All there are.

    Examples
    --------
    >>> every = ["stem.weight", "body.0.weight", "body.0.bias", "body.1.weight", "body.1.bias"]
    >>> condensed(["stem.weight", "body.0.weight", "body.0.bias", "body.1.bias", "body.0.running_mean"], every)
    ['stem.weight', 'body.0', 'body.1.bias']
    >>> condensed(every, every)
    ['']
    """
    chosen = set(names)
    lacking = {module for name in parameters if name not in chosen for module in _modules(name)}
    several: dict[str, int] = {}
    for name in chosen.intersection(parameters):
        for module in _modules(name):
            several[module] = several.get(module, 0) + 1
    whole = {module for module, n in several.items() if n > 1 and module not in lacking}
    return list(dict.fromkeys(next((module for module in _modules(name) if module in whole), name) for name in names))


def _modules(name: str) -> list[str]:
    """The modules that a parameter lies in, from the model on."""
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(len(parts))]
