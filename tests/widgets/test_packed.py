"""Columns in few bytes: what is told exactly, how far the rest is off, and the bytes that TypeScript reads."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gradviz.history.overview import Columns
from gradviz.widgets.packed import ROUNDED, coded, decoded, flat, packed
from tests.data.make_packed import cases

GOLDEN = Path(__file__).parents[1] / "data" / "packed.json"
FLOAT32 = arrays.from_dtype(np.dtype("f4"), allow_nan=True, allow_infinity=False)


def of(maximum: np.ndarray, minimum: np.ndarray | None = None) -> Columns:
    start = np.arange(len(maximum), dtype="u4")
    wide = np.uint32(1 if minimum is None else 2)
    values = maximum.astype("f4")
    low = values if minimum is None else minimum.astype("f4")
    return Columns(start * wide, start * wide + wide, values, low, np.zeros(values.shape, "u1"))


def numbers(data: bytes, n: int, length: int, width: int) -> np.ndarray:
    """The planes of rows of numbers, as their description says."""
    zigzag = np.frombuffer(data, "u1").reshape(width, n * length).T.copy().view(f"<u{width}").reshape(n, length)
    steps = (zigzag >> 1).astype(f"<i{width}") ^ -(zigzag & 1).astype(f"<i{width}")
    return np.cumsum(steps, axis=1, dtype=steps.dtype)


def test_the_golden_bytes_are_those_of_today():
    assert json.loads(GOLDEN.read_text()) == cases()


@given(arrays.arrays("f4", st.integers(0, 40), elements=FLOAT32))
def test_a_rounded_number_is_close_and_zero_and_nothing_are_exact(values):
    back = decoded(coded(values))
    assert np.array_equal(np.isnan(back), np.isnan(values))
    assert np.array_equal(back == 0, values == 0)
    there = ~np.isnan(values)
    assert np.array_equal(np.sign(back[there]), np.sign(values[there]))
    # Beside the smallest float32 there is none that is closer.
    off = np.abs(back[there].astype("f8") - values[there])
    assert (off <= np.maximum(ROUNDED * np.abs(values[there].astype("f8")), 2.0**-149)).all()


@given(arrays.arrays("f4", st.tuples(st.integers(1, 20), st.integers(2, 4)), elements=FLOAT32))
def test_what_is_not_rounded_comes_back_bit_by_bit(values):
    length, rows = values.shape
    data = flat(of(values), rounded=False)
    at = 16 + 8 * length
    own = numbers(data[at : at + 4 * (rows - 1) * length], rows - 1, length, 4).view("f4")
    assert np.array_equal(own.T, values[:, :-1], equal_nan=True)
    loss = numbers(data[at + 4 * (rows - 1) * length :][: 4 * length], 1, length, 4).view("f4")
    assert np.array_equal(loss[0], values[:, -1], equal_nan=True)


def test_the_order_of_sizes_stays():
    values = np.exp(np.random.default_rng(0).normal(0, 20, 10_000)).astype("f4")
    assert (np.diff(decoded(coded(np.sort(values)))) >= 0).all()


def test_powers_of_two_and_the_largest_float32_stay_what_they_are():
    values = np.float32([*(2.0 ** np.arange(-149, 128)), np.finfo("f4").max])
    assert np.array_equal(decoded(coded(values)), values)


def test_what_fits_is_exact_what_nearly_fits_is_rounded_and_the_rest_is_merged():
    values = 10 ** np.random.default_rng(0).uniform(-8, 2, (2000, 11))
    whole = of(values)
    data, columns, rounded = packed(whole, 200_000)
    assert (columns, rounded) == (whole, False)
    data, columns, rounded = packed(whole, 50_000)
    assert (columns, rounded) == (whole, True)
    data, columns, rounded = packed(whole, 20_000)
    assert rounded
    assert len(data) <= 20_000
    assert columns.level > 0
    assert np.array_equal(columns.maximum, whole.at_level(columns.level).maximum)
    assert zlib.decompress(data) == flat(columns, rounded=True)


def realistic(n: int, rows: int) -> np.ndarray:
    """Norms that wander, each with a tenth of noise."""
    random = np.random.default_rng(0)
    wander = np.cumsum(random.normal(0, 0.01, (n, rows)), axis=0)
    return np.exp(random.normal(-3, 2, rows) + wander + random.normal(0, 0.1, (n, rows)))


def decades(n: int, rows: int) -> np.ndarray:
    """White noise over ten decades."""
    return 10 ** np.random.default_rng(0).uniform(-8, 2, (n, rows))


@pytest.mark.parametrize(("noise", "merges"), [(realistic, False), (decades, True)])
def test_ten_thousand_iterations_of_two_hundred_parameters_take_two_megabytes(noise, merges):
    data, columns, rounded = packed(of(noise(10_000, 201)), 2_000_000)
    assert rounded
    assert len(data) <= 2_000_000
    assert (columns.level > 0) == merges
