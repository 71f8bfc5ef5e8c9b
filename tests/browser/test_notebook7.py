"""Jupyter Notebook, the page that is not JupyterLab: a run's live picture shows there too."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from . import pixels
from .conftest import notebook_of
from .deadline import PATIENCE_S
from .lab import NEWEST, Lab
from .traffic import Traffic

pytestmark = pytest.mark.browser

SETUP = """
import torch, gradviz as gv
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
data = [(torch.randn(32, 8), torch.randint(4, (32,))) for _ in range(50)]
training = gv.trainer(model, "cross_entropy", "adam")
"""
N = 200


@pytest.fixture
def page(lab: Lab, browser: Browser) -> Iterator[Page]:
    (lab.root / "seven.ipynb").write_text(
        json.dumps(notebook_of([SETUP, 'training.run(data, epochs=4, display="live");'], NEWEST))
    )
    lab.set_theme("light")
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    context.set_default_timeout(PATIENCE_S * 1000)
    opened = context.new_page()
    opened.traffic = Traffic(opened, lab.origin)
    opened.goto(f"{lab.origin}/notebooks/seven.ipynb?token={lab.token}")
    expect(opened.locator(".jp-Notebook .jp-Cell")).to_have_count(2)
    # It says "idle" before there is a kernel, too.
    expect(opened.locator(".jp-Toolbar-kernelName")).to_contain_text("Python")
    expect(opened.locator(".jp-Notebook-ExecutionIndicator")).to_have_attribute("data-status", "idle")
    yield opened
    context.close()


def test_the_live_picture_of_a_run_shows_and_paints(page: Page) -> None:
    for cell in page.locator(".jp-Notebook .jp-Cell").all():
        cell.locator(".cm-content").click()
        page.keyboard.press("Shift+Enter")
    widget = page.locator(".gv-heatmap").first
    widget.wait_for()
    pixels.wait_painted(widget, N)
    picture = pixels.grab(widget)
    assert picture.rows.keys() == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert all(row.any() for row in picture.rows.values())
    expect(widget.locator(".gv-error")).to_be_hidden()
    assert not page.traffic.strangers()  # in the console is an error of the page's own
