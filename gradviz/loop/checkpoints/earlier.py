"""Checkpoints of an earlier run, where this one would write its own."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from gradviz.loop.checkpoints.files import BEST, LAST


def earlier_in(folder: Path, *patterns: object) -> list[str]:
    """The names of a folder's files that are checkpoints, by what those are called.

    Parameters
    ----------
    folder : Path
    *patterns
        By which they may have been called, where that is a string. Names that ``last.pt`` or ``best.pt`` remembers are
        known too.
    """
    if not folder.is_dir():
        return []
    known = {LAST, BEST, *_remembered(folder)}
    fits = [_expression(pattern) for pattern in patterns if isinstance(pattern, str)]
    names = sorted(file.name for file in folder.iterdir() if file.is_file())
    return [name for name in names if name in known or any(fit.fullmatch(name) for fit in fits)]


def how_far(folder: Path) -> tuple[int, int]:
    """Epochs and iterations at the newest checkpoint of a folder; -1 where that cannot be read."""
    for saved in _read(folder):
        return saved["state"]["epoch"], saved["state"]["iteration"]
    return -1, -1


def _remembered(folder: Path) -> Iterator[str]:
    for saved in _read(folder):
        for memory in saved["handlers"].values():
            if isinstance(memory, dict) and isinstance(memory.get("written"), list):
                yield from memory["written"]


def _read(folder: Path) -> Iterator[dict[str, Any]]:
    """What can be read of the newest and the best one, without their tensors."""
    for name in (LAST, BEST):
        try:
            saved = torch.load(folder / name, map_location="cpu", weights_only=True, mmap=True)
            if isinstance(saved["handlers"], dict) and isinstance(saved["state"]["iteration"], int):
                yield saved
        except Exception:  # damaged, or there is none
            continue


def _expression(pattern: str) -> re.Pattern[str]:
    """What names have that a format string of whole numbers gives.

    Examples
    --------
    >>> fits = _expression("a_{epoch:03d}.pt").fullmatch
    >>> bool(fits("a_012.pt")), bool(fits("a_b.pt"))
    (True, False)
    """
    parts = string.Formatter().parse(pattern)
    return re.compile("".join(re.escape(text) + ("" if field is None else r"\s*\d+") for text, field, *_ in parts))
