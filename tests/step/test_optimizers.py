"""An optimizer comes from a name, a factory or an instance, and its state is read by name."""

from __future__ import annotations

import functools
import inspect
import types
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import optimizer as registry
from torch.utils import _pytree as pytree

from gradviz.errors import OptimizerError
from gradviz.step.optimizers import (
    OPTIMIZERS,
    OptimizerState,
    WhoMoves,
    build_optimizer,
    rewrites_gradients,
    take_step,
)
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


def suggested(made: torch.optim.Optimizer) -> str:
    """The factory that is shown where the optimizer's parameters are 16-bit ones."""
    own = [p for group in made.param_groups for p in group["params"]]
    copies = [nn.Parameter(p.detach().float()) for p in own]
    with pytest.raises(OptimizerError) as error:
        build_optimizer(made, copies, own=own)
    return str(error.value).partition("given the copies:")[2]


def narrow(n: int = 1) -> list[nn.Parameter]:
    return [nn.Parameter(torch.zeros(2, dtype=torch.bfloat16)) for _ in range(n)]


def warmed_up() -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(narrow(), lr=0.1, nesterov=True, momentum=0.9)
    torch.optim.lr_scheduler.ConstantLR(optimizer, 0.5)
    return optimizer


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (
            lambda: torch.optim.AdamW(narrow(), lr=1e-3, weight_decay=0.3),
            "torch.optim.AdamW, lr=0.001, weight_decay=0.3",
        ),
        (
            lambda: torch.optim.Adam(narrow(), lr=torch.tensor(0.01), betas=(0.8, 0.95), foreach=False, amsgrad=True),
            "torch.optim.Adam, lr=torch.tensor(0.01), betas=(0.8, 0.95), amsgrad=True, foreach=False",
        ),
        (
            lambda: torch.optim.AdamW([{"params": narrow(), "weight_decay": 0.123456789}], lr=0.1),
            "torch.optim.AdamW, lr=0.1, weight_decay=0.123456789",
        ),
        (lambda: torch.optim.AdamW(narrow(), weight_decay=0), "torch.optim.AdamW, lr=0.001, weight_decay=0"),
        (warmed_up, "torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True"),
    ],
)
def test_the_factory_that_is_shown_has_the_options_of_the_optimizer(make, line):
    shown = suggested(make())
    assert shown == f" functools.partial({line})."
    again = eval(shown.strip(" ."), {"functools": functools, "torch": torch})(narrow())
    options = [
        {key: value for key, value in made.param_groups[0].items() if key != "params"} for made in (make(), again)
    ]
    options[0]["lr"] = options[0].pop("initial_lr", options[0]["lr"])
    assert options[0] == options[1]


def test_of_an_optimizer_with_groups_a_factory_that_looks_up_names_is_shown():
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)).bfloat16()
    weights, biases = ([p for p in model.parameters() if p.ndim == n] for n in (2, 1))
    groups = [{"params": weights, "weight_decay": 0.3}, {"params": biases, "weight_decay": 0.0, "lr": 0.5}]
    made = torch.optim.AdamW(groups, lr=0.01, betas=(0.8, 0.95))
    shown = suggested(made)
    assert shown == (
        """

def make(params):
    named = dict(zip(dict(model.named_parameters()), params))
    return torch.optim.AdamW([
        {"params": [named[name] for name in (...)], "lr": 0.01, "weight_decay": 0.3},  # 2 parameters
        {"params": [named[name] for name in (...)], "lr": 0.5, "weight_decay": 0},  # 2 parameters
    ], betas=(0.8, 0.95))"""
    )
    written = shown.replace("(...)", "('0.weight', '1.weight')", 1).replace("(...)", "('0.bias', '1.bias')", 1)
    scope: dict[str, Any] = {"torch": torch, "model": model}
    exec(written, scope)
    copies = [nn.Parameter(p.detach().float()) for p in model.parameters()]
    again = build_optimizer(scope["make"], copies, own=list(model.parameters()))
    for group, new in zip(made.param_groups, again.param_groups, strict=True):
        assert {**group, "params": None} == {**new, "params": None}
        assert [p.shape for p in group["params"]] == [p.shape for p in new["params"]]
    assert all(p.dtype == torch.float32 for group in again.param_groups for p in group["params"])


def test_what_fails_in_a_factory_is_told_what_it_was_given():
    model = nn.Linear(2, 1)
    by_id = {id(p): name for name, p in model.named_parameters()}
    copies = [nn.Parameter(p.detach().clone()) for p in model.parameters()]
    with pytest.raises(KeyError) as error:
        build_optimizer(lambda params: torch.optim.SGD([p for p in params if by_id[id(p)] == "bias"]), copies)
    (note,) = error.value.__notes__
    assert "a list of 2 tensors in the order of model.named_parameters(), float32 copies in place of 16-bit" in note
    assert "by position, not by id" in note


o = torch.optim
KINDS = {kind for kind in OPTIMIZERS.values() if kind is not o.SparseAdam}
OPTIONS = [
    {},
    {"maximize": True},
    {"weight_decay": 0.1},
    {"weight_decay": 0.1, "maximize": True},
    {"momentum": 0.9},
    {"momentum": 0.9, "dampening": 0.5},
    {"momentum": 0.9, "nesterov": True},
    {"momentum": 0.9, "nesterov": True, "maximize": True},
    {"momentum": 0.9, "centered": True},
    {"amsgrad": True},
    {"decoupled_weight_decay": True, "weight_decay": 0.1},
    {"lr_decay": 0.1},
    {"capturable": True},
    {"line_search_fn": "strong_wolfe"},
]
WAYS = [{}, {"foreach": True}, {"foreach": False}, {"fused": True}, {"fused": False}]
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")),
]


def variants() -> list[tuple[type[o.Optimizer], dict[str, Any]]]:
    """Each of torch's optimizers for dense gradients with each option that it takes, in each way of computing."""
    return [
        (kind, options | way)
        for kind in sorted(KINDS, key=lambda kind: kind.__name__)
        for options in OPTIONS
        for way in WAYS
        if (options | way).keys() <= inspect.signature(kind).parameters.keys()
        and not (options.get("capturable") and "fused" in way)
    ]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
def test_torch_s_optimizers_leave_gradients_alone_or_are_known_to_write_into_them(device, dtype):
    known, seen, stepped = set(), set(), set()
    for kind, options in variants():
        ps = [nn.Parameter(torch.randn(3, 2, dtype=dtype, device=device)) for _ in range(3)]
        try:
            optimizer = kind(ps, **options)
            for n in range(4):
                given = [torch.randn_like(p) * (-1) ** n for p in ps]  # Rprop does something else when a sign turns
                before = [gradient.clone() for gradient in given]
                for p, gradient in zip(ps, given, strict=True):
                    p.grad = gradient
                optimizer.step(*[lambda: torch.ones((), device=device)] * (kind is o.LBFGS))
                if not all(map(torch.equal, given, before)):
                    seen.add((kind.__name__, *sorted(options.items())))
        except (RuntimeError, TypeError, ValueError, AssertionError):
            continue  # not for this dtype or device
        stepped.add(kind)
        if rewrites_gradients(optimizer):
            known.add((kind.__name__, *sorted(options.items())))
    assert seen <= known
    assert stepped == KINDS if dtype.is_floating_point else stepped > {o.SGD, o.Adam, o.Rprop}
    nesterov = ("SGD", ("foreach", True), ("momentum", 0.9), ("nesterov", True))
    assert nesterov in seen
    assert all({"SGD", ("nesterov", True)} <= set(variant) for variant in known)


def test_the_sweep_takes_each_way_at_least_once():
    taken = {(kind.__name__, key) for kind, options in variants() for key in options}
    assert {kind for kind, _ in variants()} == KINDS
    assert {("Adam", "fused"), ("SGD", "fused"), ("Rprop", "foreach"), ("RMSprop", "centered")} <= taken


def sgd(**options: Any) -> o.SGD:
    return o.SGD([nn.Parameter(torch.zeros(2))], lr=0.1, **options)


def test_a_scheduler_on_the_optimizer_costs_no_copy_of_gradients():
    optimizer = sgd()
    o.lr_scheduler.StepLR(optimizer, 1)
    assert "step" in vars(optimizer)
    assert not rewrites_gradients(optimizer)


@pytest.mark.parametrize("is_scheduled", [False, True])
def test_a_step_that_was_replaced_may_write_into_gradients(is_scheduled):
    def step(self, closure=None):
        self.param_groups[0]["params"][0].grad.mul_(2)

    optimizer = sgd()
    optimizer.step = types.MethodType(step, optimizer)
    if is_scheduled:
        o.lr_scheduler.StepLR(optimizer, 1)
    assert rewrites_gradients(optimizer)


def test_a_class_of_the_user_s_own_and_a_scale_may_write_into_gradients():
    scaled = sgd(fused=True)
    assert not rewrites_gradients(scaled)
    scaled.grad_scale = torch.tensor(2.0)
    p = scaled.param_groups[0]["params"][0]
    p.grad = torch.ones(2)
    scaled.step()
    assert p.grad.tolist() == [0.5, 0.5]
    assert rewrites_gradients(scaled)
    assert rewrites_gradients(Mine([p]))


@pytest.mark.parametrize(
    "register",
    [
        o.Optimizer.register_step_pre_hook,
        o.Optimizer.register_step_post_hook,
        lambda _, hook: registry.register_optimizer_step_pre_hook(hook),
        lambda _, hook: registry.register_optimizer_step_post_hook(hook),
    ],
)
def test_hooks_may_write_into_gradients_for_as_long_as_they_are_there(register):
    optimizer = sgd()
    handle = register(optimizer, lambda *args: None)
    assert rewrites_gradients(optimizer)
    handle.remove()
    assert not rewrites_gradients(optimizer)


def test_nesterov_s_momentum_is_told_by_group_and_device():
    cpu, meta = (nn.Parameter(torch.zeros(2, device=device)) for device in ("cpu", "meta"))
    nesterov = {"momentum": 0.9, "nesterov": True}
    assert rewrites_gradients(o.SGD([{"params": [cpu]}, {"params": [meta], **nesterov}], lr=0.1))
    assert not rewrites_gradients(o.SGD([{"params": [cpu], **nesterov}, {"params": [meta]}], lr=0.1))
    assert not rewrites_gradients(o.SGD([meta], lr=0.1, **nesterov, foreach=False))
    assert not rewrites_gradients(o.SGD([meta], lr=0.1, **nesterov, fused=False))
    assert not rewrites_gradients(o.SGD([meta], lr=0.1, momentum=0.9))
    assert not rewrites_gradients(sgd(momentum=0.9, nesterov=True))


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


# A step without its label -------------------------------------------------------------------------------------------


def stepping() -> tuple[nn.Parameter, torch.optim.Optimizer]:
    p = nn.Parameter(torch.ones(3))
    p.grad = torch.full((3,), 0.5)
    return p, torch.optim.Adam([p], lr=0.1)


def test_a_step_is_the_optimizer_s_own():
    ours, theirs = stepping(), stepping()
    for _ in range(3):
        take_step(ours[1])
        theirs[1].step()
    assert torch.equal(ours[0], theirs[0])
    assert not ours[0].grad_fn


def test_hooks_of_a_step_fire_also_those_for_every_optimizer():
    _, optimizer = stepping()
    seen: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    take_step(optimizer)
    _, other = stepping()
    handle = registry.register_optimizer_step_post_hook(lambda *_: seen.append("after any"))
    try:
        take_step(other)
    finally:
        handle.remove()
    assert seen == ["before", "after any"]


def test_a_scheduler_s_count_and_a_step_of_one_s_own_are_kept():
    _, optimizer = stepping()
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    take_step(optimizer)
    assert optimizer._opt_called  # without it, a scheduler warns that it came first

    class Own(torch.optim.Adam):
        def step(self, closure=None):
            self.called = True

    own = Own([nn.Parameter(torch.ones(1))])
    take_step(own)
    assert own.called

    calls: list[torch.optim.Optimizer] = []
    optimizer.step = types.MethodType(lambda self: calls.append(self), optimizer)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    take_step(optimizer)
    assert calls == [optimizer]


def test_a_step_under_a_scheduler_is_the_optimizer_s_own_and_seen_by_a_profiler():
    ours, theirs = stepping(), stepping()
    torch.optim.lr_scheduler.StepLR(ours[1], 9)
    take_step(ours[1])
    theirs[1].step()
    assert torch.equal(ours[0], theirs[0])
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        take_step(ours[1])
    assert "Optimizer.step#Adam.step" in [event.key for event in profile.key_averages()]


def test_a_step_that_somebody_has_put_into_the_class_is_taken(monkeypatch):
    _, optimizer = stepping()
    torch_s, calls = torch.optim.Adam.step, []

    @functools.wraps(torch_s)
    def step(self, closure=None):
        calls.append(self)
        return torch_s(self, closure)

    monkeypatch.setattr(torch.optim.Adam, "step", step)
    take_step(optimizer)
    assert calls == [optimizer]


def test_an_optimizer_around_another_one_needs_none_of_torch_s_fields():
    class Around(torch.optim.Optimizer):
        def __init__(self, inner: torch.optim.Optimizer) -> None:
            self.param_groups, self.state, self.defaults = inner.param_groups, inner.state, inner.defaults
            self.taken = 0

        def step(self, closure=None):
            self.taken += 1

    around = Around(stepping()[1])
    take_step(around)
    assert around.taken == 1


def test_a_profiler_sees_the_step():
    _, optimizer = stepping()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        take_step(optimizer)
    assert "Optimizer.step#Adam.step" in [event.key for event in profile.key_averages()]


@pytest.mark.parametrize("differentiable", [False, True])
def test_gradients_are_on_again_after_a_step_also_of_one_that_fails(differentiable):
    p = nn.Parameter(torch.ones(2))
    p.grad = torch.ones(2)
    seen = []

    class Noting(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *given: Any) -> Any:
            seen.append(torch.is_grad_enabled())
            return super().__torch_function__(*given)

    if not differentiable:
        p.grad = p.grad.as_subclass(Noting)
        take_step(torch.optim.SGD([p], lr=0.1))
        assert not any(seen)
        assert seen
    p.grad = torch.ones(2)
    optimizer = torch.optim.SGD([p], lr=0.1, differentiable=differentiable)
    optimizer.param_groups[0]["lr"] = "much"
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        take_step(optimizer)
    assert torch.is_grad_enabled()


def test_who_moves_what_is_seen_anew_when_a_rate_a_group_or_its_parameters_change():
    one, other = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([one], lr=torch.tensor(0.1))
    seen = WhoMoves(optimizer)
    assert seen.is_as_before()
    optimizer.param_groups[0]["lr"] = torch.tensor(0.2)
    assert seen.is_as_before()
    for change in (
        lambda: optimizer.param_groups[0].update(lr=torch.tensor(0.0)),
        lambda: optimizer.param_groups[0]["params"].append(other),
        lambda: optimizer.param_groups[0]["params"].reverse(),
        lambda: optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]}),
    ):
        change()
        assert not seen.is_as_before()
        seen = WhoMoves(optimizer)
        assert seen.is_as_before()
