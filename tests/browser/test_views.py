"""Several views of one widget, and all of them when their kernel goes away."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, expect

from .conftest import OpenNotebook
from .deadline import until
from .notebook import Notebook
from .test_frozen_mask import click, row_of

pytestmark = pytest.mark.browser

SETUP, START, FIRST = range(3)
WIDGETS = {"heatmap": ".gv-heatmap", "frozen_mask": ".gv-mask", "dtype_table": ".gv-dtypes"}
CELLS = [
    """
import torch, gradviz as gv
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
data = [(torch.randn(32, 8), torch.randint(4, (32,))) for _ in range(100)]
loop = gv.trainer(model, "cross_entropy", "adam")
""",
    "loop.start(data, epochs=10**6, display=None);",
]


def opened(notebook: OpenNotebook, widgets: list[str]) -> tuple[Notebook, list[Locator]]:
    """A notebook in which a run is under way, and a widget in each further cell."""
    page = notebook([*CELLS, *(f"gv.{widget}(loop)" for widget in widgets)])
    run_all(page, len(widgets))
    return page, [page.cell(FIRST + i).locator(WIDGETS[widget]) for i, widget in enumerate(widgets)]


def run_all(page: Notebook, n_widgets: int) -> None:
    for cell in range(FIRST + n_widgets):
        page.run(cell)
        page.wait_done(cell)


def reached(widget: Locator) -> int:
    """The iteration that a widget has come to."""
    canvas = widget.locator("canvas[data-iterations]")
    if canvas.count():
        return int(canvas.get_attribute("data-iterations") or 0)
    digits = [letter for letter in widget.locator(".gv-title").inner_text() if letter.isdigit()]
    return int("".join(digits) or 0)


def seen(widget: Locator) -> Locator:
    """In sight: what nobody sees is not painted."""
    widget.scroll_into_view_if_needed()
    return widget


def assert_grows(widget: Locator) -> None:
    seen(widget)
    until(lambda: reached(widget) > 10, "something is shown")
    before = reached(widget)
    until(lambda: reached(widget) > before + 10, "it grows")


def stands(page: Notebook, widget: Locator) -> bool:
    """Whether it has come to an iteration and goes no further."""
    before = reached(widget)
    for _ in range(20):  # more than a second of pictures, in which a run would have sent several times
        page.settle()
    return reached(widget) == before


def test_two_views_of_a_widget_both_grow_and_know_of_each_other(notebook: OpenNotebook) -> None:
    page, views = opened(notebook, [widget for widget in WIDGETS for _ in range(2)])
    for view in views:
        assert_grows(view)
    one, other, mask, other_mask = views[:4]
    seen(one).locator(".gv-region").focus()
    for key in ("Home", "Shift+ArrowRight", "Shift+ArrowDown"):
        page.page.keyboard.press(key)
    for view in (one, other):
        expect(seen(view).get_by_role("group", name="selection")).to_contain_text("2 parameters")
    other.get_by_role("button", name="select nothing").click()
    expect(seen(one).get_by_role("group", name="selection")).to_be_hidden()
    click(seen(mask), "0.weight", "Freeze")
    for view in (mask, other_mask):
        expect(row_of(seen(view), "0.weight").locator("button.gv-act")).to_have_text("Unfreeze")
        expect(view.locator(".gv-story")).to_contain_text("0.weight frozen by a click")
    click(seen(other_mask), "0.weight", "Unfreeze")
    expect(row_of(seen(mask), "0.weight").locator("button.gv-act")).to_have_text("Freeze")
    for view in views:
        assert_grows(view)
    page.traffic.assert_clean()


def test_after_the_kernel_is_restarted_widgets_stay_as_they_were_and_their_cells_show_live_ones_again(
    notebook: OpenNotebook,
) -> None:
    page, widgets = opened(notebook, list(WIDGETS))
    for widget in widgets:
        assert_grows(widget)
    page.restart()
    for widget in widgets:
        until(lambda widget=widget: stands(page, seen(widget)), "what was on its way has come, and nothing more does")
        assert reached(widget) > 10
    run_all(page, len(WIDGETS))
    for widget in widgets:
        assert_grows(widget)
