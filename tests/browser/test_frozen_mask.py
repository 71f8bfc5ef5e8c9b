"""The frozen mask in a real browser: what it shows, and what a click does to a run in a real kernel."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Locator, expect

from . import contrast, masks
from .conftest import OpenNotebook
from .deadline import until
from .host import Host, OpenHost
from .lab import NEWEST, OLDER, Theme
from .notebook import PATIENCE_S, Notebook

pytestmark = pytest.mark.browser

SMALLEST_FONT = """root => Math.min(...[...root.querySelectorAll('*')]
  .filter(each => [...each.childNodes].some(node => node.nodeType === 3 && node.data.trim()))
  .map(each => parseFloat(getComputedStyle(each).fontSize)))"""
OUTSIDE = """root => {
  const edge = root.getBoundingClientRect();
  const leaves = box => box.width && (box.right > edge.right + 0.5 || box.left < edge.left - 0.5);
  return [...root.querySelectorAll('button, span, b, canvas, li, p')]
    .filter(each => each.checkVisibility() && !each.closest('.gv-live, .gv-probe'))
    .filter(each => leaves(each.getBoundingClientRect()))
    .map(each => `${each.className}: ${each.textContent}`);
}"""

SETUP, START, MASK, STOP = range(4)
CELLS = [
    """
import torch, gradviz as gv
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
data = [(torch.randn(32, 8), torch.randint(4, (32,))) for _ in range(100)]
bits = []
def keep(state):
    w, held = model[0].weight, optimizer.state[model[0].weight]
    tensors = w, held["exp_avg"], held["exp_avg_sq"], held["step"]
    bits.append(hash(tuple(t.detach().numpy().tobytes() for t in tensors)))
loop = gv.trainer(model, "cross_entropy", optimizer).handle_event("iteration_completed", keep)
""",
    "loop.start(data, epochs=10**6, display=None);",
    "gv.frozen_mask(loop)",
    "loop.stop().wait();",
]


def mask_of(page: Notebook, cell: int = MASK) -> Locator:
    return page.cell(cell).locator(".gv-mask")


def row_of(mask: Locator, name: str) -> Locator:
    return mask.locator(f'.gv-mask-row[data-name="{name}"]')


def click(mask: Locator, name: str, verb: str) -> int:
    """Freeze or unfreeze a row, and what the widget says of it: the first iteration."""
    expect(row_of(mask, name).locator("button.gv-act")).to_have_text(verb, timeout=PATIENCE_S * 1000)
    row_of(mask, name).locator("button.gv-act").click()
    asks = mask.get_by_role("alertdialog")
    expect(asks).to_contain_text(f"{verb} {name}?")
    asks.get_by_role("button", name=verb).click()
    said = mask.locator(".gv-mask-said")
    done = {"Freeze": "frozen", "Unfreeze": "unfrozen"}[verb]
    expect(said).to_contain_text(f"{name} is {done} from iteration", timeout=PATIENCE_S * 1000)
    found = re.search(r"from iteration (\d+)", said.inner_text())
    assert found is not None
    return int(found[1])


def wait_past(page: Notebook, iteration: int) -> None:
    until(lambda: page.evaluate("loop.state.iteration") > iteration, f"iteration {iteration} is over")


@pytest.mark.parametrize("kernel", [NEWEST, OLDER])
def test_a_click_freezes_a_block_of_a_run_in_the_background_to_the_bit(notebook: OpenNotebook, kernel: str) -> None:
    page = notebook(CELLS, kernel=kernel)
    for cell in (SETUP, START, MASK):
        page.run(cell)
        page.wait_done(cell)
    mask = mask_of(page)
    at = click(mask, "0", "Freeze")
    wait_past(page, at + 50)
    until_at = page.evaluate("len(loop.history) - 5")
    events = "loop.history.events.values.tolist()"
    assert page.evaluate(events) == [[at, "frozen", "0.weight", "widget"], [at, "frozen", "0.bias", "widget"]]
    assert page.evaluate(f"len(set(bits[{at - 1}:{until_at}]))") == 1, "the parameter or its moments moved"
    assert page.evaluate(f"bits[{at - 2}] != bits[{at - 1}]")
    assert page.evaluate(f"loop.history.wide('state')['0.weight'].iloc[{at - 1}:{at + 1}].tolist()") == ["ok", "frozen"]
    assert page.evaluate(f"loop.history.metrics['loss'].iloc[{at}:{at + 50}].nunique()") > 40, "the loss stands still"
    expect(mask.locator(".gv-story")).to_contain_text("0 frozen by a click", timeout=PATIENCE_S * 1000)

    page.reload()  # a page that comes back has lost nothing
    mask = mask_of(page)
    expect(row_of(mask, "0").locator("button.gv-act")).to_have_text("Unfreeze", timeout=PATIENCE_S * 1000)
    expect(mask.locator(".gv-story")).to_contain_text("0 frozen by a click")
    again = click(mask, "0", "Unfreeze")
    wait_past(page, again + 50)
    assert page.evaluate(f"len(set(bits[{again - 1}:{again + 50}]))") == 51
    assert page.evaluate("loop.history.events['event'].tolist()") == ["frozen"] * 2 + ["unfrozen"] * 2

    page.run(STOP)
    page.wait_done(STOP)
    expect(mask.locator(".gv-mask-sub")).to_contain_text("the last iteration", timeout=PATIENCE_S * 1000)
    row_of(mask, "0").locator("button.gv-act").click()
    expect(mask.locator(".gv-mask-said")).to_contain_text("No run is under way: write gv.ModelState(model).freeze")
    expect(mask.get_by_role("alertdialog")).to_be_hidden()
    page.traffic.assert_clean()


@pytest.mark.case("W15")
def test_while_a_cell_trains_it_works_in_the_browser_and_a_click_says_that_it_waits(
    notebook: OpenNotebook, tmp_path: Path
) -> None:
    end = tmp_path / "end"
    setup = f"""
import os, torch, gradviz as gv
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
data = [(torch.randn(32, 8), torch.randint(4, (32,))) for _ in range(100)]
loop = gv.trainer(model, "cross_entropy", "adam")
loop.handle_event("iteration_completed", lambda state: "halt_loop" if os.path.exists({str(end)!r}) else None)
"""
    page = notebook([setup, "gv.frozen_mask(loop)", "loop.run(data, epochs=10**6, display=None);"])
    for cell in (0, 1):
        page.run(cell)
        page.wait_done(cell)
    mask = mask_of(page, 1)
    page.run(2)
    expect(row_of(mask, "0").locator("button.gv-act")).to_have_text("Freeze", timeout=PATIENCE_S * 1000)
    mask.get_by_role("searchbox").fill("2.")
    expect(mask.locator(".gv-mask-row")).to_have_count(3)  # the module and its two parameters, without the kernel
    row_of(mask, "2.bias").locator("button.gv-act").click()
    mask.get_by_role("alertdialog").get_by_role("button", name="Freeze").click()
    said = mask.locator(".gv-mask-said")
    expect(said).to_contain_text(re.compile("waiting for the kernel|is frozen from iteration"))
    end.touch()
    page.wait_done(2)
    # By the version of the kernel, it heard of it beside the run, or when the cell was done.
    expect(said).to_contain_text(re.compile("2.bias (was not frozen. No run is under way|is frozen from iteration)"))
    page.traffic.assert_clean()


def sent(page: Host, kind: str) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = page.page.evaluate("host.sent")
    return [content for content in said if content["kind"] == kind]


def answer(page: Host, error: str = "") -> None:
    (wish,) = [*sent(page, "freeze"), *sent(page, "unfreeze")][-1:]
    told = {"kind": "answered", "id": wish["id"], "iteration": None if error else 81, "error": error}
    page.page.evaluate("content => host.send(content)", told)


def lane(page: Host, name: str, first: float, last: float) -> np.ndarray:
    """The pixels of a row's lane, from one share of its width to another, as [height, width, RGBA]."""
    script = """([canvas, row, first, last]) => {
      const box = row.getBoundingClientRect(), at = canvas.getBoundingClientRect(), dpr = devicePixelRatio;
      const x = Math.round(first * canvas.width), width = Math.round((last - first) * canvas.width);
      const y = Math.round((box.top + 5 - at.top) * dpr), height = Math.round(14 * dpr);
      return [height, width, [...canvas.getContext('2d').getImageData(x, y, width, height).data]];
    }"""
    canvas = page.widget.locator("canvas.gv-mask-lanes").element_handle()
    row = row_of(page.widget, name).element_handle()
    height, width, pixels = page.page.evaluate(script, [canvas, row, first, last])
    return np.array(pixels, np.uint8).reshape(height, width, 4)


@pytest.mark.case("L15")
@pytest.mark.parametrize("scale", [1, 2])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_each_state_looks_different_without_its_colour(host: OpenHost, theme: Theme, scale: float) -> None:
    page = host(theme=theme, scale=scale, widget="frozen_mask")
    masks.STATES.show(page)
    rows = {state: lane(page, f"a.{state}", 0.55, 0.95)[..., 3].astype(int) for state in masks.FLAGS}
    rows["partly"] = lane(page, "b", 0.55, 0.95)[..., 3].astype(int)
    for one, other in itertools.combinations(rows, 2):
        differ = (np.abs(rows[one] - rows[other]) > 40).mean()
        assert differ > 0.02, (one, other, differ)
    before = [lane(page, f"a.{state}", 0.05, 0.45) for state in masks.FLAGS]
    assert all((each == before[0]).all() for each in before), "what they were before looks the same"
    page.traffic.assert_clean()


def test_one_frozen_iteration_of_many_stays_visible(host: OpenHost) -> None:
    page = host(widget="frozen_mask")
    scene = masks.Scene({"w": (2,), "v": (2,)}, 100_000, {"w": {77_777: "frozen", 77_778: "trained"}})
    page.start(scene.names)
    for first in range(0, scene.n, 10_000):
        scene.send(page, first, first + 10_000, iterations=scene.n)
    masks.wait_drawn(page, scene.n)
    around, same = lane(page, "w", 0.77, 0.79), lane(page, "v", 0.77, 0.79)
    assert (around != same).any()
    assert (lane(page, "w", 0.1, 0.7) == lane(page, "v", 0.1, 0.7)).all()


def test_a_name_that_looks_like_html_stays_text_wherever_it_stands(host: OpenHost) -> None:
    page = host(widget="frozen_mask")
    masks.STATES.show(page, status="training")
    told = {"iteration": 80, "event": "frozen", "by": "widget", "names": [masks.EVIL], "more": 0}
    masks.Scene(masks.STATES.shapes, 81, changes=[told]).send(page, 80, 81)
    masks.wait_drawn(page, 81)
    page.widget.locator('.gv-mask-row[data-name*="onerror"] button.gv-act').click()
    expect(page.widget.get_by_role("alertdialog")).to_contain_text(f"Freeze {masks.EVIL}?")
    page.widget.get_by_role("alertdialog").get_by_role("button", name="Freeze").click()
    answer(page, "no")
    expect(page.widget.locator(".gv-mask-said")).to_contain_text(f"{masks.EVIL} was not frozen. no")
    expect(page.widget.locator(".gv-story")).to_contain_text(f"{masks.EVIL} frozen by a click")
    assert sent(page, "freeze")[0]["parameters"] == [masks.EVIL]
    assert page.widget.locator("img").count() == 0
    assert page.page.title() != "run"
    page.traffic.assert_clean()


def test_it_asks_before_it_does_and_waits_for_the_answer(host: OpenHost) -> None:
    page = host(widget="frozen_mask")
    masks.STATES.show(page)
    button = row_of(page.widget, "b").locator("button.gv-act")
    asks, said = page.widget.get_by_role("alertdialog"), page.widget.locator(".gv-mask-said")
    button.click()
    asks.get_by_role("button", name="Cancel").click()
    expect(asks).to_be_hidden()
    assert sent(page, "freeze") == []
    before = row_of(page.widget, "b").bounding_box()
    button.click()
    asks.get_by_role("button", name="Freeze").click()
    expect(button).to_have_text("waits …")
    expect(button).to_have_attribute("aria-disabled", "true")
    expect(said).to_contain_text("waiting for the kernel")
    button.click(force=True)
    expect(asks).to_be_hidden()
    (wish,) = sent(page, "freeze")
    assert (wish["modules"], wish["parameters"]) == (["b"], [])
    answer(page)
    expect(said).to_have_text("b is frozen from iteration 81 on")
    expect(button).to_have_text("Freeze")  # as it is, until an iteration says otherwise
    frozen = {f"b.{name}": {0: "frozen"} for name in ("weight", "bias")}
    masks.Scene(masks.STATES.shapes, 90, frozen).send(page, 80, 90)
    expect(button).to_have_text("Unfreeze")
    assert row_of(page.widget, "b").bounding_box() == before, "something moved"
    page.traffic.assert_clean()


def test_a_part_of_a_module_that_is_filtered_for_is_frozen_alone(host: OpenHost) -> None:
    page = host(widget="frozen_mask")
    masks.HEALTHY.show(page)
    page.widget.get_by_role("searchbox").fill("layer1 bn1")
    expect(page.widget.locator(".gv-mask-row")).to_have_count(7)
    row_of(page.widget, "layer1.0").locator("button.gv-act").click()
    page.widget.get_by_role("alertdialog").get_by_role("button", name="Freeze").click()
    (wish,) = sent(page, "freeze")
    assert (wish["modules"], wish["parameters"]) == ([], ["layer1.0.bn1.weight", "layer1.0.bn1.bias"])


def test_what_cannot_be_done_says_why_without_the_kernel(host: OpenHost) -> None:
    page = host(widget="frozen_mask")
    page.start(masks.STATES.names)
    masks.STATES.send(page, 0, 80, barred="No run is under way.", status="completed")
    row_of(page.widget, "b").locator("button.gv-act").click()
    expect(page.widget.locator(".gv-mask-said")).to_have_text("No run is under way.")
    assert sent(page, "freeze") == []


def test_everything_can_be_done_by_keys(host: OpenHost) -> None:
    page = host(widget="frozen_mask")
    masks.PARTLY.show(page)
    page.widget.get_by_role("button", name="open modules").click()
    grid, keyboard = page.widget.get_by_role("treegrid"), page.page.keyboard
    grid.focus()
    keyboard.press("ArrowDown")
    keyboard.press("ArrowDown")
    current = page.widget.locator(".gv-mask-row.gv-current")
    name = current.get_attribute("data-name")
    expect(grid).to_have_attribute("aria-activedescendant", str(current.get_attribute("id")))
    tooltip, spoken = page.widget.locator(".gv-tooltip"), page.widget.locator('.gv-live[aria-live="polite"]')
    expect(tooltip).to_contain_text(str(name))
    keyboard.press("End")
    expect(current).to_have_attribute("data-name", "temperature")
    keyboard.press("ArrowUp")
    expect(current).to_have_attribute("data-name", "head.aux.weight")
    expect(tooltip).to_contain_text("iterations 1,012–1,284")
    expect(tooltip).to_contain_text("unused")
    keyboard.press("ArrowLeft")
    keyboard.press("ArrowLeft")
    expect(spoken).to_contain_text("head.aux.weight, iterations 0–1,011, trained")
    keyboard.press("Enter")
    asks = page.widget.get_by_role("alertdialog")
    expect(asks).to_be_visible()
    keyboard.press("Escape")
    expect(asks).to_be_hidden()
    expect(grid).to_be_focused()
    keyboard.press("Enter")
    keyboard.press("Enter")
    assert len(sent(page, "freeze")) == 1
    keyboard.press("Home")
    for is_open in ("false", "true"):
        keyboard.press("Space")
        expect(current).to_have_attribute("aria-expanded", is_open)
    keyboard.press("+")
    expect(page.widget.locator("canvas.gv-mask-lanes")).not_to_have_attribute("data-span", "1285")
    page.traffic.assert_clean()


def test_a_pointer_reads_what_a_module_holds(host: OpenHost) -> None:
    page = host(widget="frozen_mask")
    masks.PARTLY.show(page)
    row = row_of(page.widget, "layer4.1")
    box, lanes = row.bounding_box(), page.widget.locator("canvas.gv-mask-lanes").bounding_box()
    assert box is not None
    assert lanes is not None
    page.page.mouse.move(lanes["x"] + 0.8 * lanes["width"], box["y"] + box["height"] / 2)
    tooltip = page.widget.locator(".gv-tooltip")
    for words in ("layer4.1", "partly trained, frozen", "frozen: layer4.1.bn2.weight (512)", "iterations 432–1,284"):
        expect(tooltip).to_contain_text(words)
    expect(page.widget.locator(".gv-story")).to_contain_text("432 layer4 unfrozen by a handler")
    expect(page.widget.locator(".gv-story")).to_contain_text("1,012 head.aux.weight left the loss")
    expect(page.widget.locator(".gv-story")).to_contain_text("layer4.1.bn2.weight: frozen inside a block that trains")


@pytest.mark.parametrize("width", [None, 480, 300])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_all_text_can_be_read_and_nothing_is_cut(host: OpenHost, theme: Theme, width: int | None) -> None:
    page = host(theme=theme, width=width, widget="frozen_mask")
    masks.PARTLY.show(page)
    row_of(page.widget, "head").locator("button.gv-act").click()
    contrast.assert_readable(page.widget)
    assert page.widget.evaluate(SMALLEST_FONT) >= 11
    assert page.widget.evaluate(OUTSIDE) == []
    output = "document.querySelector('.output')"
    assert page.page.evaluate(f"{output}.scrollWidth <= {output}.clientWidth")


@pytest.mark.parametrize("scale", [1, 1.5, 2])
def test_rows_lie_on_whole_device_pixels(host: OpenHost, scale: float) -> None:
    page = host(scale=scale, widget="frozen_mask")
    masks.PARTLY.show(page)
    script = "canvas => [canvas.getBoundingClientRect().width, canvas.width]"
    css, device = page.widget.locator("canvas.gv-mask-lanes").evaluate(script)
    assert abs(css * scale - device) < 0.01
    edge = lane(page, "layer4.0", 0.4, 0.7)
    inside = edge[2:-2]
    assert (inside == inside[0]).all(), "a row that is all of one colour is so to its edge"
