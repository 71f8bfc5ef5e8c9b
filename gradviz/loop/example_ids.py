"""What a batch's examples are called in the data set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from gradviz.errors import DataError, described
from gradviz.loop.data import takes_one

Tells = Callable[[Any], Sequence[Any]]


class ExampleIds:
    """Takes the ids out of what the data gives, and leaves the batch.

    Parameters
    ----------
    tells : callable, optional
        Gives the ids of one batch; without it batches stay as they are.
    accumulate : int
        Batches that an iteration takes; above 1 they come in lists.

    Raises
    ------
    DataError
        If `tells` cannot be called with a batch.

    Examples
    --------
    >>> ids = ExampleIds(lambda batch: batch[2])
    >>> ids.batch(("x", "y", [7, 8])), ids.of(("x", "y", [7, 8]))
    (('x', 'y'), [7, 8])
    """

    def __init__(self, tells: Tells | None = None, accumulate: int = 1) -> None:
        if tells is not None and not (callable(tells) and takes_one(tells)):
            raise DataError(
                f"example_ids is a function from a batch to the ids of its examples; got {described(tells)}. Write "
                "example_ids=lambda batch: batch[2]."
            )
        self.are_told = tells is not None
        """Whether there are any: without them batches are what the data gives."""
        self._tells, self._accumulate = tells, accumulate

    def batch(self, given: Any) -> Any:
        """What the step takes."""
        if self._tells is None:
            return given
        if self._accumulate > 1 and isinstance(given, list):
            return [_pair(one) for one in given]
        return _pair(given)

    def of(self, given: Any) -> list[Any] | None:
        """The ids of an iteration's examples, of its batches one after the other; None where nobody tells them.

        Raises
        ------
        DataError
            If what came is no sequence.
        """
        if self._tells is None:
            return None
        batches = given if self._accumulate > 1 and isinstance(given, list) else [given]
        return [each for batch in batches for each in _listed(self._tells(batch))]


def _listed(ids: Any) -> list[Any]:
    if isinstance(ids, Tensor):
        return list(ids.reshape(-1).tolist())
    try:
        return list(ids)
    except TypeError:
        raise DataError(
            f"example_ids gave {described(ids)}; a sequence of ids is wanted, one for each example."
        ) from None


def _pair(batch: Any) -> Any:
    return tuple(batch[:2]) if isinstance(batch, tuple | list) and len(batch) > 2 else batch
