"""A run's page, opened from its file with the network off: it does what the widgets do in a notebook."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from playwright.sync_api import Browser, Page, expect

import gradviz as gv
from gradviz.history.history import History
from gradviz.history.schema import FROZEN, OK, Parameter
from gradviz.widgets.page import page_of
from tests.widgets.test_packed import decades
from tests.widgets.test_page import long_run

from . import looks, pixels
from .deadline import PATIENCE_S
from .lab import Theme
from .test_axe import AXE, RUN
from .traffic import Traffic

pytestmark = pytest.mark.browser

EVIL = "</script><img src=x onerror=document.title='run'>.weight"
NAMES = ["encoder.weight", "encoder.bias", "head.weight", EVIL]
N = 40


def run() -> History:
    """A NaN, an infinity, a zero and a frozen parameter among ordinary norms."""
    history = History()
    history.declare([Parameter(name=name, shape=(2, 3), dtype="float32") for name in NAMES])
    for i in range(N):
        table, states = np.zeros((4, 8)), np.full(4, OK, np.uint8)
        table[:, :5] = np.array([0.123456, 0.5, 2, 0.01])[:, None] * (1 + i / 100)
        if i == 30:
            table[0, [0, 5]] = np.nan, 1
            table[1, [0, 6]] = np.inf, 1
            table[2, 0] = 0
        if i >= 20:
            states[3], table[3, :5] = FROZEN, np.nan
        history.append(i, i // 20, table, states, {"loss": 1.0 / (i + 1)})
    history.add_events(20, "frozen", [EVIL])
    history.progress.status, history.progress.iteration = "completed", N
    return history


OpenPage = Callable[..., Page]


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Iterator[OpenPage]:
    contexts = []

    def open_page(text: str, theme: Theme = "light", width: int = 1280) -> Page:
        file = tmp_path / "run.html"
        file.write_text(text, encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": 1000}, color_scheme=theme, offline=True)
        context.set_default_timeout(PATIENCE_S * 1000)
        contexts.append(context)
        opened = context.new_page()
        opened.traffic = Traffic(opened, "file://")
        opened.goto(file.as_uri())
        return opened

    yield open_page
    for context in contexts:
        context.close()


def told(page: Page, row: str, iteration: int) -> str:
    """What the heatmap says of a cell."""
    widget = page.locator(".gv-heatmap")
    pixels.wait_painted(widget, N)
    picture, heat = pixels.grab(widget), widget.locator("canvas.gv-heat").bounding_box()
    assert heat is not None
    x = heat["x"] + (picture.x_of(iteration) + 0.5) * heat["width"] / picture.width
    page.mouse.move(x, looks.middle(widget, row))
    tooltip = widget.locator(".gv-tooltip")
    tooltip.wait_for(state="visible")
    return tooltip.inner_text()


def test_it_tells_each_number_from_a_file_without_a_network(page: OpenPage) -> None:
    opened = page(page_of(run()))
    assert "norm 0.1358" in told(opened, "encoder.weight", 10)
    assert "NaN" in told(opened, "encoder.weight", 30)
    assert "inf" in told(opened, "encoder.bias", 30)
    assert "zero" in told(opened, "head.weight", 30)
    assert "frozen" in told(opened, EVIL, 30)
    assert opened.title() == "A run"
    opened.traffic.assert_clean()
    assert not opened.traffic.warnings


def test_other_statistics_are_answered_and_what_is_not_in_the_page_says_so(page: OpenPage) -> None:
    opened = page(page_of(run(), statistics=("norm", "max_abs")))
    widget = opened.locator(".gv-heatmap")
    pixels.wait_painted(widget, N)
    widget.get_by_role("button", name="max", exact=True).click()
    expect(widget.locator(".gv-legend, .gv-foot-parts")).to_contain_text("largest entry")
    assert "largest entry 0.1358" in told(opened, "encoder.weight", 10)
    widget.get_by_role("button", name="rms", exact=True).click()
    expect(widget).to_contain_text('statistics=("norm", "rms")')
    opened.traffic.assert_clean()


def test_rounded_numbers_say_that_they_are(page: OpenPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradviz.widgets.embedded.NORM_BYTES", 280)  # it takes 298, and 237 rounded
    opened = page(page_of(run()))
    assert "norm ≈" in told(opened, "encoder.weight", 10)
    assert "zero" in told(opened, "head.weight", 30)


def test_a_long_run_is_seen_whole_and_deep_inside_by_single_iterations(page: OpenPage) -> None:
    opened = page(page_of(long_run(decades(5000, 3)), statistics=("norm",)))
    widget = opened.locator(".gv-heatmap")
    pixels.wait_painted(widget, 5000)
    assert pixels.grab(widget).level == 1
    for _ in range(8):
        widget.get_by_role("button", name=re.compile("^(zoom )?in")).click()
    expect(widget.locator("canvas.gv-heat")).to_have_attribute("data-level", "0")
    opened.traffic.assert_clean()


def test_nothing_can_be_frozen_or_steered_from_a_page_and_it_says_what_went_wrong(page: OpenPage) -> None:
    opened = page(page_of(run()))
    panel = opened.locator(".gv-page-top")
    expect(panel).to_contain_text("Completed")
    expect(panel).to_contain_text("encoder.bias went non-finite")
    expect(panel.get_by_role("button", name=re.compile("pause|stop", re.IGNORECASE))).to_have_count(0)
    opened.get_by_role("tab", name="Frozen mask").click()
    mask = opened.locator(".gv-mask")
    expect(mask.get_by_text("encoder").first).to_be_visible()
    expect(mask.locator("[data-act]:visible")).to_have_count(0)
    opened.get_by_role("tab", name="Dtypes").press("ArrowLeft")
    opened.traffic.assert_clean()


@pytest.mark.parametrize("width", [480, 1280])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_is_light_or_dark_as_the_system_is_until_switched_and_keeps_nobody_out(
    page: OpenPage, theme: Theme, width: int
) -> None:
    opened = page(page_of(run()), theme, width)
    opened.add_script_tag(path=AXE)
    tabs = opened.get_by_role("tab")
    other = "dark" if theme == "light" else "light"
    expect(tabs).to_have_count(3)
    for expected in (theme, other):
        for tab in tabs.all():
            tab.click()
            shown = opened.get_by_role("tabpanel").locator(".gv")
            expect(shown).to_have_attribute("data-gv-theme", expected)
            assert opened.evaluate(RUN.replace('".gv"', "document")) == []
        opened.get_by_role("button", name="light or dark").click()
    assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth")
    opened.traffic.assert_clean()


def test_the_inspector_follows_what_is_chosen_and_says_of_which_iteration_it_knows(page: OpenPage) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    batches = [(torch.randn(32, 8), torch.randint(4, (32,))) for _ in range(N)]
    loop = gv.trainer(model, "cross_entropy", "adam", histograms_every=20)
    loop.run(batches, display=None)
    opened = page(page_of(loop))
    inspector, heatmap = opened.locator(".gv-inspector"), opened.locator(".gv-heatmap")
    expect(inspector).to_contain_text("0.weight")
    expect(inspector).to_contain_text(f"iteration {N - 1}")
    pixels.wait_painted(heatmap, N)
    told(opened, "2.bias", 30)
    opened.mouse.down()
    opened.mouse.up()
    expect(inspector).to_contain_text("2.bias")
    expect(inspector).to_contain_text("iteration 30")
    expect(inspector).to_contain_text("of iteration 20, the nearest in this page")
    expect(inspector.get_by_text("waiting")).to_be_hidden()
    opened.traffic.assert_clean()
