"""Which iterations a figure of a few shows: those that were asked for, or the nearest that there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Chosen(NamedTuple):
    """An iteration that is shown, and the one that was asked for."""

    iteration: int
    asked: int

    def __str__(self) -> str:
        near = "" if self.iteration == self.asked else f" (nearest to {self.asked:,})"
        return f"iteration {self.iteration:,}{near}"


def chosen(there: NDArray[np.int64], asked: Sequence[int] | None, *, last_alone: bool) -> list[Chosen]:
    """Of the iterations that are there, ascending, the nearest ones; without a wish the first, middle and last.

    Negative ones count from the end of those that are there.

    >>> [str(each) for each in chosen(np.array([0, 100, 200]), [100, 130], last_alone=False)]
    ['iteration 100', 'iteration 100 (nearest to 130)']
    """
    if asked is None:
        places = {len(there) - 1} if last_alone else {0, (len(there) - 1) // 2, len(there) - 1}
        return [Chosen(int(there[place]), int(there[place])) for place in sorted(places)]
    end = int(there[-1]) + 1
    found = []
    for iteration in asked:
        wanted = iteration + end if iteration < 0 else iteration
        nearest = int(there[np.abs(there - min(max(wanted, 0), end)).argmin()])
        found.append(Chosen(nearest, iteration if wanted < 0 else wanted))
    return list(dict.fromkeys(found))
