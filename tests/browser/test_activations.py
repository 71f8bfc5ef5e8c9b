"""Captured values as rows of a heatmap, beside that of the parameters, in a real JupyterLab."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from gradviz.history.quantity import CAPTURED
from gradviz.widgets.colours import VIRIDIS

from . import colours, contrast, pixels
from .conftest import OpenNotebook
from .host import OpenHost
from .lab import Theme

pytestmark = pytest.mark.browser

SETUP, SHOWN, TRAIN = range(3)
CELLS = [
    """
import gradviz as gv, os, time, torch
torch.manual_seed(0)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        block = lambda: torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh())
        self.encoder = torch.nn.Sequential(block(), block())
        self.head, self.spare = torch.nn.Linear(8, 3), torch.nn.Linear(8, 3)
    def forward(self, x):
        x = self.encoder(self.encoder(x))
        self.spare(x)
        return self.head(x)
def rest(state):
    if state.iteration == 200:
        while not os.path.exists("go_on"): time.sleep(0.05)
loop = gv.trainer(Net(), "cross_entropy", "adam", capture=gv.Capture("*")).handle_event("iteration_completed", rest)
data = [(torch.randn(32, 8), torch.randint(3, (32,))) for _ in range(400)]
""",
    'gv.heatmap(loop, of="activations")',
    "loop.run(data, display='live');",
]
NORMS = "gv.heatmap(loop, of='activations').history.norms"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_captured_values_grow_as_rows_while_a_cell_blocks(notebook: OpenNotebook, theme: Theme) -> None:
    page = notebook(CELLS, theme=theme)
    may_go_on = page.lab.root / "go_on"
    may_go_on.unlink(missing_ok=True)
    for cell in (SETUP, SHOWN):
        page.run(cell)
        page.wait_done(cell)
    page.run(TRAIN)
    shown = page.widget(SHOWN)
    pixels.wait_painted(shown, 10)
    part = pixels.grab(shown)
    assert page.prompt(TRAIN) == "[*]"
    may_go_on.touch()
    page.wait_done(TRAIN)
    pixels.wait_painted(shown, 400)
    whole, norms = pixels.grab(shown), page.frame(NORMS)
    assert list(whole.rows) == list(norms.columns)
    assert {"encoder.0.0", "encoder.0.0#1", "encoder", "head", "spare"} <= set(whole.rows)
    assert norms["spare"].isna().all()
    for picture in (part, whole):
        n = picture.iterations
        measured = norms.iloc[:n].drop(columns="spare")
        colours.assert_domain(picture, measured)
        colours.assert_cells(picture, norms, VIRIDIS, [(name, i) for name in measured for i in (0, n // 2, n - 1)])
    pixels.wait_painted(page.widget(TRAIN), 400)
    assert set(pixels.grab(page.widget(TRAIN)).rows) == set(page.frame("loop.history.norms").columns)
    page.screenshot(f"activations-{theme}", shown)
    page.screenshot(f"activations-beside-{theme}")
    contrast.assert_readable(shown)
    page.traffic.assert_clean()


def test_words_are_of_intermediate_values(host: OpenHost) -> None:
    page = host()
    page.start(["encoder.0", "encoder.0#1", "head"], CAPTURED)
    page.send([[0.1, 0.2, 0.3, 1.0]] * 8, [[0, 0, 0, 0]] * 8, iterations=8)
    pixels.wait_painted(page.widget, 8)
    assert page.point_at("encoder.0#1", 3).startswith("encoder.0#1")
    assert "parameter" not in page.widget.inner_text()
    summary = page.widget.locator("canvas.gv-heat").get_attribute("aria-label")
    assert summary is not None
    assert summary.startswith("Heatmap of the gradient norms of 3 intermediate values over 8 iterations")
    page.widget.get_by_role("searchbox", name="filter intermediate values").fill("nothing like it")
    expect(page.widget.locator(".gv-empty")).to_have_text("no intermediate value has such a name")
