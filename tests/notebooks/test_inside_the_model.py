"""The tutorial on gradients inside a model says what is so."""

from __future__ import annotations

import nbformat
import pytest

from tests.notebooks.executed import NOTEBOOKS, executed

NAME = "06_inside_the_model"


def test_every_gradient_is_read_back_by_product_example_and_epoch():
    results = executed(NAME).results()
    assert "(20, (10, 10, 10), (10, 10))" in results
    assert "True" in results  # the chain rule, between the two products


def test_the_norms_of_examples_find_most_of_the_wrong_labels():
    assert executed(NAME).values["found"] >= 25


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_that_is_no_luck_of_its_seed(seed):
    notebook = nbformat.read(NOTEBOOKS[NAME], as_version=4)
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    story = [code[0], *(source for source in code if "wrong" in source)]
    names: dict[str, object] = {}
    for source in story:
        own = source.replace("manual_seed(0)", f"manual_seed({seed})").replace("default_rng(0)", f"default_rng({seed})")
        exec(own.replace("loop.run(batches, epochs=15)", "loop.run(batches, epochs=15, display=None)"), names)
    assert len(story) == 3
    assert names["found"] >= 25
