"""The frozen mask: which parameters train, which do not and why, over the whole run; a click freezes and unfreezes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from gradviz.history.changes import Change, condensed
from gradviz.history.freezer import Verb, Wish
from gradviz.history.history import History
from gradviz.history.opened import Opened
from gradviz.widgets.feed import ColumnFeed, Message
from gradviz.widgets.live import Live, asked_for, built

MOST_CHANGES = 200
"""The newest changes that are told; a handler may freeze something at every iteration."""

KEPT_CHANGES = 50
"""And those that are kept for a page without a kernel."""

KEPT_BYTES = 50_000
"""Columns that are kept: a state changes seldom, and shows in fewer of them than a norm."""

MOST_NAMES = 8
"""Names in one change; the rest is counted."""


class MaskFeed(ColumnFeed):
    """Columns, and what was frozen and unfrozen, when and by whom."""

    kept_bytes = KEPT_BYTES

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._rows_told = 0

    def message(self, *, fresh: bool) -> Message:
        """Beside the columns, what has changed, and why nothing can be frozen now ("" where it can)."""
        content, buffers = super().message(fresh=fresh)
        changes, self._rows_told = self._history.changes(0 if fresh else self._rows_told)
        return self._with(content, changes), buffers

    def kept(self) -> Message | None:
        """The same of all there is, but for the oldest changes."""
        kept = super().kept()
        return kept and (self._with(kept[0], self._history.changes()[0][-KEPT_CHANGES:]), kept[1])

    def _with(self, content: dict[str, Any], changes: Sequence[Change]) -> dict[str, Any]:
        names = [parameter["name"] for parameter in self._history.described] if changes else []
        told = [_told(change, names) for change in changes[-MOST_CHANGES:]]
        return {**content, "changes": told, "barred": why_barred(self._history)}


def _told(change: Change, names: Sequence[str]) -> dict[str, Any]:
    what = condensed(change.names, names)
    about = {"iteration": change.iteration, "event": change.event, "by": change.by}
    return {**about, "names": what[:MOST_NAMES], "more": len(what[MOST_NAMES:])}


def why_barred(history: History) -> str:
    """Why nothing of a run can be frozen from here; "" where it can."""
    if history.freezer is not None:
        return ""
    instead = 'gv.ModelState(model).freeze("encoder")'
    if isinstance(history, Opened):
        return f"This run was opened from its files: whoever trains it can write {instead}."
    if history.progress.status in ("training", "paused"):
        return f"This loop is not one of gradviz, which only watches it: write {instead} in it."
    return f"No run is under way: write {instead} before the next one, or in a handler."


class FrozenMask(Live):
    """A live picture of what trains. Made by `frozen_mask`."""

    _esm = built("frozen_mask.js")
    _css = built("frozen_mask.css")

    def _feed(self) -> MaskFeed:
        return MaskFeed(self.history)

    def _hear(self, kind: str, content: dict[str, Any]) -> None:
        if kind not in ("freeze", "unfreeze"):
            return

        def answer(iteration: int | None, error: str) -> None:
            try:
                self.send({"kind": "answered", "id": content.get("id"), "iteration": iteration, "error": error})
            except Exception:  # the page is gone, and a training thread is not to hear of it
                self.publisher.close()

        freezer = self.history.freezer  # read once: the run may end meanwhile
        if freezer is None:
            answer(None, why_barred(self.history))
            return
        try:
            wish = Wish(cast(Verb, kind), frozenset(content["parameters"]), tuple(content["modules"]))
        except (KeyError, TypeError) as error:
            answer(None, f"{type(error).__name__}: {error}")
            return
        freezer(wish, answer)


def frozen_mask(x: Any) -> FrozenMask:
    """Which parameters of a loop, a watch or a history train, and since when: by module and iteration.

    Trained, frozen, unused (no path from the loss) and not in an optimizer look different; a module of which only a
    part trains says so. Beside each stands how many parameters it has and how many bytes they take, below what was
    frozen and unfrozen, when and by whom.

    A click freezes a parameter or a module of a run that is under way, or trains it again, from the next iteration on
    (see `ModelState.freeze`); the picture asks before it does. With ``loop.start`` the run hears of it at once; while a
    cell trains, most kernels hear of it only when the cell is done, and the picture says that it waits.

    Parameters
    ----------
    x : Loop, Watch or History

    Returns
    -------
    FrozenMask
        Asked for again, as when a notebook cell is run again, the same in one more view.

    Raises
    ------
    TypeError
        If `x` has no history.

    Examples
    --------
    >>> history = History()
    >>> frozen_mask(history) is frozen_mask(history)
    True
    >>> frozen_mask(history).close()
    """
    return asked_for(FrozenMask, x, "frozen_mask", shows="a loop, a watch or a history")
