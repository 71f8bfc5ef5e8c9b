"""What a row of the heatmap looks like to somebody who sees no colours."""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt
from PIL import Image
from playwright.sync_api import FloatRect, Locator

from . import contrast

Grey = npt.NDArray[np.float64]

# Half the height of the part of a row that is looked at, in CSS pixels; rows are 15 apart.
HALF = 6.0
# Two pixels differ to the eye from this contrast on. WCAG asks 3:1 of a graphic and its surroundings, but the
# smoothed edge of a thin stroke reaches only part of that.
VISIBLE = 1.8
_LUMINANCE = np.array([contrast.luminance((level, level, level)) for level in range(256)])


def row(widget: Locator, parameter: str, first: float = 0.0, last: float = 1.0) -> Grey:
    """Luminance of a parameter's row on the screen, from the share `first` to `last` of its width."""
    heat = widget.locator("canvas.gv-heat").bounding_box()
    assert heat is not None
    clip = FloatRect(
        x=heat["x"] + first * heat["width"],
        y=middle(widget, parameter) - HALF,
        width=(last - first) * heat["width"],
        height=2 * HALF,
    )
    picture = Image.open(io.BytesIO(widget.page.screenshot(clip=clip))).convert("RGB")
    grey: Grey = _LUMINANCE[np.asarray(picture)] @ np.array([0.2126, 0.7152, 0.0722])
    return grey


def difference(one: Grey, other: Grey) -> float:
    """Share of the pixels whose brightness differs visibly."""
    light, dark = np.maximum(one, other), np.minimum(one, other)
    return float(np.mean((light + 0.05) / (dark + 0.05) > VISIBLE))


def middle(widget: Locator, parameter: str) -> float:
    """Where on the page the middle of a parameter's row is, in CSS pixels from the top."""
    labels = widget.locator("[data-parameter]")
    names = labels.evaluate_all("all => all.map(label => label.dataset.parameter)")
    label = labels.nth(names.index(parameter)).bounding_box()
    assert label is not None
    return label["y"] + label["height"] / 2
