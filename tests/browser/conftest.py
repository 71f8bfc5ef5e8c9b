"""Fixtures: one JupyterLab and one Chromium for all tests here, a fresh page and kernel for each notebook.

They last as long as this folder's tests, not the whole session: an open playwright keeps an event loop in the
main thread, and `asyncio.run` in somebody else's test would trip over it.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ViewportSize, expect, sync_playwright

from . import chromium
from . import lab as jupyterlab
from .deadline import PATIENCE_S
from .host import Host, OpenHost
from .lab import Lab, Theme
from .notebook import Notebook

OpenNotebook = Callable[..., Notebook]

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    # Nothing is asked of the network.
    *("--disable-quic", "--no-first-run", "--no-proxy-server", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
    # A page that nobody looks at goes on at full speed.
    *(
        "--disable-background-timer-throttling",
        "--disable-backgrounding-occluded-windows",
        "--disable-renderer-backgrounding",
    ),
]


@pytest.fixture(scope="package")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    server = jupyterlab.start(tmp_path_factory.mktemp("lab") / "home")
    yield server
    jupyterlab.stop(server)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    executable = chromium.find()
    if executable is None:
        pytest.fail(f"There is no Chromium: {chromium.APT}, or leave these tests out: pytest -m 'not browser'.")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        expect.set_options(timeout=PATIENCE_S * 1000)
        yield running
        running.close()


@pytest.fixture
def host(browser: Browser) -> Iterator[OpenHost]:
    """`host(theme=, width=, scale=, widget=, form=)`: the mini page, without a widget yet."""
    contexts = []

    def open_host(
        *,
        theme: Theme = "light",
        width: int | None = None,
        scale: float = 1,
        widget: str = "heatmap",
        form: str = "lab",
    ) -> Host:
        viewport: ViewportSize = {"width": max(1000, (width or 0) + 24), "height": 800}
        contexts.append(browser.new_context(viewport=viewport, device_scale_factor=scale))
        contexts[-1].set_default_timeout(PATIENCE_S * 1000)
        return Host(contexts[-1].new_page(), theme, width, widget, form)

    yield open_host
    for context in contexts:
        context.close()


@pytest.fixture
def notebook(lab: Lab, browser: Browser, request: pytest.FixtureRequest) -> Iterator[OpenNotebook]:
    """`notebook([source, ...])` or `notebook(path)`: a copy, open in a page of its own, its kernel ready."""
    with notebooks(lab, browser, request.node) as open_notebook:
        yield open_notebook


@pytest.fixture(scope="module")
def shared_notebook(lab: Lab, browser: Browser, request: pytest.FixtureRequest) -> Iterator[OpenNotebook]:
    """The same for a notebook that all tests of a module look at."""
    with notebooks(lab, browser, request.node) as open_notebook:
        yield open_notebook


@contextmanager
def notebooks(lab: Lab, browser: Browser, owner: pytest.Item | pytest.Module) -> Iterator[OpenNotebook]:
    """Opens notebooks of a server for one test or module, with pictures of those that fail."""
    opened: list[Notebook] = []
    name = re.sub(r"\W+", "-", owner.name).strip("-")

    def open_notebook(
        content: list[str] | Path,
        *,
        theme: Theme = "light",
        width: int = 1280,
        scale: float = 1,
        kernel: str = jupyterlab.NEWEST,
    ) -> Notebook:
        file = lab.root / f"{name}-{len(opened)}.ipynb"
        if isinstance(content, Path):
            shutil.copyfile(content, file)
        else:
            file.write_text(json.dumps(notebook_of(content, kernel)))
        lab.set_theme(theme)
        context = browser.new_context(viewport={"width": width, "height": 1000}, device_scale_factor=scale)
        context.set_default_timeout(PATIENCE_S * 1000)
        page = Notebook(lab, context.new_page(), file)
        opened.append(page)
        page.open()
        return page

    try:
        yield open_notebook
    finally:
        for page in opened:
            if owner.stash.get(_FAILED, False):
                page.screenshot(f"failed-{page.file.stem}")
            page.close()


def notebook_of(sources: list[str], kernel: str) -> dict[str, object]:
    blank: dict[str, object] = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    cells = [blank | {"id": f"cell-{i}", "source": source} for i, source in enumerate(sources)]
    spec = {"name": kernel, "display_name": kernel, "language": "python"}
    return {"cells": cells, "metadata": {"kernelspec": spec}, "nbformat": 4, "nbformat_minor": 5}


_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for owner in item.listchain():
            owner.stash[_FAILED] = True
    return report
