"""Widgets of one run in a page: what is pointed at, looked into or selected in one is seen in the others."""

from __future__ import annotations

import numpy as np
import pytest
from playwright.sync_api import FloatRect, Locator, expect

from . import looks, pixels
from .host import Host, OpenHost

pytestmark = pytest.mark.browser

NAMES = [f"blocks.{i}.{name}" for i in range(3) for name in ("mlp.weight", "mlp.bias")] + ["head.weight"]


def show(page: Host, beside: str, names: list[str] = NAMES, n: int = 100) -> Locator:
    """A heatmap, and another widget below it."""
    page.start(names)
    page.beside(beside, names)
    norms = np.full((n, len(names) + 1), 0.1, np.float32)
    page.send(norms, np.zeros_like(norms, np.uint8), beside={"changes": [], "barred": ""}, iterations=n)
    pixels.wait_painted(page.widget, n)
    return page.page.locator(".gv").nth(1)


def box_of(part: Locator) -> FloatRect:
    box = part.bounding_box()
    assert box is not None
    return box


def middle(part: Locator) -> tuple[float, float]:
    box = box_of(part)
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_the_mask_shows_the_iteration_that_is_pointed_at_in_the_heatmap_and_the_other_way_round(host: OpenHost) -> None:
    page = host()
    mask = show(page, "frozen_mask")
    mask.locator('canvas.gv-mask-lanes[data-iterations="100"]').wait_for()
    page.point_at("head.weight", 30)
    told = mask.locator(".gv-told")
    expect(told).to_be_visible()
    lane = box_of(mask.locator("canvas.gv-mask-lanes"))
    x, _ = middle(told)
    assert abs(x - lane["x"] - lane["width"] * 30.5 / 100) < 2
    page.page.mouse.move(lane["x"] + lane["width"] * 60.5 / 100, lane["y"] + 5)
    expect(told).to_be_hidden()
    line = page.widget.locator(".gv-line")
    expect(line).to_be_visible()
    heat = box_of(page.widget.locator("canvas.gv-heat"))
    x, _ = middle(line)
    assert abs(x - heat["x"] - heat["width"] * 60.5 / 100) < 6
    expect(page.widget.locator(".gv-tooltip")).to_be_hidden()
    page.page.mouse.move(2, 2)
    expect(line).to_be_hidden()


def test_a_name_that_is_clicked_in_the_mask_is_marked_in_both(host: OpenHost) -> None:
    page = host()
    mask = show(page, "frozen_mask")
    mask.locator(".gv-mask-name", has_text="mlp.bias").nth(1).click()
    focused = page.widget.locator(".gv-focused")
    expect(focused).to_have_attribute("data-parameter", "blocks.1.mlp.bias")
    expect(mask.locator(".gv-focused")).to_have_attribute("data-name", "blocks.1.mlp.bias")
    box = page.widget.locator(".gv-focus-box")
    assert abs(middle(box)[1] - looks.middle(page.widget, "blocks.1.mlp.bias")) < 2


def test_a_cell_that_is_clicked_is_looked_into_at_its_iteration_and_so_is_the_next_one(host: OpenHost) -> None:
    page = host()
    mask = show(page, "frozen_mask")
    focus = "globalThis[Symbol.for('gradviz.links')].get('run').focus"
    for name, iteration in (("blocks.0.mlp.weight", 20), ("head.weight", 70)):
        heat = box_of(page.widget.locator("canvas.gv-heat"))
        page.page.mouse.click(heat["x"] + heat["width"] * (iteration + 0.5) / 100, looks.middle(page.widget, name))
        assert page.page.evaluate(focus) == {"of": "parameters", "name": name, "iteration": iteration}
        expect(mask.locator(".gv-focused")).to_have_attribute("data-name", name)
    expect(page.widget.locator(".gv-tooltip")).to_contain_text("head.weight")


def test_what_is_looked_into_elsewhere_is_unfolded_scrolled_and_panned_to(host: OpenHost) -> None:
    page = host()
    names = [f"blocks.{i}.{name}.weight" for i in range(40) for name in ("q", "k", "v", "o")]
    show(page, "frozen_mask", names)
    expect(page.widget.locator("[data-parameter='blocks.39']")).to_have_count(1)
    page.widget.get_by_role("button", name="follow the newest iterations").click()
    page.page.evaluate(
        """() => {
          const meeting = globalThis[Symbol.for("gradviz.links")].get("run");
          meeting.focus = { of: "parameters", name: "blocks.39.v.weight", iteration: 3 };
          for (const listener of meeting.listeners) listener("focus", {});
        }"""
    )
    row = page.widget.locator("[data-parameter='blocks.39.v.weight']")
    expect(row).to_be_in_viewport()
    expect(row).to_have_class("gv-label gv-focused")
    canvas = page.widget.locator("canvas.gv-heat")
    page.page.wait_for_function("canvas => Number(canvas.dataset.start) <= 3", arg=canvas.element_handle())


def test_what_is_selected_in_the_heatmap_is_marked_in_the_mask(host: OpenHost) -> None:
    page = host()
    mask = show(page, "frozen_mask")
    page.page.evaluate("host.set('selection', {parameters: ['head.weight', 'blocks.2.mlp.bias'], iterations: [3, 9]})")
    expect(mask.locator(".gv-mask-row.gv-selected [title]").filter(has_text="weight")).to_have_count(1)
    page.page.evaluate("host.set('selection', null)")
    expect(mask.locator(".gv-selected")).to_have_count(0)


def test_a_brush_is_saved_three_times_a_second_and_its_end_always(host: OpenHost) -> None:
    page = host()
    show(page, "frozen_mask")
    page.page.evaluate(
        "() => { host.saved = []; host.model.save_changes = () => host.saved.push(host.model.get('selection')); }"
    )
    heat = box_of(page.widget.locator("canvas.gv-heat"))
    page.page.mouse.move(heat["x"] + 10, heat["y"] + 5)
    page.page.mouse.down()
    page.page.mouse.move(heat["x"] + 300, heat["y"] + 60, steps=30)
    page.page.mouse.up()
    page.page.wait_for_function("JSON.stringify(host.saved.at(-1)) === JSON.stringify(host.model.get('selection'))")
    assert len(page.page.evaluate("host.saved")) < 10
