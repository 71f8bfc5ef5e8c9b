"""Numbers in words, as the browser writes them (`js/src/kit/format.ts`)."""

from __future__ import annotations

import math


def count(n: float) -> str:
    """A whole number with commas.

    >>> count(1234567)
    '1,234,567'
    """
    return f"{math.floor(n + 0.5):,}"


def many(n: int, noun: str) -> str:
    """How many there are.

    >>> many(1, "parameter"), many(1200, "parameter")
    ('1 parameter', '1,200 parameters')
    """
    return f"{count(n)} {noun}{'' if n == 1 else 's'}"


def glance(value: float) -> str:
    """A metric or a loss at a glance: three digits.

    >>> glance(0.0011234), glance(1), glance(123456), glance(4.73e-4), glance(float("-inf"))
    ('0.00112', '1.00', '123,456', '4.73e-4', '−inf')
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+inf" if value > 0 else "−inf"
    size = abs(value)
    if size == 0:
        return "0"
    if size < 1e-3 or size >= 1e6:
        digits, exponent = f"{value:.2e}".split("e")
        return f"{digits}e{int(exponent)}"
    if size >= 999.5:
        return ("-" if value < 0 else "") + count(size)
    return f"{value:#.3g}".removesuffix(".")


def iterations(start: int, stop: int) -> str:
    """The iterations [start, stop).

    >>> iterations(128, 129), iterations(128, 132)
    ('iteration 128', 'iterations 128–131')
    """
    if stop - start <= 1:
        return f"iteration {count(start)}"
    return f"iterations {count(start)}–{count(stop - 1)}"


def column_note(level: int, most: int, which: str = "max") -> str:
    """How many iterations are seen as one, and by which of them; `most` is the largest number that any pixel shows.

    >>> column_note(0, 1), column_note(2, 4), column_note(0, 3)
    ('', '1 column = 4 iterations (max)', '1 column = up to 3 iterations (max)')
    """
    if most > 2**level:
        return f"1 column = up to {count(most)} iterations ({which})"
    return f"1 column = {count(2**level)} iterations ({which})" if level else ""


_DTYPES = (("bfloat", "bf"), ("float", "f"), ("complex", "c"), ("uint", "u"), ("int", "i"))


def short_dtype(dtype: str) -> str:
    """A dtype in a few letters.

    >>> short_dtype("float32"), short_dtype("bfloat16"), short_dtype("float8_e4m3fn"), short_dtype("bool")
    ('f32', 'bf16', 'f8', 'bool')
    """
    for long, short in _DTYPES:
        bits = dtype.removeprefix(long).partition("_")[0]
        if dtype.startswith(long) and bits.isdigit():
            return short + bits
    return dtype
