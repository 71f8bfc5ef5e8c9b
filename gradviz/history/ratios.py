"""The ratio of two runs' gradient norms as a history, for a picture."""

from __future__ import annotations

from gradviz.history.history import History
from gradviz.history.overview import Columns, Overview
from gradviz.history.quantity import ratio_of


class Ratios(History):
    """One run's gradient norms divided by another's. Made by `Comparison.ratios`.

    Its picture is drawn from `cells` and not from the states, which know no zero in one run, and one state at a time.
    """

    def __init__(self, run: str, reference: str, cells: Columns, *, memory_limit: int) -> None:
        super().__init__(memory_limit=memory_limit)
        self.quantity = ratio_of(run, reference)
        self._cells = cells
        self._ratios = Overview()
        self._ratios.append(cells)

    def __repr__(self) -> str:
        return f"History of {self.quantity.title}: {len(self):,} iterations of {len(self.described)} parameters"

    def columns(self, start: int = 0) -> Columns:
        """The iterations from `start` on as columns of a picture; the last row, a run's loss, is not recorded."""
        return self._cells[start:]

    def cells(self, most: int, *, stage: str = "backward") -> Columns:
        """The ratios as at most so many columns of a picture."""
        return self._ratios.columns.at_most(most)

    def overview(self) -> tuple[Columns, int]:
        """All of it in a bounded number of columns, and how many iterations they show."""
        return self._ratios.columns, len(self._cells)

    def drawn(self, most: int) -> Columns:
        """All of it in at most so many columns."""
        return self._cells.at_most(most)
