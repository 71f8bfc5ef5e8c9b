"""Screenshots of every widget, to be looked at: in both themes, wide and narrow, of runs that went well and did not.

make shots                               into dist/shots
python -m tests.browser.shots FOLDER
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt
from playwright.sync_api import Browser, sync_playwright

from gradviz.history.history import History
from gradviz.widgets.page import page_of

from . import chromium, inspections, masks, pixels, tables
from .conftest import FLAGS
from .host import PROJECT, Host
from .lab import Theme

WIDTHS = 1280, 480
THEMES: tuple[Theme, ...] = ("light", "dark")
LENGTH = 600
NAMES = [
    *("embed.weight", "position.weight"),
    *(
        f"blocks.{i}.{name}.{kind}"
        for i in range(4)
        for name in ("norm", "attn.qkv", "attn.out", "mlp.0", "mlp.2")
        for kind in ("weight", "bias")
    ),
    *("head.weight", "head.bias"),
]

Run = tuple[npt.NDArray[np.float32], npt.NDArray[np.uint8]]


def healthy() -> Run:
    """Norms that fall slowly, of modules of different sizes; two parameters are frozen, and one is unused."""
    draw = np.random.default_rng(0)
    size = draw.normal(-1.5, 0.6, len(NAMES))
    noise = draw.normal(0, 0.25, (LENGTH, len(NAMES)))
    norms = np.exp(size + noise - np.linspace(0, 1.5, LENGTH)[:, None])
    loss = 2.5 * np.exp(-np.linspace(0, 2.5, LENGTH)) + 0.2 + draw.normal(0, 0.03, LENGTH)
    values = np.column_stack([norms, loss]).astype(np.float32)
    flags = np.zeros(values.shape, np.uint8)
    for place, flag in ((0, 32), (1, 32), (5, 16)):
        values[:, place], flags[:, place] = np.nan, flag
    return values, flags


def vanishing() -> Run:
    """Norms that fall by a factor of 8 from each block to the one below."""
    values, flags = healthy()
    for place, name in enumerate(NAMES):
        if name.startswith("blocks."):
            values[:, place] *= 8.0 ** (int(name.split(".")[1]) - 3)
    values[300:, 2] = 0
    flags[300:, 2] = 8
    return values, flags


def with_nan() -> Run:
    """The loss grows, one gradient overflows, and then all are NaN."""
    values, flags = healthy()
    growing = slice(400, 450)
    values[growing] *= np.exp(np.linspace(0, 6, 50))[:, None]
    values[450, 6], flags[450, 6] = np.nan, 2
    values[452:, 2:], flags[452:, 2:] = np.nan, 1
    return values, flags


def heatmap(run: Run) -> Callable[[Host], None]:
    """Fill a page with the heatmap of a run."""

    def show(page: Host) -> None:
        values, flags = run
        page.start(NAMES)
        page.send(values, flags, iterations=LENGTH, status="completed")
        pixels.wait_painted(page.widget, LENGTH)

    return show


SCENES: dict[str, dict[str, Callable[[], Callable[[Host], object]]]] = {
    "heatmap": {
        "healthy": lambda: heatmap(healthy()),
        "vanishing": lambda: heatmap(vanishing()),
        "nan": lambda: heatmap(with_nan()),
    },
    "frozen_mask": {
        "healthy": lambda: masks.HEALTHY.show,
        "partly": lambda: masks.PARTLY.show,
        "unused": lambda: masks.UNUSED.show,
    },
    "inspector": {
        "growing": lambda: partial(inspections.Inspected, history=inspections.run(), iteration=1010),
        "nan": lambda: partial(inspections.Inspected, history=inspections.run(), iteration=1017),
        "frozen": lambda: partial(
            inspections.Inspected,
            history=inspections.run(stages=False, examples=False),
            parameter="embed.weight",
            iteration=100,
        ),
    },
    "dtype_table": {
        "healthy": lambda: partial(tables.Shown, history=tables.healthy()),
        "mixed": lambda: partial(tables.Shown, history=tables.mixed()),
        "vanishing": lambda: partial(tables.Shown, history=tables.vanishing()),
        "own_loop": lambda: partial(tables.Shown, history=tables.own_loop()),
    },
}
"""By widget and run: what shows it on a page."""


def at(status: str, iteration: int) -> History:
    """A run with all that can be known of one, at an iteration."""
    history = inspections.run(length=iteration)
    progress = history.progress
    progress.status, progress.epoch, progress.epochs = status, iteration // 330, 4
    progress.iterations = iteration if status == "completed" else inspections.N
    progress.overhead, progress.metrics, progress.loss = 0.018, {"loss": 0.41}, 0.541
    return history


DASHBOARDS: dict[str, Callable[[], History]] = {
    "training": lambda: at("training", 900),
    "paused": lambda: at("paused", 900),
    "nan": lambda: at("failed", inspections.NAN_AT + 20),
    "finished": lambda: at("completed", 1000),
}
"""All pictures of a run at once, as a page of its own has them: the same scripts, and no kernel to hear of buttons."""


def take_dashboards(browser: Browser, folder: Path) -> None:
    """One file for each run, theme and width."""
    for name, made in DASHBOARDS.items():
        text = page_of(made())
        for theme, width in product(THEMES, (1400, 480)):
            context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
            page = context.new_page()
            page.set_content(text)
            page.locator("canvas.gv-heat[data-iterations]").first.wait_for()
            page.locator(".gv-fact").first.wait_for()
            if name == "nan":
                page.get_by_role("button", name="Show", exact=True).click()
                page.locator(".gv-inspected").get_by_text(inspections.LOOKED).wait_for()
            page.screenshot(path=folder / f"dashboard-{name}-{theme}-{width}.png", full_page=True)
            context.close()


def take(folder: Path) -> None:
    """One file for each widget, run, theme and width."""
    executable = chromium.find()
    if executable is None:
        raise SystemExit(f"There is no Chromium to take pictures with: {chromium.APT}")
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        for widget, name in [(widget, name) for widget, runs in SCENES.items() for name in runs]:
            show = SCENES[widget][name]()
            for theme, width in product(THEMES, WIDTHS):
                context = browser.new_context(viewport={"width": width, "height": 700})
                page = Host(context.new_page(), theme, widget=widget)
                show(page)
                page.page.screenshot(path=folder / f"{widget}-{name}-{theme}-{width}.png", full_page=True)
                context.close()
        take_dashboards(browser, folder)
        browser.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]) if len(sys.argv) > 1 else PROJECT / "dist" / "shots")
