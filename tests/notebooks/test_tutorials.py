"""What all tutorials keep to."""

from __future__ import annotations

import re

import nbformat
import pytest

from tests.notebooks.executed import NOTEBOOKS, executed


@pytest.fixture(params=NOTEBOOKS, scope="module")
def name(request):
    return request.param


def test_outputs_are_not_kept_in_git(name):
    notebook = nbformat.read(NOTEBOOKS[name], as_version=4)
    assert all(not cell.get("outputs") and not cell.get("execution_count") for cell in notebook.cells)
    assert "widgets" not in notebook.metadata


def test_every_cell_runs_and_nothing_is_written_to_stderr(name):
    outputs = [output for cell in executed(name).notebook.cells for output in cell.get("outputs", [])]
    assert [output for output in outputs if output["output_type"] == "error"] == []
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []


def test_it_takes_little_time_and_memory(name):
    run = executed(name)
    print(f"{name}: {run.seconds:.0f} s, {run.peak_gb:.2f} GB")
    assert run.peak_gb < 1.5
    assert run.seconds < 250  # 25 on two cores that do nothing else; here others may


def test_it_begins_with_a_title_ends_with_what_to_try_next_and_its_links_lead_somewhere(name):
    notebook = nbformat.read(NOTEBOOKS[name], as_version=4)
    assert notebook.cells[0].source.startswith("# ")
    assert notebook.cells[-1].source.startswith("## What to try next")
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    linked = re.findall(r"\]\(([^)]+)\.ipynb\)", text)
    assert set(linked) <= set(NOTEBOOKS)
