"""A run in the background, in a real kernel: its head says how it stands, and the kernel is free meanwhile."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from .conftest import OpenNotebook
from .notebook import PATIENCE_S

pytestmark = pytest.mark.browser

START, PAUSE, READ, UNPAUSE, END, AGAIN = 1, 2, 3, 4, 5, 6
CELLS = [
    """
import torch, gradviz as gv
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
data = [(torch.randn(32, 8), torch.randint(4, (32,))) for _ in range(100)]
loop = gv.trainer(model, "cross_entropy", "adam").metric("accuracy")
""",
    "loop.start(data, epochs=10**6);",
    "loop.pause();",
    "print(len(loop.history.norms) == loop.state.iteration == len(loop.history.metrics))",
    "loop.unpause();",
    "loop.stop().wait();",
    "loop = gv.trainer(model, 'cross_entropy', 'adam')\nloop.start(data, epochs=10**6);",
]


def test_a_run_in_the_background_is_paused_goes_on_and_ends(notebook: OpenNotebook) -> None:
    page = notebook(CELLS)
    for cell in (0, START):
        page.run(cell)
        page.wait_done(cell)
    panel = page.cell(START).locator(".gv-panel")
    status = panel.locator(".gv-status")
    expect(status).to_have_text("Training", timeout=PATIENCE_S * 1000)

    page.run(PAUSE)
    page.wait_done(PAUSE)
    panel.scroll_into_view_if_needed()  # out of sight, nothing is drawn
    expect(status).to_have_text("Paused", timeout=PATIENCE_S * 1000)
    paused_at = page.evaluate("loop.state.iteration")
    expect(panel.locator(".gv-iteration")).to_contain_text(f"{paused_at:,}")
    page.run(READ)
    page.wait_done(READ)
    assert page.output_text(READ).strip() == "True"
    assert page.evaluate("loop.state.iteration") == paused_at

    page.run(AGAIN)  # a cell that is run again, under the same name: refused, and the first is still to be reached
    page.wait_done(AGAIN)
    assert "LoopError" in page.output_text(AGAIN)
    assert page.evaluate("[old.state.status for old in gv.running()]") == ["paused"]
    page.evaluate("True", setup="(loop,) = gv.running()")

    page.run(UNPAUSE)
    page.wait_done(UNPAUSE)
    panel.scroll_into_view_if_needed()
    expect(status).to_have_text("Training", timeout=PATIENCE_S * 1000)
    page.run(END)
    page.wait_done(END)
    expect(page.figure(START)).to_contain_text("Halted", timeout=PATIENCE_S * 1000)
    assert page.evaluate("len(loop.history.norms) == loop.state.iteration") is True
    assert page.evaluate("loop.state.iteration") > paused_at
    page.traffic.assert_clean()
