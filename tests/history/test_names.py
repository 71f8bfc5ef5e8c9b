"""A parameter has one name, whatever is wrapped around its model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from gradviz.grad.leaves import INNER_NAMES
from gradviz.history.names import unwrapped

PARTS = st.sampled_from(["module", "_orig_mod", "_fsdp_wrapped_module", "head", "weight"])
NAMES = st.lists(PARTS, min_size=1, max_size=4).map(".".join)


@pytest.mark.parametrize(
    "name",
    [
        "module.encoder.0.weight",
        "_orig_mod.encoder.0.weight",
        "module._orig_mod.encoder.0.weight",
        "_orig_mod.module.encoder.0.weight",
        "encoder._orig_mod.0.weight",
        "encoder.module.0.weight",
        "_fsdp_wrapped_module.encoder.0._checkpoint_wrapped_module.weight",
    ],
)
def test_prefixes_of_wrappers_are_removed_wherever_they_stand(name: str):
    assert unwrapped([["encoder.0.weight"], [name]])[1] == {name: "encoder.0.weight"}


def test_every_wrapper_that_the_leaves_of_a_model_know_is_known_here():
    for inner in INNER_NAMES.values():
        assert unwrapped([[f"{inner}.weight"]]) == [{f"{inner}.weight": "weight"}]
    compiled = [name for name, _ in nn.DataParallel(nn.Linear(2, 2)).named_parameters()]
    assert list(unwrapped([compiled])[0].values()) == ["weight", "bias"]


def test_but_not_where_two_names_would_become_one():
    two = ["module.weight", "_orig_mod.module.bias", "weight"]
    assert list(unwrapped([two, ["weight", "module.bias"]])[0].values()) == ["module.weight", "bias", "weight"]


def test_the_last_part_of_a_name_is_never_a_wrapper():
    assert unwrapped([["module", "head.module"]]) == [{"module": "module", "head.module": "head.module"}]


@given(st.lists(st.lists(NAMES, unique=True, max_size=6), min_size=1, max_size=3))
def test_names_of_one_run_never_meet(runs: list[list[str]]):
    for own, names in zip(runs, unwrapped(runs), strict=True):
        assert list(names) == own
        assert len(set(names.values())) == len(own)
