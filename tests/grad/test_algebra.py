"""Gradients are a mapping by parameter name and a vector space, and nothing else."""

from __future__ import annotations

import copy
import decimal
import fractions
import gc
import io
import math
import operator
import pickle
import re
import subprocess
import sys
import weakref

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.utils import _pytree as pytree

import gradviz as gv
from gradviz.errors import GradOperationError, GradvizError, ModelMismatchError, NoSuchFieldError, NotAModelError
from gradviz.grad.algebra import ALLOWED, Grad

nan, inf = math.nan, math.inf


class Named(nn.Module):
    """A model with the given tensors as parameters."""

    def __init__(self, **values: torch.Tensor) -> None:
        super().__init__()
        for name, value in values.items():
            dense = torch.zeros(value.shape, dtype=value.dtype)
            self.register_parameter(name, nn.Parameter(dense))


def grad(*values: torch.Tensor | list[float] | float, **named: torch.Tensor | list[float] | float) -> Grad:
    """A gradient with these leaves, called p0, p1, ... or by their keyword."""
    leaves = {f"p{place}": value for place, value in enumerate(values)} | named
    tensors = {
        name: value if isinstance(value, torch.Tensor) else torch.tensor(value) for name, value in leaves.items()
    }
    return Grad(Named(**tensors), tensors)


def half_used() -> tuple[nn.ModuleDict, Grad]:
    model = nn.ModuleDict({"used": nn.Linear(2, 1), "idle": nn.Linear(3, 2).double()})
    gradients = [torch.ones(1, 2), torch.ones(1), None, None]
    return model, Grad(model, gradients)


def same(a: Grad, b: Grad) -> bool:
    return list(a) == list(b) and all(torch.equal(x, y) for x, y in zip(a.values(), b.values(), strict=True))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)])
        self.norm = nn.BatchNorm1d(2)
        self.scale = nn.Parameter(torch.ones(2))
        self.register_buffer("offset", torch.zeros(2))
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(2, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x).tanh()
        return self.head(self.norm(x) * self.scale + self.offset)


def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return model(x).square().mean()


def block() -> tuple[Block, Grad[Block]]:
    torch.manual_seed(0)
    model = Block()
    return model, gv.value_and_grad(loss, model, torch.randn(5, 2))[1]


# Fields ---------------------------------------------------------------------------------------------------------------


def test_it_is_a_mapping_in_declaration_order_not_in_the_order_of_use():
    model, g = block()
    names = [name for name, _ in model.named_parameters()]
    assert names[0] == "scale"  # torch lists a module's own parameters before its children's
    assert list(g) == list(g.keys()) == [name for name, _ in g.items()] == names
    assert len(g) == len(names)
    assert [value.shape for value in g.values()] == [p.shape for p in model.parameters()]
    assert dict(g).keys() == {**g}.keys() == set(names)


def test_item_attribute_and_mixed_paths_give_the_same_tensor():
    _, g = block()
    want = g["layers.0.weight"]
    for got in (
        g.layers[0].weight,
        g["layers"][0].weight,
        g["layers.0"].weight,
        g.layers["0"]["weight"],
        g["layers"]["0.weight"],
        getattr(g, "layers.0.weight"),
        g.get("layers.0.weight"),
    ):
        assert got is want
    assert g.scale is g["scale"]


@pytest.mark.parametrize(("index", "name"), [(0, "0"), (2, "2"), (-1, "2"), (-3, "0")])
def test_an_index_reaches_into_a_list_of_modules_from_either_end(index, name):
    _, g = block()
    assert g.layers[index].weight is g[f"layers.{name}.weight"]


@pytest.mark.parametrize("index", [3, -4, 100])
def test_an_index_out_of_range_says_how_many_there_are(index):
    _, g = block()
    with pytest.raises(NoSuchFieldError, match="it has 3"):
        _ = g.layers[index]


def test_a_sequential_with_named_children_has_indices_too():
    model = nn.Sequential()
    model.add_module("conv", nn.Linear(2, 2))
    model.add_module("out", nn.Linear(2, 1))
    _, g = gv.value_and_grad(loss, model, torch.ones(1, 2))
    assert g[0].weight is g["conv.weight"]
    assert g[-1].weight is g["out.weight"]


def test_a_list_of_parameters_has_indices_too():
    model = nn.Module()
    model.scales = nn.ParameterList([torch.ones(1), torch.ones(2)])
    _, g = gv.value_and_grad(lambda m: m.scales[0].sum() + 2 * m.scales[1].sum(), model)
    assert g.scales[0] is g["scales.0"]
    assert g.scales[-1].tolist() == [2, 2]


def test_a_dictionary_of_modules_or_parameters_is_reached_by_key():
    model = nn.Module()
    model.heads = nn.ModuleDict({"a": nn.Linear(1, 1), "b": nn.Linear(1, 1)})
    model.scales = nn.ParameterDict({"a": torch.ones(1)})
    _, g = gv.value_and_grad(lambda m, x: (m.heads["b"](m.heads["a"](x)) * m.scales["a"]).sum(), model, torch.ones(1))
    assert g.heads["b"].weight is g.heads.b.weight is g["heads.b.weight"]
    assert g.scales["a"] is g.scales.a is g["scales.a"]


def test_membership_get_and_dir_know_the_fields():
    _, g = block()
    assert "layers.0.weight" in g
    assert "layers" in g
    assert "layers.9.weight" not in g
    assert "offset" not in g
    assert g.get("nothing") is None
    assert g.get("nothing", 3) == 3
    assert {"layers", "scale", "head", "norm", "unused"} <= set(dir(g))
    assert "offset" not in dir(g)


def test_a_module_path_gives_that_module_s_gradient():
    model, g = block()
    part = g.layers
    assert isinstance(part, Grad)
    assert list(part) == [name for name, _ in model.layers.named_parameters()]
    assert part["1.weight"] is g["layers.1.weight"]
    assert part.norm().item() == pytest.approx(math.sqrt(sum(g[f"layers.{i}"].norm().item() ** 2 for i in range(3))))
    assert list(g["head.1"]) == ["weight", "bias"]


def test_parts_of_equal_modules_have_an_algebra_of_their_own():
    model, g = block()
    between = g.layers[1] - g.layers[0]
    assert torch.equal(between.weight, g.layers[1].weight - g.layers[0].weight)
    alone = gv.value_and_grad(loss, model.layers[0], torch.ones(3, 2))[1]
    assert torch.equal((g.layers[0] + 2 * alone).bias, g.layers[0].bias + 2 * alone.bias)
    with pytest.raises(ModelMismatchError):
        _ = g.layers[0] + g.head[1]


def test_a_part_without_parameters_is_an_empty_gradient():
    _, g = block()
    assert len(g.head[0]) == 0
    assert g.head[0].norm() == 0


def test_a_part_knows_its_unused_buffers_and_frozen_names():
    model = Block()
    model.head.requires_grad_(False)
    with pytest.warns(gv.errors.UnusedParameterWarning):
        _, g = gv.value_and_grad(lambda m, x: m.norm(m.layers[0](x)).square().sum(), model, torch.randn(4, 2))
    assert g.layers.unused == ("1.weight", "1.bias", "2.weight", "2.bias")
    assert g.layers[0].unused == ()
    with pytest.raises(NoSuchFieldError, match="'running_mean' is a buffer of BatchNorm1d"):
        _ = g["norm"].running_mean
    with pytest.raises(NoSuchFieldError, match="'weight' is frozen in Linear"):
        _ = g.head[1].weight


def test_a_tied_parameter_is_one_leaf_and_its_other_names_lead_to_it():
    model = nn.ModuleDict({"emb": nn.Embedding(4, 3), "out": nn.Linear(3, 4)})
    model["out"].weight = model["emb"].weight
    g = Grad(model, [torch.ones(4, 3), torch.ones(4)])
    assert list(g) == ["emb.weight", "out.bias"]
    assert g["out.weight"] is g.out.weight is g.emb.weight
    assert g.norm() == 4


def test_a_part_with_a_parameter_tied_to_one_outside_keeps_declaration_order():
    model = nn.ModuleDict({"emb": nn.Embedding(4, 3), "out": nn.Linear(3, 4)})
    model["out"].weight = model["emb"].weight
    g = Grad(model, [torch.ones(4, 3), torch.ones(4)])
    assert list(g["out"]) == ["weight", "bias"]
    alone = gv.value_and_grad(loss, model["out"], torch.ones(1, 3))[1]
    assert torch.equal((g["out"] + alone).weight, g["out"].weight + alone.weight)


def test_a_part_that_uses_an_outside_parameter_twice_counts_it_once():
    lin = nn.Linear(2, 2, bias=False)
    model = nn.Module()
    model.first = lin
    model.again = nn.Sequential(lin, lin)
    g = Grad(model, [torch.ones(2, 2)])
    assert g.first.norm() == 2
    assert g["again"].norm() == 2
    assert list(g["again"]) == ["0.weight"]
    assert g["again"][1].weight is g.first.weight


@pytest.mark.case("C31")
def test_a_layer_used_under_two_names_is_one_set_of_leaves_under_both():
    lin = nn.Linear(2, 2)
    model = nn.Module()
    model.body = nn.Sequential(lin, lin)
    model.b = model.body
    _, g = gv.value_and_grad(lambda m, x: m.b(m.body(x)).square().sum(), model, torch.ones(3, 2))
    assert list(g) == ["body.0.weight", "body.0.bias"]
    for path in ("body.1", "b.0", "b.1"):
        assert g[path].weight is g["body.0.weight"]
        assert g[f"{path}.bias"] is g["body.0.bias"]
    flat = torch.cat([leaf.reshape(-1) for leaf in g.values()])
    assert g.norm().item() == pytest.approx(flat.norm().item(), rel=1e-6)
    assert g.b.norm() == g.body.norm() == g.norm()


METHODS = ["norm", "items", "keys", "values", "get", "to", "cpu", "detach", "clone", "to_frame"]


@pytest.mark.parametrize("name", METHODS)
def test_a_child_with_a_method_s_name_is_reached_by_item_and_the_method_stays(name):
    model = nn.Module()
    model._modules[name] = nn.Linear(2, 1)  # add_module refuses the names of nn.Module's own methods
    g = Grad(model, [torch.full((1, 2), 2.0), torch.ones(1)])
    assert torch.equal(g[name].weight, torch.full((1, 2), 2.0))
    assert callable(getattr(g, name))
    assert g.norm() == 3
    assert dict(g.items()).keys() == {f"{name}.weight", f"{name}.bias"}
    with pytest.raises(NoSuchFieldError, match=re.escape(f"g[{name!r}]")):
        _ = getattr(g, name).weight


@pytest.mark.parametrize("name", ["norm", "unused"])
def test_a_parameter_with_a_method_s_name_is_reached_by_item(name):
    g = grad(**{name: [3.0, 4.0]})
    assert g[name].tolist() == [3, 4]
    assert g.norm() == 5
    assert g.unused == ()
    assert gv.norm(g) == 5


def test_a_buffer_has_no_field_and_the_error_says_so():
    _, g = block()
    for read in (lambda: g.offset, lambda: g["offset"], lambda: g["norm.running_var"], lambda: g["norm"].running_var):
        with pytest.raises(NoSuchFieldError, match=r"is a buffer of .*not differentiated") as error:
            read()
        assert error.value.code == "E0901"
        assert isinstance(error.value, AttributeError)
        assert isinstance(error.value, KeyError)
        assert isinstance(error.value, GradvizError)
    assert not hasattr(g, "offset")


def test_a_frozen_parameter_and_its_aliases_have_no_field_and_the_error_says_so():
    model = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2), "c": nn.Linear(2, 1)})
    model["b"].weight = model["a"].weight
    model["a"].weight.requires_grad_(False)
    g = Grad(model, [torch.ones_like(p) for p in model.parameters() if p.requires_grad])
    for name in ("a.weight", "b.weight"):
        with pytest.raises(NoSuchFieldError, match=r"is frozen in ModuleDict \(requires_grad=False\)"):
            _ = g[name]
    assert list(g) == ["a.bias", "b.bias", "c.weight", "c.bias"]


def test_a_name_that_does_not_exist_gets_the_nearest_one():
    _, g = block()
    with pytest.raises(
        NoSuchFieldError, match=r"Block has no field 'layers\.0\.wieght': did you mean 'layers\.0\.weight'"
    ):
        _ = g["layers.0.wieght"]
    with pytest.raises(AttributeError, match="did you mean 'scale'"):
        _ = g.scael


def test_parametrized_and_weight_normed_leaves_are_the_originals():
    model = nn.Sequential(parametrizations.weight_norm(nn.Linear(2, 2)), parametrizations.orthogonal(nn.Linear(2, 2)))
    _, g = gv.value_and_grad(loss, model, torch.ones(3, 2))
    assert list(g) == [name for name, _ in model.named_parameters()]
    assert g[0].parametrizations.weight.original0 is g["0.parametrizations.weight.original0"]
    assert g[1].parametrizations.weight.original is g["1.parametrizations.weight.original"]


# Unused parameters ----------------------------------------------------------------------------------------------------


def test_an_unused_parameter_reads_as_zeros_of_its_own_shape_and_dtype_without_a_graph():
    model, g = half_used()
    assert g.unused == ("idle.weight", "idle.bias")
    for name in g.unused:
        leaf, p = g[name], model.get_parameter(name)
        assert (leaf.shape, leaf.dtype, leaf.device) == (p.shape, p.dtype, p.device)
        assert leaf.count_nonzero() == 0
        assert not leaf.requires_grad
        assert leaf.grad_fn is None
        assert g[name] is leaf


def test_given_tells_no_path_from_zero():
    _, g = half_used()
    assert [value is None for value in g.given.values()] == [False, False, True, True]
    assert all(value is not None for value in grad([0.0, 0.0]).given.values())


def test_unused_survives_scaling_and_is_what_both_have_in_a_sum():
    model, g = half_used()
    other = Grad(model, [None, torch.ones(1), torch.ones(2, 3, dtype=torch.float64), None])
    for scaled in (2 * g, g / 2, -g, g.to("cpu"), g.clone(), copy.deepcopy(g), pickle.loads(pickle.dumps(g))):
        assert scaled.unused == g.unused
    assert (g + other).unused == (g - other).unused == ("idle.bias",)
    assert (g + other)["used.weight"].tolist() == [[1, 1]]
    assert (g - other)["idle.weight"].tolist() == [[-1] * 3] * 2
    assert (g + g).unused == g.unused


def test_looking_at_an_unused_leaf_changes_nothing():
    _, seen = half_used()
    _, unseen = half_used()
    _ = seen["idle.weight"], seen["idle.bias"]
    for change in (lambda g: 3 * g, lambda g: g + g, lambda g: g * inf, lambda g: g / 0):
        a, b = change(seen), change(unseen)
        assert a.unused == b.unused
        for name in a:
            torch.testing.assert_close(a[name], b[name], equal_nan=True, rtol=0, atol=0)
        assert str(a.norm()) == str(b.norm())
    assert repr(seen) == repr(unseen)


def test_the_norm_of_an_unused_float64_part_is_float64():
    _, g = half_used()
    assert g["idle"].norm() == 0
    assert g["idle"].norm().dtype == torch.float64
    assert g.norm().dtype == torch.float64  # one leaf is 64 bits wide


def test_wrong_numbers_of_gradients_are_refused():
    with pytest.raises(ValueError, match="shorter"):
        Grad(nn.Linear(2, 1), [torch.ones(1, 2)])


# Arithmetic -----------------------------------------------------------------------------------------------------------

TWO = [
    2,
    2.0,
    fractions.Fraction(2),
    np.float32(2),
    np.float64(2),
    np.float16(2),
    np.int64(2),
    torch.tensor(2),
    torch.tensor(2.0),
    torch.tensor(2.0, dtype=torch.float64),
    torch.tensor(2.0, dtype=torch.bfloat16),
]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def ids(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"tensor-{str(value.dtype).removeprefix('torch.')}"
    return type(value).__name__


def mixed() -> Grad:
    """Leaves of every dtype, and for each a 0-dim one: 0-dim tensors promote each other."""
    leaves = {f"vector{place}": torch.tensor([1.0, -3.0], dtype=dtype) for place, dtype in enumerate(DTYPES)}
    leaves |= {f"scalar{place}": torch.tensor(5.0, dtype=dtype) for place, dtype in enumerate(DTYPES)}
    leaves |= {"complex": torch.tensor([1 + 2j, -3j], dtype=torch.complex64), "empty": torch.zeros(0, 3)}
    return grad(**leaves)


@pytest.mark.parametrize("two", TWO, ids=ids)
def test_scaling_keeps_each_leaf_s_dtype_with_every_kind_of_number_on_either_side(two):
    g = mixed()
    for name, scaled, factor in (("g*2", g * two, 2.0), ("2*g", two * g, 2.0), ("g/2", g / two, 0.5)):
        assert list(scaled) == list(g)
        for key, leaf in scaled.items():
            assert leaf.dtype == g[key].dtype, (name, key)
            assert torch.equal(leaf, g[key] * factor), (name, key)


def test_torch_s_own_mul_is_the_same_product():
    g = grad([1.0, 2.0])
    for product in (torch.mul(g, 2), torch.mul(2, g), torch.multiply(g, torch.tensor(2.0)), torch.tensor(2.0).mul(g)):
        assert product.p0.tolist() == [2, 4]


def test_sum_difference_and_negative_are_leaf_by_leaf_and_keep_dtypes():
    g = mixed()
    h = 3 * g
    for result, factor in ((g + h, 4), (h - g, 2), (-g, -1)):
        for name, leaf in result.items():
            assert leaf.dtype == g[name].dtype, name
            assert torch.equal(leaf, g[name] * factor), name


def test_arithmetic_changes_neither_side_and_shares_no_memory():
    g, h = grad([1.0, 2.0]), grad([3.0, 4.0])
    for result in (g + h, g - h, -g, 1 * g, g / 1):
        result.p0.fill_(9)
    assert g.p0.tolist() == [1, 2]
    assert h.p0.tolist() == [3, 4]
    before = g
    g += h
    assert before.p0.tolist() == [1, 2]
    assert g.p0.tolist() == [4, 6]


def test_no_leaf_of_a_result_has_a_graph():
    model, g = half_used()
    other = Grad(model, [torch.ones(1, 2), None, None, None])
    for result in (g, 2 * g, g - g, g + other, -g, g / 3):
        assert not any(leaf.requires_grad or leaf.grad_fn for leaf in result.values())


def test_a_complex_factor_is_for_complex_leaves_alone():
    g = grad(torch.tensor([1 + 1j, 2.0]))
    assert torch.equal((1j * g).p0, torch.tensor([-1 + 1j, 2j]))
    assert torch.equal((g * torch.tensor(1j)).p0, torch.tensor([-1 + 1j, 2j]))
    assert (np.complex64(1j) * g).p0.dtype == torch.complex64
    for factor in (1j, torch.tensor(1j), np.complex128(1j)):
        with pytest.raises(GradOperationError, match="each keeps its own"):
            _ = mixed() * factor


@pytest.mark.case("C15")
def test_a_complex_and_a_real_leaf_each_keep_their_dtype_and_the_norm_is_real():
    g = grad(spectrum=torch.tensor([3 + 4j, 0]), gain=[12.0])
    mean = 0.5 * (g + g)
    assert mean["spectrum"].dtype == torch.complex64
    assert mean["gain"].dtype == torch.float32
    assert torch.equal(mean["spectrum"], g["spectrum"])
    for ord, want in ((2, 13), (1, 17), (inf, 12)):
        assert g.norm(ord).dtype == torch.float32
        assert g.norm(ord).item() == pytest.approx(want)
    frame = g.to_frame()
    assert frame["dtype"].tolist() == ["complex64", "float32"]
    assert frame.dtypes.drop(["shape", "dtype"]).map(lambda dtype: dtype.kind in "fib").all()


def test_a_sum_of_gradients_that_alias_one_tensor_is_right():
    shared = torch.ones(2)  # autograd gives one tensor object for both parameters of a + b
    g = grad(shared, shared)
    assert [leaf.tolist() for leaf in (g + 2 * g).values()] == [[3, 3], [3, 3]]


def test_expanded_and_strided_leaves_are_scaled_and_summed():
    g = grad(torch.ones(1).expand(6), torch.arange(6.0).reshape(2, 3).t())
    assert (2 * g).p0.tolist() == [2] * 6
    assert torch.equal((g + g).p1, 2 * g.p1)
    assert g.norm().item() == pytest.approx(math.sqrt(6 + 55))


VECTOR, MATRIX = torch.ones(3), torch.ones(2, 2)
REFUSED = {
    "g * g": lambda g: g * g,
    "g / g": lambda g: g / g,
    "g + 1": lambda g: g + 1,
    "1 + g": lambda g: 1 + g,
    "g - 1": lambda g: g - 1,
    "1 - g": lambda g: 1 - g,
    "g + 0-dim": lambda g: g + torch.tensor(1.0),
    "0-dim + g": lambda g: torch.tensor(1.0) + g,
    "0-dim - g": lambda g: torch.tensor(1.0) - g,
    "g + tensor": lambda g: g + VECTOR,
    "tensor + g": lambda g: VECTOR + g,
    "g * tensor": lambda g: g * VECTOR,
    "tensor * g": lambda g: VECTOR * g,
    "g * (1,)": lambda g: g * torch.ones(1),
    "(1,) * g": lambda g: torch.ones(1) * g,
    "g / tensor": lambda g: g / VECTOR,
    "2 / g": lambda g: 2 / g,
    "0-dim / g": lambda g: torch.tensor(2.0) / g,
    "numpy / g": lambda g: np.float64(2) / g,
    "numpy + g": lambda g: np.float64(2) + g,
    "array * g": lambda g: np.ones(2) * g,
    "g * array": lambda g: g * np.ones(2),
    "0-dim array * g": lambda g: np.array(2.0) * g,
    "g * string": lambda g: g * "a",
    "string * g": lambda g: "a" * g,
    "g * list": lambda g: g * [1],
    "list + g": lambda g: operator.add([1], g),
    "g * None": lambda g: g * None,
    "g * Decimal": lambda g: g * decimal.Decimal(2),
    "g + dict": lambda g: g + {},
    "g ** 2": lambda g: g**2,
    "2 ** g": lambda g: 2**g,
    "g @ g": lambda g: g @ g,
    "tensor @ g": lambda g: MATRIX @ g,
    "g // 2": lambda g: g // 2,
    "2 // g": lambda g: 2 // g,
    "g % 2": lambda g: g % 2,
    "2 % g": lambda g: 2 % g,
    "divmod(g, 2)": lambda g: divmod(g, 2),
    "abs(g)": abs,
    "+g": operator.pos,
    "~g": operator.invert,
    "round(g)": round,
    "g & g": lambda g: g & g,
    "g | g": lambda g: g | g,
    "g ^ g": lambda g: g ^ g,
    "g << 1": lambda g: g << 1,
    "g < 1": lambda g: g < 1,
    "g <= g": lambda g: g <= g,
    "g > g": lambda g: g > g,
    "g >= 0-dim": lambda g: g >= torch.tensor(0.0),
    "0-dim < g": lambda g: torch.tensor(0.0) < g,
    "sum([g, g])": lambda g: sum([g, g]),
    "max([g, g])": lambda g: max([g, g]),
    "sorted([g, g])": lambda g: sorted([g, g]),
    "torch.mean(g)": torch.mean,
    "torch.sum(g)": torch.sum,
    "torch.add(g, g)": lambda g: torch.add(g, g),
    "torch.sub(g, 1)": lambda g: torch.sub(g, 1),
    "torch.mul(g, g)": lambda g: torch.mul(g, g),
    "torch.mul(g, tensor)": lambda g: torch.mul(g, VECTOR),
    "torch.div(g, 2)": lambda g: torch.div(g, 2),
    "torch.norm(g)": torch.norm,
    "torch.linalg.vector_norm(g)": torch.linalg.vector_norm,
    "torch.abs(g)": torch.abs,
    "torch.neg(g)": torch.neg,
    "torch.exp(g)": torch.exp,
    "torch.clamp(g, 0)": lambda g: torch.clamp(g, 0),
    "torch.isfinite(g)": torch.isfinite,
    "torch.equal(g, g)": lambda g: torch.equal(g, g),
    "torch.allclose(g, g)": lambda g: torch.allclose(g, g),
    "torch.stack([g, g])": lambda g: torch.stack([g, g]),
    "torch.cat([g])": lambda g: torch.cat([g]),
    "torch.zeros_like(g)": torch.zeros_like,
    "torch.where": lambda g: torch.where(g, g, g),
    "torch.dot(g, g)": lambda g: torch.dot(g, g),
    "torch.matmul(g, tensor)": lambda g: torch.matmul(g, MATRIX),
    "torch._foreach_add([g], 1)": lambda g: torch._foreach_add([g], 1),
    "relu(g)": F.relu,
    "mse_loss(g, g)": lambda g: F.mse_loss(g, g),
    "tensor.add_(g)": lambda g: torch.ones(()).add_(g),
    "tensor.mul_(g)": lambda g: torch.ones(()).mul_(g),
    "np.sin(g)": np.sin,
    "np.add(g, g)": lambda g: np.add(g, g),
    "np.multiply(g, g)": lambda g: np.multiply(g, g),
    "np.isfinite(g)": np.isfinite,
    "np.mean(g)": np.mean,
    "np.sum(g)": np.sum,
    "np.max(g)": np.max,
    "np.argmax(g)": np.argmax,
    "np.sort(g)": np.sort,
    "np.stack([g, g])": lambda g: np.stack([g, g]),
    "np.linalg.norm(g)": np.linalg.norm,
    "np.asarray(g)": np.asarray,
    "gv.norm(tensor)": lambda _: gv.norm(VECTOR),
    "gv.norm(dict)": lambda g: gv.norm(dict(g)),
    "norm(ord=3)": lambda g: g.norm(3),
    "norm(ord=0)": lambda g: g.norm(0),
    "norm(ord=-inf)": lambda g: g.norm(-inf),
    "norm(ord='fro')": lambda g: g.norm("fro"),
}


@pytest.mark.parametrize("operation", REFUSED.values(), ids=REFUSED.keys())
def test_everything_else_is_refused_by_a_type_error_with_code_e1108(operation):
    g = grad([1.0, -2.0, 3.0], [4.0])
    with pytest.raises(TypeError) as error:
        operation(g)
    assert isinstance(error.value, GradOperationError)
    assert error.value.code == "E1108"


@pytest.mark.parametrize("conversion", [float, int, complex, math.sqrt, torch.tensor, torch.as_tensor, bytes])
def test_a_gradient_is_no_number_and_no_tensor(conversion):
    with pytest.raises((TypeError, ValueError)):
        conversion(grad([1.0]))


@pytest.mark.parametrize("operation", ["g * g", "2 / g", "torch.mean(g)", "g + tensor", "np.sin(g)", "np.mean(g)"])
def test_a_refusal_names_what_is_allowed(operation):
    with pytest.raises(TypeError, match=re.escape(ALLOWED)):
        REFUSED[operation](grad([1.0]))


def test_equality_is_identity_so_that_it_is_a_yes_or_no():
    g, h = grad([1.0]), grad([1.0])
    assert (g == g) is True
    assert (g == h) is False
    assert (g != h) is True
    assert (g == torch.tensor(1.0)) is False
    assert len({g, h, g}) == 2


def test_gradients_of_different_models_are_not_combined():
    a, b = nn.Linear(2, 2), nn.Bilinear(1, 2, 2)
    one, two = (
        Grad(a, [torch.ones_like(p) for p in a.parameters()]),
        Grad(b, [torch.ones_like(p) for p in b.parameters()]),
    )
    for combine in (operator.add, operator.sub):
        with pytest.raises(ModelMismatchError, match=r"Linear and one of .*Bilinear") as error:
            combine(one, two)
        assert error.value.code == "E0904"
        assert isinstance(error.value, TypeError)


def test_two_models_of_one_class_can_be_combined_when_names_and_shapes_agree():
    one, two = (Grad(nn.Linear(2, 1), [torch.ones(1, 2), torch.ones(1)]) for _ in range(2))
    assert (one + two).weight.tolist() == [[2, 2]]


def test_gradients_under_different_freezes_are_not_combined():
    model = nn.Linear(2, 1)
    whole = Grad(model, [torch.ones(1, 2), torch.ones(1)])
    model.bias.requires_grad_(False)
    part = Grad(model, [torch.ones(1, 2)])
    for pair in ((whole, part), (part, whole)):
        with pytest.raises(ModelMismatchError, match=r"different trainable parameters \(bias"):
            operator.add(*pair)


def test_gradients_of_different_shapes_are_not_combined_and_never_broadcast():
    one = Grad(nn.Linear(1, 1), [torch.ones(1, 1), torch.ones(1)])
    two = Grad(nn.Linear(2, 1), [torch.ones(1, 2), torch.ones(1)])
    with pytest.raises(ModelMismatchError, match=r"whose weight have shapes \(1, 1\) and \(1, 2\)"):
        _ = one + two


def test_gradients_with_other_names_are_not_combined():
    with pytest.raises(ModelMismatchError, match="different trainable parameters"):
        _ = grad(a=[1.0]) + grad(b=[1.0])


# The norm -------------------------------------------------------------------------------------------------------------


def dense64(leaf: torch.Tensor) -> torch.Tensor:
    leaf = leaf.to_dense() if leaf.layout is not torch.strided else leaf
    return (leaf.to(torch.complex128).abs() if leaf.is_complex() else leaf.double()).reshape(-1)


def true_norm(g: Grad, ord: float = 2) -> float:
    """Of the concatenated float64 copy, scaled so that its squares are harmless."""
    flat = torch.cat([dense64(leaf) for leaf in g.values()] + [torch.zeros(1, dtype=torch.float64)])
    scale = flat.abs().max()
    if not 0 < scale < inf:
        return scale.item()
    return (scale * torch.linalg.vector_norm(flat / scale, ord)).item()


SPARSE = torch.sparse_coo_tensor(
    torch.tensor([[1, 1, 2]]), torch.tensor([[1.0, 2.0], [3.0, -4.0], [0.0, 5.0]]), (4, 2), check_invariants=True
)
NOTHING = torch.sparse_coo_tensor(torch.empty(1, 0, dtype=torch.long), torch.empty(0, 2), (4, 2), check_invariants=True)
GRADIENTS = {
    "two leaves": lambda: grad([3.0], [4.0, 12.0]),
    "float16 of 6e4": lambda: grad(torch.full((300,), 6e4, dtype=torch.float16)),
    "float16 of 300": lambda: grad(torch.tensor([300.0], dtype=torch.float16)),
    "float16 of 1e-4": lambda: grad(torch.full((7,), 1e-4, dtype=torch.float16)),
    "smallest float16": lambda: grad(torch.full((3,), 6e-8, dtype=torch.float16)),
    "bfloat16 ones": lambda: grad(torch.ones(10001, dtype=torch.bfloat16)),
    "bfloat16 of 1e30": lambda: grad(torch.full((5,), 1e30, dtype=torch.bfloat16)),
    "float32 of 1e-23": lambda: grad(torch.full((5,), 1e-23), [1e-23]),
    "float32 of 1e-19": lambda: grad(torch.full((5,), 1e-19), [1e-20]),
    "float32 of 1e-22": lambda: grad(torch.full((5,), 1e-22)),
    "float32 of 4e-23": lambda: grad([4e-23, 5e-23], [4e-23]),
    "float32 of 1e-45": lambda: grad(torch.full((5,), 1e-45)),
    "float32 of 1e20": lambda: grad(torch.full((5,), 1e20), [1e20]),
    "float32 of 1e37": lambda: grad(torch.full((9,), 1e37)),
    "one large, one small": lambda: grad([1e20], [1e-23]),
    "float64 of 1e-200": lambda: grad(torch.full((5,), 1e-200, dtype=torch.float64)),
    "float64 of 1e200": lambda: grad(torch.full((5,), 1e200, dtype=torch.float64)),
    "float32 beside float64": lambda: grad([1e-30], torch.tensor([1e-200], dtype=torch.float64)),
    "complex64": lambda: grad(torch.tensor([3 + 4j, 12j])),
    "complex128": lambda: grad(torch.tensor([3 + 4j, 12j], dtype=torch.complex128)),
    "complex of 1e20": lambda: grad(torch.tensor([1e20 + 1e20j, 1e20j])),
    "complex of 1e-23": lambda: grad(torch.tensor([1e-23 + 1e-23j, 1e-23j])),
    "complex beside real": lambda: grad(torch.tensor([3 + 4j]), [12.0]),
    "complex beside float64": lambda: grad(torch.tensor([3 + 4j]), torch.tensor([12.0], dtype=torch.float64)),
    "complex beside float16": lambda: grad(torch.tensor([3 + 4j]), torch.tensor([6e4], dtype=torch.float16)),
    "uncoalesced sparse": lambda: grad(SPARSE),
    "sparse beside dense": lambda: grad(SPARSE, [7.0, 8.0]),
    "sparse of 1e20": lambda: grad(SPARSE * 1e20),
    "sparse with nothing": lambda: grad(NOTHING),
    "sparse with nothing beside dense": lambda: grad(NOTHING, [3.0, 4.0]),
    "sparse with nothing beside tiny": lambda: grad(NOTHING, [1e-23]),
    "empty leaf": lambda: grad(torch.zeros(0, 3)),
    "empty beside full": lambda: grad(torch.zeros(0, 3), [3.0, 4.0]),
    "0-dim": lambda: grad(-5.0),
    "0-dim beside vector": lambda: grad(3.0, [4.0]),
    "zeros": lambda: grad([0.0, 0.0], 0.0),
    "mixed": mixed,
    "float8": lambda: grad(
        torch.tensor([3.0, -4.0]).to(torch.float8_e4m3fn), torch.tensor([8.0]).to(torch.float8_e5m2)
    ),
    "float8 beside float32": lambda: grad(torch.tensor([3.0, -4.0]).to(torch.float8_e4m3fn), [12.0]),
    "many leaves": lambda: grad(*[torch.full((3,), float(place)) for place in range(200)]),
    "not contiguous": lambda: grad(torch.arange(12.0).reshape(3, 4).t(), torch.ones(1).expand(9)),
    "infinity": lambda: grad([1.0, inf]),
    "minus infinity": lambda: grad([1.0], [-inf]),
    "NaN": lambda: grad([1.0, nan]),
    "NaN and infinity": lambda: grad([inf], [nan]),
    "infinity and NaN": lambda: grad([nan], [inf, 1.0]),
    "float16 infinity": lambda: grad(torch.tensor([1.0, inf], dtype=torch.float16)),
    "complex NaN": lambda: grad(torch.tensor([1 + 1j, complex(nan, 1)])),
}


@pytest.mark.parametrize("ord", [2, 1, inf])
@pytest.mark.parametrize("make", GRADIENTS.values(), ids=GRADIENTS.keys())
def test_the_norm_is_that_of_all_values_in_one_float64_vector(make, ord):
    g = make()
    got = g.norm(ord)
    np.testing.assert_allclose(got.item(), true_norm(g, ord), rtol=1e-5, atol=0 if true_norm(g, ord) > 1e-38 else 2e-45)
    assert got.shape == ()
    wide = any(leaf.dtype in (torch.float64, torch.complex128) for leaf in g.values())
    assert got.dtype == (torch.float64 if wide else torch.float32)
    assert not got.requires_grad
    assert gv.norm(g, ord).item() == got.item() or got.isnan()


def test_norms_by_hand():
    g = grad([3.0, -4.0], [[12.0]])
    assert (g.norm(), g.norm(ord=1), g.norm(ord=inf)) == (13, 19, 12)
    assert gv.norm(g) == g.norm(2) == g.norm(2.0) == 13


@pytest.mark.case("C07")
@pytest.mark.parametrize("entry", [300, 6e4, 1e-4])
def test_the_norm_of_half_precision_entries_is_finite_right_and_float32(entry):
    g = grad(torch.full((10,), entry, dtype=torch.float16), torch.full((6,), entry, dtype=torch.float16))
    assert g.norm().dtype == torch.float32
    assert g.norm().item() == pytest.approx(4 * entry, rel=1e-3)
    assert g.norm(1).item() == pytest.approx(16 * entry, rel=1e-3)


@pytest.mark.case("C08")
@pytest.mark.parametrize("entry", [300.0, 6e4, 1e-4])
def test_a_half_gradient_divided_by_its_norm_has_norm_one(entry):
    g = grad(torch.tensor([entry, 0.0], dtype=torch.float16))
    for unit in (g / g.norm(), g * (1 / g.norm())):
        assert unit.p0.dtype == torch.float16
        assert unit.norm().item() == pytest.approx(1, rel=2e-3)


@pytest.mark.case("C08")
def test_a_half_scalar_parameter_divided_by_its_norm_stays_half_and_is_not_zero():
    g = grad(torch.tensor(300.0, dtype=torch.float16))
    unit = g / g.norm()
    assert unit.p0.dtype == torch.float16
    assert unit.p0 == 1


@pytest.mark.case("C09")
def test_the_norm_of_bfloat16_ones_is_not_rounded_to_bfloat16():
    ones = torch.ones(10001, dtype=torch.bfloat16)
    assert grad(ones).norm().item() == pytest.approx(math.sqrt(10001), rel=1e-6)
    assert grad(ones).norm(1).item() == 10001
    torch.manual_seed(0)
    deep = grad(*[torch.randn(99, dtype=torch.bfloat16) for _ in range(100)])
    assert deep.norm().dtype == torch.float32
    assert deep.norm().item() == pytest.approx(true_norm(deep), rel=1e-5)


@pytest.mark.case("C27")
def test_the_norm_of_nothing_is_zero():
    assert Grad(nn.ReLU(), []).norm() == 0
    assert Grad(nn.ReLU(), {}).norm(inf) == 0
    assert gv.norm(Grad(nn.Linear(1, 1).requires_grad_(False), [])) == 0
    assert gv.norm(Grad(nn.Linear(1, 1), [None, None])) == 0


@pytest.mark.case("C13")
@pytest.mark.parametrize("indices", [[1, 1, 2], [], [0]])
def test_sparse_embedding_gradients_give_the_numbers_of_dense_ones(indices):
    def lookup(model: nn.Embedding, at: torch.Tensor) -> torch.Tensor:
        return (model(at) * torch.arange(1.0, 1 + 2 * len(at)).reshape(-1, 2)).sum()

    torch.manual_seed(0)
    sparse_model = nn.Embedding(4, 2, sparse=True)
    dense_model = nn.Embedding.from_pretrained(sparse_model.weight.detach().clone(), freeze=False)
    at = torch.tensor(indices, dtype=torch.long)
    _, sparse = gv.value_and_grad(lookup, sparse_model, at)
    _, dense = gv.value_and_grad(lookup, dense_model, at)
    assert sparse.weight.is_sparse
    zeros = Grad(sparse_model, [torch.zeros(4, 2)])
    for a, b in (
        (sparse, dense),
        (sparse + sparse, dense + dense),
        (sparse - sparse, dense - dense),
        (2 * sparse, 2 * dense),
        (sparse * torch.tensor(2.0), dense * 2),
        (sparse / 4, dense / 4),
        (sparse / torch.tensor(4.0), dense / 4),
        (-sparse, -dense),
        (sparse - zeros, dense),
        (zeros + sparse, dense),
    ):
        assert torch.equal(a.weight.to_dense(), b.weight)
        for ord in (1, 2, inf):
            assert a.norm(ord).item() == pytest.approx(b.norm(ord).item())
        pd.testing.assert_frame_equal(a.to_frame(), b.to_frame())
        assert "4 × 2" in repr(a)
    assert (sparse.to_frame()[["nan", "posinf", "neginf"]] == 0).all(axis=None)


@pytest.mark.case("C14")
def test_the_norm_of_a_complex_gradient_is_real_and_of_magnitudes():
    g = grad(torch.tensor([2j]))
    assert (g.p0**2).sum().real < 0  # what a square without the conjugate would give
    for ord in (1, 2, inf):
        assert g.norm(ord).dtype == torch.float32
        assert g.norm(ord) == 2
    assert g.to_frame().loc["p0", ["norm", "max_abs"]].tolist() == [2, 2]


@pytest.mark.case("C11")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2])
def test_no_narrow_dtype_breaks_the_norm_the_table_or_the_text(dtype):
    g = grad(torch.tensor([3.0, -4.0, 0.0]).to(dtype))
    assert [g.norm(ord).item() for ord in (1, 2, inf)] == [7, 5, 4]
    row = g.to_frame().loc["p0"]
    assert row[["norm", "max_abs", "mean"]].tolist() == pytest.approx([5, 4, -1 / 3])
    assert "norm 5" in repr(g)


@pytest.mark.case("C12")
def test_a_bfloat16_gradient_becomes_numbers_in_a_frame_and_its_dtype_stays_as_text():
    frame = grad(torch.tensor([3.0, -4.0], dtype=torch.bfloat16)).to_frame()
    assert frame.loc["p0", "dtype"] == "bfloat16"
    assert frame["norm"].dtype == np.float64
    assert frame.loc["p0", "norm"] == 5


@pytest.mark.case("C28")
@pytest.mark.parametrize(
    ("entries", "counts", "norm"),
    [
        ([1.0, nan, 2.0], [1, 0, 0], nan),
        ([1.0, inf, -inf], [0, 1, 1], inf),
        ([nan, nan], [2, 0, 0], nan),
        ([3.0, 3.0], [0, 0, 0], math.sqrt(18)),
        ([0.0, 0.0], [0, 0, 0], 0),
        ([nan, inf], [1, 1, 0], nan),
    ],
)
def test_non_finite_and_constant_gradients_are_counted_and_shown(entries, counts, norm):
    g = grad(entries, [1.0])
    row = g.to_frame().loc["p0"]
    assert row[["nan", "posinf", "neginf"]].tolist() == counts
    np.testing.assert_allclose(row["norm"], norm)
    np.testing.assert_allclose(g["p0"].norm().item(), norm, rtol=1e-6)
    assert "p0" in repr(g)
    assert "p0" in g._repr_html_()
    assert torch.equal((2 * g).p1, torch.tensor([2.0]))


WIDE = st.floats(-1e6, 1e6, allow_nan=False, allow_infinity=False, width=32)
ANY = st.floats(width=32, allow_nan=False, allow_infinity=False)
SIDES = hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=6)


@st.composite
def gradients(draw: st.DrawFn, elements: st.SearchStrategy[float] = WIDE, count: int = 1) -> list[Grad]:
    """Gradients of one model with float32, float64 and 0-dim leaves."""
    shapes = draw(st.lists(SIDES, min_size=1, max_size=4))
    dtypes = [draw(st.sampled_from([torch.float32, torch.float64])) for _ in shapes]

    def leaf(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.from_numpy(np.array(draw(hnp.arrays(np.float32, shape, elements=elements)))).to(dtype)

    made = [[leaf(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)] for _ in range(count)]
    return [grad(*leaves) for leaves in made]


def close(a: Grad, b: Grad, size: float) -> None:
    for name in a:
        assert a[name].dtype == b[name].dtype
        torch.testing.assert_close(a[name], b[name], rtol=0, atol=1e-6 * size)


def size_of(*gs: Grad) -> float:
    return 1e-30 + sum(g.norm(inf).item() for g in gs)


TINY = 1e-43  # a few of the smallest float32: what rounding among subnormals can cost

many = settings(max_examples=100)


@many
@given(gradients(ANY))
def test_the_norm_of_any_float_gradient_equals_that_of_one_float64_vector(made):
    (g,) = made
    for ord in (1, 2, inf):
        want = true_norm(g, ord)
        if want > torch.finfo(torch.float32).max and g.norm(ord).dtype == torch.float32:
            continue  # the answer itself is beyond the dtype
        np.testing.assert_allclose(g.norm(ord).item(), want, rtol=1e-5, atol=2e-45)


@many
@given(gradients(count=2))
def test_addition_commutes_and_subtraction_undoes_it(pair):
    a, b = pair
    assert same(a + b, b + a)
    close((a - b) + b, a, size_of(a, b))
    assert same(a - b, -(b - a))
    assert (a - a).norm() == 0


@many
@given(gradients(count=3))
def test_addition_associates(three):
    a, b, c = three
    close((a + b) + c, a + (b + c), size_of(a, b, c))


@many
@given(gradients())
def test_two_of_a_gradient_is_its_sum_with_itself_and_twice_negated_is_itself(made):
    (g,) = made
    assert same(2 * g, g + g)
    assert same(operator.neg(-g), g)
    assert same(1 * g, g)
    assert same(-g, -1 * g)
    assert same(g / 2, 0.5 * g)


@many
@given(gradients(count=2), st.floats(-10, 10))
def test_scaling_distributes(pair, factor):
    a, b = pair
    close(factor * (a + b), factor * a + factor * b, 12 * size_of(a, b))
    close((factor + 1) * a, factor * a + a, 12 * size_of(a))


@many
@given(gradients(), st.floats(-100, 100).filter(lambda factor: abs(factor) > 1e-3))
def test_the_norm_scales_with_its_gradient(made, factor):
    (g,) = made
    for ord in (1, 2, inf):
        assert (2 * g).norm(ord).item() == pytest.approx(2 * g.norm(ord).item(), rel=1e-6)
        assert (factor * g).norm(ord).item() == pytest.approx(abs(factor) * g.norm(ord).item(), rel=1e-5)
        assert (-g).norm(ord) == g.norm(ord)


@many
@given(gradients(count=2))
def test_the_norm_keeps_the_triangle_inequality_and_its_order(pair):
    a, b = pair
    for ord in (1, 2, inf):
        bound = a.norm(ord).item() + b.norm(ord).item()
        assert (a + b).norm(ord).item() <= bound * (1 + 1e-5) + TINY
    assert a.norm(inf).item() <= a.norm(2).item() * (1 + 1e-6) + TINY
    assert a.norm(2).item() <= a.norm(1).item() * (1 + 1e-5) + TINY


# Copies, trees and types ----------------------------------------------------------------------------------------------


def test_it_is_a_pytree_with_named_leaves():
    _, g = half_used()
    leaves, spec = pytree.tree_flatten(g)
    assert len(leaves) == 4
    back = pytree.tree_unflatten(leaves, spec)
    assert isinstance(back, Grad)
    assert same(back, g)
    assert back.unused == g.unused
    keyed, _ = pytree.tree_flatten_with_path({"g": g})
    assert [pytree.keystr(path) for path, _ in keyed] == [
        "['g']['used.weight']",
        "['g']['used.bias']",
        "['g']['idle.weight']",
        "['g']['idle.bias']",
    ]


def test_tree_map_works_on_one_gradient_and_on_two_of_the_same_model():
    g = grad([1.0, 2.0], [3.0])
    doubled = pytree.tree_map(lambda leaf: 2 * leaf, g)
    assert same(doubled, 2 * g)
    assert same(pytree.tree_map(torch.add, g, doubled), 3 * g)
    shapes = pytree.tree_map(lambda leaf: tuple(leaf.shape), g)
    assert shapes["p0"] == (2,)
    assert pytree.tree_structure(g) == pytree.tree_structure(doubled)
    assert pytree.tree_structure(g) != pytree.tree_structure(grad(other=[1.0]))


@pytest.mark.parametrize("how", ["pickle", "torch.save", "copy", "deepcopy"])
def test_copies_are_equal_and_can_be_combined_with_the_original(how):
    _, g = block()

    def through_torch(g: Grad) -> Grad:
        buffer = io.BytesIO()
        torch.save(g, buffer)
        buffer.seek(0)
        return torch.load(buffer, weights_only=False)

    ways = {
        "pickle": lambda g: pickle.loads(pickle.dumps(g)),
        "torch.save": through_torch,
        "copy": copy.copy,
        "deepcopy": copy.deepcopy,
    }
    other = ways[how](g)
    assert other is not g
    assert same(other, g)
    assert (g - other).norm() == 0
    assert other.layers[0].weight.shape == (2, 2)
    assert repr(other) == repr(g)
    with pytest.raises(NoSuchFieldError, match="is a buffer"):
        _ = other.offset
    assert (other.scale is g.scale) == (how == "copy")


def test_a_pickle_is_read_where_the_model_s_class_is_unknown():
    _, g = block()
    code = (
        "import pickle, sys; g = pickle.load(sys.stdin.buffer); print(type(g).__name__, len(g), g.layers[0].norm() > 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(g), capture_output=True, check=True)
    assert done.stdout.decode().split() == ["Grad", str(len(g)), "tensor(True)"]


def test_to_casts_every_leaf_as_tensor_to_does():
    _, g = half_used()
    for cast in (
        g.to(torch.float64),
        g.to("cpu", torch.float64),
        g.to(dtype=torch.float64),
        g.to(torch.ones(1).double()),
    ):
        assert {leaf.dtype for leaf in cast.values()} == {torch.float64}
        assert cast.unused == g.unused
    assert {leaf.device.type for leaf in g.to("meta").values()} == {"meta"}
    assert g["used.weight"].dtype == torch.float32


def test_cpu_detach_and_clone_keep_the_values():
    w = torch.ones(2, requires_grad=True)
    (leaf,) = torch.autograd.grad((w**3).sum(), [w], create_graph=True)
    g = Grad(nn.ParameterList([w]), [leaf])
    assert g["0"].requires_grad
    assert not g.detach()["0"].requires_grad
    assert g.detach()["0"].data_ptr() == g["0"].data_ptr()
    assert g.clone()["0"].data_ptr() != g["0"].data_ptr()
    assert g.clone()["0"].tolist() == g.cpu()["0"].tolist() == [3, 3]


def test_a_norm_with_a_graph_can_be_differentiated_at_any_size():
    for size in (1.0, 1e-15, 1e15):
        w = torch.tensor([3.0, 4.0], requires_grad=True)
        (leaf,) = torch.autograd.grad((w**2).sum() * size / 2, [w], create_graph=True)
        norm = Grad(nn.ParameterList([w]), [leaf]).norm()
        assert norm.item() == pytest.approx(5 * size)
        (back,) = torch.autograd.grad(norm, [w])
        torch.testing.assert_close(back / size, torch.tensor([0.6, 0.8]))


def test_the_norm_of_a_zero_gradient_can_be_differentiated_as_torch_s_own():
    w = torch.zeros(2, requires_grad=True)
    (leaf,) = torch.autograd.grad((w**2).sum(), [w], create_graph=True)
    (back,) = torch.autograd.grad(Grad(nn.ParameterList([w]), [leaf]).norm(), [w])
    assert back.tolist() == [0, 0]


def test_a_gradient_can_be_held_weakly_and_keeps_neither_model_nor_arguments():
    model, x = nn.Linear(2, 1), torch.ones(3, 2)
    _, g = gv.value_and_grad(loss, model, x)
    _ = g + g, g.norm(), repr(g)
    seen = [weakref.ref(model), weakref.ref(model.weight), weakref.ref(x)]
    gradient = weakref.ref(g)
    del model, x
    gc.collect()
    assert [ref() for ref in seen] == [None] * 3
    assert gradient() is g
    del g
    assert gradient() is None  # at once: there is no cycle to be collected


# Showing --------------------------------------------------------------------------------------------------------------


def test_the_text_is_a_table_of_names_shapes_dtypes_and_norms():
    _, g = half_used()
    lines = repr(g).splitlines()
    assert lines[0] == "Grad of ModuleDict: 4 parameters, norm 1.732"
    assert [line.split() for line in lines[1:]] == [
        ["used.weight", "1", "×", "2", "float32", "1.414"],
        ["used.bias", "1", "float32", "1"],
        ["idle.weight", "2", "×", "3", "float64", "unused"],
        ["idle.bias", "2", "float64", "unused"],
    ]
    assert len({line.index("float") for line in lines[1:]}) == 1  # columns are aligned
    assert "scalar" in repr(grad(1.0))
    assert repr(Grad(nn.ReLU(), [])) == "Grad of ReLU: 0 parameters, norm 0"


def test_a_long_table_is_cut_in_the_middle_and_says_by_how_much():
    g = grad(**{f"w{place:03}": [1.0] for place in range(100)})
    lines = repr(g).splitlines()
    assert len(lines) == 25
    assert "... 77 more" in lines[21]
    assert "w019" in lines[20]
    assert "w097" in lines[22]
    assert g._repr_html_().count("<tr>") == 25
    assert len(repr(grad(**{f"w{place}": [1.0] for place in range(24)})).splitlines()) == 25


def test_the_html_table_escapes_every_name():
    model = nn.Module()
    model.register_parameter("<script>alert(1)</script>", nn.Parameter(torch.ones(1)))
    page = Grad(model, [torch.ones(1)])._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page

    class_named_html = type("<b>", (nn.Linear,), {})(1, 1)
    assert "<b>" not in Grad(class_named_html, [torch.ones(1, 1), torch.ones(1)])._repr_html_()


def test_the_frame_has_a_row_for_each_parameter_and_the_statistics():
    _, g = half_used()
    frame = g.to_frame()
    assert frame.index.tolist() == list(g)
    assert frame.index.name == "parameter"
    assert frame.columns.tolist() == [
        "shape",
        "dtype",
        "unused",
        "norm",
        "mean",
        "std",
        "max_abs",
        "zero_fraction",
        "nan",
        "posinf",
        "neginf",
    ]
    assert frame["unused"].tolist() == [False, False, True, True]
    assert frame["shape"].tolist() == [(1, 2), (1,), (2, 3), (2,)]
    assert frame["dtype"].tolist() == ["float32", "float32", "float64", "float64"]
    assert frame["norm"].tolist() == pytest.approx([math.sqrt(2), 1, 0, 0])
    assert frame[["nan", "posinf", "neginf"]].dtypes.tolist() == [np.int64] * 3
    assert len(Grad(nn.ReLU(), []).to_frame()) == 0


def test_a_gradient_on_the_meta_device_can_be_shown():
    model = nn.Linear(2, 1, device="meta")
    _, g = gv.value_and_grad(loss, model, torch.ones(1, 2, device="meta"))
    assert g.weight.device.type == "meta"
    assert "weight" in repr(g)


def test_protocol_names_are_no_fields():
    g = grad([1.0])
    for name in ("__len_hint__", "__fspath__", "__cuda_array_interface__"):
        with pytest.raises(AttributeError):
            getattr(g, name)
    assert not hasattr(g, "_ipython_canary_method_should_not_exist_")


# The annotation -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "thing",
    [int, str, object, torch.Tensor, nn.Parameter, None, 3, list[int], int | float, torch.float32, nn.Linear(1, 1)],
    ids=repr,
)
def test_a_gradient_of_what_is_no_model_is_refused(thing):
    with pytest.raises(NotAModelError) as error:
        Grad[thing]
    assert error.value.code == "E0303"
    assert isinstance(error.value, TypeError)


def test_a_gradient_of_a_model_a_name_or_a_type_variable_is_an_annotation():
    from gradviz.grad.algebra import M

    for thing in (nn.Module, nn.Linear, Block, "Block", M):
        assert Grad[thing].__origin__ is Grad


def test_an_index_counts_frozen_and_missing_places():
    model = nn.Module()
    model.ps = nn.ParameterList([nn.Parameter(torch.tensor([v])) for v in (1.0, 2.0, 3.0)])
    model.ps[0].requires_grad_(False)
    _, g = gv.value_and_grad(lambda m: (10 * m.ps[0] + 20 * m.ps[1] + 30 * m.ps[2]).sum(), model)
    assert (g.ps[1].item(), g.ps[2].item(), g.ps[-1].item()) == (20, 30, 30)
    with pytest.raises(NoSuchFieldError, match="'0' is frozen"):
        _ = g.ps[0]


@pytest.mark.parametrize("ord", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_norm_of_a_large_leaf_keeps_its_digits(ord, dtype):
    n = 1 << 25
    model = nn.Module()
    model.table = nn.Parameter(torch.full((n,), 0.5, dtype=dtype))
    exact = 0.5 * n if ord == 1 else 0.5 * math.sqrt(n)
    assert Grad(model, [model.table.detach()]).norm(ord).item() == pytest.approx(exact, rel=1e-5)


def test_a_gradient_from_a_mapping_has_the_model_s_names_and_shapes():
    model = nn.Linear(2, 1)
    made = Grad(model, {"bias": torch.ones(1), "weight": torch.ones(1, 2)})
    assert made.weight.tolist() == [[1, 1]]
    assert Grad(model, {"bias": torch.ones(1)}).unused == ("weight",)
    with pytest.raises(NoSuchFieldError, match="did you mean 'weight'"):
        Grad(model, {"wieght": torch.ones(1, 2)})
    with pytest.raises(ModelMismatchError, match=r"weight has shape \(5, 2\)"):
        Grad(model, {"weight": torch.ones(5, 2)})


def test_a_reduced_gradient_does_not_broadcast_against_a_whole_one():
    g = Grad(nn.Linear(2, 1), [torch.ones(1, 2), torch.ones(1)])
    reduced = pytree.tree_map(torch.mean, g)
    with pytest.raises(ModelMismatchError, match="shapes"):
        g - reduced
    assert (reduced + reduced).weight == 2
