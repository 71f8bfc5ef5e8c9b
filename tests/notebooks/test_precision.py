"""The tutorial on precision says what is so."""

from __future__ import annotations

import pytest

from tests.notebooks.executed import executed


@pytest.fixture(scope="module")
def values():
    return executed("05_precision").values


def test_gradients_of_float16_die_and_no_others(values):
    first = values["by_way"]
    assert first["float16"] == 1
    assert first["float32"] < 0.5
    for way in ("float16, scaled", "bfloat16", "float64"):
        assert first[way] == pytest.approx(first["float32"], abs=0.1)


def test_what_has_no_gradients_learns_nothing(values):
    accuracy = values["accuracy"]
    assert accuracy["float16"] < 0.4
    assert accuracy["float32"] > 0.7
    for way in ("float16, scaled", "bfloat16", "float64"):
        assert accuracy[way] == pytest.approx(accuracy["float32"], abs=0.05)


def test_a_scale_that_is_too_large_skips_steps_and_is_halved(values):
    assert values["n_skipped"] >= 1
    assert values["last_scale"] == 2.0**40 / 2 ** values["n_skipped"]


def test_norms_are_told_without_the_scale(values):
    assert values["norm_scaled"] == pytest.approx(values["norm_float32"], rel=0.5)


def test_gradients_have_the_dtypes_that_are_said(values):
    others = dict.fromkeys(("float32", "float16", "float16, scaled", "bfloat16"), "float32")
    assert values["kept"] == {**others, "float64": "float64"}
