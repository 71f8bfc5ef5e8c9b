"""The colour maps: viridis, whose lightness only rises, and blue to orange, whose middle is told from any page."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradviz.widgets.colours import BLUE_ORANGE, RATIOS, VIRIDIS, colour_index, domain_of
from gradviz.widgets.picture.inks import DARK, LIGHT


def test_it_is_viridis():
    table = np.frombuffer(VIRIDIS, np.uint8).reshape(256, 3)
    assert table[0].tolist() == [68, 1, 84]
    assert table[128].tolist() == [33, 145, 140]
    assert table[255].tolist() == [253, 231, 37]
    luminance = table @ [0.2126, 0.7152, 0.0722]
    assert np.all(np.diff(luminance) > -0.5)
    assert np.diff(luminance).min() > -0.5
    assert luminance[-1] - luminance[0] > 180


RATIO_TABLE = np.frombuffer(BLUE_ORANGE, np.uint8).reshape(256, 3).astype(float)
# What the eye without one kind of cone makes of linear RGB (Viénot, Brettel and Mollon, 1999).
DICHROMATS = {
    "all cones": np.eye(3),
    "protanopia": np.array([[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]]),
    "deuteranopia": np.array([[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]]),
}


def contrast(one, other) -> float:
    dark, bright = sorted(float((np.array(each) / 255) ** 2.2 @ [0.2126, 0.7152, 0.0722]) for each in (one, other))
    return (bright + 0.05) / (dark + 0.05)


def test_a_ratio_is_blue_below_1_orange_above_and_grey_in_the_middle():
    red, _, blue = RATIO_TABLE.T
    assert np.ptp(RATIO_TABLE[127:129], axis=1).max() <= 8
    assert (red < blue)[:124].all()
    assert (red > blue)[132:].all()
    assert (blue - red)[0] > 100 < (red - blue)[255]
    luminance = RATIO_TABLE @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(luminance[:128]) > -0.5).all()
    assert (np.diff(luminance[128:]) < 0.8).all()


def test_the_middle_is_told_from_the_page_and_from_what_is_missing():
    for theme in (LIGHT, DARK):
        for ground in (theme.paper, theme.track):
            assert contrast(RATIO_TABLE[127], ground) > 1.45, (theme, ground)


@pytest.mark.parametrize("eye", DICHROMATS)
def test_both_sides_are_told_apart_by_eyes_that_lack_a_cone(eye):
    linear = (RATIO_TABLE / 255) ** 2.2
    seen = np.clip(linear @ DICHROMATS[eye].T, 0, 1) ** (1 / 2.2) * 255
    for away in (32, 64, 96, 127):
        assert np.linalg.norm(seen[127 - away] - seen[128 + away]) > 40, away


@given(st.lists(st.floats(2**-30, 2**30, width=32), min_size=1))
def test_1_is_in_the_middle_whatever_the_ratios_and_their_inverses_are_as_far_from_it(ratios):
    values = np.array(ratios, np.float32)
    domain = domain_of(values, values, RATIOS)
    assert domain.lo == -domain.hi
    assert 2 <= domain.hi <= 10
    assert colour_index(np.float32([1]), domain)[0] == 128
    assert ((colour_index(values, domain) >= 128) == (values >= 1)).all()
