"""Amounts of memory, written as people write them."""

from __future__ import annotations

import math
import re

_UNITS = {"": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3, "tb": 1000**4}
_UNITS |= {"kib": 1024, "mib": 1024**2, "gib": 1024**3, "tib": 1024**4}


def n_bytes(name: str, size: object, *, error: type[ValueError] = ValueError) -> int:
    """A size in bytes: a whole number, or text such as "512MB"; `error` if it is none.

    Examples
    --------
    >>> n_bytes("memory_limit", "1.5 GB"), n_bytes("memory_limit", 4096)
    (1500000000, 4096)
    """
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return size
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", size.strip().lower()) if isinstance(size, str) else None
    unit = None if match is None else next((u for u in (match[2], match[2].removesuffix("b")) if u in _UNITS), None)
    found = 0.0 if match is None or unit is None else float(match[1]) * _UNITS[unit]
    if not 1 <= found < math.inf:
        raise error(f'{name} is a number of bytes, or text such as "512MB" or "2 GiB"; got {size!r:.80}.')
    return int(found)


def in_words(size: float) -> str:
    """A number of bytes for people.

    Examples
    --------
    >>> in_words(1_340_000_000), in_words(512)
    ('1.3 GB', '512 bytes')
    """
    for unit in ("GB", "MB", "kB"):
        if size >= _UNITS[unit.lower()]:
            return f"{size / _UNITS[unit.lower()]:.1f} {unit}"
    return f"{size:.0f} bytes"
