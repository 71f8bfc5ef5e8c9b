"""A run that a figure shows, alone or beside others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np
from numpy.typing import NDArray

from gradviz.history.overview import Columns
from gradviz.history.view import View
from gradviz.widgets.colours import scale_of
from gradviz.widgets.picture.looks import Look, looks_of

MEASURED = (Look.VALUE, Look.VALUE_NOT_OPTIMIZED)
"""The looks of what has a number above 0."""


@dataclass(frozen=True)
class Run:
    """One run of a figure.

    Attributes
    ----------
    name : str
        Empty where it is the only one.
    view : View
    names : mapping of str to str
        What other runs call its parameters, where they call them otherwise.
    """

    name: str
    view: View
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def parameters(self) -> list[str]:
        """Its parameters by the common names, as plotly has them."""
        return [plain(self.names.get(name, name)) for name in self.view.parameters.index]

    def of(self, name: str) -> str:
        """A parameter of this run, where there are several."""
        return f"{plain(self.name)} · {name}" if self.name else name


def shown(run: Run, columns: Columns) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """The number that each cell shows, and its look; [columns, parameters]."""
    values = scale_of(run.view.quantity).shown(columns.maximum[:, :-1], columns.minimum[:, :-1])
    return values, looks_of(values, columns.flags[:, :-1])


def plain(text: str) -> str:
    """Text as plotly has to get it, which reads tags.

    >>> plain("a<b>.weight")
    'a&lt;b&gt;.weight'
    """
    return escape(text, quote=False)


def some(names: Sequence[str], most: int = 3) -> str:
    """Names, of which only the first are written out.

    >>> some(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")
