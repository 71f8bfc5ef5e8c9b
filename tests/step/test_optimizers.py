"""An optimizer comes from a name, a factory or an instance, and its state is read by name."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from gradviz.errors import OptimizerError
from gradviz.step.optimizers import OPTIMIZERS, OptimizerState, build_optimizer
from gradviz.step.surrogate import template


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
        (
            lambda ps: torch.optim.SGD([*ps, nn.Parameter(torch.zeros(1))]),
            "1 of 2 parameters that are not the model's and would not be trained",
        ),
    ],
)
def test_what_is_none_of_these_is_refused(optimizer, words):
    with pytest.raises(OptimizerError, match=words):
        build_optimizer(optimizer, [nn.Parameter(torch.zeros(2))])


def test_lbfgs_is_an_optimizer_like_others():
    assert type(build_optimizer("lbfgs", [nn.Parameter(torch.zeros(2))])) is torch.optim.LBFGS


class Mine(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {})


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (partial(torch.optim.SGD, lr=0.1), r"functools.partial\(torch.optim.SGD, lr=0.1\)"),
        (torch.optim.Adam, r"functools.partial\(torch.optim.Adam, lr=0.001\)"),
        (Mine, r"functools.partial\(Mine\)"),
    ],
)
@pytest.mark.parametrize("is_factory", [False, True])
def test_16_bit_parameters_are_not_optimized_themselves(make, line, is_factory):
    own = [nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))]
    copies = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(3))]
    optimizer = (lambda parameters: make([*own, copies[1]])) if is_factory else make([*own, copies[1]])
    with pytest.raises(OptimizerError, match=f"1 of the model's bfloat16 parameters, but .* float32 copies .*{line}"):
        build_optimizer(optimizer, copies, own=own)
    assert build_optimizer(make, copies, own=own).param_groups[0]["params"] == copies


def named(model: nn.Module):
    return lambda: dict(model.named_parameters())


def test_the_optimizer_s_state_is_read_by_parameter_name():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters())
    state = OptimizerState(optimizer, named(model), {})
    assert len(state) == 0
    assert repr(state) == "OptimizerState of Adam: 0 parameters"
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert list(state) == ["weight", "bias"]
    assert list(state["weight"]) == ["step", "exp_avg", "exp_avg_sq"]
    assert state["weight"]["exp_avg"] is optimizer.state[model.weight]["exp_avg"]
    assert repr(state) == "OptimizerState of Adam: 2 parameters"


def test_before_the_first_step_the_state_shows_its_template():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters())
    zeros = template(optimizer, [model.weight])
    state = OptimizerState(optimizer, named(model), zeros)
    assert list(state) == ["weight"]
    assert state["weight"]["exp_avg"] is zeros[model.weight]["exp_avg"]
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert state["weight"]["step"] == 1
    assert list(state) == ["weight", "bias"]


def test_what_the_optimizer_has_of_a_state_is_completed_by_the_template_until_all_is_there():
    model = nn.Linear(2, 1)
    optimizer = Mine(model.parameters())
    optimizer.state[model.weight]["first"] = torch.ones(1)
    zeros = {model.weight: {"m": torch.zeros(1), "first": torch.zeros(1)}, model.bias: {"m": torch.zeros(1)}}
    state = OptimizerState(optimizer, named(model), zeros)
    state.settle()
    assert state["weight"] == {"m": 0, "first": 1}
    assert list(state["weight"]) == ["m", "first"]
    optimizer.state[model.weight]["m"] = torch.ones(1)
    assert state["weight"] is optimizer.state[model.weight]
    state.settle()
    assert list(zeros) == [model.bias]
    assert list(state) == ["weight", "bias"]


def test_an_empty_entry_that_reading_left_behind_is_no_state():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert optimizer.state[model.weight] == {}
    state = OptimizerState(optimizer, named(model), {model.bias: {"momentum_buffer": torch.zeros(1)}})
    assert list(state) == ["bias"]
    assert list(optimizer.state) == [model.weight]


def test_a_name_without_a_state_says_why():
    model = nn.Linear(2, 1)
    state = OptimizerState(torch.optim.SGD(model.parameters(), lr=0.1), named(model), {})
    with pytest.raises(KeyError, match="'weight': SGD keeps nothing for it"):
        state["weight"]
    with pytest.raises(KeyError, match="did you mean 'weight'"):
        state["weigth"]
    assert "weight" not in state


def test_the_state_is_a_tree_whose_paths_read_as_it_is_indexed():
    model = nn.Sequential(nn.Linear(2, 1))
    optimizer = torch.optim.Adam(model.parameters())
    state = OptimizerState(optimizer, named(model), template(optimizer, list(model.parameters())))
    leaves, spec = pytree.tree_flatten_with_path(state)
    paths = [pytree.keystr(path) for path, _ in leaves]
    assert paths[:4] == ["['0.weight']['step']", *PAIR, "['0.bias']['step']"]
    doubled = pytree.tree_unflatten([leaf + 1 for _, leaf in leaves], spec)
    assert type(doubled) is dict
    assert type(doubled["0.bias"]) is dict
    assert doubled["0.bias"]["exp_avg"] == 1
    assert pytree.tree_map(torch.Tensor.dim, state)["0.weight"] == {"step": 0, "exp_avg": 2, "exp_avg_sq": 2}


PAIR = ["['0.weight']['exp_avg']", "['0.weight']['exp_avg_sq']"]


def test_a_wrapper_needs_groups_and_a_state_alone():
    class Wrapper(torch.optim.Optimizer):
        def __init__(self, inner):
            self.inner = inner

        param_groups = property(lambda self: self.inner.param_groups)
        state = property(lambda self: self.inner.state)

    model = nn.Linear(2, 1)
    wrapper = Wrapper(torch.optim.Adam(model.parameters()))
    assert build_optimizer(wrapper, model.parameters()) is wrapper
    model(torch.ones(1, 2)).sum().backward()
    wrapper.inner.step()
    assert list(OptimizerState(wrapper, named(model), {})) == ["weight", "bias"]
