"""`Activations`: the gradients of intermediate values as a history, for a picture."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from gradviz.errors import HistoryError
from gradviz.history.captured import CapturedStore
from gradviz.history.cells import Picture
from gradviz.history.history import History, Listener
from gradviz.history.quantity import CAPTURED
from gradviz.history.selection import Selection

if TYPE_CHECKING:
    import pandas as pd

    from gradviz.history.inspected import Inspected


class Activations(History):
    """What a run captured, as a history whose parameters are names and calls. Made by `activations_of`.

    It holds nothing of its own, and grows as the run does: a parameter ``"encoder.0#1"`` is what the second call of
    ``encoder.0`` gave.

    Parameters
    ----------
    run : History
    """

    quantity = CAPTURED

    def __init__(self, run: History) -> None:
        super().__init__(memory_limit=run.memory_limit)
        self._run = run
        self.identity = run.identity
        self._store: CapturedStore = CapturedStore(run._store, run._reading)
        self._picture = Picture(self._store)
        self.progress = run.progress

    def __repr__(self) -> str:
        return f"What was captured in {self._run}"

    @property
    def has_gradients(self) -> bool:
        """Whether anything was captured."""
        return bool(self.described)

    @property
    def measures(self) -> tuple[str, ...]:
        """No "rms", as the table knows no shapes, and nothing of steps."""
        return "norm", "max_abs", "mean", "zero_fraction"

    def chosen(self, selection: Selection) -> pd.DataFrame:
        """The rows of `History.activations` behind a part of its picture."""
        of_run = self._run.select(iterations=selection.iterations, every=selection.every).activations
        pairs = [self._store.pairs[place] for place in selection.places(self._store.names).tolist()]
        meant = of_run.set_index(["name", "call"]).index.isin(pairs)
        return of_run[np.asarray(meant)].reset_index(drop=True)

    def inspected(self, name: str, iteration: int | None = None) -> Inspected:
        """All that is known of a captured value at an iteration; None is the newest."""
        names = self._store.names
        captured, _ = self._store.pairs[names.index(name)] if name in names else (name, 0)
        return self._inspected(name, captured, iteration)

    def append(self, *_: Any, **__: Any) -> None:
        """Refused: rows come from the run."""
        raise HistoryError("What was captured is only read here; its rows are the run's own.")

    def subscribe(self, listener: Listener) -> None:
        """Call a bound method whenever the run has something new."""
        self._run.subscribe(listener)

    def unsubscribe(self, listener: Listener) -> None:
        """Call it no more."""
        self._run.unsubscribe(listener)


_made: weakref.WeakValueDictionary[int, Activations] = weakref.WeakValueDictionary()
"""By the identity of the run, which each keeps alive."""


def activations_of(run: History) -> Activations:
    """What a run captured, as a history; the same one while anybody holds it.

    Raises
    ------
    HistoryError
        If nothing was captured, nor will be.

    Examples
    --------
    >>> import torch, gradviz as gv
    >>> cell = torch.nn.Linear(1, 1, bias=False)
    >>> cell.weight.data.fill_(2.0)
    tensor([[2.]])
    >>> model = torch.nn.Sequential(cell, cell)
    >>> loop = gv.trainer(model, lambda prediction, _: prediction.sum(), "sgd", capture=gv.Capture("0"))
    >>> state = loop.run([(torch.ones(1, 1), torch.ones(1, 1))], display=None)
    >>> activations_of(loop.history).norms
    parameter    0  0#1
    iteration
    0          2.0  1.0
    """
    if isinstance(run, Activations):
        return run
    is_possible = run.captures or (run.captures is None and not len(run))
    if not is_possible and not len(run._store.tables["activations"]):
        raise HistoryError(
            f"Nothing was captured in this run: {run}. To capture gradients of intermediate values: gv.trainer(model, "
            'loss, optimizer, capture=gv.Capture("encoder.*")), or gv.watch(model, optimizer, capture=...).'
        )
    made = _made.get(id(run))
    if made is None:
        made = _made[id(run)] = Activations(run)
    return made
