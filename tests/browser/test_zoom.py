"""Zooming into a run and moving along it: what is painted then, and where the ruler says it is."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gradviz.widgets.colours import VIRIDIS

from . import colours, pixels
from .host import Host, OpenHost

pytestmark = pytest.mark.browser

NAMES = ["a.weight", "a.bias", "b.weight"]
LENGTH = 2000


def show(page: Host, iterations: int = LENGTH, at_once: int = LENGTH) -> pd.DataFrame:
    page.start(NAMES)
    norms = np.exp(np.random.default_rng(2).normal(-3, 2, (iterations, 4))).astype(np.float32)
    for first in range(0, iterations, at_once):
        part = norms[first : first + at_once]
        page.send(part, np.zeros_like(part), iterations=iterations)
    pixels.wait_painted(page.widget, iterations)
    return pd.DataFrame(norms[:, :3], columns=NAMES)


def assert_right(page: Host, norms: pd.DataFrame) -> pixels.Picture:
    picture = pixels.grab(page.widget)
    shown = range(picture.start, min(picture.start + picture.span, len(norms)))
    colours.assert_cells(picture, norms, VIRIDIS, [(name, iteration) for name in NAMES for iteration in shown])
    return picture


def wait_span(page: Host, span: int) -> None:
    page.page.wait_for_function("span => document.querySelector('canvas.gv-heat').dataset.span == span", arg=span)


def test_ctrl_and_wheel_zoom_about_the_pointer_and_the_wheel_alone_scrolls_the_page(host: OpenHost) -> None:
    page = host()
    norms = show(page)
    heat = page.widget.locator("canvas.gv-heat").bounding_box()
    assert heat is not None
    page.page.mouse.move(heat["x"] + heat["width"] / 4, heat["y"] + 5)
    page.page.mouse.wheel(0, -200)
    assert assert_right(page, norms).span == LENGTH
    page.page.keyboard.down("Control")
    page.page.mouse.wheel(0, -1000)
    page.page.keyboard.up("Control")
    page.page.wait_for_function("document.querySelector('canvas.gv-heat').dataset.span < 500")
    picture = assert_right(page, norms)
    assert abs(picture.start + picture.span / 4 - LENGTH / 4) < 5
    page.page.mouse.dblclick(heat["x"] + 50, heat["y"] + 5)
    wait_span(page, LENGTH)
    page.traffic.assert_clean()


def test_buttons_and_keys_zoom_and_the_ruler_moves_along(host: OpenHost) -> None:
    page = host()
    norms = show(page)
    page.widget.get_by_role("button", name="zoom in").click()
    wait_span(page, LENGTH // 2)
    assert pixels.grab(page.widget).start == LENGTH // 2, "Without a place to look at it is the newest half."
    region = page.widget.get_by_role("application")
    region.press("+")
    wait_span(page, LENGTH // 4)
    axis = page.widget.locator(".gv-axis").bounding_box()
    assert axis is not None
    page.page.mouse.move(axis["x"] + 100, axis["y"] + 20)
    page.page.mouse.down()
    page.page.mouse.move(axis["x"] + 100 + axis["width"] / 2, axis["y"] + 20)
    page.page.mouse.up()
    page.page.wait_for_function("document.querySelector('canvas.gv-heat').dataset.start < 1500")
    picture = assert_right(page, norms)
    assert abs(picture.start - (LENGTH * 3 / 4 - LENGTH / 8 - LENGTH / 8)) < 5
    ticks = page.widget.locator("span.gv-iteration-tick").all_inner_texts()
    marked = [int(tick.replace(",", "")) for tick in ticks]
    assert picture.start <= marked[0] < marked[-1] <= picture.start + picture.span
    assert page.widget.locator("span.gv-epoch-tick").first.inner_text() == "epoch 0"
    region.press("0")
    wait_span(page, LENGTH)


def test_a_deep_zoom_shows_single_iterations_exactly(host: OpenHost) -> None:
    page = host()
    norms = show(page)
    for _ in range(12):
        page.widget.get_by_role("application").press("+")
    wait_span(page, 8)
    picture = assert_right(page, norms)
    iteration = picture.start + 3
    said = page.point_at("a.bias", iteration)
    assert f"iteration {iteration:,}" in said
    assert "max" not in said


def test_the_tail_follows_the_newest_iterations_as_they_came(host: OpenHost) -> None:
    page = host()
    norms = show(page, iterations=6000, at_once=500)
    assert pixels.grab(page.widget).level == 1
    tail = page.widget.get_by_role("button", name="follow the newest")
    tail.click()
    page.page.wait_for_function("document.querySelector('canvas.gv-heat').dataset.start > 5000")
    picture = assert_right(page, norms)
    assert picture.level == 0
    assert picture.start + picture.span == 6000
    more = np.full((50, 4), 0.5, np.float32)
    page.send(more, np.zeros_like(more), iterations=8000)
    pixels.wait_painted(page.widget, 6050)
    assert pixels.grab(page.widget).start == picture.start + 50
    tail_is_on = tail.get_attribute("aria-pressed")
    assert tail_is_on == "true"
