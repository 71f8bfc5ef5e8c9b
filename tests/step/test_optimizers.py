"""An optimizer comes from a name, a factory or an instance."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

from gradviz.errors import OptimizerError
from gradviz.step.model_state import ModelState
from gradviz.step.optimizers import OPTIMIZERS, OptimizerState, build_optimizer


def test_names_are_torch_s_classes_with_torch_s_defaults():
    made = build_optimizer("adam", [nn.Parameter(torch.zeros(2))])
    assert type(made) is torch.optim.Adam
    assert made.defaults["lr"] == 1e-3
    assert {"sgd", "adamw", "rmsprop", "lbfgs"} <= set(OPTIMIZERS)


def test_factories_and_instances():
    p = nn.Parameter(torch.zeros(2))
    assert build_optimizer(partial(torch.optim.SGD, lr=0.5), [p]).defaults["lr"] == 0.5
    instance = torch.optim.SGD([p], lr=0.1)
    assert build_optimizer(instance, [p]) is instance


@pytest.mark.parametrize(
    ("optimizer", "words"),
    [
        ("adm", "did you mean 'adam'"),
        ("zzzzz", "known: adadelta"),
        (0.1, 'got a float. Write "adam"'),
        (lambda parameters: 3, "returned an int"),
        (torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1), "holds none of this model's 1 parameters"),
        (lambda parameters: torch.optim.SGD([nn.Parameter(torch.zeros(1))]), "holds none of this model's 1 parameters"),
        (lambda ps: torch.optim.SGD([*ps, nn.Parameter(torch.zeros(1))]), "1 of 2 parameters that are not the model's"),
        ("lbfgs", "LBFGS evaluates the loss several times"),
    ],
)
def test_what_is_none_of_these_is_refused(optimizer, words):
    with pytest.raises(OptimizerError, match=words):
        build_optimizer(optimizer, [nn.Parameter(torch.zeros(2))])


def test_the_optimizer_s_state_is_read_by_parameter_name():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters())
    state = OptimizerState(optimizer, ModelState(model))
    assert len(state) == 0
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert list(state) == ["weight", "bias"]
    assert state["weight"]["exp_avg"].shape == (1, 2)
