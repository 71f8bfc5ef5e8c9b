"""Other statistics and stages: asked of the kernel, which answers when it is free."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import expect

from gradviz.widgets.colours import BLUE_ORANGE, VIRIDIS

from . import colours, pixels
from .conftest import OpenNotebook
from .host import Host, OpenHost

pytestmark = pytest.mark.browser

TRAIN = """
import gradviz as gv, torch, time
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
loop = gv.trainer(model, "cross_entropy", "sgd", clip=0.1, stages=("backward", "clipped"))
batches = [(torch.randn(8, 4), torch.randint(2, (8,))) for _ in range(64)]
loop.run(batches, epochs=1)
gv.heatmap(loop)
"""
BLOCK = "open('blocked', 'w').close()\nwhile not __import__('os').path.exists('free'): time.sleep(0.05)"


def show(page: Host) -> None:
    page.start(["a.weight", "b.weight"])
    norms = np.full((10, 3), 0.1, np.float32)
    page.send(norms, np.zeros_like(norms, dtype=np.uint8), iterations=10)
    pixels.wait_painted(page.widget, 10)


def test_a_question_is_put_and_the_view_says_that_it_waits(host: OpenHost) -> None:
    page = host()
    show(page)
    expect(page.widget.get_by_role("group", name="stage")).to_be_hidden()
    page.widget.get_by_role("button", name="mean", exact=True).click()
    note = page.widget.locator(".gv-note")
    expect(note).to_have_text("waiting for the kernel …")
    asked = [said for said in page.page.evaluate("host.sent") if said["kind"] == "ask"]
    assert [(each["statistic"], each["stage"], each["start"], each["stop"]) for each in asked] == [
        ("mean", "backward", 0, 10)
    ]
    assert "norm 0.1" in page.point_at("a.weight", 5), "Meanwhile there is what was there."
    failed = {"kind": "answer", "id": asked[0]["id"], "error": "HistoryError: <b>no</b>"}
    page.page.evaluate("said => host.send(said)", json.loads(json.dumps(failed)))
    expect(note).to_have_text("HistoryError: <b>no</b>")
    expect(page.widget.get_by_role("button", name="norm", exact=True)).to_have_attribute("aria-pressed", "true")
    page.traffic.assert_clean()


def test_statistics_and_stages_have_the_history_s_numbers_in_jupyterlab(notebook: OpenNotebook) -> None:
    lab = notebook([TRAIN, BLOCK])
    lab.run(0)
    lab.wait_done(0)
    widget = lab.widget(0)
    pixels.wait_painted(widget, 64)

    def choose(word: str, label: str) -> pixels.Picture:
        widget.get_by_role("button", name=word, exact=True).click()
        expect(widget.locator(".gv-foot")).to_contain_text(label)
        lab.settle()
        return pixels.grab(widget)

    picture = choose("clipped", "clipped gradient, norm")
    clipped = lab.frame("loop.history.wide('norm', stage='clipped')")
    cells = [(name, iteration) for name in picture.rows for iteration in range(64)]
    colours.assert_cells(picture, clipped, VIRIDIS, cells)

    picture = choose("rms", "clipped gradient, rms")
    sizes = np.array([lab.evaluate(f"model.get_parameter({name!r}).numel()") for name in clipped])
    colours.assert_cells(picture, clipped / np.sqrt(sizes), VIRIDIS, cells)

    choose("backward", "gradient, rms")
    picture = choose("mean", "gradient, mean")
    means = lab.frame("loop.history.wide('mean')")
    lab.screenshot("choices-mean", widget)
    for name, iteration in cells:
        value = means[name][iteration]
        red, _, blue = picture.rgb(name, picture.x_of(iteration))
        assert (red > blue) == (value > 0) or abs(value) < 10**picture.lo, (name, iteration, value)
    assert set(map(tuple, picture.rows["0.weight"][:, :3].tolist())) <= {
        colours.entry(BLUE_ORANGE, i) for i in range(256)
    }

    picture = choose("zeros", "gradient, share of zeros")
    zeros = lab.frame("loop.history.wide('zero_fraction')")
    assert (picture.lo, picture.hi) == (0, 1)
    for name, iteration in cells[::7]:
        expected = min(255, int(np.float32(zeros[name][iteration]) * 256))
        colours.assert_colour(picture.rgb(name, picture.x_of(iteration)), expected, VIRIDIS)
    lab.traffic.assert_clean()


def test_a_blocked_kernel_answers_afterwards_and_all_else_goes_on(notebook: OpenNotebook) -> None:
    lab = notebook([TRAIN, BLOCK])
    lab.run(0)
    lab.wait_done(0)
    widget = lab.widget(0)
    pixels.wait_painted(widget, 64)
    lab.run(1)
    lab.wait_busy(1)
    widget.scroll_into_view_if_needed()
    widget.get_by_role("button", name="zoom in").click()
    lab.page.wait_for_function("document.querySelector('canvas.gv-heat').dataset.span == 32")
    widget.get_by_role("button", name="largest first").click()
    widget.get_by_role("searchbox").fill("weight")
    expect(widget.locator("[data-parameter]")).to_have_count(2)
    # Some kernels answer beside the cell that runs, and others when it is over.
    widget.get_by_role("button", name="max", exact=True).click()
    (lab.lab.root / "free").touch()
    lab.wait_done(1)
    expect(widget.locator(".gv-foot")).to_contain_text("gradient, largest entry")
    largest: pd.DataFrame = lab.frame("loop.history.wide('max_abs')")
    lab.settle()
    picture = pixels.grab(widget)
    shown = range(picture.start, picture.start + picture.span)
    colours.assert_cells(picture, largest, VIRIDIS, [(name, i) for name in picture.rows for i in shown])
    lab.traffic.assert_clean()
