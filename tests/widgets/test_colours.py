"""The colour map is viridis: known ends and middle, and lightness that only rises."""

from __future__ import annotations

import numpy as np

from gradviz.widgets.colours import VIRIDIS


def test_it_is_viridis():
    table = np.frombuffer(VIRIDIS, np.uint8).reshape(256, 3)
    assert table[0].tolist() == [68, 1, 84]
    assert table[128].tolist() == [33, 145, 140]
    assert table[255].tolist() == [253, 231, 37]
    luminance = table @ [0.2126, 0.7152, 0.0722]
    assert np.all(np.diff(luminance) > -0.5)
    assert np.diff(luminance).min() > -0.5
    assert luminance[-1] - luminance[0] > 180
