"""Closures that find gradients there already: those who train with them step so for every optimizer."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import gradviz as gv


@pytest.fixture
def model():
    return nn.ModuleDict({"a": nn.Linear(1, 1, bias=False), "b": nn.Linear(1, 1, bias=False)})


@pytest.fixture
def optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=1e-3)


def backward(model, **factors):
    """The gradient of each part is its factor."""
    sum(factor * model[name](torch.ones(1, 1)).sum() for name, factor in factors.items()).backward()


def rows(watch, iteration=0):
    rows = watch.history.gradients.query(f"iteration == {iteration}")
    return {(row.parameter[0], row.stage): (row.state, row.norm) for row in rows.itertuples()}


def test_a_closure_that_adds_to_the_gradients_of_earlier_batches_forgets_nobody_whom_they_reached(model, optimizer):
    with gv.watch(model, optimizer) as w:
        for _ in range(2):
            backward(model, a=1.0, b=2.0)
            optimizer.step(lambda: backward(model, a=4.0))
            optimizer.zero_grad()
    for iteration in range(2):
        got = rows(w, iteration)
        assert {name: got[name, "backward"] for name in "ab"} == {"a": ("ok", 5.0), "b": ("ok", 2.0)}


@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_closure_that_clears_the_gradients_of_an_earlier_pass_reaches_what_it_reaches(model, optimizer, set_to_none):
    def closure():
        optimizer.zero_grad(set_to_none=set_to_none)
        backward(model, a=4.0)

    with gv.watch(model, optimizer) as w:
        backward(model, a=1.0, b=2.0)
        optimizer.step(closure)
    got = rows(w)
    assert got["a", "backward"] == ("ok", 4.0)
    assert got["b", "backward"][0] == "unused"


def test_a_closure_without_a_pass_leaves_what_the_pass_before_has_given(model, optimizer):
    def closure():
        nn.utils.clip_grad_norm_(model["b"].parameters(), 1.0)

    with gv.watch(model, optimizer) as w:
        backward(model, a=1.0, b=2.0)
        nn.utils.clip_grad_norm_(model["a"].parameters(), 0.5)
        optimizer.step(closure)
    got = {key: round(norm, 5) for key, (_, norm) in rows(w).items()}
    assert got == {("a", "backward"): 1.0, ("b", "backward"): 2.0, ("a", "clipped"): 0.5, ("b", "clipped"): 1.0}


def test_of_a_pass_that_nobody_heard_of_nothing_is_recorded_and_of_the_next_everything(model, optimizer):
    def fail(_):
        raise OSError("in the middle")

    with gv.watch(model, optimizer) as w:
        hook = model["a"].weight.register_hook(fail)
        with pytest.raises(OSError, match="in the middle"):
            backward(model, a=1.0, b=2.0)
        hook.remove()
        backward(model, a=3.0)  # not by the parameter that came first
        nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        optimizer.step()
        optimizer.zero_grad()
        backward(model, a=3.0)
        optimizer.step()
    assert {state for state, _ in rows(w, 0).values()} == {"not_recorded"}
    assert rows(w, 1)["a", "backward"] == ("ok", 3.0)
    assert rows(w, 1)["b", "backward"][0] == "unused"
