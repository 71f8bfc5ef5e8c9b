"""What is left of a run in its notebook: a still picture, wherever and however the notebook is opened again."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pandas as pd
import pytest
from playwright.sync_api import Browser

from . import contrast, static
from .conftest import OpenNotebook
from .deadline import until
from .lab import Theme
from .notebook import Notebook

pytestmark = pytest.mark.browser

SETUP = """
import torch, gradviz as gv
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
data = [(torch.randn(32, 8), torch.randint(4, (32,))) for _ in range(50)]
training = gv.trainer(model, "cross_entropy", "adam").metric("accuracy")
"""
FAIL = """
def stop(state):
    if state.iteration == 120:
        raise RuntimeError("the disk is full")
training.handle_event("iteration_completed", stop)
training.run(data, epochs=3);
"""
SHOW, TRAIN, AGAIN = range(1, 4)
CELLS = [SETUP, "gv.heatmap(training)", "training.run(data, epochs=2);", "training.run(data, epochs=2);"]


@dataclass(frozen=True)
class Saved:
    notebook: Notebook
    norms: pd.DataFrame


@pytest.fixture(scope="module")
def saved(shared_notebook: OpenNotebook) -> Saved:
    """A notebook that ran, was saved, and has lost its kernel."""
    page = shared_notebook([SETUP, CELLS[TRAIN]])
    page.run_all()
    page.wait_done(1)
    figure = page.figure(1)
    norms = page.frame("training.history.norms")
    static.assert_shows(figure, norms)  # in the live session
    static.assert_words(figure, "Completed", "epoch 2 of 2", "iteration 100 of 100", r"mean loss [\d.]+", "accuracy")
    assert figure.locator("code").inner_text() == "gv.dashboard(training)"
    page.save()
    page.shutdown()
    return Saved(page, norms)


@pytest.mark.case("W01")
def test_the_saved_output_is_a_picture_and_words_and_no_widget(saved: Saved) -> None:
    outputs = nbformat.read(saved.notebook.file, as_version=4).cells[1].outputs
    assert [set(output.data) for output in outputs] == [{"text/html", "text/plain"}]
    assert len(json.dumps(outputs)) < 300_000
    assert "Completed" in outputs[0].data["text/plain"]


@pytest.mark.case("W01")
@pytest.mark.parametrize("trusted", [True, False], ids=["trusted", "untrusted"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_notebook_reopened_without_its_kernel_shows_the_picture(
    saved: Saved, notebook: OpenNotebook, theme: Theme, trusted: bool
) -> None:
    file = saved.notebook.file
    if not trusted:  # written by somebody else: the signature is of other contents
        content = nbformat.read(file, as_version=4)
        content.cells[0].source += "# edited\n"
        file = file.with_name(f"untrusted-{theme}.ipynb")
        nbformat.write(content, file)
    page = notebook(file, theme=theme)
    assert page.is_trusted(1) is trusted
    figure = page.figure(1)
    static.assert_shows(figure, saved.norms)
    static.assert_words(figure, "Completed", r"gv\.dashboard\(training\)")
    contrast.assert_readable(figure)
    dark = figure.locator("img.gv-dark")
    assert dark.is_visible() is (trusted and theme == "dark")
    assert figure.locator("img").first.bounding_box()["width"] > 600
    page.screenshot(f"static-reopened-{theme}-{'trusted' if trusted else 'untrusted'}", figure)
    page.traffic.assert_clean()


@pytest.mark.case("W01")
def test_an_exported_page_shows_the_picture_without_a_network(saved: Saved, browser: Browser, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "nbconvert", "--to", "html", "--output-dir", str(tmp_path)]
    subprocess.run([*command, str(saved.notebook.file)], check=True, capture_output=True)
    context = browser.new_context(offline=True)
    try:
        page = context.new_page()
        page.route("http*://**", lambda route: route.abort())
        page.goto((tmp_path / saved.notebook.file.with_suffix(".html").name).as_uri(), wait_until="domcontentloaded")
        figure = page.locator("figure")
        static.assert_shows(figure, saved.norms)
        static.assert_words(figure, "Completed", r"gv\.dashboard\(training\)")
        figure.screenshot(path=saved.notebook.screenshot_path("static-nbconvert"))
    finally:
        context.close()


def test_the_users_own_heatmap_lives_on_and_a_second_run_is_live_again(notebook: OpenNotebook) -> None:
    page = notebook(CELLS)
    for cell in range(AGAIN + 1):
        page.run(cell)
        page.wait_done(cell)
    norms = page.frame("training.history.norms")
    assert len(norms) == 200
    static.assert_shows(page.figure(TRAIN), norms[:100])
    static.assert_shows(page.figure(AGAIN), norms)
    live = page.widget(SHOW)
    live.scroll_into_view_if_needed()  # out of sight, nothing is drawn
    until(lambda: "Completed" in live.inner_text(), "the user's own heatmap has heard of the end")
    assert page.page.locator(".gv-heatmap").count() == 1
    assert page.evaluate("sum(type(w).__name__ == 'Heatmap' for w in W.values())", OPEN) == 1
    page.reload()
    static.assert_shows(page.figure(TRAIN), norms[:100])
    page.widget(SHOW).wait_for()
    page.traffic.assert_clean()


OPEN = "from ipywidgets.widgets.widget import _instances as W"


def test_after_an_error_the_picture_stands_above_the_traceback(notebook: OpenNotebook) -> None:
    page = notebook([SETUP, FAIL])
    page.run_all()
    page.wait_done(1)
    figure = page.figure(1)
    norms = page.frame("training.history.norms")
    assert len(norms) == 121
    static.assert_shows(figure, norms)
    static.assert_words(figure, "Failed", "RuntimeError: the disk is full", "epoch 3 of 3", "iteration 121 of 150")
    assert "RuntimeError: the disk is full" in page.output_text(1)
    page.traffic.assert_clean()


@pytest.mark.case("W06")
def test_twenty_reruns_leave_one_live_model_in_the_browser_and_in_the_kernel(notebook: OpenNotebook) -> None:
    train = SETUP + "training.run(data, epochs=1);"
    page = notebook([train])
    for turn in range(1, 21):
        page.run(0)
        page.wait_count(0, turn)
    page.figure(0)
    assert page.evaluate("sum(type(w).__name__ == 'Heatmap' for w in W.values())", OPEN) <= 1
    assert page.evaluate("len(W)", OPEN) <= 2 * (5 + 3)  # its pictures and three boxes, with their layouts
    page.traffic.assert_clean()


# A transformer whose run was bad in every way; only its history is there.
WIDE = """
import numpy as np, gradviz as gv
from IPython.display import display
from gradviz.history.schema import Parameter
from gradviz.widgets.static_view import static_bundle
from gradviz.history.schema import FROZEN, OK, UNUSED

inner = ["norm1", "attn.qkv", "attn.out", "norm2", "mlp.0", "mlp.2"]
blocks = [f"blocks.{i}.{name}.{kind}" for i in range(N_BLOCKS) for name in inner for kind in ("weight", "bias")]
names = ["embed.weight", *blocks, "head.weight", "head.bias", "<img src=x onerror=document.title='run'>.weight"]
history, n, random = gv.History(), len(names), np.random.default_rng(0)
dtypes = ["bfloat16" if "mlp" in name else "float32" for name in names]
history.declare([Parameter(name=name, shape=(64, 64), dtype=dtype) for name, dtype in zip(names, dtypes)])
size = random.normal(-2, 1, n)
for i in range(1300):
    table = np.zeros((n, 8))
    table[:, 0] = 10 ** (size - i / 1300 + 0.1 * random.normal(size=n))
    states = np.full(n, OK, np.uint8)
    states[0] = FROZEN if i < 400 else OK
    states[-1] = UNUSED
    if i in (1016, 1017):
        table[1:-1, 0], table[1:-1, 5] = np.nan, 3
    if 1060 < i < 1150:
        table[5, 0], table[5, 6] = np.inf, 1
    if 700 < i < 800:
        table[7, 0] = 0
    table[states != OK] = np.nan
    loss = np.nan if i == 1016 else 2 * np.exp(-i / 400) + 0.1 * random.random()
    history.append(i, i // 260, table, states, {"loss": loss})
progress = history.progress
progress.status, progress.epoch, progress.epochs, progress.iteration, progress.iterations = "failed", 4, 6, 1300, 1560
progress.metrics, progress.message = {"loss": 0.214, "accuracy": 0.9}, "RuntimeError: the loss is not finite"
display(static_bundle(history, code="gv.heatmap(history)"), raw=True)
"""


@pytest.mark.parametrize("blocks", [2, 12], ids=["narrow-model", "wide-model"])
def test_a_run_that_went_wrong_can_be_read_in_any_theme_and_width(notebook: OpenNotebook, blocks: int) -> None:
    page = notebook([WIDE.replace("N_BLOCKS", str(blocks))])
    page.run_all()
    page.wait_done(0)
    figure = page.figure(0)
    parameters = 12 * blocks + 4
    static.assert_words(
        figure,
        "Failed",
        "RuntimeError: the loss is not finite",
        "NaN in the loss, first at iteration 1,016",
        f"NaN in {parameters - 2} of {parameters} parameters, first at iteration 1,016 in blocks.0.norm1.weight, ",
        "Unused all the time, 1 of .*: <img src=x onerror=document.title='run'>.weight",
        "Frozen at times, 1 of .*: embed.weight",
    )
    assert page.page.title() != "run"
    for theme in ("light", "dark"):
        for width in (1280, 480):
            page.set_theme(theme)
            page.resize(width)
            contrast.assert_readable(figure)
            box = figure.locator("img").first.bounding_box()
            assert box is not None
            assert box["width"] >= 600
            page.screenshot(f"static-wrong-{blocks}-{theme}-{width}", figure)
    page.traffic.assert_clean()
