"""What the files of a run are called: names of ours, below its folder and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from gradviz.errors import HistoryError

_PLAIN = re.compile(r"(?!\.{1,2}$)[^/\\:\0]+")
_PART = re.compile(r"(?P<series>.+)-(?P<first>\d{8,})-(?P<last>\d{8,})(?P<suffix>\.parquet|\.safetensors)")


def below(name: str) -> str:
    """The name, if it can only be that of something below a folder.

    Raises
    ------
    HistoryError
        If it is absolute, has a drive, or goes up.

    Examples
    --------
    >>> below("gradients/backward-00000000-00000003.parquet")
    'gradients/backward-00000000-00000003.parquet'
    >>> below("../secrets")
    Traceback (most recent call last):
    gradviz.errors.HistoryError: '../secrets' is no name of a file below a run's folder.
    """
    if not all(_PLAIN.fullmatch(step) for step in name.split("/")):
        raise HistoryError(f"{name!r} is no name of a file below a run's folder.")
    return name


def is_hidden(name: str) -> bool:
    """Whether readers of Parquet folders pass over a file: one that is not finished, or not theirs."""
    return name.startswith((".", "_"))


class PartName(NamedTuple):
    """A part of a series: the rows of some flushes, counted from 0. Where parts were merged, one covers a range.

    Examples
    --------
    >>> str(PartName("backward", 0, 3))
    'backward-00000000-00000003.parquet'
    >>> PartName.parse("backward-00000000-00000003.parquet")
    PartName(series='backward', first=0, last=3, suffix='.parquet')
    """

    series: str
    first: int
    last: int
    suffix: str = ".parquet"

    def __str__(self) -> str:
        return f"{self.series}-{self.first:08d}-{self.last:08d}{self.suffix}"

    @classmethod
    def parse(cls, name: str) -> PartName | None:
        """What a file's name says; None if it is no part's."""
        match = _PART.fullmatch(name)
        if match is None or int(match["first"]) > int(match["last"]):
            return None
        return cls(match["series"], int(match["first"]), int(match["last"]), match["suffix"])

    def covers(self, other: PartName) -> bool:
        """Whether all rows of another part are in this one as well."""
        same = (self.series, self.suffix) == (other.series, other.suffix)
        return same and self.first <= other.first and other.last <= self.last


def current(names: Iterable[str]) -> list[PartName]:
    """The parts among some files, by series and in order, each row once.

    A merge that was killed leaves parts behind that the merged one covers; they are left out.

    Examples
    --------
    >>> [str(part) for part in current(["a-00000000-00000000.parquet", "a-00000000-00000001.parquet", "notes.txt"])]
    ['a-00000000-00000001.parquet']
    """
    parts = {part for part in map(PartName.parse, names) if part is not None}
    kept: list[PartName] = []
    for part in sorted(parts, key=lambda part: (part.series, part.suffix, part.first, -part.last)):
        if not (kept and kept[-1].covers(part)):
            kept.append(part)
    return kept


def covered(names: Iterable[str]) -> list[str]:
    """The parts among some files that `current` leaves out.

    Examples
    --------
    >>> covered(["a-00000000-00000000.parquet", "a-00000000-00000001.parquet", "notes.txt"])
    ['a-00000000-00000000.parquet']
    """
    names = {name for name in names if name == str(PartName.parse(name))}
    return sorted(names - {str(part) for part in current(names)})
