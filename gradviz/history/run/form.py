"""The format of a run's files, and what is said of one that is newer or damaged."""

from __future__ import annotations

from importlib import metadata
from typing import Any

from gradviz.errors import HistoryError

FORMAT = 1
"""A format that an older gradviz cannot read has a higher number."""


def version() -> str:
    """The version of gradviz."""
    return metadata.version("gradviz-jupyter")


def check_format(found: Any, file: str) -> None:
    """Refuse what a newer gradviz has written.

    Examples
    --------
    >>> check_format(1, "runs/a/run.json")
    >>> check_format(2, "runs/a/run.json")
    Traceback (most recent call last):
    gradviz.errors.HistoryError: runs/a/run.json has format 2; this gradviz (0.1.0) reads format 1 ...
    """
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise HistoryError(f"{file} has no format that gradviz knows: {found!r}. It was written by something else.")
    if found > FORMAT:
        raise HistoryError(
            f"{file} has format {found}; this gradviz ({version()}) reads format {FORMAT} and earlier ones. "
            "Upgrade it: pip install -U gradviz-jupyter"
        )


class Damaged(HistoryError):
    """A file of a run cannot be read."""


def damaged(address: str, name: str, why: object) -> Damaged:
    """The error for a file that cannot be read."""
    return Damaged(
        f"{address}: {name} is damaged: {str(why).strip().rstrip('.')}. Nothing was deleted; "
        f"gv.History.open({address!r}, skip_damaged=True) reads the rest."
    )
