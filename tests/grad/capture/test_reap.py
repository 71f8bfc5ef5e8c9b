"""One batch with a capture: the numbers are torch's own, and nothing else is other than without it."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

import gradviz as gv
from gradviz.errors import CaptureError, CaptureWarning, FunctionError, NothingReachedError
from gradviz.grad.capture import session as at_work
from tests.grad.capture.zoo import (
    SCENES,
    Attention,
    Checkpointed,
    FrozenBackbone,
    Integers,
    Keywords,
    Looped,
    Recurrent,
    Scene,
    hooks_of,
    leaf_names,
    name_of_module,
)

EVERYTHING = gv.Capture("*", keep="tensors")

pytestmark = pytest.mark.filterwarnings("ignore::gradviz.errors.UnusedParameterWarning")


def objective(model: nn.Module, x: Tensor) -> Tensor:
    y = model(x)
    return (y.abs() if y.is_complex() else y).float().square().mean()


def captured_of(model: nn.Module, x: Tensor, capture: gv.Capture = EVERYTHING) -> Any:
    return gv.reap(objective, capture)(model, x)[2]


def of_scene(name: str) -> Scene:
    return next(scene for scene in SCENES if scene.name == name)


# The seed -------------------------------------------------------------------------------------------------------------


class Point(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.tensor(3.0))


def test_the_gradient_of_y_in_the_middle_of_sin_x_squared_is_the_one_of_the_thread():
    value, g, captured = gv.reap(lambda m: gv.sow(torch.sin(m.x), "y") ** 2)(Point())
    assert value.item() == pytest.approx(0.0199149, rel=1e-5)
    assert g.x.item() == pytest.approx(-0.2794155, rel=1e-6)
    assert captured["y"][0].gradient.item() == pytest.approx(0.28224, rel=1e-5)


def test_a_function_with_a_name_has_the_gradients_of_its_input_and_output():
    square = gv.record_vjp(lambda x: x**2.0, "square_vjp")
    _, g, captured = gv.reap(lambda m: square(torch.sin(m.x)))(Point())
    assert captured["square_vjp(x)"][0].gradient.item() == pytest.approx(0.28224, rel=1e-5)
    assert captured["square_vjp"][0].gradient.item() == 1
    assert g.x.item() == pytest.approx(-0.2794155, rel=1e-6)


@pytest.mark.case("P29")
@pytest.mark.parametrize("reduction", [torch.sum, torch.mean])
def test_each_of_two_products_has_a_gradient_by_example_which_add_up_to_that_of_the_batch(reduction):
    torch.manual_seed(42)
    model = nn.Module()
    model.w = nn.Parameter(torch.empty(10, 10, 10).uniform_(-1, 1))
    x, target = torch.empty(10, 10, 10).uniform_(-1, 1), torch.empty(10, 10, 10).uniform_(-1, 1)
    product = gv.record_vjp(lambda x, w: x @ w, "product")

    def loss(m: nn.Module, x: Tensor, target: Tensor) -> Tensor:
        return reduction((product(product(x, m.w), m.w) - target) ** 2)

    _, g, captured = gv.reap(loss, gv.Capture("product*", keep="tensors", values=True))(model, x, target)
    assert [len(captured[name]) for name in ("product", "product(w)", "product(x)")] == [2, 2, 1]  # x needs none

    # The whole batch's gradient is the sum of both calls', and each example has its own.
    assert torch.equal(captured["product(w)"][1].gradient + captured["product(w)"][0].gradient, g.w)
    n = x.numel() if reduction is torch.mean else 1
    for example in range(10):
        w = model.w[example].detach().requires_grad_()
        first = (x[example] @ w).requires_grad_()
        second = first @ w
        alone = ((second - target[example]) ** 2).sum() / n
        by_hand = torch.autograd.grad(alone, (first, second))
        for call, hand in zip(captured["product"], by_hand, strict=True):
            assert torch.allclose(call.example(example).gradient, hand, rtol=1e-5, atol=1e-7)
        assert torch.equal(captured["product"][0].example(example).value, first.detach())
    inputs = captured["product"][1].inputs
    assert list(inputs) == ["x", "w"]
    assert torch.equal(inputs["x"], captured["product"][0].value)
    assert torch.equal(inputs["w"], model.w)


class Perturbed(nn.Module):
    """A random network with a zero added at every point, each of which has a name."""

    def __init__(self, widths: list[int], activations: list[int], seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.layers = nn.ModuleList(nn.Linear(a, b).double() for a, b in itertools.pairwise(widths))
        self.activations = activations

    def forward(self, x: Tensor, zeros: list[Tensor] | None = None) -> Tensor:
        points: list[Tensor] = []

        def point(value: Tensor) -> Tensor:
            if zeros is not None:
                value = value + zeros[len(points)]
            points.append(value)
            return gv.sow(value, "point")

        x = point(x)
        for layer, kind in zip(self.layers, self.activations, strict=True):
            before = x
            x = point(layer(x))
            x = point((torch.tanh, torch.sin, torch.sigmoid, lambda x: x)[kind](x))
            if x.shape == before.shape:
                x = x + before  # used twice
        self.shapes = [p.shape for p in points]
        return x


@given(
    widths=st.lists(st.integers(1, 4), min_size=2, max_size=5),
    data=st.data(),
    seed=st.integers(0, 2**16),
    n_examples=st.integers(1, 3),
)
def test_a_captured_gradient_is_the_gradient_by_a_zero_added_at_that_point(widths, data, seed, n_examples):
    n = len(widths) - 1
    model = Perturbed(widths, data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)), seed)
    x = torch.randn(n_examples, widths[0], dtype=torch.float64)
    _, g, captured = gv.reap(lambda m, x: m(x).sin().sum())(model, x)
    zeros = [torch.zeros(shape, dtype=torch.float64, requires_grad=True) for shape in model.shapes]
    value = model(x, zeros).sin().sum()
    by_zeros = torch.autograd.grad(value, zeros)
    calls = captured["point"]
    assert len(calls) == len(zeros)
    assert calls[0].state == "frozen"  # the input itself
    for call, expected in zip(calls[1:], by_zeros[1:], strict=True):
        torch.testing.assert_close(call.gradient, expected, rtol=1e-12, atol=1e-14)
    for name, expected in zip(g, torch.autograd.grad(model(x).sin().sum(), list(model.parameters())), strict=True):
        assert torch.equal(g[name], expected)


# Nothing is changed ---------------------------------------------------------------------------------------------------


def outcome(scene: Scene, *captures: gv.Capture) -> tuple[Any, ...]:
    """All that a batch gives and leaves behind."""
    model, x = scene.model(), scene.x()
    returned: list[int] = []
    for module in model.modules():
        module.register_forward_hook(lambda module, args, output: returned.append(type(output)) or None)
    torch.manual_seed(3)
    outputs: list[Tensor] = []

    def f(m: nn.Module, x: Tensor) -> Tensor:
        value = objective(m, x)
        outputs.append(value.detach().clone())
        return value

    for capture in captures[1:]:
        inner = f
        f = lambda m, x, inner=inner, capture=capture: (  # noqa: E731
            gv.reap(objective, capture)(m, x)[0] * 0 + inner(m, x)
        )
    if captures:
        value, g, _ = gv.reap(f, captures[0])(model, x)
    else:
        value, g = gv.value_and_grad(f, model, x)
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    return value, dict(g.items()), g.unused, buffers, outputs, torch.get_rng_state(), returned, x


def check_same(one: Any, other: Any) -> None:
    if isinstance(one, Tensor):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        check_same(list(one.values()), list(other.values()))
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            check_same(a, b)
    else:
        assert one == other


@pytest.mark.case("P01")
@pytest.mark.parametrize("keep", ["tensors", "statistics", "running", "example_norms"])
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_all_numbers_are_the_same_to_the_bit_with_a_capture_and_without(scene, keep):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", gv.errors.UnusedParameterWarning)
        bare = outcome(scene)
        check_same(bare, outcome(scene, gv.Capture("*", keep=keep)))
        check_same(bare, outcome(scene, gv.Capture("*", keep=keep, values=True)))


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_every_leaf_module_is_captured_or_missing_with_a_reason(scene):
    model = scene.model()
    captured = captured_of(model, scene.x())
    told = {name_of_module(name) for name in captured} | set(captured.missing)
    assert set(leaf_names(model)) <= told
    assert {name_of_module(name) for name in captured}.isdisjoint(captured.missing)
    assert told <= {name for name, _ in model.named_modules(remove_duplicate=False)}
    assert all(captured.missing.values())


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_every_module_returns_the_object_that_it_made(scene):
    model = scene.model()
    made: list[Any] = []
    for module in model.modules():
        forward = module.forward

        def keeps(*args: Any, forward: Any = forward, **kwargs: Any) -> Any:
            made.append(forward(*args, **kwargs))
            return made[-1]

        module.forward = keeps

    def f(m: nn.Module, x: Tensor) -> Tensor:
        y = m(x)
        assert y is made[-1]
        return (y.abs() if y.is_complex() else y).float().square().mean()

    gv.reap(f, EVERYTHING)(model, scene.x())
    assert made


# Places where hooks have failed ---------------------------------------------------------------------------------------


@pytest.mark.case("P02")
def test_a_value_is_as_the_module_returned_it_whatever_is_written_into_it_later():
    model = of_scene("in-place ReLU").model()
    x = torch.randn(8, 4)
    captured = captured_of(model, x, gv.Capture("*", keep="tensors", values=True))
    h = model[0](x)
    assert (h < 0).any()
    assert torch.equal(captured["0"][0].value, h)
    assert torch.equal(captured["1"][0].inputs["input"], h)
    assert torch.equal(captured["1"][0].value, h.relu())
    assert torch.equal(captured["2"][0].inputs["input"], h.relu())


def test_the_gradient_of_a_value_edited_in_place_is_that_of_the_value_before():
    model = of_scene("edits after").model()
    x = torch.randn(5, 4)
    captured = captured_of(model, x)
    h = model.first(x)
    a = h * 2 * torch.tensor([0.0, 1, 1, 1])
    out = a + model.second(a)
    (expected,) = torch.autograd.grad(out.square().mean(), h)
    torch.testing.assert_close(captured["first"][0].gradient, expected)


@pytest.mark.parametrize("is_used_before", [False, True])
def test_a_view_that_is_edited_in_place_is_missing_rather_than_told_in_part(is_used_before):
    model = nn.Sequential(nn.Linear(4, 4), nn.Flatten(0))

    def f(m: nn.Module, x: Tensor) -> Tensor:
        y = m(x)
        before = (y * 2).sum() if is_used_before else 0
        y.mul_(3)
        return before + y.sum()

    _, _, captured = gv.reap(f, EVERYTHING)(model, torch.ones(2, 4))
    assert "a view that was edited in place" in captured.missing["1"]
    assert torch.equal(captured["0"][0].gradient, torch.full((2, 4), 5.0 if is_used_before else 3.0))
    with pytest.raises(KeyError, match="'1' was not captured: it is a view"):
        captured["1"]


def test_a_base_that_is_edited_through_a_view_keeps_its_gradient():
    model = nn.Sequential(nn.Linear(4, 4))

    def f(m: nn.Module, x: Tensor) -> Tensor:
        h = m(x)
        h[:, 1:].mul_(3)
        h.view(-1)[0] = 0
        return h.sum()

    expected = torch.tensor([[0.0, 3, 3, 3], [1, 3, 3, 3]])
    assert torch.equal(gv.reap(f, EVERYTHING)(model, torch.ones(2, 4))[2]["0"][0].gradient, expected)


@pytest.mark.case("P05")
def test_every_tensor_of_a_mapping_list_dataclass_or_model_output_has_a_path():
    captured = captured_of(of_scene("containers").model(), torch.randn(6, 4))
    paths = [name for name in captured if not name.endswith(".linear")]
    assert paths == [
        "mapping['h']",
        "listed[0]",
        "nested[0]",
        "nested[1][0]",
        "nested[1][1][0]",
        "parts['h']",
        "output['logits']",
        "output['hidden'][0]",
    ]
    assert all(captured[name][0].state == "ok" for name in captured)
    assert torch.equal(captured["mapping['h']"][0].gradient, captured["mapping.linear"][0].gradient)
    assert not captured.missing


@pytest.mark.case("P06")
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_a_recurrent_layer_has_its_output_and_states(kind):
    torch.manual_seed(0)
    model = Recurrent(kind, packed=False)
    captured = captured_of(model, torch.randn(4, 4))
    states = ["rnn[1][0]", "rnn[1][1]"] if kind is nn.LSTM else ["rnn[1]"]
    assert list(captured) == ["rnn[0]", *states]
    assert captured["rnn[0]"][0].shape == (2, 2, 3)
    assert captured["rnn[0]"][0].gradient.any()
    assert [captured[name][0].state for name in states] == ["unused"] * len(states)  # the output alone is in the loss
    assert not captured[states[0]][0].gradient.any()


@pytest.mark.case("P06")
def test_packed_sequences_come_with_their_lengths_and_are_not_sliced_as_examples():
    torch.manual_seed(0)
    model = Recurrent(nn.LSTM, packed=True)
    x = torch.randn(4, 4)
    captured = captured_of(model, x, gv.Capture("*", keep="tensors", values=True))
    call = captured["rnn[0]['data']"][0]
    assert call.note == "packed, sequences of lengths 1, 2"
    output = model(x).detach()
    torch.testing.assert_close(call.gradient, 2 * output / output.numel())
    assert isinstance(call.inputs["input"], nn.utils.rnn.PackedSequence)
    for ask in (lambda: call.example(0), lambda: call.example_norms):
        with pytest.raises(CaptureError, match="its rows are steps of packed sequences"):
            ask()


@pytest.mark.case("P07")
def test_calls_of_a_shared_layer_are_numbered_in_forward_order():
    torch.manual_seed(0)
    model = Looped()
    x = torch.randn(5, 4)
    captured = captured_of(model, x)
    points = []
    h = x
    for _ in range(3):
        points.append(model.layer(h))
        h = points[-1].tanh()
    expected = torch.autograd.grad(h.square().mean(), points)
    assert len(captured["layer"]) == 3
    for call, hand in zip(captured["layer"], expected, strict=True):
        assert torch.equal(call.gradient, hand)
    assert [call.number for call in captured["layer"]] == [0, 1, 2]
    assert captured["idle"][0].state == "unused"
    assert not captured["idle"][0].reached
    assert not captured["idle"][0].gradient.any()


@pytest.mark.case("P07")
def test_calls_that_the_loss_does_not_use_are_unused_among_those_that_it_does():
    cell = nn.GRUCell(2, 2)
    model = nn.ModuleDict({"cell": cell})

    def f(m: nn.Module, x: Tensor) -> Tensor:
        states = [torch.zeros(3, 2)]
        for _ in range(4):
            states.append(m["cell"](x, states[-1]))
        return states[1].sum()

    _, _, captured = gv.reap(f, EVERYTHING)(model, torch.randn(3, 2))
    assert [call.state for call in captured["cell"]] == ["ok", "unused", "unused", "unused"]
    assert torch.equal(captured["cell"][0].gradient, torch.ones(3, 2))


@pytest.mark.case("P09")
def test_checkpointed_calls_count_once_with_the_gradients_of_the_plain_ones():
    torch.manual_seed(0)
    model = Checkpointed()
    x = torch.randn(6, 4)
    torch.manual_seed(1)
    captured = captured_of(model, x)
    torch.manual_seed(1)
    plain = gv.reap(lambda m, x: m.head(m.layers(x)).square().mean(), EVERYTHING)(model, x)[2]
    assert list(captured) == list(plain)
    for name, calls in captured.items():
        assert len(calls) == 1
        assert torch.equal(calls[0].gradient, plain[name][0].gradient)


def test_re_entrant_checkpointing_is_refused_with_the_line_to_write():
    with pytest.raises(NothingReachedError, match="use_reentrant=False"):
        captured_of(Checkpointed(reentrant=True), torch.randn(6, 4, requires_grad=True))
    assert at_work.open_sessions == ()


@pytest.mark.case("P10")
def test_a_projection_whose_weights_are_used_directly_says_so():
    captured = captured_of(Attention(), torch.randn(6, 4))
    assert captured.missing["attn.out_proj"] == "the module was not called: its weights are used directly"
    assert captured.missing["never"] == "the module was not called"
    assert captured["attn[0]"][0].state == "ok"


@pytest.mark.case("P11")
def test_an_encoder_layer_in_eval_takes_the_same_way_and_has_its_records():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    model = nn.Sequential(layer).eval()
    x = torch.randn(2, 3, 4)
    bare = gv.value_and_grad(objective, model, x)
    value, g, captured = gv.reap(objective, EVERYTHING)(model, x)
    assert torch.equal(value, bare[0])
    assert all(torch.equal(g[name], bare[1][name]) for name in g)
    assert captured["0.linear1"][0].state == "ok"
    assert captured["0.norm2"][0].state == "ok"


@pytest.mark.case("P13")
def test_the_first_layer_s_output_has_a_gradient_though_the_data_needs_none():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))
    y = torch.tensor([0, 1, 2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        captured = gv.reap(lambda m, x, y: nn.functional.cross_entropy(m(x), y), EVERYTHING)(
            model, torch.randn(3, 4), y
        )[2]
    assert [captured[name][0].state for name in ("0", "1", "2")] == ["ok"] * 3
    assert captured["0"][0].gradient.any()


@pytest.mark.case("P14")
def test_integers_and_flags_are_passed_over_and_floating_outputs_captured():
    torch.manual_seed(0)
    captured = captured_of(Integers(), torch.randn(6, 4))
    assert list(captured) == ["masked.linear", "masked", "pool[0]"]
    assert list(captured.missing) == ["signs"]
    assert "there is no floating tensor in" in captured.missing["signs"]


@pytest.mark.case("P17")
def test_a_backward_pass_after_the_capture_leaves_no_record_and_no_error():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    kept: list[Tensor] = []

    def f(m: nn.Module, x: Tensor) -> Tensor:
        kept.append(m(x).sum())
        return m(x).square().sum()

    _, _, captured = gv.reap(f, EVERYTHING)(model, torch.randn(2, 4))
    before = [call.state for calls in captured.values() for call in calls]
    kept[0].backward()
    assert [call.state for calls in captured.values() for call in calls] == before == ["unused", "ok"] * 2
    assert hooks_of(model) == []


@pytest.mark.case("P18")
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("place", ["forward", "backward"])
def test_an_exception_leaves_nothing_behind_and_the_next_batch_has_single_records(error, place):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    own = model[0].register_forward_hook(lambda *args: None)

    def broken(*args: Any) -> None:
        raise error("stop")

    def f(m: nn.Module, x: Tensor) -> Tensor:
        y = gv.sow(m(x), "y")
        if place == "forward":
            broken()
        y.register_hook(broken)
        return y.sum()

    x = torch.randn(2, 4, requires_grad=True)
    with pytest.raises(error, match="stop"):
        gv.reap(f, gv.Capture("*"))(model, x)
    assert at_work.open_sessions == ()
    assert hooks_of(model) == list(model[0]._forward_hooks.values())
    assert own.id in model[0]._forward_hooks
    assert not x._backward_hooks
    assert [len(calls) for calls in captured_of(model, x).values()] == [1, 1]


@pytest.mark.case("P30")
def test_a_frozen_backbone_is_frozen_until_it_is_not():
    torch.manual_seed(0)
    model = FrozenBackbone()
    x = torch.randn(6, 4)
    captured = captured_of(model, x)
    assert [captured[name][0].state for name in ("backbone.0", "backbone", "head")] == ["frozen", "frozen", "ok"]
    assert not captured["backbone.0"][0].reached
    with pytest.raises(CaptureError, match=r"Call 0 of 'backbone.0' has no gradient: nothing before it is trained"):
        _ = captured["backbone.0"][0].gradient
    model.backbone.requires_grad_(True)
    assert captured_of(model, x)["backbone.0"][0].gradient.any()


@pytest.mark.case("P32")
def test_keyword_inputs_appear_under_their_names_and_their_gradients_can_be_asked_for():
    torch.manual_seed(0)
    model = Keywords()
    x = torch.randn(6, 4)
    inputs = captured_of(model, x, gv.Capture("inner", keep="tensors", values=True))["inner"][0].inputs
    assert list(inputs) == ["x", "scale", "extra"]
    assert torch.equal(inputs["x"], x)
    assert torch.equal(inputs["extra"][0], x)
    inner = gv.record_vjp(model.inner, "inner")
    x.requires_grad_()
    captured = gv.reap(lambda m, x: inner(x=x, scale=2.0).sum())(model, x)[2]
    expected = 2 * model.inner.linear.weight.detach().sum(0).expand(6, 4)
    torch.testing.assert_close(captured["inner(x)"][0].gradient, expected)


@pytest.mark.case("P34")
def test_only_the_chosen_modules_of_many_are_hooked():
    model = nn.Sequential(*[nn.Linear(2, 2) for _ in range(200)])
    hooked: list[int] = []

    def f(m: nn.Module, x: Tensor) -> Tensor:
        hooked.append(len([module for module in m if module._forward_hooks or module._forward_pre_hooks]))
        return m(x).sum()

    captured = gv.reap(f, gv.Capture("7", "19?"))(model, torch.randn(3, 2))[2]
    assert hooked == [11]
    assert list(captured) == ["7", *map(str, range(190, 200))]


@pytest.mark.case("P34")
@pytest.mark.parametrize("transform", ["vmap", "grad"])
def test_under_a_transform_the_names_are_missing_and_say_why(transform):
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    x = torch.randn(3, 4)

    def f(m: nn.Module, x: Tensor) -> Tensor:
        def one(x: Tensor) -> Tensor:
            return gv.sow(m(x), "y").square().sum()

        inside = vmap(one)(x).sum() if transform == "vmap" else grad(lambda x: vmap(one)(x).sum())(x).sum()
        return inside + m[0].weight.sum() * 0

    bare = gv.value_and_grad(f, model, x)
    value, g, captured = gv.reap(f, gv.Capture("*", "y"))(model, x)
    assert torch.equal(value, bare[0])
    assert all(torch.equal(g[name], bare[1][name]) for name in g)
    assert len(captured) == 0
    assert set(captured.missing) == {"0", "1", "y"}
    assert all("inside a transform of torch.func, such as vmap" in why for why in captured.missing.values())


@pytest.mark.case("P34")
def test_per_example_gradients_by_functional_call_are_refused_in_words():
    model = nn.Sequential(nn.Linear(4, 1))
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def f(m: nn.Module, x: Tensor) -> Tensor:
        per_example = vmap(grad(lambda p, x: functional_call(m, p, (x,)).sum()), (None, 0))(parameters, x)
        return m(x).sum() + per_example["0.weight"].sum()

    _, _, captured = gv.reap(f, EVERYTHING)(model, torch.randn(3, 4))
    assert len(captured["0"]) == 1  # the plain call


@pytest.mark.case("P35")
def test_a_thousand_levels_and_a_module_inside_itself_are_walked():
    model: nn.Module = nn.Linear(2, 2)
    for _ in range(1000):
        model = nn.Sequential(model)

    def innermost(m: nn.Module, x: Tensor) -> Tensor:
        while isinstance(m, nn.Sequential):
            m = m[0]
        return m(x).sum()

    captured = gv.reap(innermost, EVERYTHING)(model, torch.randn(3, 2))[2]
    assert len(captured) == 1
    assert len(captured.missing) == 999
    knot = nn.Sequential(nn.Linear(2, 2))
    knot.add_module("again", knot)
    captured = gv.reap(lambda m, x: m[0](x).sum(), EVERYTHING)(knot, torch.randn(3, 2))[2]
    assert list(captured) == ["0"]


# What else reap says of itself ----------------------------------------------------------------------------------------


def test_a_value_before_which_no_parameter_is_has_its_gradient_all_the_same():
    model = nn.ModuleDict({"same": nn.Identity(), "linear": nn.Linear(2, 2)})
    x = torch.randn(3, 2, requires_grad=True)

    def f(m: nn.Module, x: Tensor) -> Tensor:
        return m["linear"](gv.sow(gv.sow(m["same"](x), "x") * 2, "twice")).sum()

    captured = gv.reap(f, gv.Capture("same", "x", "twice"))(model, x)[2]
    expected = model["linear"].weight.detach().sum(0).expand(3, 2)
    torch.testing.assert_close(captured["twice"][0].gradient, expected)
    torch.testing.assert_close(captured["x"][0].gradient, 2 * expected)
    torch.testing.assert_close(captured["same"][0].gradient, 2 * expected)
    assert x.grad is None
    assert not x._backward_hooks


def test_a_sown_parameter_has_the_gradient_of_the_parameter():
    model = nn.Linear(2, 2)
    _, g, captured = gv.reap(lambda m, x: nn.functional.linear(x, gv.sow(m.weight, "w"), m.bias).square().sum())(
        model, torch.randn(3, 2)
    )
    assert torch.equal(captured["w"][0].gradient, g.weight)
    assert not model.weight._backward_hooks


def test_a_module_that_hands_its_input_through_says_that_the_gradient_is_of_all_uses():
    model = nn.Sequential(nn.Linear(2, 2), nn.Identity())

    def f(m: nn.Module, x: Tensor) -> Tensor:
        h = m[0](x)
        return (3 * h + 5 * m[1](h)).sum()

    captured = gv.reap(f, EVERYTHING)(model, torch.ones(1, 2))[2]
    assert "handed through as it came: this is the total gradient" in captured["1"][0].note
    assert torch.equal(captured["1"][0].gradient, torch.full((1, 2), 8.0))
    assert captured["0"][0].note is None


def test_a_module_that_writes_into_its_input_and_returns_it_hands_nothing_through():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(inplace=True))
    assert captured_of(model, torch.ones(1, 2))["1"][0].note is None


def test_a_gradient_penalty_leaves_the_gradients_of_the_loss_alone():
    scene = of_scene("penalized")
    model = scene.model()
    x = scene.x()
    captured = captured_of(model, x)
    xs = x.clone().requires_grad_(True)
    h = model.net[0](xs)
    y = model.net[2](model.net[1](h))
    (slope,) = torch.autograd.grad(y.sum(), xs, create_graph=True)
    loss = (y + slope.square().sum(1, keepdim=True)).square().mean()
    (expected,) = torch.autograd.grad(loss, h)
    torch.testing.assert_close(captured["net.0"][0].gradient, expected)
    assert len(captured["net.0"]) == 1


def test_a_backward_that_gives_none_leaves_its_value_unused():
    class First(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
            return a + b

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
            return gradient, None

    model = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    captured = gv.reap(lambda m, x: First.apply(m["a"](x), m["b"](x)).sum(), EVERYTHING)(model, torch.randn(3, 2))[2]
    assert captured["a"][0].state == "ok"
    assert captured["b"][0].state == "unused"


def test_nested_captures_each_have_their_own_calls_and_gradients():
    model = nn.Sequential(nn.Linear(2, 2))
    inner: list[Any] = []

    def f(m: nn.Module, x: Tensor) -> Tensor:
        inner.append(gv.reap(lambda m, x: (3 * gv.sow(m(x), "y")).sum(), gv.Capture("0", "y"))(m, x)[2])
        assert len(at_work.open_sessions) == 1
        return gv.sow(m(x), "y").sum()

    _, _, outer = gv.reap(f, gv.Capture("*", "y"))(model, torch.ones(1, 2))
    assert torch.equal(inner[0]["0"][0].gradient, torch.full((1, 2), 3.0))
    assert [call.state for call in outer["0"]] == ["unused", "ok"]  # the first was for the inner one's loss
    assert torch.equal(outer["0"][1].gradient, torch.ones(1, 2))
    assert torch.equal(outer["y"][1].gradient, torch.ones(1, 2))
    assert hooks_of(model) == []


@pytest.mark.parametrize("keep", ["statistics", "tensors"])
def test_a_nested_capture_changes_nothing_either(keep):
    scene = of_scene("convolutions")
    capture = gv.Capture("*", keep=keep)
    check_same(outcome(scene)[:2], outcome(scene, capture, capture)[:2])


def test_examples_are_not_sliced_along_an_axis_that_does_not_count_them():
    torch.manual_seed(0)
    model = Recurrent(nn.LSTM, packed=False)
    x = torch.randn(5, 6, 4)

    def f(m: nn.Module, x: Tensor) -> Tensor:
        output, (h, _) = m.rnn(x)
        return output.sum() + h.sum()

    captured = gv.reap(f, gv.Capture("rnn"))(model, x)[2]
    assert captured["rnn[0]"][0].example(4).gradient.shape == (6, 3)
    assert captured["rnn[1][0]"][0].gradient.shape == (2, 5, 3)
    with pytest.raises(CaptureError, match="with 2 along batch_dim=0, where what the model was given has 5"):
        captured["rnn[1][0]"][0].example(0)


def test_what_is_no_capture_and_what_is_no_function_are_refused():
    with pytest.raises(CaptureError, match=r"capture= takes a Capture; got .*Write capture=gv.Capture\('encoder'\)"):
        gv.reap(objective, "encoder")
    with pytest.raises(CaptureError, match="reap takes a function of a model"):
        gv.reap(3)
    with pytest.raises(FunctionError):
        gv.reap(objective)(3, torch.ones(1))


# torch.compile --------------------------------------------------------------------------------------------------------


def compiled(how: str, model: nn.Module) -> nn.Module:
    if how == "torch.compile":
        return torch.compile(model, backend="aot_eager")
    model.compile(backend="aot_eager")
    return model


@pytest.mark.case("P24")
@pytest.mark.case("P25")
@pytest.mark.case("P26")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("how", ["torch.compile", "model.compile()"])
def test_a_compiled_model_is_captured_and_says_what_it_costs(how, when):
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    x = torch.randn(3, 4)
    expected = gv.reap(objective, EVERYTHING)(plain, x)
    model = compiled(how, plain)
    if when == "after":
        gv.value_and_grad(objective, model, x)  # what is compiled now has no hook
    with pytest.warns(CaptureWarning, match="each captured module breaks its graph: 3 of them"):
        value, g, captured = gv.reap(objective, EVERYTHING)(model, x)
    assert torch.equal(value, expected[0])
    assert all(torch.equal(g[name], expected[1][name]) for name in g)
    assert list(captured) == ["0", "1", "2"]
    for name, calls in captured.items():
        assert len(calls) == 1
        assert torch.equal(calls[0].gradient, expected[2][name][0].gradient)
    # It is still compiled, in one part again.
    torch._dynamo.utils.counters.clear()
    again = gv.value_and_grad(objective, model, x)
    assert torch.equal(again[0], value)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 1
    assert not torch._dynamo.utils.counters["graph_break"]
