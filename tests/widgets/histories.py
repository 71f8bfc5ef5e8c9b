"""Histories that widgets show in tests."""

from __future__ import annotations

import numpy as np

from gradviz.history.history import History
from gradviz.history.schema import OK, Parameter


def history_of(*names: str) -> History:
    """Of one iteration of parameters with these names."""
    history = History()
    history.declare([Parameter(name=name, shape=(2, 3), dtype="bfloat16") for name in names])
    append(history)
    return history


def append(history: History) -> None:
    """One iteration more."""
    n = len(history.described)
    history.append(len(history), 0, np.ones((n, 8)), np.full(n, OK, np.uint8), {"loss": 1.0})
