"""Norms of parameters' gradients by example are those of each example alone, or there is a reason why not."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.nn.utils import parametrizations

from gradviz.grad.capture import examples
from gradviz.grad.capture.examples import ModuleCall, parameter_example_norms

DTYPES = [torch.float32, torch.float64]


def called(module: nn.Module, *args: Any, **kwargs: Any) -> ModuleCall:
    """A call of a module, with a random gradient of its output; the module is as before."""
    output = copy.deepcopy(module)(*copy.deepcopy(args), **copy.deepcopy(kwargs))
    return ModuleCall(module, args, kwargs, torch.randn_like(output))


def alone(calls: list[ModuleCall], batch_dim: int = 0) -> dict[nn.Parameter, Tensor]:
    """The same by plain torch: each example by itself through the modules, gradients summed over the calls."""
    count = calls[0].gradient.shape[batch_dim]
    parameters = {p: None for call in calls for p in call.module.parameters(recurse=False) if p.requires_grad}
    norms: dict[nn.Parameter, list[float]] = {p: [] for p in parameters}
    for example in range(count):

        def cut(x: Any, example: int = example) -> Any:
            by_example = isinstance(x, Tensor) and x.ndim > batch_dim and x.shape[batch_dim] == count
            return x.narrow(batch_dim, example, 1) if by_example else x

        totals = dict.fromkeys(parameters, 0.0)
        for call in calls:
            output = call.module(*map(cut, call.args), **{name: cut(x) for name, x in call.kwargs.items()})
            own = [p for p in call.module.parameters(recurse=False) if p.requires_grad]
            for p, gradient in zip(own, torch.autograd.grad(output, own, cut(call.gradient)), strict=True):
                totals[p] = totals[p] + gradient.to_dense().double()
        for p, total in totals.items():
            norms[p].append(float(total.norm()))
    return {p: torch.tensor(values, dtype=torch.float64) for p, values in norms.items()}


def check(calls: list[ModuleCall], batch_dim: int = 0) -> dict[nn.Parameter, Tensor]:
    norms, reasons = parameter_example_norms(calls, batch_dim=batch_dim)
    assert not reasons, reasons.values()
    expected = alone(calls, batch_dim)
    assert list(norms) == list(expected)
    for p, told in norms.items():
        assert told.dtype == torch.float64
        torch.testing.assert_close(told, expected[p], rtol=1e-5, atol=0)
    return norms


def the_reason(calls: list[ModuleCall], batch_dim: int = 0) -> str:
    norms, reasons = parameter_example_norms(calls, batch_dim=batch_dim)
    assert not norms
    (reason,) = set(reasons.values())
    return reason


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


class Scale(nn.Module):
    """A module that is none of torch's."""

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(width))

    def forward(self, x: Tensor) -> Tensor:
        return (x * self.scale).tanh()


# Common layers --------------------------------------------------------------------------------------------------------


def test_the_numbers_of_a_line_by_hand():
    line = nn.Linear(2, 1)
    x, gradient = torch.tensor([[3.0, 4.0], [0.0, 1.0]]), torch.tensor([[1.0], [-2.0]])
    norms, reasons = parameter_example_norms([ModuleCall(line, (x,), {}, gradient)])
    assert norms[line.weight].tolist() == [5, 2]
    assert norms[line.bias].tolist() == [1, 2]
    assert not reasons


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("between", [(), (5,), (5, 2)])
def test_a_linear_layer_with_any_axes_between(dtype, bias, between):
    layer = nn.Linear(4, 3, bias=bias, dtype=dtype)
    check([called(layer, torch.randn(6, *between, 4, dtype=dtype))])


@settings(max_examples=40)
@given(st.data())
def test_a_convolution_with_any_options(data):
    dims = data.draw(st.integers(1, 3))
    kind = [nn.Conv1d, nn.Conv2d, nn.Conv3d][dims - 1]
    groups = data.draw(st.sampled_from([1, 2]))
    each = st.tuples(*[st.integers(1, 2)] * dims)
    padding = data.draw(st.sampled_from(["same", "valid", 0, 1, (2, 1, 0)[:dims]]))
    stride = (1,) * dims if padding == "same" else data.draw(each)
    layer = kind(
        2 * groups,
        data.draw(st.sampled_from([2, 4])),
        data.draw(st.tuples(*[st.integers(1, 3)] * dims)),
        stride=stride,
        padding=padding,
        dilation=data.draw(each),
        groups=groups,
        bias=data.draw(st.booleans()),
        padding_mode=data.draw(st.sampled_from(["zeros", "reflect", "replicate", "circular"])),
        dtype=data.draw(st.sampled_from(DTYPES)),
    )
    x = torch.randn(data.draw(st.integers(1, 3)), 2 * groups, *(6, 7, 5)[:dims], dtype=layer.weight.dtype)
    check([called(layer, x)])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5,), (5, 7), (5, 2, 3)])
@pytest.mark.parametrize("options", [{}, {"padding_idx": 1}, {"sparse": True}])
def test_an_embedding_whose_indices_come_again(dtype, shape, options):
    layer = nn.Embedding(4, 3, dtype=dtype, **options)
    check([called(layer, torch.randint(4, shape))])


def test_an_embedding_that_keeps_its_rows_short_is_not_written_to():
    layer = nn.Embedding(4, 3, max_norm=0.1)
    call = called(layer, torch.randint(4, (5, 2)))
    before = layer.weight.detach().clone()
    norms, _ = parameter_example_norms([call])
    assert torch.equal(layer.weight, before)
    torch.testing.assert_close(norms, alone([call]), rtol=1e-5, atol=0)


def test_an_embedding_that_divides_by_the_frequency_in_the_batch_is_refused():
    call = called(nn.Embedding(4, 3, scale_grad_by_freq=True), torch.randint(4, (5, 2)))
    assert "scale_grad_by_freq" in the_reason([call])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(3,), (2, 3)])
def test_a_layer_norm(dtype, bias, shape):
    layer = nn.LayerNorm(shape, bias=bias, dtype=dtype)
    check([called(layer, torch.randn(5, 4, *shape, dtype=dtype))])


@pytest.mark.parametrize("name", ["input", "x"])
def test_an_input_by_keyword(name):
    module = nn.Linear(3, 3) if name == "input" else Scale()
    check([called(module, **{name: torch.randn(4, 3)})])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits_are_summed_in_thirty_two(dtype):
    layer, wide = nn.Linear(8, 4, dtype=dtype), nn.Linear(8, 4)
    x, gradient = torch.randn(3, 300, 8, dtype=dtype), torch.randn(3, 300, 4, dtype=dtype)
    norms, _ = parameter_example_norms([ModuleCall(layer, (x,), {}, gradient)])
    expected = alone([ModuleCall(wide, (x.float(),), {}, gradient.float())])
    for p, like in zip(layer.parameters(), wide.parameters(), strict=True):
        torch.testing.assert_close(norms[p], expected[like], rtol=1e-5, atol=0)


def test_examples_in_chunks_are_the_same_as_all_at_once(monkeypatch):
    modules = nn.Linear(3, 4), nn.Conv1d(3, 4, 2), nn.LayerNorm(3), Scale()
    calls = [called(module, torch.randn(7, 3, 3)) for module in modules]
    whole, _ = parameter_example_norms(calls)
    monkeypatch.setattr(examples, "AT_ONCE", 3 * 3 * 4 * 12 + 1)
    assert len(whole) == 7
    torch.testing.assert_close(check(calls), whole, rtol=1e-6, atol=0)


# The ends of the range ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 1e-23), (torch.float64, 1e-200), (torch.float64, 1e200)])
@pytest.mark.parametrize("kind", ["linear", "positions", "embedding", "norm", "other"])
def test_squares_neither_vanish_nor_overflow(dtype, size, kind):
    module: nn.Module = {
        "linear": lambda: nn.Linear(3, 2),
        "positions": lambda: nn.Linear(3, 2),
        "embedding": lambda: nn.Embedding(3, 2),
        "norm": lambda: nn.LayerNorm(3),
        "other": lambda: Scale(),
    }[kind]().to(dtype)
    shape = (4, 2, 3) if kind == "positions" else (4, 3)
    x = torch.randint(3, (4, 2)) if kind == "embedding" else torch.randn(*shape, dtype=dtype)
    call = called(module, x)
    small, _ = parameter_example_norms([call._replace(gradient=call.gradient * size)])
    for p, norms in parameter_example_norms([call])[0].items():
        torch.testing.assert_close(small[p] / size, norms, rtol=1e-5, atol=0)


def test_entries_that_vanish_or_overflow_in_the_gradient_do_so_in_its_norm():
    layer = nn.Linear(2, 2)
    x = torch.tensor([[1e-30, 1.0], [1e-30, 1e-30], [1e30, 1.0], [0.0, 0.0], [math.inf, 1.0], [math.nan, 0.0]])
    gradient = torch.tensor([[1.0, 2.0], [1e-30, 0.0], [1e30, 1.0], [1.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    call = ModuleCall(layer, (x,), {}, gradient)
    norms, _ = parameter_example_norms([call])
    torch.testing.assert_close(norms, alone([call]), rtol=1e-6, atol=0, equal_nan=True)
    assert norms[layer.weight][1:].isnan().tolist() == [False, False, False, True, True]
    assert norms[layer.weight][1:4].tolist() == [0, math.inf, 0]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("make", "shape"),
    [(lambda: nn.Linear(3, 2), (4, 2, 3)), (lambda: nn.Conv1d(3, 2, 2), (4, 3, 3)), (Scale, (4, 3))],
)
def test_what_is_not_finite_shows_at_its_example_alone(value, make, shape):
    call = called(make(), torch.randn(*shape).abs() + 1)
    call.gradient[2] = value
    for norms in parameter_example_norms([call])[0].values():
        assert norms.isfinite().tolist() == [True, True, False, True]
        assert math.isnan(norms[2]) == math.isnan(value) or norms[2].isnan()  # inf - inf is NaN


# Several calls --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "x"),
    [
        (lambda: nn.Linear(3, 2), lambda: torch.randn(4, 3)),
        (lambda: nn.Linear(3, 2), lambda: torch.randn(4, 2, 3)),
        (lambda: nn.Conv1d(3, 2, 2), lambda: torch.randn(4, 3, 5)),
        (lambda: nn.Embedding(5, 2), lambda: torch.randint(5, (4, 3))),
        (lambda: nn.LayerNorm(3), lambda: torch.randn(4, 2, 3)),
        (Scale, lambda: torch.randn(4, 3)),
    ],
)
def test_a_module_called_three_times_has_the_sum_of_its_calls(make, x):
    module = make()
    check([called(module, x()) for _ in range(3)])


def test_calls_with_different_lengths_of_a_sequence():
    conv, norm = nn.Conv1d(3, 2, 2), nn.LayerNorm(3)
    check([called(conv, torch.randn(4, 3, length)) for length in (5, 9)])
    check([called(norm, torch.randn(4, length, 3)) for length in (5, 9)])


def test_gradients_that_cancel_between_calls_have_the_norm_zero():
    layer = nn.Linear(3, 2)
    call = called(layer, torch.randn(4, 3))
    norms, _ = parameter_example_norms([call, call._replace(gradient=-call.gradient)])
    assert norms[layer.weight].tolist() == [0, 0, 0, 0]


@pytest.mark.case("C32")
@pytest.mark.parametrize("at_once", [examples.AT_ONCE, 1])
def test_a_weight_tied_between_an_embedding_and_a_linear_layer_has_the_sum(at_once, monkeypatch):
    monkeypatch.setattr(examples, "AT_ONCE", at_once)
    embedding, head = nn.Embedding(5, 3, padding_idx=0), nn.Linear(3, 5)
    head.weight = embedding.weight
    calls = [called(embedding, torch.randint(5, (4, 6))), called(head, torch.randn(4, 6, 3))]
    norms = check(calls)
    assert list(norms) == [embedding.weight, head.bias]


def test_two_modules_that_share_everything_are_one_sum():
    a, b = nn.Linear(3, 3), nn.Linear(3, 3)
    b.weight, b.bias = a.weight, a.bias
    check([called(a, torch.randn(4, 3)), called(b, torch.randn(4, 2, 3)), called(a, torch.randn(4, 3))])


def test_one_parameter_under_two_names_of_a_module_has_both_uses():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Parameter(torch.randn(3))
            self.b = self.a

        def forward(self, x: Tensor) -> Tensor:
            return x * self.a + x.square() * self.b

    check([called(Twice(), torch.randn(4, 3))])


def test_calls_with_different_numbers_of_examples_have_no_sum():
    layer = nn.Linear(3, 2)
    assert "4 and with 6 examples" in the_reason([called(layer, torch.randn(n, 3)) for n in (6, 4)])
    embedding = nn.Embedding(2, 3)
    embedding.weight = layer.weight
    calls = [called(layer, torch.randn(6, 3)), called(embedding, torch.randint(2, (4,)))]
    norms, reasons = parameter_example_norms(calls)
    assert list(norms) == [layer.bias]
    assert "4 and with 6 examples" in reasons[layer.weight]


def test_a_use_that_cannot_be_told_leaves_none_of_the_sum():
    layer, norm = nn.Linear(3, 3, bias=False), nn.BatchNorm1d(3)
    norm.weight = layer.weight = nn.Parameter(torch.randn(3, 3))
    calls = [called(layer, torch.randn(4, 3)), ModuleCall(norm, (torch.randn(4, 3),), {}, torch.randn(4, 3))]
    norms, reasons = parameter_example_norms(calls)
    assert not norms
    assert reasons.keys() == {layer.weight, norm.bias}


def test_parameters_come_in_the_order_in_which_the_modules_have_them():
    first, second = nn.GRUCell(3, 3), nn.GRUCell(3, 3)
    second.weight_hh = first.weight_hh
    norms = check([called(module, torch.randn(4, 3), torch.randn(4, 3)) for module in (first, second)])
    assert list(norms) == list(nn.ModuleList([first, second]).parameters())


def test_a_weight_that_is_not_what_the_module_was_called_with_is_a_reason():
    layer = nn.Linear(3, 2, bias=False)
    call = called(layer, torch.randn(4, 3))
    layer.weight = nn.Parameter(torch.randn(5, 5))
    assert "in the shape (2, 3)" in the_reason([call])


def test_frozen_parameters_are_left_out():
    layer, other = nn.Linear(3, 2), Scale()
    layer.weight.requires_grad_(False)
    other.requires_grad_(False)
    norms, reasons = parameter_example_norms([called(layer, torch.randn(4, 3)), called(other, torch.randn(4, 3))])
    assert list(norms) == [layer.bias]
    assert not reasons


def test_no_calls_have_no_norms():
    assert parameter_example_norms([]) == ({}, {})


# Other modules --------------------------------------------------------------------------------------------------------


class Choice(nn.Module):
    """Goes one way or another, by what it is given: more than vmap can."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([row * self.up if row.sum() > 0 else row.square() * self.down for row in x])


class Scaled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x).sin()


def test_a_subclass_of_a_common_layer_is_taken_as_it_computes():
    check([called(Scaled(3, 2), torch.randn(4, 3))])


def test_a_forward_that_reaches_past_its_module_is_refused():
    layer = nn.Linear(3, 2)
    layer.forward = lambda x: F.linear(x, layer.weight, layer.bias).sin()  # with this very layer's parameters
    assert "has no path" in the_reason([ModuleCall(layer, (torch.randn(4, 3),), {}, torch.randn(4, 2))])


def test_a_forward_that_was_bound_to_the_module_is_run_with_the_examples_parameters():
    def forward(self: nn.Linear, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias).sin()

    layer = nn.Linear(3, 2)
    layer.forward = forward.__get__(layer)  # type: ignore[method-assign]
    check([ModuleCall(layer, (torch.randn(4, 3),), {}, torch.randn(4, 2))])


@pytest.mark.parametrize("dtype", DTYPES)
def test_modules_of_torch_that_are_none_of_the_common_layers(dtype):
    for module, shape in (
        (nn.GRUCell(3, 4), (5, 3)),
        (nn.GroupNorm(2, 4), (5, 4, 6)),
        (nn.InstanceNorm1d(4, affine=True), (5, 4, 6)),
        (nn.PReLU(), (5, 3)),
        (nn.ConvTranspose2d(2, 3, 2), (5, 2, 4, 4)),
        (nn.BatchNorm1d(4).eval(), (5, 4, 6)),
        (nn.RMSNorm(4), (5, 6, 4)),
    ):
        check([called(module.to(dtype), torch.randn(*shape, dtype=dtype))])


def test_a_bilinear_layer_has_two_inputs_by_example():
    check([called(nn.Bilinear(3, 4, 2), torch.randn(5, 3), torch.randn(5, 4))])


def test_a_parameter_beside_other_modules_is_told_without_theirs():
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 3)
            self.gain = self.inner.bias  # tied to one inside, whose use there has a call of its own

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) * self.gain

    block = Block()
    call = called(block, torch.randn(4, 3))
    norms, _ = parameter_example_norms([call])
    expected = (block.inner(call.args[0]) * call.gradient).norm(dim=1)
    torch.testing.assert_close(norms[block.gain], expected.double(), rtol=1e-5, atol=0)


def test_a_choice_by_value_is_made_for_each_example_alone():
    module = Choice()
    call = called(module, torch.tensor([[1.0, 2, 3], [-1, -2, -3], [3, 2, 1]]))
    norms, reasons = parameter_example_norms([call])
    x, gradient = call.args[0], call.gradient
    up = (x * gradient).norm(dim=1) * torch.tensor([1, 0, 1])
    down = (x.square() * gradient).norm(dim=1) * torch.tensor([0, 1, 0])
    torch.testing.assert_close(norms, {module.up: up.double(), module.down: down.double()}, rtol=1e-5, atol=0)
    assert not reasons


def test_a_parameter_that_its_module_did_not_use_has_a_reason_and_no_zeros():
    module = Choice()
    norms, reasons = parameter_example_norms([called(module, torch.ones(4, 3))])
    assert list(norms) == [module.up]
    assert "no path" in reasons[module.down]


def test_a_module_that_writes_to_its_input_is_told_and_the_input_kept():
    class InPlace(Scale):
        def forward(self, x: Tensor) -> Tensor:
            return x.mul_(2) * self.scale

    module, x = InPlace(), torch.randn(4, 3)
    call = called(module, x)
    before = x.clone()
    norms, _ = parameter_example_norms([call])
    assert torch.equal(x, before)
    torch.testing.assert_close(norms[module.scale], (2 * x * call.gradient).norm(dim=1).double(), rtol=1e-5, atol=0)


def test_parametrized_layers_are_told_as_far_as_their_inputs_have_examples():
    layer = parametrizations.weight_norm(nn.Linear(3, 2))
    check([called(layer, torch.randn(4, 3))])  # its bias
    part = layer.parametrizations.weight
    call = ModuleCall(part, (), {}, torch.randn(2, 3))
    assert "no tensor that has the 2 examples" in the_reason([call])


@pytest.mark.parametrize("mask", ["shared", "by example"])
def test_an_input_of_another_length_is_the_same_for_all_examples(mask):
    class Masked(Scale):
        def forward(self, x: Tensor, mask: Tensor, power: int = 1) -> Tensor:
            return (x * self.scale * mask) ** power

    values = torch.randn(3) if mask == "shared" else torch.randn(4, 3)
    check([called(Masked(), torch.randn(4, 3), values, power=2)])


# The axis of examples -------------------------------------------------------------------------------------------------


@pytest.mark.case("P27")
@pytest.mark.parametrize("shared", [False, True])
def test_examples_along_the_second_axis(shared):
    norm, dense, scale = nn.LayerNorm(3), nn.Linear(3, 2), Scale()
    calls = [called(module, torch.randn(6, 4, 3)) for module in (norm, dense, scale) for _ in range(1 + shared)]
    norms = check(calls, batch_dim=1)
    assert {len(each) for each in norms.values()} == {4}
    check([called(nn.Embedding(5, 2), torch.randint(5, (6, 4)))], batch_dim=1)


@pytest.mark.case("P27")
@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Linear(4, 4), (4, 4)),
        (nn.LayerNorm(4), (4, 4)),
        (nn.Conv1d(4, 4, 1), (4, 4, 4)),
        (nn.Embedding(4, 4), (4,)),
    ],
)
def test_an_axis_of_features_is_not_taken_for_examples(module, shape):
    x = torch.randint(4, shape) if isinstance(module, nn.Embedding) else torch.randn(*shape)
    assert "axis 1 counts no examples" in the_reason([called(module, x)], batch_dim=1)


@pytest.mark.parametrize(("module", "shape"), [(nn.Linear(4, 4), (4,)), (nn.Conv1d(4, 4, 1), (4, 4))])
def test_an_input_without_a_batch_has_no_examples(module, shape):
    assert "axis 0 counts no examples" in the_reason([called(module, torch.randn(*shape))])


@pytest.mark.case("P27")
def test_a_mask_as_long_as_the_batch_is_refused_where_cutting_it_changes_the_output():
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(x * self.scale, x, x, attn_mask=mask)

    check([called(Attention(), torch.randn(4, 5, 3), torch.ones(5, 5).tril().bool())])
    call = called(Attention(), torch.randn(5, 5, 3), torch.ones(5, 5).tril().bool())
    assert "axis 0 counts something else" in the_reason([call])


@pytest.mark.case("P27")
def test_an_output_whose_examples_are_not_those_of_the_input_is_refused():
    class Pairs(Scale):
        def forward(self, x: Tensor) -> Tensor:
            return (x[::2] - x[1::2]) * self.scale

    assert "no tensor that has the 3 examples" in the_reason([called(Pairs(), torch.randn(6, 3))])
    layer = nn.Linear(3, 2)
    call = ModuleCall(layer, (torch.randn(4, 3),), {}, torch.randn(5, 2))
    assert "do not agree" in the_reason([call])
    assert "no axis 0" in the_reason([ModuleCall(layer, (torch.randn(4, 3),), {}, torch.tensor(1.0))])


@pytest.mark.parametrize("batch_dim", [-1, 0.5, True])
def test_an_axis_that_is_no_whole_number_is_an_error(batch_dim):
    with pytest.raises(ValueError, match="batch_dim is a whole number from 0 on"):
        parameter_example_norms([], batch_dim=batch_dim)


@pytest.mark.case("P28")
@pytest.mark.parametrize("batch_dim", [0, 1])
def test_an_empty_batch_has_no_norms_and_no_reasons(batch_dim):
    shape = (0, 4, 3) if batch_dim == 0 else (4, 0, 3)
    modules = nn.Linear(3, 2), nn.LayerNorm(3), Scale(), Scaled(3, 2)
    calls = [ModuleCall(m, (torch.ones(shape),), {}, torch.ones(*shape[:2], m(torch.ones(3)).numel())) for m in modules]
    calls.append(
        ModuleCall(nn.Embedding(5, 2), (torch.ones(shape[:2], dtype=torch.long),), {}, torch.ones(*shape[:2], 2))
    )
    if batch_dim == 0:
        calls.append(ModuleCall(nn.Conv1d(4, 2, 1), (torch.ones(shape),), {}, torch.ones(0, 2, 3)))
    norms, reasons = parameter_example_norms(calls, batch_dim=batch_dim)
    assert not reasons
    assert {tuple(each.shape) for each in norms.values()} == {(0,)}
    assert {each.dtype for each in norms.values()} == {torch.float64}


# What is refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(3), nn.BatchNorm1d(3, track_running_stats=False).eval()])
def test_statistics_of_the_batch_are_refused(norm):
    assert "statistics of the whole batch" in the_reason([called(norm, torch.randn(4, 3))])


def test_a_module_that_mixes_examples_is_refused():
    class Centred(Scale):
        def forward(self, x: Tensor) -> Tensor:
            return (x - x.mean(0)) * self.scale

    assert "mixes examples" in the_reason([called(Centred(), torch.randn(4, 3))])


@pytest.mark.parametrize(("size", "shows"), [(1.0, "mixes examples"), (1e-6, "do not sum up")])
def test_what_mixes_examples_shows_in_the_gradient_where_it_is_small_in_the_output(size, shows):
    class Block(Scale):
        def forward(self, x: Tensor) -> Tensor:
            return x + size * self.scale * (x - x.mean(0))

    assert shows in the_reason([called(Block(), torch.randn(4, 3))])


class Dropping(Scale):
    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x * self.scale, 0.5, self.training)


def test_a_module_that_draws_random_numbers_is_refused_and_the_stream_kept():
    call = called(Dropping(), torch.randn(4, 3))
    before = torch.get_rng_state()
    assert "draws random numbers" in the_reason([call])
    assert torch.equal(torch.get_rng_state(), before)


def test_a_module_with_a_stream_of_its_own_is_refused_and_the_stream_kept():
    class Noisy(Scale):
        stream = torch.Generator()

        def forward(self, x: Tensor) -> Tensor:
            return x * self.scale + torch.rand(x.shape, generator=self.stream)

    before = Noisy.stream.get_state()
    assert "draws random numbers" in the_reason([ModuleCall(Noisy(), (torch.ones(4, 3),), {}, torch.ones(4, 3))])
    assert torch.equal(Noisy.stream.get_state(), before)


def test_a_module_that_drops_nothing_is_told():
    check([called(Dropping().eval(), torch.randn(4, 3))])
    attention = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True).self_attn

    class First(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gain = nn.Parameter(torch.randn(4))
            self.attention = attention

        def forward(self, x: Tensor) -> Tensor:
            return self.attention(x * self.gain, x, x, need_weights=False)[0]

    check([called(First(), torch.randn(3, 5, 4))])


def test_a_module_that_changes_a_buffer_is_refused_and_the_buffer_kept():
    class Counting(Scale):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.seen += 1
            return x * self.scale

    module = Counting()
    assert "changes its buffer 'seen'" in the_reason([called(module, torch.randn(4, 3))])
    assert module.seen == 0


def test_a_module_that_writes_to_its_parameters_is_refused_before_it_does():
    class Clamped(Scale):
        def forward(self, x: Tensor) -> Tensor:
            self.scale.data.clamp_(-0.01, 0.01)
            return x * self.scale

    module = Clamped()
    before = module.scale.detach().clone()
    for count in (1, 4):
        assert "writes to its parameters" in the_reason([called(module, torch.randn(count, 3))])
    assert torch.equal(module.scale, before)


def test_several_outputs_are_refused():
    call = ModuleCall(nn.LSTMCell(3, 2), (torch.randn(4, 3),), {}, torch.randn(4, 2))
    assert "returns 2 tensors" in the_reason([call])


def test_a_module_that_fails_when_it_is_run_again_is_a_reason_and_no_error():
    class Once(Scale):
        def forward(self, x: Tensor) -> Tensor:
            raise KeyError("no second time")

    good = Scale()
    norms, reasons = parameter_example_norms(
        [ModuleCall(module, (torch.ones(4, 3),), {}, torch.ones(4, 3)) for module in (Once(), good)]
    )
    assert list(norms) == [good.scale]
    (reason,) = reasons.values()
    assert "Once cannot be taken by example: KeyError: 'no second time'" in reason


# What stays as it was -------------------------------------------------------------------------------------------------


class Watched(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(3))
        self.inner = nn.Linear(3, 3)
        self.register_buffer("offset", torch.randn(3))
        self.calls = 0
        self.shapes: list[Any] = []

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.shapes.append(x.shape)
        return self.inner(x) * self.scale + self.offset


def test_no_hook_is_called():
    module, layer = Watched(), nn.Linear(3, 2)
    calls = [called(module, torch.randn(4, 3)), called(layer, torch.randn(4, 3))]

    def fail(*args: Any) -> None:
        raise AssertionError("a hook was called")

    for each in (module, module.inner, layer):
        each.register_forward_hook(fail)
        each.register_forward_pre_hook(fail)
        each.register_full_backward_hook(fail)
    for p in (*module.parameters(), *layer.parameters()):
        p.register_hook(fail)
        p.register_post_accumulate_grad_hook(fail)
    everywhere = [register_module_forward_hook(fail), register_module_forward_pre_hook(fail)]
    try:
        norms, reasons = parameter_example_norms(calls)
    finally:
        for handle in everywhere:
            handle.remove()
    assert list(norms) == [module.scale, layer.weight, layer.bias]
    assert not reasons


@pytest.mark.parametrize("make", [Watched, Choice, lambda: nn.Linear(3, 3), lambda: nn.GRUCell(3, 3)])
def test_modules_tensors_and_streams_are_as_before(make: Callable[[], nn.Module]):
    module = make().train()
    call = called(module, torch.randn(4, 3))
    for p in module.parameters():
        p.grad = torch.randn_like(p)
    kept = copy.deepcopy((dict(module.named_parameters()), dict(module.named_buffers()), call.args, call.gradient))
    grads = [p.grad.clone() for p in module.parameters()]
    stream, attributes = torch.get_rng_state(), {name: copy.copy(value) for name, value in vars(module).items()}
    norms, _ = parameter_example_norms([call])
    assert norms
    now = dict(module.named_parameters()), dict(module.named_buffers()), call.args, call.gradient
    torch.testing.assert_close(now, kept, rtol=0, atol=0)
    assert all(torch.equal(p.grad, before) for p, before in zip(module.parameters(), grads, strict=True))
    assert torch.equal(torch.get_rng_state(), stream)
    assert all(p.requires_grad and p.is_leaf for p in module.parameters())
    assert vars(module).keys() == attributes.keys()
    for name in ("training", "calls", "shapes"):
        assert getattr(module, name, None) == attributes.get(name)


@pytest.mark.parametrize("around", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_any_grad_mode_around_it_gives_the_same(around):
    modules = nn.Linear(3, 2), Scale()
    calls = [called(module, torch.randn(4, 3)) for module in modules]
    expected, _ = parameter_example_norms(calls)
    with around():
        inside = [call._replace(args=(call.args[0].clone(),), gradient=call.gradient.clone()) for call in calls]
        norms, reasons = parameter_example_norms(inside)
    assert not reasons
    assert not any(each.requires_grad for each in norms.values())
    torch.testing.assert_close(norms, expected, rtol=0, atol=0)


def test_autocast_around_it_does_not_make_the_sums_coarse():
    layer = nn.Linear(3, 2)
    calls = [called(layer, torch.randn(4, 5, 3))]
    expected, _ = parameter_example_norms(calls)
    with torch.autocast("cpu", torch.bfloat16):
        norms, _ = parameter_example_norms(calls)
    torch.testing.assert_close(norms, expected, rtol=0, atol=0)
