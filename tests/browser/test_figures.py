"""Figures of plotly as pages: what is written there can be read, and a hover tells the number of the history."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.history.made import LOOKS, history_of, row

from . import contrast

pytestmark = pytest.mark.browser

PAPER = {"light": (255, 255, 255), "dark": (17, 17, 17)}
FILLS = """() => [...document.querySelectorAll("svg text")]
  .filter(text => text.textContent.trim() && text.getBBox().width)
  .map(text => [text.textContent, getComputedStyle(text).fill])"""


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 900, "height": 700}, offline=True)
    yield context.new_page()
    context.close()


def open_figure(page: Page, folder: Path, kind: str, theme: str) -> list[str]:
    """Show the figure; what the console says of errors from then on."""
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    history = history_of(LOOKS, [(row(0.5 + i), 0) for i in range(8)])
    history.figure(kind, theme=theme).write_html(folder / "figure.html", include_plotlyjs=True)
    page.goto((folder / "figure.html").as_uri())
    expect(page.locator(".main-svg").first).to_be_visible()
    return errors


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["norms", "heatmap", "depth"])
def test_all_text_can_be_read_and_each_look_is_named(page: Page, tmp_path: Path, kind: str, theme: str) -> None:
    errors = open_figure(page, tmp_path, kind, theme)
    texts = page.evaluate(FILLS)
    for text, fill in texts:
        ink = tuple(int(float(part)) for part in re.findall(r"[\d.]+", fill)[:3])
        assert contrast.ratio(ink, PAPER[theme]) >= contrast.READABLE, (text, fill)
    assert {"frozen", "unused", "zero", "NaN", "+inf", "−inf", "not recorded"} <= {text for text, _ in texts}
    assert errors == []


def test_a_hover_tells_the_number_of_the_cell(page: Page, tmp_path: Path) -> None:
    open_figure(page, tmp_path, "heatmap", "light")
    box = page.locator(".nsewdrag").bounding_box()
    assert box is not None
    # The second of two columns, the third of eight rows.
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + box["height"] * 2.5 / 8)
    expect(page.locator(".hoverlayer .hovertext")).to_contain_text("iteration 1: 2.5")
