"""Work that several threads share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def side_by_side(threads: Executor, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """As `map`, by some threads; one after the other while the interpreter ends, which begins no thread any more.

    A run that was under way then is still written to its end.
    """
    try:
        return threads.map(function, items)
    except RuntimeError:
        return map(function, items)
