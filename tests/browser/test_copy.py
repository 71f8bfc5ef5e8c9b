"""Taking the picture elsewhere: as numbers, exactly, and as a picture; and where the clipboard is shut."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import expect

from . import pixels
from .host import ORIGIN, Host, OpenHost

pytestmark = pytest.mark.browser

NAMES = ["a.weight", 'b."odd", name', "c.nan", "c.posinf", "c.unused", "c.zero"]
NAN, POSINF, ZERO, UNUSED = 1, 2, 8, 16
LENGTH = 12


def show(page: Host) -> pd.DataFrame:
    page.start(NAMES)
    norms = np.exp(np.random.default_rng(5).normal(-3, 2, (LENGTH, len(NAMES) + 1))).astype(np.float32)
    flags = np.zeros(norms.shape, np.uint8)
    norms[5:, 2:5] = np.nan
    norms[5:, 5] = 0
    flags[5:, 2:6] = NAN, POSINF, UNUSED, ZERO
    page.send(norms, flags, iterations=LENGTH)
    pixels.wait_painted(page.widget, LENGTH)
    frame = pd.DataFrame(norms[:, :-1], columns=NAMES, index=pd.RangeIndex(LENGTH, name="iteration"))
    frame.loc[5:, "c.posinf"] = np.inf
    return frame


def press(page: Host, kind: str) -> str:
    page.widget.get_by_role("button", name=f"copy as {kind}").click()
    said = page.widget.locator(".gv-said")
    expect(said).to_be_visible()
    return said.inner_text()


def test_the_numbers_are_copied_exactly_as_the_history_s_frames_have_them(host: OpenHost) -> None:
    page = host()
    page.page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=ORIGIN)
    norms = show(page)
    assert press(page, "CSV") == "Copied as CSV."
    text = page.page.evaluate("navigator.clipboard.readText()")
    read = pd.read_csv(io.StringIO(text), index_col="iteration")
    assert read.pop("last_iteration").tolist() == list(range(LENGTH))
    pd.testing.assert_frame_equal(read, norms.astype(np.float64))
    assert text.splitlines()[6].split(",")[4:] == ["nan", "inf", "", "0"], "NaN is not what is missing."
    page.traffic.assert_clean()


def test_only_what_is_in_view_is_copied(host: OpenHost) -> None:
    page = host()
    page.page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=ORIGIN)
    norms = show(page)
    page.widget.get_by_role("searchbox").fill("weight")
    page.widget.get_by_role("application").press("+")
    page.page.wait_for_function("document.querySelector('canvas.gv-heat').dataset.span == 8")
    press(page, "CSV")
    read = pd.read_csv(io.StringIO(page.page.evaluate("navigator.clipboard.readText()")), index_col="iteration")
    assert read["a.weight"].tolist() == norms["a.weight"].astype(float).iloc[-8:].tolist()
    assert list(read) == ["last_iteration", "a.weight"]


@pytest.mark.parametrize("scale", [1, 2])
def test_the_picture_is_copied_with_its_cells_in_place(host: OpenHost, scale: int) -> None:
    page = host(scale=scale)
    page.page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=ORIGIN)
    show(page)
    assert press(page, "PNG") == "Copied as PNG."
    same, width, texts = page.page.evaluate("""async () => {
        const [item] = await navigator.clipboard.read();
        const picture = await createImageBitmap(await item.getType("image/png"));
        const canvas = new OffscreenCanvas(picture.width, picture.height);
        const x = canvas.getContext("2d");
        x.drawImage(picture, 0, 0);
        const root = document.querySelector(".gv-heatmap").getBoundingClientRect();
        const heat = document.querySelector("canvas.gv-heat");
        const box = heat.getBoundingClientRect();
        const pixel = (x, left, top) => x.getImageData(Math.round(left), Math.round(top), 1, 1).data.join();
        const dpr = devicePixelRatio;
        const inPicture = (left, top) => pixel(x, (left - root.left) * dpr, (top - root.top) * dpr);
        const inHeat = (left, top) => pixel(heat.getContext("2d"), left, top);
        let same = 0;
        for (let i = 0; i < 5; i++) {
            const [left, top] = [Math.round((i + 0.5) * heat.width / 12), Math.round(7 * devicePixelRatio)];
            const [x, y] = [box.left + left / devicePixelRatio, box.top + top / devicePixelRatio];
            same += inPicture(x, y) === inHeat(left, top);
        }
        // There is ink where a name stands.
        const label = document.querySelector(".gv-name").getBoundingClientRect();
        const inks = new Set();
        for (let i = 0; i < 40; i++) inks.add(inPicture(label.left + i, label.top + label.height / 2));
        return [same, picture.width / devicePixelRatio - root.width, inks.size];
    }""")
    assert same == 5
    assert abs(width) < 1
    assert texts > 1
    page.traffic.assert_clean()


@pytest.mark.parametrize("kind", ["CSV", "PNG"])
def test_where_the_clipboard_is_shut_a_file_is_saved_and_that_is_said(host: OpenHost, kind: str) -> None:
    page = host()
    show(page)
    page.page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    with page.page.expect_download() as download:
        said = press(page, kind)
    name = f"gradients.{kind.lower()}"
    assert said == f"This page may not write to the clipboard, so {name} was saved as a file."
    assert download.value.suggested_filename == name
    assert Path(download.value.path()).read_bytes().startswith(b"iteration" if kind == "CSV" else b"\x89PNG")


def test_the_numbers_are_a_table_for_those_who_do_not_see_the_picture(host: OpenHost) -> None:
    page = host()
    norms = show(page)
    page.widget.get_by_text("Numbers as a table").click()
    table = page.widget.get_by_role("table")
    expect(table.get_by_role("caption")).to_have_text("gradient norms, iterations 0–11")
    rows = {
        row.get_by_role("rowheader").inner_text(): row.get_by_role("cell").all_inner_texts()
        for row in table.get_by_role("row").all()[1:]
    }
    assert list(rows) == NAMES
    newest, largest, smallest, seen = rows["a.weight"]
    assert [float(each) for each in (newest, largest, smallest)] == pytest.approx(
        [norms["a.weight"].iloc[-1], norms["a.weight"].max(), norms["a.weight"].min()], rel=1e-3
    )
    assert seen == ""
    assert rows["c.nan"][0] == "–, NaN in the gradient"
    assert rows["c.nan"][3] == "NaN in the gradient"
    assert rows["c.unused"][3] == "unused: no path from the loss (in part)"
    page.traffic.assert_clean()
