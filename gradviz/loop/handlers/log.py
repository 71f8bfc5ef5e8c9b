"""A line of the user's own, whenever an event says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

from gradviz.errors import EventError, described
from gradviz.loop.data import not_of_the_state, takes_one
from gradviz.loop.events import State
from gradviz.loop.handlers.beside import beside_bars
from gradviz.loop.same import is_same_handler


class Log:
    """Prints what a function of the state returns."""

    def __init__(self, message: Callable[[State], str], file: TextIO | None = None) -> None:
        if not callable(message):
            example = "lambda state: f\"{state.metrics['loss']:.3f}\""
            raise EventError(f"A message is a function of the state; got {described(message)}. Write {example}.")
        if not takes_one(message):
            raise EventError(not_of_the_state("message"))
        if file is not None and not hasattr(file, "write"):
            raise EventError(f'file is an open file, such as open("log.txt", "w"); got {described(file)}.')
        self._message = message
        self._file = file
        self.name = f"log({getattr(message, '__qualname__', type(message).__name__)})"

    def __eq__(self, other: object) -> bool:
        if not (isinstance(other, Log) and is_same_handler(self._message, other._message)):
            return False
        # A cell that opens its file, and runs again, leaves a closed one behind.
        return self._file is other._file or self._is_closed or other._is_closed

    @property
    def _is_closed(self) -> bool:
        return getattr(self._file, "closed", False)

    __hash__ = None  # type: ignore[assignment]

    def __call__(self, state: State) -> None:
        """Print the line."""
        message = self._message(state)
        if not isinstance(message, str):
            raise EventError(
                f"The function of a log returns the line to print, a string; it returned {described(message)}."
            )
        # None is the sys.stdout of this moment, which notebooks and tests replace. Nothing is lost with the process.
        with beside_bars(self._file):
            print(message, file=self._file, flush=True)
