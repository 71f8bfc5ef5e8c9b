"""Which colour a norm should have, worked out from the history alone."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pandas as pd

from .pixels import Picture

DECADES_MIN, DECADES_MAX = 3, 12


def domain(largest: float, smallest: float) -> tuple[int, int]:
    """The two ends of the colour scale in log10, for the largest and the smallest norm seen so far.

    >>> domain(20.0, 0.5), domain(1.0, 1e-30)
    ((-1, 2), (-12, 0))
    """
    hi = math.ceil(math.log10(largest))
    lo = math.floor(math.log10(smallest))
    return min(max(lo, hi - DECADES_MAX), hi - DECADES_MIN), hi


def assert_domain(picture: Picture, norms: pd.DataFrame) -> None:
    """The picture's scale is the one that its norms ask for; those that are 0 or not finite don't count."""
    values = norms.iloc[: picture.iterations].to_numpy(dtype=np.float32).astype(np.float64)
    positive = values[np.isfinite(values) & (values > 0)]
    asked = domain(positive.max(), positive.min())
    assert (picture.lo, picture.hi) == asked, f"ends of the colours: {(picture.lo, picture.hi)}, asked for {asked}"


def index(norm: float, lo: int, hi: int) -> int:
    """The place in the colour table of a norm, on a scale from 10**lo to 10**hi.

    >>> index(1.0, -3, 0), index(1e-3, -3, 0), index(10**-1.5, -3, 0)
    (255, 0, 128)
    """
    return min(max(math.floor((math.log10(norm) - lo) / (hi - lo) * 256), 0), 255)


def expected_index(picture: Picture, norms: pd.Series, x: int) -> int:
    """The colour index device pixel `x` of a row should have: of the norms it shows, the largest wins."""
    shown = picture.iterations_of(x)
    values = norms.iloc[shown.start : shown.stop].to_numpy(dtype=np.float32)
    positive = values[np.isfinite(values) & (values > 0)]
    assert positive.size, f"pixel {x} (iterations {shown}) has no norm above 0: {values}"
    return index(float(positive.max()), picture.lo, picture.hi)


def assert_colour(rgb: tuple[int, int, int], expected: int, table: bytes) -> None:
    """The pixel has the table's colour at the expected index, or at one of its two neighbours."""
    near = range(max(expected - 1, 0), min(expected + 1, 255) + 1)
    assert rgb in [entry(table, i) for i in near], (
        f"pixel {rgb} is colour {places(rgb, table)} of the table, "
        f"and the history asks for {expected}, {entry(table, expected)}"
    )


def entry(table: bytes, i: int) -> tuple[int, int, int]:
    return table[3 * i], table[3 * i + 1], table[3 * i + 2]


def places(rgb: tuple[int, int, int], table: bytes) -> list[int]:
    """Where in the table a colour stands (nowhere for a mark or the page's background)."""
    return [i for i in range(len(table) // 3) if entry(table, i) == rgb]


def assert_cells(picture: Picture, norms: pd.DataFrame, table: bytes, cells: Iterable[tuple[str, int]]) -> None:
    """The pixels amid these (parameter, iteration) cells have the colours that `norms` asks for."""
    for parameter, iteration in cells:
        x = picture.x_of(iteration)
        try:
            assert_colour(picture.rgb(parameter, x), expected_index(picture, norms[parameter], x), table)
        except AssertionError as wrong:
            wrong.add_note(
                f"at {parameter}, iteration {iteration}: pixel {x} of {picture.width}, "
                f"{picture.iterations} iterations painted on a span of {picture.span}, "
                f"scale {picture.lo} to {picture.hi}"
            )
            raise
