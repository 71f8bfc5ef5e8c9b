"""The pictures of the README: the page of a real run, in both themes.

make pictures                            into notebooks/pictures

A net that reads digits trains with its first layer frozen for half of the run. Near the end batches come that are too
bright, and then one with a NaN in it, whose step the loss scale skips.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

import torch
from PIL import Image
from playwright.sync_api import Locator, Page, sync_playwright
from torch import Tensor

import gradviz as gv
from gradviz.demo import DigitNet, digits

from . import chromium
from .conftest import FLAGS
from .host import PROJECT
from .lab import Theme

PICTURES = PROJECT / "notebooks" / "pictures"
THEMES: tuple[Theme, ...] = ("light", "dark")
EPOCHS = 6
BRIGHT, DAMAGED = range(150, 158), 158
"""Iterations."""
TABS: Mapping[str, str] = {"heatmap": "Heatmap", "mask": "Frozen mask", "dtypes": "Dtypes"}
"""What is taken by itself: its class, and the tab that it is behind."""
SETTLED = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"


def run() -> gv.Loop:
    torch.manual_seed(0)
    images, labels, _ = digits()
    order = torch.randperm(len(images))
    batches = [(images[part], labels[part]) for part in order.split(64)]

    def taken(x: Tensor, iteration: int) -> Tensor:
        return x * (4 if iteration in BRIGHT else float("nan") if iteration == DAMAGED else 1)

    def epoch(number: int) -> list[tuple[Tensor, Tensor]]:
        return [(taken(x, number * len(batches) + i), y) for i, (x, y) in enumerate(batches)]

    model = DigitNet()
    loop = gv.trainer(
        model,
        "cross_entropy",
        "adam",
        clip=1.0,
        loss_scale="dynamic",
        stages=("backward", "clipped", "update"),
        histograms_every=10,
        capture=gv.Capture("head", keep="example_norms"),
    )
    loop.metric("accuracy")
    layers = gv.ModelState(model)
    layers.freeze("stem")

    def thaw(_: object) -> None:
        layers.unfreeze("stem")

    loop.handle_event("epoch_started", thaw, once=4)
    loop.run(epoch, epochs=EPOCHS, display=None)
    return loop


def take(folder: Path) -> None:
    """A picture of the whole page, and of each widget, in each theme."""
    executable = chromium.find()
    if executable is None:
        raise SystemExit(f"There is no Chromium to take pictures with: {chromium.APT}")
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as temporary:
        file = gv.save_html(run(), Path(temporary) / "run.html")
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        for theme in THEMES:
            context = browser.new_context(viewport={"width": 1180, "height": 760}, color_scheme=theme)
            page = context.new_page()
            page.goto(file.as_uri())
            page.locator(".gv-heatmap .gv-heat").wait_for()
            page.locator(".gv-heatmap .gv-label", has_text="head.weight").click()
            page.mouse.move(0, 0)
            keep(page, folder / f"dashboard-{theme}.png")
            keep(page.locator(".gv-inspector"), folder / f"inspector-{theme}.png")
            for kind, title in TABS.items():
                page.get_by_role("tab", name=title).click()
                keep(page.locator(f".gv-{kind}"), folder / f"{kind}-{theme}.png")
            context.close()
        browser.close()


def keep(shown: Page | Locator, file: Path) -> None:
    """As small a file as holds it whole: a checkout has all of them."""
    (shown if isinstance(shown, Page) else shown.page).wait_for_function(SETTLED)
    taken = shown.screenshot(full_page=True) if isinstance(shown, Page) else shown.screenshot()
    Image.open(BytesIO(taken)).convert("RGB").save(file, optimize=True)


if __name__ == "__main__":
    take(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES)
