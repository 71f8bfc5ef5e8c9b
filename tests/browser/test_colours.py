"""The range of the colours, by hand and by itself."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import expect

from gradviz.history.quantity import ratio_of
from gradviz.widgets.colours import VIRIDIS

from . import colours, pixels
from .host import Host, OpenHost

pytestmark = pytest.mark.browser

NAMES = ["a.weight", "a.bias"]


def show(page: Host) -> pd.DataFrame:
    page.start(NAMES)
    norms = np.exp(np.random.default_rng(5).normal(-3, 3, (30, 3))).astype(np.float32)
    page.send(norms, np.zeros_like(norms, dtype=np.uint8), iterations=30)
    pixels.wait_painted(page.widget, 30)
    return pd.DataFrame(norms[:, :2], columns=NAMES)


def wait_range(page: Host, lo: float, hi: float) -> None:
    page.page.wait_for_function(
        "([lo, hi]) => (({lo: a, hi: b}) => a == lo && b == hi)(document.querySelector('canvas.gv-heat').dataset)",
        arg=[lo, hi],
    )


def test_a_range_is_written_and_given_back(host: OpenHost) -> None:
    page = host()
    norms = show(page)
    by_itself = pixels.grab(page.widget)
    low = page.widget.get_by_label("lowest colour")
    high = page.widget.get_by_label("highest colour")
    low.fill("1e-2")
    low.press("Enter")
    wait_range(page, -2, by_itself.hi)
    high.fill("10")
    high.press("Enter")
    wait_range(page, -2, 1)
    expect(low).to_have_value("10⁻²")
    everywhere = [(name, iteration) for name in NAMES for iteration in range(30)]
    colours.assert_cells(pixels.grab(page.widget), norms, VIRIDIS, everywhere)

    page.widget.get_by_role("button", name="auto").click()
    wait_range(page, by_itself.lo, by_itself.hi)
    colours.assert_cells(pixels.grab(page.widget), norms, VIRIDIS, everywhere)
    page.traffic.assert_clean()


@pytest.mark.parametrize("text", ["", "abc", "-1", "1e99", "0"])
def test_what_is_no_range_changes_nothing(host: OpenHost, text: str) -> None:
    page = host()
    show(page)
    before = pixels.grab(page.widget)
    low = page.widget.get_by_label("lowest colour")
    shown = low.input_value()
    low.fill(text)
    low.press("Enter")
    expect(low).to_have_value(shown)
    after = pixels.grab(page.widget)
    assert (after.lo, after.hi) == (before.lo, before.hi)


def test_a_range_of_ratios_stays_around_1(host: OpenHost) -> None:
    page = host()
    page.start(NAMES, ratio_of("b", "a"))
    ratios = np.full((16, 3), 2.0, np.float32)
    page.send(ratios, np.zeros_like(ratios, dtype=np.uint8), iterations=16, status="completed", metric_names=[])
    pixels.wait_painted(page.widget, 16)
    page.widget.get_by_label("highest colour").fill("16")
    page.widget.get_by_label("highest colour").press("Enter")
    wait_range(page, -4, 4)
    expect(page.widget.get_by_label("lowest colour")).to_have_value("1/16")
