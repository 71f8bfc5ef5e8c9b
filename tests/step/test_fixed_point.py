"""Types that hold: what changes is found and named, and nothing else is."""

from __future__ import annotations

import re
import weakref
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from gradviz.errors import StateTypeError
from gradviz.grad.algebra import Grad
from gradviz.grad.leaves import leaves_of
from gradviz.step.fixed_point import FixedPoint
from gradviz.step.model_state import ModelState
from gradviz.step.optimizers import OptimizerState
from gradviz.step.surrogate import template


class Run:
    """A model, an optimizer, and what their step leaves behind."""

    def __init__(self, make=torch.optim.Adam) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
        self.optimizer = make(self.model.parameters())
        self.state = self.next(template(self.optimizer, list(self.model.parameters())))
        self.fixed_point = FixedPoint(self.state)

    def next(self, zeros: dict[Tensor, Any], rows: int = 4) -> dict[str, Any]:
        gradients = {name: p.grad for name, p in self.model.named_parameters()}
        return {
            "i": torch.tensor(0),
            "y_true": torch.zeros(rows, dtype=torch.int64),
            "y_pred": {"logits": torch.zeros(rows, 2), "states": [torch.zeros(rows, 3)]},
            "loss": torch.tensor(0.5),
            "model_state": ModelState(self.model),
            "optimizer_state": OptimizerState(self.optimizer, lambda: dict(self.model.named_parameters()), zeros),
            "loss_scale_state": {"loss_scale": torch.tensor(2.0**15), "counter": torch.tensor(0)},
            "gradients": Grad(self.model, gradients),
            "mine": object(),
        }

    def step(self, rows: int = 4) -> None:
        self.model(torch.randn(rows, 2)).square().sum().backward()
        self.optimizer.step()
        kept = self.state["optimizer_state"]
        kept.settle()
        self.state = self.next({}, rows) | {"optimizer_state": kept}

    def check(self, iteration: int = 7, **changed: Any) -> None:
        leaves = leaves_of(self.model)
        state = self.state | changed
        self.fixed_point.check_batch(
            {key: state[key] for key in ("y_true", "y_pred", "loss") if key in state}, iteration
        )
        self.fixed_point.check(state, iteration, leaves.trainable()[0], leaves.looks)


@pytest.fixture(params=[0, 2], ids=["after init", "after two steps"])
def run(request) -> Run:
    made = Run()
    made.check()
    for _ in range(request.param):
        made.step()
        made.check()
    return made


def test_steps_hold_whatever_the_values_and_the_length_of_a_batch(run):
    for rows in (4, 3, 1000):
        run.model.eval()
        run.step(rows)
        run.check()


def refused(run: Run, *words: str, **changed: Any) -> None:
    with pytest.raises(StateTypeError) as caught:
        run.check(**changed)
    for word in ("In iteration 7, ", *words, "strict=False"):
        assert word in str(caught.value)
    with pytest.raises(StateTypeError):  # and again: what was refused is not the new norm
        run.check(**changed)


def test_values_of_a_step(run):
    refused(run, "loss became float64 of shape (), where float32 of shape () was", loss=torch.tensor(0.5).double())
    refused(run, "targets.float()", loss=torch.tensor(0.5).double())
    refused(run, "loss became of type float, where float32", loss=0.5)
    refused(run, "i became int32", i=torch.tensor(0, dtype=torch.int32))
    refused(run, "y_true became float32 with 1 axis, where int64 with 1 axis", y_true=torch.zeros(4))
    refused(run, "y_true became int64 with 2 axes", y_true=torch.zeros(4, 1, dtype=torch.int64))
    refused(run, "y_true is gone", "y_true[0] is a new leaf", y_true=(torch.zeros(4),))
    pred = {"logits": torch.zeros(4, 2), "states": [torch.zeros(4, 3).half()]}
    refused(run, "y_pred['states'][0] became float16 with 2 axes", y_pred=pred)
    scale = run.state["loss_scale_state"]
    refused(run, "loss_scale_state['counter'] is gone", loss_scale_state={"loss_scale": scale["loss_scale"]})
    refused(run, "loss_scale_state['x'] is a new leaf, None", loss_scale_state={**scale, "x": None})


def test_parameters(run):
    weight = run.model[0].weight
    weight.data = weight.data.double()
    refused(run, "model_state['0.weight'] became float64 of shape (3, 2), where float32 of shape (3, 2) was")


def test_shapes_of_parameters(run):
    run.model[0].weight.data = torch.zeros(3, 5)
    refused(run, "model_state['0.weight'] became float32 of shape (3, 5)")


def test_parameters_that_come_and_go(run):
    run.model.append(nn.Linear(1, 1))
    refused(run, "model_state['3.weight'] is a new leaf, float32 of shape (1, 1)")
    del run.model[3], run.model[2]
    refused(run, "model_state['2.weight'] is gone, where float32 of shape (1, 3) was")


def test_buffers(run):
    run.model[1].running_mean = torch.zeros(3)  # another tensor of the same type
    run.check()
    run.model[1].running_mean = torch.zeros(4)
    refused(run, "model_state['1.running_mean'] became float32 of shape (4,)")
    run.model[1].running_mean = torch.zeros(3).double()
    refused(run, "model_state['1.running_mean'] became float64")
    run.model[1].running_mean = None
    refused(run, "model_state['1.running_mean'] is gone")
    run.model[1].running_mean = torch.zeros(3)
    run.model[0].register_buffer("extra", torch.zeros(1))  # as a module does in its first forward pass
    run.check()
    run.model[0].extra = torch.zeros(2)
    refused(run, "model_state['0.extra'] became float32 of shape (2,)", "registered with persistent=False")
    run.model[0].extra = torch.zeros(1)
    run.model[0].register_buffer("table", torch.zeros(1, 4), persistent=False)
    run.check()
    run.model[0].table = torch.zeros(1, 8)  # as far as the longest sequence
    run.check()
    run.model[0].table = torch.zeros(1, 8).double()
    refused(run, "model_state['0.table'] became float64")


def test_what_the_optimizer_keeps():
    run = Run()
    run.step()
    run.check()
    state = run.optimizer.state[run.model[0].weight]
    kept = dict(state)
    state["exp_avg"] = kept["exp_avg"].double()
    refused(run, "optimizer_state['0.weight']['exp_avg'] became float64 of shape (3, 2), where float32", "optimizer")
    state["exp_avg"] = kept["exp_avg"].clone()
    run.check()
    state["more"] = 1
    refused(run, "optimizer_state['0.weight']['more'] is a new leaf, of type int")
    del state["more"], state["step"]
    refused(run, "optimizer_state['0.weight']['step'] is gone")
    state["step"] = kept["step"]
    run.check()
    last = run.optimizer.state[run.model[2].bias]
    last["more"] = torch.zeros(1)
    refused(run, "optimizer_state['2.bias']['more'] is a new leaf")


def test_a_first_step_that_differs_from_what_was_promised():
    run = Run()
    run.step()
    run.optimizer.state[run.model[2].bias]["exp_avg_sq"] = torch.zeros(1, dtype=torch.bfloat16)
    refused(run, "optimizer_state['2.bias']['exp_avg_sq'] became bfloat16 of shape (1,)")


class Own(torch.optim.Optimizer):
    """Replaces its tensors at each step, counts in Python, and may nest what it keeps."""

    def __init__(self, params, *, nested=False) -> None:
        super().__init__(params, {"nested": nested})
        self.dtype = torch.float32

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].get("m", torch.zeros_like(p) if not group["nested"] else {"m": torch.zeros_like(p)})
                m = {"m": (m["m"] + 1).to(self.dtype)} if group["nested"] else (m + 1).to(self.dtype)
                self.state[p] = {"m": m, "step": self.state[p].get("step", 0) + 1}


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("steps", [1, 3, 6])
def test_an_own_optimizer_may_replace_its_tensors_but_not_their_types(nested, steps):
    run = Run(lambda params: Own(params, nested=nested))
    for _ in range(steps):
        run.step()
        run.check()
    run.optimizer.dtype = torch.float64
    run.step()
    path = "['m']['m']" if nested else "['m']"
    refused(run, f"optimizer_state['0.weight']{path} became float64 of shape (3, 2)")


def test_replaced_tensors_are_not_held_on_to():
    run = Run(Own)
    for _ in range(6):
        run.step()
        run.check()
    kept = weakref.ref(run.optimizer.state[run.model[0].weight]["m"])
    run.step()
    assert kept() is None


def test_gradients(run):
    wide = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in run.model.named_parameters()}
    some = wide | {name: torch.zeros_like(p) for name, p in run.model.named_parameters() if name != "2.bias"}
    refused(run, "gradients['2.bias'] became float64 of shape (1,), where float32", gradients=Grad(run.model, some))
    unused = Grad(run.model, dict.fromkeys(wide))
    run.check(gradients=unused)
    assert not any(isinstance(leaf, Tensor) for leaf in unused._leaves.values())  # zeros that nobody asked for
    run.model[0].requires_grad_(False)
    refused(run, "gradients['0.weight'] is gone", gradients=Grad(run.model, {}))


def test_a_key_that_comes_or_goes():
    run = Run()
    run.fixed_point = FixedPoint({key: value for key, value in run.state.items() if key != "gradients"})
    refused(run, "gradients['0.weight'] is a new leaf, float32 of shape (3, 2)")
    run = Run()
    del run.state["loss"]
    refused(run, "loss is gone")


def test_what_belongs_to_handlers_or_grows_is_left_alone():
    run = Run(Own)
    run.fixed_point = FixedPoint(run.state, without={"optimizer_state"})
    run.optimizer.dtype = torch.float64
    run.step()
    run.check(mine=torch.zeros(3), other=1)


def test_a_batch_is_checked_by_itself(run):
    run.fixed_point.check_batch({"y_true": torch.zeros(9, dtype=torch.int64), "loss": torch.tensor(1.0)}, 3)
    with pytest.raises(StateTypeError, match=re.escape("In iteration 3, loss became float64 of shape ()")):
        run.fixed_point.check_batch({"loss": torch.tensor(1.0).double()}, 3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_another_device():
    fixed_point = FixedPoint({"loss": torch.tensor(1.0)})
    with pytest.raises(StateTypeError, match="float32 of shape \\(\\) on cuda, where float32 of shape \\(\\) was"):
        fixed_point.check_batch({"loss": torch.tensor(1.0, device="cuda")}, 0)


DTYPES = [torch.float32, torch.float64, torch.float16, torch.int64, torch.bool]
LEAVES = st.sampled_from(DTYPES).flatmap(lambda dtype: st.builds(lambda n: torch.zeros([1] * n, dtype=dtype), SIZES))
SIZES = st.integers(0, 2)
TREES = st.recursive(
    LEAVES | st.none() | st.integers(0, 3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner) | st.tuples(inner, inner)
    ),
    max_leaves=8,
)


def places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to the tensors of a tree."""
    if isinstance(tree, Tensor):
        return [path]
    children = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list | tuple) else ()
    return [place for key, child in children for place in places(child, (*path, key))]


def with_other(tree: Any, path: tuple[Any, ...]) -> Any:
    """The tree with a tensor of another dtype at `path`."""
    if not path:
        return tree.to(torch.complex64)
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[path[0]] = with_other(tree[path[0]], path[1:])
    return tuple(copy) if isinstance(tree, tuple) else copy


@given(st.fixed_dictionaries(dict.fromkeys(("y_true", "y_pred", "loss", "loss_scale_state"), TREES)), st.data())
def test_a_state_equals_itself_and_any_leaf_of_another_dtype_is_named(state, data):
    fixed_point = FixedPoint(state)
    kind, parameters = leaves_of(nn.Linear(1, 1)).trainable()
    fixed_point.check(state, 0, kind, parameters)
    every = [(key, *place) for key, tree in state.items() for place in places(tree)]
    if every:
        key, *place = data.draw(st.sampled_from(every))
        name = key + "".join(f"[{part!r}]" for part in place)
        changed = state | {key: with_other(state[key], tuple(place))}

        def check() -> None:
            fixed_point.check_batch({name: changed[name] for name in ("y_true", "y_pred", "loss")}, 2)
            fixed_point.check(changed, 2, kind, parameters)

        with pytest.raises(StateTypeError, match=re.escape(f"In iteration 2, {name} became complex64")):
            check()
