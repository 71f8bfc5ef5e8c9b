"""Rows that are looked for and put in order: which stand where, and that each still shows its own numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import expect

from gradviz.widgets.colours import VIRIDIS

from . import colours, pixels
from .host import Host, OpenHost

pytestmark = pytest.mark.browser

EVIL = "<img src=x onerror=document.title='run'>.weight"
NAMES = ["encoder.0.attn.weight", "encoder.0.attn.bias", "encoder.1.attn.weight", "head.weight", EVIL]


def show(page: Host) -> pd.DataFrame:
    page.start(NAMES)
    norms = np.tile(np.float32([[1, 8, 2, 4, 0.5, 1]]), (20, 1))
    norms[10:, 2] = 200  # changes most
    page.send(norms, np.zeros_like(norms, dtype=np.uint8), iterations=20)
    pixels.wait_painted(page.widget, 20)
    return pd.DataFrame(norms[:, :-1], columns=NAMES)


def rows(page: Host) -> list[str]:
    page.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return list(pixels.grab(page.widget).rows)


def test_words_find_rows_and_each_keeps_its_numbers(host: OpenHost) -> None:
    page = host()
    norms = show(page)
    search = page.widget.get_by_role("searchbox")
    search.fill("ATTN weight")
    assert rows(page) == [NAMES[0], NAMES[2]]
    picture = pixels.grab(page.widget)
    cells = [(name, iteration) for name in picture.rows for iteration in range(20)]
    colours.assert_cells(picture, norms, VIRIDIS, cells)
    search.fill("<img")
    assert rows(page) == [EVIL]
    assert page.page.title() != "run"
    search.fill("nothing like it")
    expect(page.widget.locator(".gv-empty")).to_have_text("no parameter has such a name")
    search.fill("")
    assert rows(page) == NAMES
    page.traffic.assert_clean()


def test_rows_stand_by_size_by_change_and_as_declared(host: OpenHost) -> None:
    page = host()
    norms = show(page)
    button = page.widget.get_by_role("button", name="rows:")
    button.nth(1).click()
    assert rows(page) == [NAMES[i] for i in (2, 1, 3, 0, 4)]
    expect(button.nth(1)).to_have_attribute("aria-pressed", "true")
    picture = pixels.grab(page.widget)
    colours.assert_cells(picture, norms, VIRIDIS, [(name, 15) for name in NAMES])
    assert "norm 200" in page.point_at(NAMES[2], 15)
    button.nth(2).click()
    assert rows(page) == [NAMES[i] for i in (2, 0, 1, 3, 4)]
    button.nth(0).click()
    assert rows(page) == NAMES


def test_new_iterations_do_not_move_sorted_rows(host: OpenHost) -> None:
    page = host()
    show(page)
    page.widget.get_by_role("button", name="largest first").click()
    before = rows(page)
    more = np.float32([[1e5, 1, 1, 1, 1, 1]])
    page.send(more, np.zeros_like(more, dtype=np.uint8), iterations=21)
    pixels.wait_painted(page.widget, 21)
    assert rows(page) == before
    page.widget.get_by_role("button", name="largest first").click()
    assert rows(page)[0] == NAMES[0]


def test_keys_written_into_the_filter_do_nothing_else(host: OpenHost) -> None:
    page = host()
    show(page)
    page.widget.get_by_role("searchbox").press_sequentially("t+0 -")
    assert pixels.grab(page.widget).span == 20
    assert page.widget.evaluate("root => root.dataset.lmSuppressShortcuts") == "true"


def test_rows_are_there_after_a_search_that_was_begun_far_below(host: OpenHost) -> None:
    page = host()
    names = [f"weight_{i:03}" for i in range(200)]
    page.start(names)
    norms = np.ones((20, 201), np.float32)
    page.send(norms, np.zeros_like(norms, dtype=np.uint8), iterations=20)
    pixels.wait_painted(page.widget, 20)
    page.widget.locator(".gv-scroll").evaluate("box => { box.scrollTop = box.scrollHeight; }")
    expect(page.widget.locator("[data-parameter]").last).to_have_attribute("data-parameter", names[-1])
    search = page.widget.get_by_role("searchbox")
    for text in ("weight_00", "weight_0", ""):
        search.fill(text)
        rows(page)
        top = page.widget.locator(".gv-scroll").evaluate("box => Math.floor(box.scrollTop / 15)")
        found = [name for name in names if text in name]
        assert rows(page)[0] in found[: top + 1], "The first row in view is painted."
        assert set(found[top : top + 40]) <= set(rows(page))


def test_only_rows_that_go_on_out_of_sight_fade(host: OpenHost) -> None:
    page = host()
    page.start([f"weight_{i:03}" for i in range(200)])
    page.send(np.ones((20, 201)), np.zeros((20, 201)), iterations=20)
    pixels.wait_painted(page.widget, 20)
    masks = """root => [...root.querySelectorAll('div:not(.gv-line)')]
      .filter(each => getComputedStyle(each).maskImage.includes('gradient')).map(each => each.className)"""
    assert page.widget.evaluate(masks) == ["gv-scroll gv-scrolls gv-below"]
