"""A page without a kernel shows the picture that was kept."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from playwright.sync_api import expect

import gradviz as gv
from gradviz.history.history import History
from gradviz.history.schema import FROZEN
from gradviz.widgets.colours import VIRIDIS
from gradviz.widgets.dtype_table import KEPT_ENTRIES, DtypeFeed
from gradviz.widgets.feed import ColumnFeed, Feed
from gradviz.widgets.frozen_mask import MaskFeed
from gradviz.widgets.publish import Publisher

from . import colours, pixels, tables
from .host import Host, OpenHost
from .lab import Theme

pytestmark = pytest.mark.browser


def test_the_kept_picture_is_shown_and_the_kernel_is_asked_for_all_of_it(host: OpenHost) -> None:
    norms = np.exp(np.random.default_rng(1).normal(-3, 1, (30, 2)))
    history = History()
    history.declare([{"name": name, "shape": (2,), "dtype": "float32"} for name in ("a.weight", "b.weight")])
    for i, row in enumerate(norms):
        history.progress.iteration = i + 1
        history.append(i, 0, np.tile(row[:, None], 8) * [1, 1, 1, 1, 1, 0, 0, 0], np.zeros(2, np.uint8), {"loss": 1.0})
    history.progress.status = "completed"
    kept: list[dict[str, object]] = []
    publisher = Publisher(
        history,
        ColumnFeed(history),
        lambda *_: None,
        lambda message, buffers: kept.append({"message": message, "buffers": buffers}),
    )
    publisher.show()
    page = host()
    page.start(["a.weight", "b.weight"], kept=kept[-1])
    pixels.wait_painted(page.widget, 30)
    frame = pd.DataFrame(norms.astype(np.float32), columns=["a.weight", "b.weight"])
    cells = [(name, i) for name in frame for i in range(30)]
    colours.assert_cells(pixels.grab(page.widget), frame, VIRIDIS, cells)
    assert "Completed" in page.widget.inner_text()
    assert page.page.evaluate("host.sent[0]") == {"kind": "hello", "have": 0}
    page.traffic.assert_clean()


def show(page: Host, history: History, feed: Feed) -> None:
    """What a widget kept of a history."""
    kept = feed.kept()
    assert kept is not None
    shapes = {each["name"]: list(each["shape"] or ()) for each in history.described}
    page.start(list(shapes), shapes=shapes, kept={"message": kept[0] | {"seq": 1, "fresh": True}, "buffers": kept[1]})


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_kept_mask_says_which_parameters_trained_and_what_changed(host: OpenHost, theme: Theme) -> None:
    history = History()
    history.declare([{"name": name, "shape": (30, 2), "dtype": "float32"} for name in ("a.weight", "b.weight")])
    for i in range(20):
        history.progress.iteration = i + 1
        states = np.array([0, FROZEN if i >= 12 else 0], np.uint8)
        history.append(i, 0, np.where(states[:, None], np.nan, 0.1) * np.ones(8), states, {"loss": 1.0})
    history.add_events(12, "frozen", ["b.weight"], by={"b.weight": "handler"})
    history.progress.status = "completed"
    page = host(widget="frozen_mask", theme=theme)
    show(page, history, MaskFeed(history))
    mask = page.widget
    expect(mask.locator(".gv-mask-sub")).to_have_text("60 of 120 parameters trained at the last iteration, 19")
    expect(mask.locator(".gv-story")).to_contain_text("b.weight frozen by a handler")
    row = mask.locator('.gv-mask-row[data-name="b.weight"]')
    expect(row.locator(".gv-live")).to_have_text("frozen")
    row.locator("button.gv-act").click()
    expect(mask.locator(".gv-mask-said")).to_contain_text("No run is under way")
    page.traffic.assert_clean()


def test_the_kept_table_has_all_dtypes_and_says_whose_entries_it_has_not(host: OpenHost) -> None:
    history = tables.healthy()
    page = host(widget="dtype_table")
    show(page, history, DtypeFeed(history))
    expect(page.widget).to_contain_text("after iteration 39")
    row = page.widget.locator('tr[data-parameter="head.weight"]')
    for column, text in (("parameter", "float32"), ("gradient", "float32"), ("state", "float32"), ("overflow", "0 %")):
        expect(row.locator(f"[data-column={column}]")).to_contain_text(text)
    expect(page.widget.locator(".gv-summary")).not_to_contain_text("without")
    page.traffic.assert_clean()


def test_a_kept_table_of_many_parameters_says_of_how_many_it_has_no_entries(host: OpenHost) -> None:
    n = KEPT_ENTRIES + 3
    model = torch.nn.Sequential(*(torch.nn.Linear(2, 2, bias=False) for _ in range(n)))
    loop = gv.trainer(model, "mean_squared_error", "sgd")
    loop.run([(torch.ones(1, 2), torch.ones(1, 2))], display=None)
    page = host(widget="dtype_table")
    show(page, loop.history, DtypeFeed(loop.history))
    expect(page.widget.locator(".gv-summary")).to_contain_text("without the entries of 3 gradients")
    page.traffic.assert_clean()
