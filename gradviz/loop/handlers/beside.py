"""Lines that are printed while a progress bar is on show: each has a line of its own, and the bar stays below."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any, TextIO


class WholeLines:
    """A stream that passes whole lines on, with the bars out of the way meanwhile.

    What moves the cursor by itself, such as somebody's own bar, is passed on as it comes.
    """

    def __init__(self, file: TextIO, bar: Any) -> None:
        self._wrapped, self._bar = file, bar
        self._begun = ""
        self._is_over = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)

    def write(self, text: str) -> int:
        """Print what is whole, and keep the beginning of the next line."""
        if self._is_over or "\r" in text or "\x1b" in text:
            return self._wrapped.write(text)
        lines, newline, self._begun = (self._begun + text).rpartition("\n")
        if newline:
            with self._bar.external_write_mode(file=self._bar.fp):
                self._wrapped.write(lines + newline)
                self._wrapped.flush()
        return len(text)

    def end(self) -> None:
        """Pass everything on as it comes, also what is kept."""
        self._is_over = True
        if self._begun:
            self._wrapped.write(self._begun)


class Beside:
    """Lets everything that is printed on a terminal go through whole lines, until it ends."""

    def __init__(self, bar: Any) -> None:
        self._streams: dict[str, WholeLines] = {}
        for name in ("stdout", "stderr"):
            file = getattr(sys, name)
            if file is not None and file.isatty():
                self._streams[name] = WholeLines(file, bar)
                setattr(sys, name, self._streams[name])

    def end(self) -> None:
        """Put back what was there; unless somebody has put something else into its place since, who has ours."""
        for name, stream in self._streams.items():
            stream.end()
            if getattr(sys, name) is stream:
                setattr(sys, name, stream._wrapped)


def itself(file: TextIO) -> TextIO:
    """A stream without the whole lines of another bar, in which a bar cannot be drawn."""
    while isinstance(file, WholeLines):
        file = file._wrapped
    return file


@contextlib.contextmanager
def beside_bars(file: TextIO | None) -> Iterator[None]:
    """Keep progress bars out of the way of a line that is printed to a file, by default `sys.stdout`."""
    if "tqdm" not in sys.modules:
        yield
        return
    from tqdm import tqdm

    with tqdm.external_write_mode(file=file or sys.stdout):
        yield
