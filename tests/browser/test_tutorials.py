"""A tutorial that was executed and exported is still there, without a kernel and without a network."""

from __future__ import annotations

from pathlib import Path

import pytest
from nbconvert import HTMLExporter
from playwright.sync_api import Browser, expect

from tests.notebooks.executed import NOTEBOOKS, executed

from . import static

pytestmark = pytest.mark.browser


@pytest.mark.case("N01")
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_tutorial_exported_to_html_shows_its_still_pictures(browser: Browser, tmp_path: Path, name: str) -> None:
    notebook = executed(name).notebook
    html = [output["data"].get("text/html", "") for cell in notebook.cells for output in _shown(cell)]
    n_pictures = sum('class="gv-static"' in text for text in html)
    assert n_pictures, "no picture at all"
    file = tmp_path / f"{name}.html"
    file.write_text(HTMLExporter().from_notebook_node(notebook)[0], encoding="utf-8")

    context = browser.new_context(viewport={"width": 1100, "height": 900}, offline=True)
    page = context.new_page()
    page.goto(file.as_uri(), wait_until="domcontentloaded")
    figures = page.locator("figure.gv-static")
    expect(figures).to_have_count(n_pictures)
    for place in range(n_pictures):
        expect(figures.nth(place)).to_be_visible()
    # A mask and a table are told in words.
    drawn = figures.filter(has=page.locator("img")).locator("img.gv-light")
    assert drawn.count() == sum(text.count('<img class="gv-light"') for text in html) > 0
    for place in range(drawn.count()):
        assert static.decoded(drawn.nth(place)).std() > 0
    assert page.locator("[data-mime-type='application/vnd.jupyter.stderr'], .jp-RenderedText .ansi-red-fg").count() == 0
    context.close()


def _shown(cell: dict) -> list[dict]:  # type: ignore[type-arg]
    return [output for output in cell.get("outputs", []) if "data" in output]
