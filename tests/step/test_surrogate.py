"""What an optimizer will keep is learned without touching it."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim import optimizer as registry
from torch.utils import _pytree as pytree

from gradviz.errors import RecordingWarning
from gradviz.step.policy import Policy
from gradviz.step.surrogate import completed, needs_closure, template
from gradviz.step.train_step import train_step

o = torch.optim
VARIANTS: dict[str, Callable[..., Optimizer]] = {
    "sgd": partial(o.SGD, lr=0.1),
    "sgd momentum": partial(o.SGD, lr=0.1, momentum=0.9),
    "sgd nesterov": partial(o.SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "sgd maximize": partial(o.SGD, lr=0.1, momentum=0.9, dampening=0.1, maximize=True),
    "sgd foreach": partial(o.SGD, lr=0.1, momentum=0.9, foreach=True),
    "sgd fused": partial(o.SGD, lr=0.1, momentum=0.9, fused=True),
    "adam": o.Adam,
    "adam amsgrad": partial(o.Adam, amsgrad=True, weight_decay=0.1),
    "adam foreach": partial(o.Adam, foreach=True, maximize=True),
    "adam fused": partial(o.Adam, fused=True, amsgrad=True),
    "adam tensor lr": partial(o.Adam, lr=torch.tensor(0.01)),
    "adamw": o.AdamW,
    "adamax": o.Adamax,
    "adadelta": o.Adadelta,
    "adadelta foreach": partial(o.Adadelta, foreach=True, weight_decay=0.1),
    "adafactor": o.Adafactor,
    "adagrad": partial(o.Adagrad, initial_accumulator_value=0.5, lr_decay=0.1),
    "asgd": partial(o.ASGD, t0=1.0),
    "nadam": partial(o.NAdam, decoupled_weight_decay=True, weight_decay=0.1),
    "radam": o.RAdam,
    "rmsprop": o.RMSprop,
    "rmsprop centered": partial(o.RMSprop, centered=True, momentum=0.9),
    "rprop": o.Rprop,
    "rprop foreach": partial(o.Rprop, foreach=True),
    "muon": partial(o.Muon, lr=0.1),
}
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def parameters(dtype: torch.dtype = torch.float32) -> list[nn.Parameter]:
    torch.manual_seed(0)
    # Two of one shape, and one that lies in memory in columns.
    shapes = [torch.randn(3, 4), torch.randn(3, 4), torch.randn(4, 3).t(), torch.randn(5, 2)]
    return [nn.Parameter(p.to(dtype)) for p in shapes]


def steps(optimizer: Optimizer, ps: list[nn.Parameter], n: int = 3) -> None:
    generator = torch.Generator().manual_seed(1)
    for _ in range(n):
        for p in ps:
            p.grad = torch.empty_like(p).copy_(torch.randn(p.shape, generator=generator))  # laid out as p is
        optimizer.step()


def specs(state: Any) -> Any:
    def spec(leaf: Any) -> Any:
        return (leaf.shape, leaf.dtype, leaf.device, leaf.stride()) if isinstance(leaf, Tensor) else type(leaf)

    return [(pytree.keystr(path), spec(leaf)) for path, leaf in pytree.tree_flatten_with_path(state)[0]]


def same(one: Any, other: Any) -> bool:
    leaves = [pytree.tree_leaves(tree) for tree in (one, other)]
    return len(leaves[0]) == len(leaves[1]) and all(
        torch.equal(a, b) if isinstance(a, Tensor) else a == b for a, b in zip(*leaves, strict=True)
    )


def is_zero(state: Any) -> bool:
    leaves = [leaf for leaf in pytree.tree_leaves(state) if isinstance(leaf, Tensor | int | float)]
    return all(not leaf.any() if isinstance(leaf, Tensor) else leaf == 0 for leaf in leaves)


def made(make: Callable[..., Optimizer], ps: list[nn.Parameter]) -> Optimizer:
    keywords = getattr(make, "keywords", {})
    lr = keywords.get("lr")
    return make(ps, lr=lr.clone()) if isinstance(lr, Tensor) else make(ps)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_template_is_the_state_after_a_step_as_zeros_and_the_optimizer_does_not_notice(variant, dtype):
    ps, twins = parameters(dtype), parameters(dtype)
    optimizer, twin = (made(VARIANTS[variant], each) for each in (ps, twins))
    before = copy.deepcopy(optimizer.state_dict())
    kept = {p: dict(state) for p, state in optimizer.state.items()}  # Adagrad and others begin with one
    learned = template(optimizer, ps)
    assert same(before, optimizer.state_dict())
    assert all(p.grad is None for p in ps)
    assert is_zero(learned)
    steps(optimizer, ps, 1)
    assert learned.keys() | kept.keys() == optimizer.state.keys()
    for p, state in (kept | learned).items():
        assert specs(state) == specs(optimizer.state[p])
    steps(twin, twins, 1)
    steps(optimizer, ps)
    steps(twin, twins)
    assert same(ps, twins)
    assert same(list(optimizer.state.values()), list(twin.state.values()))


def test_every_optimizer_of_torch_that_takes_dense_parameters_is_tried():
    tried = {type(made(make, parameters())) for make in VARIANTS.values()}
    known = {kind for kind in vars(o).values() if isinstance(kind, type) and issubclass(kind, Optimizer)}
    assert known - tried == {Optimizer, o.SparseAdam, o.LBFGS}


def test_a_differentiable_step_keeps_states_without_a_graph():
    p = torch.ones(2, 3)
    optimizer = o.Adam([p], differentiable=True)
    learned = template(optimizer, [p])
    p.grad = torch.ones(2, 3)
    optimizer.step()
    assert specs(learned[p]) == specs(optimizer.state[p])
    assert not any(leaf.requires_grad for leaf in learned[p].values())


def test_sparse_adam_is_given_sparse_gradients():
    ps = parameters()
    learned = template(o.SparseAdam(ps), ps)
    assert learned[ps[0]]["exp_avg"].shape == (3, 4)


def test_only_reached_parameters_without_a_state_are_learned():
    ps = parameters()
    optimizer = o.Adam(ps, foreach=False)
    for p in ps[:2]:
        p.grad = torch.ones_like(p)
    optimizer.step()
    assert set(template(optimizer, ps[1:3])) == {ps[2]}
    assert template(optimizer, ps[:2]) == {}
    assert template(o.SGD(ps, lr=0.1), ps) == {}


def test_groups_with_other_options_keep_other_things():
    ps = parameters()
    groups = [{"params": ps[:1]}, {"params": ps[1:], "momentum": 0.9}]
    assert set(template(o.SGD(groups, lr=0.1), ps)) == set(ps[1:])


def test_no_hook_fires_and_global_ones_stay():
    class Own(o.Adam):
        def step(self, closure=None):
            return super().step(closure)  # the base's step fires hooks of its own

    calls = []
    hooks = [
        registry.register_optimizer_step_pre_hook(lambda *a: calls.append("global pre")),
        registry.register_optimizer_step_post_hook(lambda *a: calls.append("global post")),
    ]
    try:
        for make in (o.Adam, Own):
            ps = parameters()
            optimizer = make(ps)
            optimizer.register_step_pre_hook(lambda *a: calls.append("pre"))
            optimizer.register_step_post_hook(lambda *a: calls.append("post"))
            assert set(template(optimizer, ps)) == set(ps)
            assert calls == []
        optimizer = o.SGD(ps, lr=0.1)
        optimizer.register_step_pre_hook(lambda *a: calls.append("pre"))
        optimizer.step()
        assert calls == ["global pre", "pre", "global post"]
    finally:
        for hook in hooks:
            hook.remove()
    assert not registry._global_optimizer_pre_hooks


def test_a_learning_rate_scheduler_is_unaffected():
    ps = parameters()
    optimizer = o.Adam(ps)
    scheduler = o.lr_scheduler.StepLR(optimizer, 1)
    before = [p.detach().clone() for p in ps]
    assert set(template(optimizer, ps)) == set(ps)
    assert same(before, ps)
    assert not getattr(optimizer, "_opt_called", False)
    steps(optimizer, ps, 1)
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(1e-4)


class Own(Optimizer):
    """Keeps numbers, dicts in dicts, a log that all share, and random numbers."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})
        self.log = []
        self.seen = {"steps": torch.zeros(())}
        self.noise = torch.Generator().manual_seed(0)
        self.numpy_noise = np.random.default_rng(0)
        self.counts = np.zeros(1)
        self.rule = self._rule

    def _rule(self, p):
        self.log.append(p.sum().item())
        return p.grad

    @torch.no_grad()
    def step(self, closure=None):
        self.seen["steps"] += 1
        self.counts += 1
        self.state["all"].setdefault("steps", 0)
        self.state["all"]["steps"] += 1
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(step=0, decay=0.5, by={"m": torch.zeros_like(p), "on": True}, last=None, kind="own")
                state["step"] += 1
                state["by"]["m"].add_(self.rule(p) + torch.randn(p.shape, generator=self.noise))
                p.sub_(group["lr"] * state["by"]["m"] + self.numpy_noise.normal())


def test_a_user_s_own_optimizer_writes_into_nothing_of_the_real_one():
    ps, twins = parameters(), parameters()
    optimizer, twin = Own(ps), Own(twins)
    learned = template(optimizer, ps)
    assert optimizer.log == []
    assert optimizer.seen["steps"] == 0
    assert not optimizer.state
    assert pytree.tree_map(lambda leaf: leaf if not isinstance(leaf, Tensor) else "zeros", learned[ps[0]]) == {
        "step": 0,
        "decay": 0.0,
        "by": {"m": "zeros", "on": False},
        "last": None,
        "kind": "own",
    }
    steps(optimizer, ps)
    steps(twin, twins)
    assert specs(learned[ps[0]]) == specs(optimizer.state[ps[0]])
    assert same(ps, twins)
    assert optimizer.log == twin.log
    assert optimizer.counts == twin.counts


def test_an_own_optimizer_that_looks_at_other_parameters_finds_their_state():
    class Shared(Optimizer):
        def __init__(self, params):
            super().__init__(params, {})

        def step(self):
            first = self.param_groups[0]["params"][0]
            for p in self.param_groups[0]["params"]:
                if p.grad is not None:
                    self.state[p]["m"] = self.state[first].get("m", torch.zeros(1)) + torch.zeros(1)

    ps = parameters()
    optimizer = Shared(ps)
    optimizer.state[ps[0]]["m"] = torch.ones(1, dtype=torch.float64)
    assert template(optimizer, ps[:2])[ps[1]]["m"].dtype == torch.float64
    assert optimizer.state[ps[0]]["m"] == 1
    assert set(optimizer.state) == {ps[0]}


class Lookahead(Optimizer):
    """Wraps another optimizer: its groups and state are the inner one's."""

    def __init__(self, inner):
        self.inner = inner
        self.param_groups, self.state, self.defaults = inner.param_groups, inner.state, inner.defaults
        self.slow = [[p.detach().clone() for p in group["params"]] for group in inner.param_groups]
        self.by_parameter = {p: 0 for group in inner.param_groups for p in group["params"]}
        self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks = {}, {}

    def step(self, closure=None):
        self.inner.step(closure)
        for group, slow in zip(self.param_groups, self.slow, strict=True):
            for p, z in zip(group["params"], slow, strict=True):
                self.by_parameter[p] += 1
                z.lerp_(p.detach(), 0.5)
                p.data.copy_(z)
                self.state[p]["slow"] = z


def test_a_wrapper_around_another_optimizer_is_one_as_a_whole():
    ps, twins = parameters(), parameters()
    optimizer, twin = Lookahead(o.Adam(ps)), Lookahead(o.Adam(twins))
    learned = template(optimizer, ps)
    assert list(learned[ps[0]]) == ["step", "exp_avg", "exp_avg_sq", "slow"]
    assert not optimizer.state
    assert set(optimizer.by_parameter.values()) == {0}
    steps(optimizer, ps)
    steps(twin, twins)
    assert specs(learned[ps[2]]) == specs(optimizer.state[ps[2]])
    assert same(ps, twins)


class Begun(Optimizer):
    """Begins with a part of what it keeps."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})
        for p in self.param_groups[0]["params"]:
            self.begin(p)

    def begin(self, p):
        self.state[p]["first"] = torch.ones(3, dtype=torch.float64)

    def more(self, p, state):
        state.setdefault("m", torch.zeros_like(p))
        state.setdefault("step", 0)

    @torch.no_grad()
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            if p.grad is None:
                continue
            self.more(p, self.state[p])
            self.state[p]["step"] += 1
            self.state[p]["m"].add_(p.grad)
            p.sub_(self.param_groups[0]["lr"] * self.state[p]["m"])


class BegunInside(Begun):
    """Begins with a part of a dict in the dict."""

    def begin(self, p):
        self.state[p].update(by={"first": torch.ones(3)}, m=torch.zeros_like(p), step=0)

    def more(self, p, state):
        state["by"].setdefault("second", torch.ones(2))


class BegunAnew(Begun):
    """Makes a new dict in each step, in another order."""

    def more(self, p, state):
        m = state["m"] if "m" in state else torch.zeros_like(p)
        self.state[p] = {"m": m, "step": state.get("step", 0), "first": state["first"]}


class BegunUnlessIn(Begun):
    """Looks whether a parameter is in the state, without asking for its entry."""

    def more(self, p, state):
        for p, state in self.state.items():
            state.setdefault("m", torch.zeros_like(p))
            state.setdefault("step", 0)


BEGUN = [Begun, BegunInside, BegunAnew, BegunUnlessIn]


@pytest.mark.parametrize("kind", BEGUN)
def test_what_an_own_optimizer_adds_to_what_it_began_with_is_learned(kind):
    ps, twins = parameters(), parameters()
    optimizer, twin = kind(ps), kind(twins)
    began = copy.deepcopy(optimizer.state[ps[0]])
    learned = template(optimizer, ps[:2])
    assert same(optimizer.state[ps[0]], began)
    assert is_zero(learned)
    assert set(learned) == set(ps[:2])
    before = completed(optimizer.state[ps[0]], learned[ps[0]])
    assert torch.equal(before.get("by", before)["first"], began.get("by", began)["first"])
    steps(optimizer, ps)
    assert specs(before) == specs(optimizer.state[ps[0]])
    steps(twin, twins)
    assert same(ps, twins)


@pytest.mark.parametrize("kind", [Own, *BEGUN])
def test_of_an_own_optimizer_that_has_trained_nothing_is_missing(kind):
    ps, twins = parameters(), parameters()
    optimizer, twin = kind(ps), kind(twins)
    steps(optimizer, ps)
    steps(twin, twins)
    before = copy.deepcopy(list(optimizer.state.values()))
    assert template(optimizer, ps) == {}
    assert same(list(optimizer.state.values()), before)
    steps(optimizer, ps)
    steps(twin, twins)
    assert same(ps, twins)


@pytest.mark.parametrize("kind", BEGUN)
@pytest.mark.parametrize("policy", [None, Policy(params="bfloat16")])
def test_a_step_s_state_begins_with_what_an_own_optimizer_will_add(kind, policy):
    model = nn.Linear(3, 2)
    batch = torch.randn(4, 3), torch.randn(4, 2)
    step = train_step(model, "mean_squared_error", kind, policy=policy)
    state = step.init(batch)
    before = specs(state.optimizer_state)
    assert any("'m'" in path for path, _ in before)
    for _ in range(2):
        state = step(batch, state)
        assert specs(state.optimizer_state) == before
    assert state.optimizer_state["weight"]["step"] == 2


def test_what_an_own_optimizer_keeps_in_objects_of_its_own_stays():
    class Log:
        def __init__(self):
            self.seen = []

    class Logs(Begun):
        def begin(self, p):
            self.state[p].update(log=Log(), counts=np.ones(2))

        def more(self, p, state):
            super().more(p, state)
            state["log"].seen.append(p)
            state["counts"] += 1

    p = parameters()[0]
    optimizer = Logs([p])
    learned = template(optimizer, [p])[p]
    assert optimizer.state[p]["log"].seen == []
    assert optimizer.state[p]["counts"].tolist() == [1, 1]
    assert list(learned) == ["log", "counts", "m", "step"]


def test_an_own_optimizer_that_has_trained_may_choke_on_zeros_unheard():
    class Divides(Begun):
        def more(self, p, state):
            super().more(p, state)
            self.rate = 1 / state["first"].sum().item()

    ps = parameters()
    assert template(Divides(ps), ps) == {}


def test_an_optimizer_that_cannot_step_on_zeros_is_no_reason_to_stop():
    class Choosy(Optimizer):
        def __init__(self, params):
            super().__init__(params, {})

        def step(self):
            raise ZeroDivisionError("no gradient")

    ps = parameters()
    with pytest.warns(RecordingWarning, match="a step on zeros.* raised ZeroDivisionError: no gradient"):
        assert template(Choosy(ps), ps) == {}


def test_a_closure_is_given_where_the_step_must_have_one():
    class Twice(Optimizer):
        def __init__(self, params):
            super().__init__(params, {})

        def step(self, closure):
            closure()
            self.zero_grad()
            loss = closure()
            for p in self.param_groups[0]["params"]:
                self.state[p]["m"] = p.grad + loss

    ps = parameters()[:2]
    assert learned_keys(Twice(ps), ps) == {p: ["m"] for p in ps}
    assert learned_keys(o.LBFGS(ps), ps) == {ps[0]: ["func_evals", "n_iter"]}


def learned_keys(optimizer: Optimizer, ps: list[nn.Parameter]) -> dict[Tensor, list[str]]:
    assert needs_closure(optimizer)
    return {p: list(state) for p, state in template(optimizer, ps).items()}


def test_which_steps_must_have_a_closure():
    class Loose(o.SGD):
        def step(self, *args, **kwargs):
            return super().step(*args, **kwargs)

    ps = parameters()
    assert not any(needs_closure(made(make, ps)) for make in VARIANTS.values())
    assert not needs_closure(Loose(ps))
    assert needs_closure(o.LBFGS(ps))
    optimizer = o.LBFGS(ps)
    o.lr_scheduler.StepLR(optimizer, 1)
    assert needs_closure(optimizer)


def test_nothing_of_the_trial_stays_in_memory():
    alive = []

    class Counted(Own):
        @torch.no_grad()
        def step(self, closure=None):
            alive.append(weakref.ref(self.param_groups[0]["params"][0]))
            super().step(closure)

    ps = parameters()
    template(Counted(ps), ps)
    gc.collect()
    assert alive[0]() is None
