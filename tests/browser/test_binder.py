"""Binder, as far as it goes here: its script where its base image has been installed, and the first tutorial there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from . import lab as jupyterlab
from . import pixels
from .conftest import OpenNotebook, notebooks
from .test_quickstart import QUICKSTART, training_and_last_cell

pytestmark = [pytest.mark.browser, pytest.mark.case("N02")]

ROOT = Path(__file__).parents[2]
BINDER = Path(sys.prefix) / "binder"
BASE = (ROOT / "tests" / "binder" / "base.txt").read_text().splitlines()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What git has of the project, in a folder of its own."""
    folder = tmp_path_factory.mktemp("binder") / "checkout"
    listed = subprocess.check_output(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, text=True)
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def built(checkout: Path) -> Path:
    """The checkout, after the script has run in it."""
    assert BINDER.is_dir(), f"Nothing is installed in {BINDER}; make test does it."
    path = f"{BINDER / 'bin'}:{os.environ['PATH']}"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PATH": path}
    said = subprocess.run(
        ["./binder/postBuild"], cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stdout + said.stderr
    return checkout


@pytest.fixture(scope="module")
def in_binder(
    built: Path, browser: Browser, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OpenNotebook]:
    server = jupyterlab.start(tmp_path_factory.mktemp("lab") / "home", str(BINDER / "bin" / "python"))
    try:
        with notebooks(server, browser, request.node) as open_notebook:
            yield open_notebook
    finally:
        jupyterlab.stop(server)


def test_the_package_is_installed_with_its_widgets(built: Path) -> None:
    tell = "import gradviz, pathlib; print(pathlib.Path(gradviz.__file__).parent)"
    python = [str(BINDER / "bin" / "python"), "-I", "-c", tell]
    installed = Path(subprocess.check_output(python, text=True).strip())
    assert installed.is_relative_to(BINDER)
    assert (installed / "static" / "heatmap.js").is_file()


def test_the_first_tutorial_runs_and_its_picture_grows(in_binder: OpenNotebook) -> None:
    training, last = training_and_last_cell()
    notebook = in_binder(QUICKSTART)
    notebook.run_all()
    pixels.wait_painted(notebook.widget(training), 10)
    notebook.wait_done(last)
    assert notebook.page.locator("[data-mime-type$='jupyter.stderr']").all_inner_texts() == []
    assert notebook.evaluate("len(loop.history.norms)") > 10
    version = notebook.evaluate("version('jupyterlab')", "from importlib.metadata import version")
    assert f"jupyterlab=={version}" in BASE
