"""A JupyterLab without the front-end part of widgets: a still picture is shown, and the doctor says what to install."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from . import lab as jupyterlab
from .conftest import OpenNotebook, notebooks
from .lab import Lab

pytestmark = pytest.mark.browser

TRAIN = """
import torch, gradviz as gv
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
data = [(torch.randn(32, 8), torch.randint(4, (32,))) for _ in range(10)]
training = gv.trainer(model, "cross_entropy", "adam")
training.run(data, epochs=2, display=None);
"""


@pytest.fixture
def bare_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    home = tmp_path_factory.mktemp("bare") / "home"
    config = home / "config" / "labconfig"
    config.mkdir(parents=True)
    (config / "page_config.json").write_text(
        json.dumps({"disabledExtensions": {"@jupyter-widgets/jupyterlab-manager": True}})
    )
    server = jupyterlab.start(home)
    yield server
    jupyterlab.stop(server)


@pytest.fixture
def bare_notebook(bare_lab: Lab, browser: Browser, request: pytest.FixtureRequest) -> Iterator[OpenNotebook]:
    with notebooks(bare_lab, browser, request.node) as open_notebook:
        yield open_notebook


@pytest.mark.case("W10")
def test_without_the_front_end_part_a_still_picture_shows_and_the_doctor_says_what_to_install(
    bare_notebook: OpenNotebook,
) -> None:
    page = bare_notebook([TRAIN, "gv.heatmap(training)", "gv.frozen_mask(training)", "report = gv.doctor()"])
    page.run_all()
    page.wait_done(3)
    heatmap, mask, said = (page.cell(place).locator(".jp-OutputArea-output") for place in (1, 2, 3))
    expect(heatmap.locator("figure img.gv-light")).to_be_visible()
    expect(heatmap).to_contain_text("Completed")
    expect(mask.locator("figure")).to_contain_text("Completed")
    expect(said).to_contain_text("-m pip install jupyterlab_widgets")
    expect(said).to_contain_text("@jupyter-widgets/jupyterlab-manager")


def test_where_both_halves_are_there_the_doctor_finds_nothing_missing(notebook: OpenNotebook) -> None:
    page = notebook(["import gradviz as gv; gv.doctor();"])
    page.run_all()
    page.wait_done(0)
    said = page.output_text(0)
    assert "Nothing is missing." in said
    assert "MISSING" not in said
    assert page.lab.origin in said
