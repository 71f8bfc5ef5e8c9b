"""Cells that are held and selected, by pointer and by keys; and what Python knows of it."""

from __future__ import annotations

import numpy as np
import pytest
from playwright.sync_api import FloatRect, expect

from . import looks, pixels
from .conftest import OpenNotebook
from .host import Host, OpenHost

pytestmark = pytest.mark.browser

NAMES = ["a.x.weight", "a.x.bias", "b.weight", "b.bias"]
CELL = """
import gradviz as gv, torch
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
loop = gv.trainer(model, "cross_entropy", "sgd")
batches = [(torch.randn(8, 4), torch.randint(2, (8,))) for _ in range(64)]
loop.run(batches, epochs=1)
w = gv.heatmap(loop)
w
"""


def show(page: Host) -> None:
    page.start(NAMES)
    norms = np.full((100, 5), 0.1, np.float32)
    page.send(norms, np.zeros_like(norms, dtype=np.uint8), iterations=100)
    pixels.wait_painted(page.widget, 100)


def heat_box(widget) -> FloatRect:
    box = widget.locator("canvas.gv-heat").bounding_box()
    assert box is not None
    return box


def drag(page, widget, first: tuple[str, float], last: tuple[str, float]) -> None:
    """From one row and share of the width to another."""
    box = heat_box(widget)
    page.mouse.move(box["x"] + first[1] * box["width"], looks.middle(widget, first[0]))
    page.mouse.down()
    page.mouse.move(box["x"] + last[1] * box["width"], looks.middle(widget, last[0]), steps=3)
    page.mouse.up()


def test_a_drag_selects_rows_and_iterations_and_shows_which(host: OpenHost) -> None:
    page = host()
    show(page)
    drag(page.page, page.widget, ("b.weight", 0.405), ("a.x.bias", 0.205))
    assert page.page.evaluate("host.model.get('selection')") == {
        "parameters": ["a.x.bias", "b.weight"],
        "iterations": [20, 41],
    }
    expect(page.widget.get_by_role("group", name="selection")).to_contain_text("2 parameters, iterations 20–40")
    boxes = page.widget.locator(".gv-selection > i")
    expect(boxes).to_have_count(1)
    box, heat = boxes.bounding_box(), heat_box(page.widget)
    assert box is not None
    assert abs(box["x"] - heat["x"] - 0.2 * heat["width"]) < 1.5

    page.widget.get_by_role("button", name="zoom to the selection").click()
    page.page.wait_for_function("document.querySelector('canvas.gv-heat').dataset.span == 21")
    page.widget.get_by_role("button", name="select nothing").click()
    expect(boxes).to_have_count(0)
    page.traffic.assert_clean()


def test_shift_and_arrows_select(host: OpenHost) -> None:
    page = host()
    show(page)
    region = page.widget.get_by_role("application")
    region.focus()
    for key in ("Home", "ArrowRight", "Shift+ArrowRight", "Shift+ArrowRight", "Shift+ArrowDown"):
        region.press(key)
    assert page.page.evaluate("host.model.get('selection')") == {"parameters": NAMES[:2], "iterations": [1, 4]}
    region.press("Escape")
    region.press("Escape")
    assert page.page.evaluate("host.model.get('selection')") is None


def test_a_selection_is_seen_in_every_view_and_when_rows_are_torn_apart(host: OpenHost) -> None:
    page = host()
    show(page)
    page.page.evaluate("() => { host.view(); }")
    names = [NAMES[0], NAMES[3]]
    page.page.evaluate("names => host.set('selection', {parameters: names, iterations: [0, 10]})", names)
    expect(page.page.locator(".gv-selection > i")).to_have_count(4)


def test_a_click_or_enter_holds_a_cell_and_escape_lets_it_go(host: OpenHost) -> None:
    page = host()
    show(page)
    said = page.point_at("b.weight", 30)
    page.page.mouse.down()
    page.page.mouse.up()
    page.page.mouse.move(5, 5)
    tooltip = page.widget.locator(".gv-tooltip")
    expect(tooltip).to_be_visible()
    assert tooltip.inner_text() == said
    page.widget.get_by_role("application").press("Escape")
    expect(tooltip).to_be_hidden()
    for key in ("End", "Enter"):
        page.widget.get_by_role("application").press(key)
    page.page.evaluate("document.activeElement.blur()")
    expect(tooltip).to_be_visible()


def test_a_gradient_that_is_no_longer_finite_is_said_aloud(host: OpenHost) -> None:
    page = host()
    show(page)
    norms = np.full((1, 5), np.nan, np.float32)
    page.send(norms, np.uint8([[1, 0, 1, 0, 0]]), iterations=101)
    said = page.widget.locator(".gv-live").filter(has_text="Not finite")
    expect(said).to_have_text("Not finite: the gradient of a.x.weight, and in 1 other parameter")


def test_what_is_selected_in_jupyterlab_is_a_frame_in_the_kernel(notebook: OpenNotebook) -> None:
    lab = notebook([CELL, "frame = w.selected(); frame"])
    lab.run(0)
    lab.wait_done(0)
    widget = lab.widget(0)
    pixels.wait_painted(widget, 64)
    drag(lab.page, widget, ("0.weight", 0.254), ("0.bias", 0.495))
    lab.screenshot("brush", widget)
    lab.run(1)
    lab.wait_done(1)
    assert lab.evaluate("sorted(set(frame.parameter))") == ["0.bias", "0.weight"]
    assert lab.evaluate("[int(frame.iteration.min()), int(frame.iteration.max())]") == [16, 31]
    lab.traffic.assert_clean()
