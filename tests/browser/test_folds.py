"""Modules folded into a row and opened again, by pointer and by keys: what the row shows, and what it says."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import expect

from gradviz.widgets.colours import VIRIDIS

from . import colours, pixels
from .host import Host, OpenHost

pytestmark = pytest.mark.browser

NAMES = ["encoder.0.attn.weight", "encoder.0.attn.bias", "encoder.1.attn.weight", "encoder.1.attn.bias", "head.weight"]


def show(page: Host, names: list[str] = NAMES, iterations: int = 40) -> pd.DataFrame:
    page.start(names)
    norms = np.exp(np.random.default_rng(1).normal(-3, 2, (iterations, len(names) + 1))).astype(np.float32)
    flags = np.zeros_like(norms, dtype=np.uint8)
    norms[20, 1], flags[20, 1] = np.nan, 1
    page.send(norms, flags, iterations=iterations)
    pixels.wait_painted(page.widget, iterations)
    return pd.DataFrame(norms[:, :-1], columns=names)


def module(page: Host, name: str):
    return page.widget.locator(f'[data-module="{name}"]')


def test_a_folded_module_shows_the_largest_of_its_parameters_and_every_mark(host: OpenHost) -> None:
    page = host()
    norms = show(page)
    open_row = pixels.grab(page.widget).rows["encoder.0.attn.bias"]
    module(page, "encoder.0").click()
    expect(module(page, "encoder.0")).to_have_attribute("aria-expanded", "false")
    picture = pixels.grab(page.widget)
    assert list(picture.rows) == ["encoder.0", *NAMES[2:]]
    largest = pd.DataFrame({"encoder.0": norms[NAMES[:2]].max(axis=1)})
    away = [("encoder.0", iteration) for iteration in range(40) if abs(iteration - 20) > 2]
    colours.assert_cells(picture, largest, VIRIDIS, away)
    there = picture.x_of(20)
    assert picture.rows["encoder.0"][there].tolist() == open_row[there].tolist(), "The NaN of one is the row's."

    module(page, "encoder.0").click()
    expect(page.widget.locator("[data-parameter]")).to_have_count(len(NAMES))
    page.traffic.assert_clean()


def test_a_folded_module_says_which_of_its_parameters_it_is_about(host: OpenHost) -> None:
    page = host()
    show(page)
    module(page, "encoder.0").click()
    said = page.point_at("encoder.0", 20)
    assert "encoder.0" in said
    assert "2 parameters" in said
    assert "largest in attn.weight" in said
    assert "NaN in the gradient: attn.bias" in said


def test_keys_fold_and_open_the_module_of_a_row(host: OpenHost) -> None:
    page = host()
    show(page)
    region = page.widget.get_by_role("application")
    region.focus()
    for key in ("ArrowRight", "ArrowDown", " "):
        region.press(key)
    expect(module(page, "encoder.0")).to_have_attribute("aria-expanded", "false")
    expect(page.widget.locator(".gv-live").filter(has_text="encoder.0, iteration 39")).to_be_attached()
    region.press(" ")
    expect(module(page, "encoder.0")).to_have_attribute("aria-expanded", "true")


def test_a_large_model_is_folded_at_first_and_opened_level_by_level(host: OpenHost) -> None:
    page = host()
    names = [f"layers.{layer}.{leaf}" for layer in range(30) for leaf in ("attn.weight", "attn.bias", "mlp.weight")]
    show(page, names)
    rows = page.widget.locator("[data-parameter]")
    expect(rows).to_have_count(30)
    page.widget.get_by_role("button", name="open modules").click()
    expect(rows.first).to_have_text("attn.weightf32")
    page.widget.locator(".gv-scroll").evaluate("box => { box.scrollTop = box.scrollHeight; }")
    expect(rows.last).to_have_attribute("data-parameter", names[-1])
    assert rows.count() < 90, "Rows far out of sight are not in the page."
    picture = pixels.grab(page.widget)
    assert names[-1] in picture.rows
    page.widget.get_by_role("button", name="fold modules").click()
    expect(rows).to_have_count(30)
    page.widget.get_by_role("button", name="fold modules").click()
    expect(rows).to_have_count(1)


def test_folding_moves_nothing_sideways(host: OpenHost) -> None:
    page = host()
    show(page)
    before = page.widget.locator("canvas.gv-heat").bounding_box()
    module(page, "encoder.1").click()
    after = page.widget.locator("canvas.gv-heat").bounding_box()
    assert before is not None
    assert after is not None
    assert (before["x"], before["width"]) == (after["x"], after["width"])


def test_folded_modules_in_another_order_are_named_and_opened_where_they_stand(host: OpenHost) -> None:
    page = host()
    names = [f"layers.{layer}.{leaf}" for layer in range(4) for leaf in ("attn.weight", "attn.bias")]
    page.start(names)
    norms = np.tile(np.float32([[1, 1, 30, 1, 200, 1, 4, 1, 1]]), (20, 1))
    page.send(norms, np.zeros_like(norms, dtype=np.uint8), iterations=20)
    pixels.wait_painted(page.widget, 20)
    page.widget.get_by_role("button", name="fold modules").click()
    page.widget.get_by_role("button", name="largest first").click()
    rows = page.widget.locator("[data-parameter]")
    expect(rows).to_have_text(["layers.22", "layers.12", "layers.32", "layers.02"])
    assert rows.evaluate_all("rows => rows.map(row => row.title)") == [f"layers.{layer}" for layer in (2, 1, 3, 0)]
    module(page, "layers.1").click()
    expect(rows).to_have_text(
        ["layers.22", "layers.1.attn.weightf32", "layers.32", "layers.02", "layers.1.attn.biasf32"]
    )
    assert "200" in page.point_at("layers.2", 10)
