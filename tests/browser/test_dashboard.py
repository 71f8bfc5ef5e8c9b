"""The dashboard in a real kernel: its buttons steer the run, and its parts know of each other."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, expect

from . import contrast
from .conftest import OpenNotebook
from .deadline import until
from .lab import Theme
from .notebook import Notebook
from .test_axe import AXE
from .test_axe import RUN as FAULTS

pytestmark = pytest.mark.browser

SETUP = """
import torch, gradviz as gv
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
data = [(torch.randn(32, 8), torch.randint(4, (32,))) for _ in range(100)]
loop = gv.trainer(model, "cross_entropy", "adam").metric("accuracy").validate(data[:5])
"""
SPOILT = """
model[2].weight.register_hook(lambda g: g * float("nan") if loop.state.iteration == 150 else g)
"""
START = "loop.start(data, epochs=10**6);"
RAN = "loop.run(data, epochs=3, display=None);"


def opened(notebook: OpenNotebook, *cells: str, theme: Theme = "light") -> tuple[Notebook, Locator]:
    """A notebook after its cells ran, and the dashboard in the last one."""
    page = notebook(list(cells), theme=theme)
    for cell in range(len(cells)):
        page.run(cell)
        page.wait_done(cell)
    return page, page.cell(len(cells) - 1).locator(".gv-dashboard")


def button(dashboard: Locator, name: str) -> Locator:
    return dashboard.locator(".gv-panel").get_by_role("button", name=name, exact=True)


@pytest.mark.case("W15")
def test_the_buttons_pause_step_and_stop_a_run_in_the_background(notebook: OpenNotebook) -> None:
    page, dashboard = opened(notebook, SETUP, START)
    status = dashboard.locator(".gv-panel .gv-status")
    expect(status).to_have_text("Training")
    expect(button(dashboard, "Step")).to_be_hidden()
    button(dashboard, "Pause").click()
    expect(status).to_have_text("Paused")
    at = page.evaluate("loop.state.iteration")
    for steps in (1, 2):
        button(dashboard, "Step").click()
        until(lambda steps=steps: page.evaluate("loop.state.iteration") == at + steps, "one iteration was taken")
        expect(dashboard.locator(".gv-panel .gv-iteration")).to_contain_text(f"{at + steps:,} of")
    button(dashboard, "Continue").click()
    expect(status).to_have_text("Training")
    until(lambda: page.evaluate("loop.state.iteration") > at + 10, "it goes on")
    button(dashboard, "Stop").click()
    expect(page.figure(1)).to_contain_text("Halted")
    assert page.figure(1).locator("code").inner_text() == "gv.dashboard(loop)"
    assert page.evaluate("loop.state.status") == "halted"
    page.traffic.assert_clean()


@pytest.mark.case("W15")
def test_in_a_cell_that_trains_a_button_says_when_it_is_heard_and_does_nothing_to_a_later_run(
    notebook: OpenNotebook,
) -> None:
    page = notebook([SETUP, "loop.run(data, epochs=40);", "loop.run(data, epochs=1);"])
    page.run(0)
    page.wait_done(0)
    page.run(1)
    dashboard = page.cell(1).locator(".gv-dashboard")
    button(dashboard, "Stop").click()
    said = dashboard.locator(".gv-panel-said")
    expect(said).to_contain_text("The kernel hears this when the cell is done")
    expect(said).to_contain_text("loop.start(...)")
    assert page.prompt(1) == "[*]"
    page.run(2)
    page.wait_done(2)
    assert page.evaluate("[loop.state.status, loop.state.epoch]") == ["completed", 41]
    page.traffic.assert_clean()


def test_where_it_went_wrong_is_said_and_shown_in_the_heatmap(notebook: OpenNotebook) -> None:
    page, dashboard = opened(notebook, SETUP + SPOILT, RAN, "gv.dashboard(loop)")
    verdict = dashboard.locator(".gv-verdict")
    expect(verdict).to_contain_text("went non-finite")
    assert page.evaluate("list(loop.history.first_nonfinite())[:2]") == [150, "2.weight"]
    expect(verdict).to_contain_text("2.weight went non-finite (NaN) at iteration 150")
    verdict.get_by_role("button", name="Show", exact=True).click()
    expect(dashboard.locator(".gv-heatmap .gv-focused")).to_contain_text("weight")
    page.traffic.assert_clean()


def test_what_is_pointed_at_in_the_heatmap_is_so_in_the_curves_and_back(notebook: OpenNotebook) -> None:
    page, dashboard = opened(notebook, SETUP, RAN, "gv.dashboard(loop)")
    curve = dashboard.locator(".gv-curve").first
    dashboard.locator("canvas.gv-heat").hover(force=True, position={"x": 200, "y": 6})
    expect(curve.locator(".gv-curve-cursor")).to_be_visible()
    expect(dashboard.locator(".gv-curve")).to_have_count(4)
    curve.locator("canvas").hover()
    expect(dashboard.locator(".gv-panel .gv-tooltip")).to_contain_text("iteration")
    expect(dashboard.locator(".gv-heatmap .gv-line")).to_be_visible()
    page.traffic.assert_clean()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_all_of_it_can_be_read_and_used_in_any_width(notebook: OpenNotebook, theme: Theme) -> None:
    page, dashboard = opened(notebook, SETUP + SPOILT, RAN, "gv.dashboard(loop)", theme=theme)
    page.page.add_script_tag(path=AXE)
    for width in (1400, 480):
        page.resize(width)
        for tab in ("frozen mask", "dtypes", "heatmap"):
            dashboard.get_by_role("tab", name=tab).click()
            page.settle()
            contrast.assert_readable(dashboard)
            assert page.page.evaluate(FAULTS.replace('".gv"', '".gv-dashboard"')) == []
        box, output = dashboard.bounding_box(), page.cell(2).locator(".jp-OutputArea-output").first.bounding_box()
        assert box is not None
        assert output is not None
        assert box["width"] <= output["width"] + 1, "nothing is cut off"
        page.screenshot(f"dashboard-{theme}-{width}", dashboard)
    page.traffic.assert_clean()


def test_what_lies_behind_a_tab_is_sent_nothing_until_it_is_seen(notebook: OpenNotebook) -> None:
    page, dashboard = opened(notebook, SETUP, RAN, "d = gv.dashboard(loop); d")
    dashboard.locator(".gv-panel").wait_for()
    assert page.evaluate("d.frozen_mask.publisher.sent.messages") == 0
    dashboard.get_by_role("tab", name="frozen mask").click()
    expect(dashboard.locator(".gv-mask")).to_contain_text("trained at the last iteration, 299")
    assert page.evaluate("d.frozen_mask.publisher.sent.messages") == 1


def test_after_a_restart_it_says_that_there_is_no_kernel(notebook: OpenNotebook) -> None:
    page, dashboard = opened(notebook, SETUP, START)
    expect(dashboard.locator(".gv-panel .gv-status")).to_have_text("Training")
    page.restart()
    button(dashboard, "Stop").click()
    expect(dashboard.locator(".gv-lost").first).to_have_text("no kernel: this picture is as it was")
    dashboard.get_by_role("tab", name="frozen mask").click()
    page.settle()
    page.traffic.assert_clean()


FIRST_S = """
import json, pathlib, time
def first(state):
    pathlib.Path("first.json").write_text(json.dumps(time.time()))
loop.handle_event("iteration_completed", first, once=1)
"""
PAINTED = """() => new Promise(done => {
    const look = () => {
        const heat = document.querySelector('.gv-dashboard canvas.gv-heat');
        if (Number(heat?.dataset.iterations) > 0) done(Date.now() / 1000); else requestAnimationFrame(look);
    };
    look();
})"""


def test_it_is_painted_soon_after_the_first_iteration(notebook: OpenNotebook) -> None:
    page = notebook([SETUP + FIRST_S, "loop.run(data, epochs=100);"])
    page.run(0)
    page.wait_done(0)
    page.run(1)
    painted = page.page.evaluate(PAINTED)
    first = float((page.file.parent / "first.json").read_text())
    print(f"painted {painted - first:.2f} s after the first iteration")
    assert painted - first < 10  # 1 s where nobody else computes
    page.interrupt("server")
    page.wait_done(1)
