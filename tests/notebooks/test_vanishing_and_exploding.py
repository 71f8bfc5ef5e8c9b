"""The tutorial on deep nets says what is so."""

from __future__ import annotations

import pytest

from tests.notebooks.executed import executed


@pytest.fixture(scope="module")
def values():
    return executed("03_vanishing_and_exploding").values


def test_the_first_layer_gets_nothing_with_sigmoids_and_its_share_with_residuals(values):
    assert values["ratios"]["sigmoid"] < 1e-3
    assert values["ratios"]["good start"] > 3e-2
    assert values["ratios"]["residual"] > 3e-2


def test_what_gets_gradients_learns(values):
    assert values["accuracy"]["sigmoid"] < 0.2
    assert values["accuracy"]["good start"] > 0.8
    assert values["accuracy"]["residual"] > 0.8


def test_clipping_hides_an_explosion_and_leaves_its_shape(values):
    assert values["unclipped"] > 1e3
    assert values["clipped"] == pytest.approx(1, rel=1e-3)
    least, most = values["divided"]
    assert least == pytest.approx(most, rel=1e-3)
    assert values["bias_of_head"] < 1e-3
