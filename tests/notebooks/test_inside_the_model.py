"""The tutorial on gradients inside a model says what is so."""

from __future__ import annotations

import ast
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "06_inside_the_model.ipynb"


@pytest.fixture(scope="module")
def executed():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    claims = "int(found), len(every), bool(np.allclose(first, second @ w[7].numpy().T, rtol=1e-4)), second.shape"
    notebook.cells.append(nbformat.v4.new_code_cell(claims))
    return NotebookClient(notebook, timeout=300, kernel_name="python3").execute()


def claimed(notebook):
    outputs = notebook.cells[-1].outputs
    return ast.literal_eval(next(o["data"]["text/plain"] for o in outputs if o.output_type == "execute_result"))


def test_outputs_are_not_kept_in_git():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.get("outputs") and not cell.get("execution_count") for cell in notebook.cells)


def test_every_gradient_is_read_back_by_product_example_and_epoch(executed):
    assert claimed(executed)[1:] == (20, True, (10, 10))


def test_the_norms_of_examples_find_most_of_the_wrong_labels(executed):
    assert claimed(executed)[0] >= 25
