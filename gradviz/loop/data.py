"""The data of a run: an iterable of batches, gone through once an epoch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from gradviz.errors import DataError, described
from gradviz.loop.random_states import undrawn
from gradviz.step.streams import put_back_in, states_in

Data = Iterable[Any] | Callable[[int], Iterable[Any]]

_NOTHING: Mapping[str, Any] = {}


class Epochs:
    """The iterable of each epoch, checked before anything moves.

    Parameters
    ----------
    data : iterable of batches, or a callable from the epoch's index to one
    epochs : int
        How many will be asked for.
    accumulate : int
        Batches that an iteration takes; above 1, an epoch gives lists of so many, and the rest at its end.

    Raises
    ------
    DataError
        If `data` is neither, or an iterator that can be read only once while several epochs are wanted.
    """

    def __init__(self, data: Data, epochs: int, accumulate: int = 1) -> None:
        if not callable(data) and not isinstance(data, Iterable):
            is_dataset = hasattr(data, "__getitem__") and hasattr(data, "__len__")
            hint = (
                " A data set goes into a loader: DataLoader(dataset, batch_size=32, shuffle=True)."
                if is_dataset
                else ""
            )
            raise DataError(
                "Data is an iterable of batches (inputs, targets), such as a DataLoader, or a function from the epoch "
                f"to one; got {described(data)}.{hint}"
            )
        if callable(data) and not isinstance(data, Iterable) and not takes_one(data):
            raise DataError("A function that gives the data takes the epoch's index: lambda epoch: batches.")
        if isinstance(data, Iterator) and epochs > 1:
            raise DataError(
                f"The {type(data).__name__} can be read only once, but {epochs} epochs are asked for. Pass list(data), "
                "or a function that makes a new one for each epoch: loop.run(lambda epoch: make_batches(), epochs=...)."
            )
        self._data = data
        self._accumulate = accumulate
        self._given: Any = None

    def __call__(self, epoch: int) -> Iterable[Any]:
        """What an epoch's iterations take: batches, or lists of them."""
        batches = self._data(epoch) if callable(self._data) and not isinstance(self._data, Iterable) else self._data
        self._given = batches
        if isinstance(batches, Iterable):
            return batches if self._accumulate == 1 else Groups(batches, self._accumulate)
        raise DataError(f"data({epoch}) returned {described(batches)}; an iterable of batches is wanted.")

    def streams(self, beside: Mapping[str, Any] = _NOTHING) -> dict[str, Any]:
        """How the random streams stand of the data, of what else takes part, and of the iterable it gave last."""
        return states_in(self.held(beside))

    def put_back(self, streams: Mapping[str, Any], beside: Mapping[str, Any] = _NOTHING) -> None:
        """Let them stand as they did. Those of an iterable that is yet to be given are as the data makes them."""
        with undrawn():
            put_back_in(self.held(beside), streams)

    def held(self, beside: Mapping[str, Any] = _NOTHING) -> dict[str, Any]:
        """Where streams are looked for; one that several lead to belongs to the first."""
        return {"data": self._data, **beside, "batches": self._given}

    @property
    def is_read_once(self) -> bool:
        """Whether the data is an iterator: looking at its first batch takes that out of it, and nothing is begun."""
        return isinstance(self._data, Iterator)

    def empty(self, epoch: int) -> DataError:
        """The error for an epoch without a batch."""
        if isinstance(self._data, Iterator):
            hint = "The iterator was used up before; make a new one."
        else:
            hint = "Is the data set empty, or drop_last=True with less than one batch in it?"
        return DataError(f"The data gave no batch in epoch {epoch}. {hint}")


class Groups:
    """Batches in lists of `size`; the last list holds what is left.

    Examples
    --------
    >>> list(Groups([1, 2, 3], 2)), len(Groups([1, 2, 3], 2))
    ([[1, 2], [3]], 2)
    """

    def __init__(self, batches: Iterable[Any], size: int) -> None:
        self._batches = batches
        self._size = size

    def __iter__(self) -> Iterator[list[Any]]:
        batches = iter(self._batches)
        while group := list(islice(batches, self._size)):
            yield group

    def __len__(self) -> int:
        return -(-len(self._batches) // self._size)  # type: ignore[arg-type]


def takes_one(function: Callable[..., Any]) -> bool:
    """Whether a function can be called with one argument, as far as that can be told."""
    try:
        inspect.signature(function).bind(0)
    except TypeError:
        return False
    except ValueError:  # no signature to read
        return True
    return True


def not_of_the_state(name: str) -> str:
    """What is said of a function, given by that name, that does not take the state.

    Examples
    --------
    >>> not_of_the_state("when")
    'when is called with the state alone, which this function does not take; write when=lambda state: ...'
    """
    return f"{name} is called with the state alone, which this function does not take; write {name}=lambda state: ..."


def length(batches: Iterable[Any], limit: int | None) -> int | None:
    """How many batches an epoch will have, if the iterable can tell.

    Examples
    --------
    >>> length([1, 2, 3], None), length([1, 2, 3], 2), length(iter([1]), None), length(iter([1]), 5)
    (3, 2, None, None)
    """
    try:
        known = len(batches)  # type: ignore[arg-type]
    except TypeError:  # no __len__, or one that a DataLoader over an iterable cannot answer
        return None
    return known if limit is None else min(known, limit)
