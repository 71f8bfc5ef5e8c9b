"""The description of gradients, sentence by sentence; each test quotes the one it proves.

What only a compiler could check is left out: that two results are bound to two names (E0411), that `f` is not built in,
and a cast ``as Grad[M]``. Which parameters `f` reads is not worked out from its code: "reads" means that autograd
reaches it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import gradviz as gv
from gradviz.errors import (
    FunctionError,
    GradOperationError,
    ModelMismatchError,
    NoSuchFieldError,
    NotAModelError,
    NotAScalarError,
    NothingReachedError,
    UnusedParameterWarning,
)

D, H, C = 3, 4, 2


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.w1 = nn.Parameter(torch.randn(D, H))
        self.b1 = nn.Parameter(torch.zeros(H))
        self.w2 = nn.Parameter(torch.randn(H, C))
        self.register_buffer("mean", torch.zeros(D))


class Other(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w1 = nn.Parameter(torch.ones(2))


def forward(m: Mlp, x: Tensor) -> Tensor:
    return ((x - m.mean) @ m.w1 + m.b1).relu() @ m.w2


def loss(m: Mlp, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(forward(m, x), y)


def batch() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(5, D), torch.randint(0, C, (5,))


def by_hand(m: Mlp, x: Tensor, y: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    value = loss(m, x, y)
    return value, torch.autograd.grad(value, list(m.parameters()))


def gradient() -> gv.Grad[Mlp]:
    return gv.value_and_grad(loss, Mlp(), *batch())[1]


# value_and_grad -------------------------------------------------------------------------------------------------------


def test_it_calls_f_and_gives_two_results():
    """Sentence: "value_and_grad(f, m, args…) calls f(m, args…) and gives two results, its value and its gradient with
    respect to the params of m, so it's bound to two names (E0411)".
    """
    m, (x, y) = Mlp(), batch()
    calls = []

    def f(*args: Any) -> Tensor:
        calls.append(args)
        return loss(*args)

    f.__annotations__.clear()
    results = gv.value_and_grad(f, m, x, y)
    assert len(results) == 2
    assert len(calls) == 1
    assert all(given is wanted for given, wanted in zip(calls[0], (m, x, y), strict=True))
    value, g = results
    want_value, want = by_hand(m, x, y)
    assert torch.equal(value, want_value)
    assert all(torch.equal(leaf, hand) for leaf, hand in zip(g.values(), want, strict=True))


def test_the_example_of_the_description_runs_as_it_stands():
    """Example: "l, g = value_and_grad(loss, m, x, y); return g"."""

    @gv.checked
    def grads(m: Mlp, x: Tensor, y: Tensor) -> gv.Grad[Mlp]:
        _l, g = gv.value_and_grad(loss, m, x, y)
        return g

    m, (x, y) = Mlp(), batch()
    assert gv.check_grad(grads(m, x, y), m).norm() > 0


def changes_its_argument(m: Mlp, x: Tensor) -> Tensor:
    x.mul_(2)
    return (x @ m.w1).sum()


@pytest.mark.parametrize(
    "f",
    [3, "loss", torch.ones(()), Mlp(), lambda: torch.ones(())],
    ids=["int", "str", "tensor", "module", "no parameter"],
)
def test_f_is_a_function_whose_first_parameter_is_a_model(f):
    """Sentence: "f is the name of a fn (not an extern fn, a built-in or a value) whose first parameter is a model, and
    which has no mut parameters (E1105)": a value, and a function of no model.
    """
    with pytest.raises(FunctionError) as error:
        gv.value_and_grad(f, Mlp())
    assert error.value.code == "E1105"


def test_f_whose_first_parameter_is_no_model():
    """Sentence: "whose first parameter is a model ... (E1105)": annotated as something else."""

    def f(x: Tensor, m: Mlp) -> Tensor:
        return (x @ m.w1).sum()

    with pytest.raises(FunctionError) as error:
        gv.value_and_grad(f, Mlp(), torch.ones(1, D))
    assert error.value.code == "E1105"


def test_f_has_no_mut_parameters():
    """Sentence: "which has no mut parameters (E1105)": what would be `mut` is found once it has happened."""
    with pytest.raises(FunctionError, match="changed its argument 'x' in place, and it is already changed") as error:
        gv.value_and_grad(changes_its_argument, Mlp(), torch.ones(1, D))
    assert error.value.code == "E1105"


def test_the_other_arguments_are_checked_as_for_a_call():
    """Sentence: "The other arguments are checked as for a call f(m, args…)"."""
    m, (x, y) = Mlp(), batch()
    for args, kwargs in (((x,), {}), ((x, y, 1), {}), ((x,), {"z": y}), ((x, y), {"x": x})):
        with pytest.raises(TypeError) as direct:
            loss(m, *args, **kwargs)
        with pytest.raises(TypeError) as through:
            gv.value_and_grad(loss, m, *args, **kwargs)
        assert str(through.value) == str(direct.value)


def test_m_is_the_model_of_f_s_first_parameter():
    """Sentence: "m must be the model of f's first parameter (E0904)"."""
    with pytest.raises(ModelMismatchError, match="wants a Mlp; the model given is a Other") as error:
        gv.value_and_grad(loss, Other(), *batch())
    assert error.value.code == "E0904"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_f_returns_a_floating_scalar_and_the_value_has_that_type(dtype):
    """Sentence: "f must return a [] of floats, such as a loss (E1106), and the value has that type"."""

    def cast(m: Mlp, x: Tensor, y: Tensor) -> Tensor:
        return loss(m, x, y).to(dtype)

    value, _ = gv.value_and_grad(cast, Mlp(), *batch())
    assert value.shape == ()
    assert value.dtype == dtype


@pytest.mark.parametrize(
    "wrong",
    [
        lambda y: y,
        lambda y: y.sum().reshape(1),
        lambda y: y.argmax(),
        lambda y: 1.0,
        lambda y: None,
        lambda y: (y.sum(), y),
    ],
    ids=["matrix", "(1,)", "int", "float", "None", "pair"],
)
def test_f_that_returns_anything_else_is_e1106(wrong):
    """Sentence: "f must return a [] of floats, such as a loss (E1106)"."""

    def f(m: Mlp, x: Tensor) -> Any:
        return wrong(forward(m, x))

    with pytest.raises(NotAScalarError) as error:
        gv.value_and_grad(f, Mlp(), batch()[0])
    assert error.value.code == "E1106"


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(D, 32)
        self.drop = nn.Dropout(0.5)


def dropping_loss(m: Dropping, x: Tensor, y: Tensor, mode: gv.Train) -> Tensor:
    return (mode(m.drop)(m.linear(x)) * y).sum()


def test_f_may_take_a_mode():
    """Sentence: "f may take a mode, as a loss with dropout does: value_and_grad(loss, m, x, y, Train(seed=step))"."""
    m, x, y = Dropping(), torch.ones(2, D), torch.ones(2, 32)
    values = [gv.value_and_grad(dropping_loss, m, x, y, gv.Train(seed=step))[0].item() for step in (1, 2, 1)]
    assert values[0] == values[2]
    assert values[0] != values[1]


def test_gradients_go_through_the_values_dropout_keeps():
    """Sentence: "gradients go through the values dropout keeps"."""
    m, x, y = Dropping(), torch.ones(2, D), torch.ones(2, 32)
    _, g = gv.value_and_grad(dropping_loss, m, x, y, gv.Train(seed=4))
    kept = gv.Train(seed=4)(nn.Dropout(0.5))(torch.ones(2, 32))
    assert torch.equal(g.linear.bias, kept.sum(dim=0))
    assert 0 < (kept == 0).sum() < kept.numel()


# What f reads ---------------------------------------------------------------------------------------------------------


def unused(f: Callable[..., Tensor], *args: Any) -> tuple[str, ...]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnusedParameterWarning)
        return gv.value_and_grad(f, Mlp(), *args)[1].unused


def hidden_layer(m: Mlp, x: Tensor) -> Tensor:
    return (x @ m.w1 + m.b1).relu()


def pipe(value: Any, *functions: Callable[[Any], Any]) -> Any:
    for function in functions:
        value = function(value)
    return value


READERS: dict[str, tuple[Callable[[Mlp, Tensor], Tensor], set[str]]] = {
    "m.w1 reads w1": (lambda m, x: (x @ m.w1).sum(), {"w1"}),
    "another fn reads what that one reads": (lambda m, x: hidden_layer(m, x).sum(), {"w1", "b1"}),
    "through pipes": (
        lambda m, x: pipe(x, lambda x: hidden_layer(m, x), lambda h: h @ m.w2, Tensor.sum),
        {"w1", "b1", "w2"},
    ),
    "through nested value_and_grad": (
        lambda m, x: gv.value_and_grad(lambda m, x: (x @ m.w1).square().sum(), m, x, create_graph=True)[1].norm(),
        {"w1"},
    ),
}


@pytest.mark.filterwarnings("ignore::gradviz.errors.UnusedParameterWarning")
@pytest.mark.parametrize(("f", "read"), READERS.values(), ids=READERS.keys())
def test_which_parameters_f_reads_is_found_by_autograd(f, read):
    """Sentence: "Which params f reads is worked out from its code: m.w1 reads w1, and passing m to another fn reads
    what that one reads, also through pipes and nested value_and_grad".
    """
    assert set(unused(f, batch()[0])) == {"w1", "b1", "w2"} - read


class Anything:
    """Python that no analysis of the code of `f` could follow."""

    def __init__(self, m: Mlp) -> None:
        self.found = [getattr(m, "".join(("w", str(number)))) for number in (1, 2)]

    def total(self) -> Tensor:
        return sum(map(torch.sum, self.found))


@pytest.mark.filterwarnings("ignore::gradviz.errors.UnusedParameterWarning")
def test_whatever_python_reads_of_a_model_it_was_passed_counts():
    """Sentence: "Passing m anywhere else, such as to Python, may read any param"."""
    assert unused(lambda m: Anything(m).total()) == ("b1",)
    assert unused(lambda m: sum(p.sum() for p in m.parameters())) == ()
    assert unused(lambda m: m.state_dict(keep_vars=True)["b1"].sum()) == ("w1", "w2")


def test_f_that_reads_no_parameter_is_e1107():
    """Sentence: "If f reads no param of m, its gradient would always be zero, which is E1107"."""
    for f in (lambda m, x: x.sum(), lambda m, x: m.mean.sum(), lambda m, x: (x @ m.w1.detach()).sum()):
        with pytest.raises(NothingReachedError) as error:
            gv.value_and_grad(f, Mlp(), batch()[0])
        assert error.value.code == "E1107"


def test_each_parameter_f_never_reads_gets_the_warning_w1101():
    """Sentence: "each param it never reads gets the warning W1101"."""

    def reads_w1(m: Mlp, x: Tensor) -> Tensor:
        return (x @ m.w1).sum()

    with pytest.warns(UnusedParameterWarning) as caught:
        gv.value_and_grad(reads_w1, Mlp(), batch()[0])
    assert [warning.category.code for warning in caught] == ["W1101", "W1101"]
    assert [str(warning.message).split()[0] for warning in caught] == ["b1", "w2"]


# Gradient types -------------------------------------------------------------------------------------------------------


def test_grad_m_is_the_type_of_a_gradient_of_m():
    """Sentence: "Grad[M] is the type of a gradient with respect to the model M"."""
    assert isinstance(gradient(), gv.Grad)
    assert gv.Grad[Mlp].__origin__ is gv.Grad
    assert gv.Grad[Mlp].__args__ == (Mlp,)
    assert gv.check_grad(gradient(), Mlp())


def test_it_has_a_field_for_each_parameter_with_its_type():
    """Sentence: "It has a field for each param of M, with the param's type, read as g.w1"."""
    m, g = Mlp(), gradient()
    assert list(g) == ["w1", "b1", "w2"]
    for field, p in ((g.w1, m.w1), (g.b1, m.b1), (g.w2, m.w2)):
        assert isinstance(field, Tensor)
        assert (field.shape, field.dtype) == (p.shape, p.dtype)


def test_buffers_have_no_fields():
    """Sentence: "Buffers aren't differentiated, so it has no fields for them (E0901)"."""
    with pytest.raises(NoSuchFieldError, match="'mean' is a buffer of Mlp; buffers are not differentiated") as error:
        _ = gradient().mean
    assert error.value.code == "E0901"
    assert isinstance(error.value, AttributeError)


def test_grad_m_is_a_parameter_or_return_type_and_only_of_a_model():
    """Sentence: "Grad[M] can be a parameter or return type; a Grad of something other than a model is E0303"."""

    @gv.checked
    def twice(g: gv.Grad[Mlp]) -> gv.Grad[Mlp]:
        return 2 * g

    assert torch.equal(twice(gradient()).w1, 2 * gradient().w1)
    for thing in (int, Tensor, str):
        with pytest.raises(NotAModelError) as error:
            gv.Grad[thing]
        assert error.value.code == "E0303"


def test_gradients_of_the_same_model_add_and_subtract():
    """Sentence: "Gradients of the same model can be added and subtracted, -g negates one"."""
    g, h = gradient(), 3 * gradient()
    for name in g:
        assert torch.equal((g + h)[name], g[name] + h[name])
        assert torch.equal((h - g)[name], h[name] - g[name])
        assert torch.equal((-g)[name], -g[name])


@pytest.mark.parametrize("two", [2, 2.0, torch.tensor(2.0)], ids=["int", "float", "0-dim tensor"])
def test_a_gradient_is_multiplied_on_either_side_and_divided(two):
    """Sentence: "a gradient can be multiplied by a [] or a number on either side, or divided by one"."""
    g = gradient()
    for name in g:
        assert torch.equal((g * two)[name], g[name] * 2)
        assert torch.equal((two * g)[name], g[name] * 2)
        assert torch.equal((g / two)[name], g[name] / 2)


def test_the_norm_is_that_of_all_values_together():
    """Sentence: "norm(g) is the norm of all the gradient's values together, a [] NonNeg"."""
    g = gradient()
    norm = gv.norm(g)
    assert norm.shape == ()
    assert norm.item() == pytest.approx(torch.cat([leaf.reshape(-1) for leaf in g.values()]).norm().item(), rel=1e-6)
    assert gv.norm(-g) == norm >= 0
    assert math.copysign(1, gv.norm(0 * -g).item()) == 1


@pytest.mark.parametrize(
    "operation",
    [lambda g: g * g, lambda g: g + torch.ones(2), lambda g: 2 / g, torch.mean],
    ids=["g * g", "g + x", "2 / g", "mean(g)"],
)
def test_anything_else_is_e1108(operation):
    """Sentence: "Anything else, such as g * g, g + x for a tensor x, 2 / g or mean(g), is E1108"."""
    with pytest.raises(GradOperationError) as error:
        operation(gradient())
    assert error.value.code == "E1108"
    assert isinstance(error.value, TypeError)


def test_gradients_of_different_models_do_not_add():
    """Sentence: "adding gradients of different models is E0904"."""
    other = gv.value_and_grad(lambda m: m.w1.sum(), Other())[1]
    with pytest.raises(ModelMismatchError) as error:
        _ = gradient() + other
    assert error.value.code == "E0904"


# Gradients at run time ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_autograd_is_on_even_inside_no_grad(context):
    """Sentence: "value_and_grad compiles to rt.value_and_grad(f, m, args…), which runs f with autograd enabled, even
    inside torch.no_grad(), and calls torch.autograd.grad with the model's params".
    """
    m, (x, y) = Mlp(), batch()
    enabled = []

    def f(m: Mlp, x: Tensor, y: Tensor) -> Tensor:
        enabled.append(torch.is_grad_enabled())
        return loss(m, x, y)

    with context():
        _, g = gv.value_and_grad(f, m, x, y)
    assert enabled == [True]
    assert all(torch.equal(leaf, hand) for leaf, hand in zip(g.values(), by_hand(m, x, y)[1], strict=True))


def test_nothing_reads_or_writes_grad():
    """Sentence: "Nothing reads or writes .grad, so there is nothing to zero"."""
    m, (x, y) = Mlp(), batch()
    first = gv.value_and_grad(loss, m, x, y)[1]
    assert all(p.grad is None for p in m.parameters())
    kept = [torch.full_like(p, 1e6) for p in m.parameters()]
    for p, grad in zip(m.parameters(), kept, strict=True):
        p.grad = grad
    second = gv.value_and_grad(loss, m, x, y)[1]
    assert (first - second).norm() == 0
    assert all(p.grad is grad and bool((grad == 1e6).all()) for p, grad in zip(m.parameters(), kept, strict=True))


@pytest.mark.parametrize("training", [True, False])
def test_there_is_no_train_or_eval_to_switch(training):
    """Sentence: "and no train() or eval() to switch; randomness comes from a mode argument, which value_and_grad passes
    on to f like any other".
    """
    m, x, y = Dropping().train(training), torch.ones(2, D), torch.ones(2, 32)
    passed = []

    def f(m: Dropping, x: Tensor, y: Tensor, mode: gv.Train) -> Tensor:
        passed.append(mode)
        return dropping_loss(m, x, y, mode)

    mode = gv.Train(seed=7)
    stream = torch.get_rng_state()
    value, _ = gv.value_and_grad(f, m, x, y, mode)
    assert passed == [mode]
    assert [child.training for child in m.modules()] == [training] * 3
    assert torch.equal(torch.get_rng_state(), stream)
    assert value == gv.value_and_grad(f, m.train(not training), x, y, mode=mode)[0]


def test_the_value_is_detached():
    """Sentence: "The value is detached"."""
    value, _ = gv.value_and_grad(loss, Mlp(), *batch())
    assert not value.requires_grad
    assert value.grad_fn is None


def test_fields_are_attributes_and_items_in_declaration_order():
    """Sentence: "A gradient is an rt.Grad: its fields are attributes and items (g.w1, g["w1"]), in declaration order,
    and it supports the arithmetic above".
    """
    m = Mlp()
    _, g = gv.value_and_grad(lambda m: m.w2.sum() + m.b1.sum() + m.w1.sum(), m)  # read in another order
    assert isinstance(g, gv.Grad)
    assert list(g) == [name for name, _ in m.named_parameters()] == ["w1", "b1", "w2"]
    for name in g:
        assert getattr(g, name) is g[name]
    assert torch.equal((2 * g - g / 2).w1, torch.full((D, H), 1.5))


@pytest.mark.filterwarnings("ignore::gradviz.errors.UnusedParameterWarning")
@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_each_gradient_has_its_parameter_s_shape_dtype_and_place_and_unused_ones_are_zeros(dtype, device):
    """Sentence: "Each gradient tensor has its param's shape and dtype, and is where the param is, the declared device;
    a param that f doesn't use gets zeros".
    """
    m = Mlp().to(device, dtype)
    m.b1 = nn.Parameter(m.b1.detach().float())
    x = torch.ones(2, D, dtype=dtype, device=device)
    _, g = gv.value_and_grad(lambda m, x: (x @ m.w1).sum(), m, x)
    for name, p in m.named_parameters():
        assert (g[name].shape, g[name].dtype, g[name].device) == (p.shape, p.dtype, p.device)
    assert g.unused == ("b1", "w2")
    if device == "cpu":
        assert torch.equal(g.w1, torch.full((D, H), 2, dtype=dtype))
        assert not g.b1.any()
        assert not g.w2.any()


def test_a_grad_m_parameter_checks_its_argument():
    """Sentence: "A Grad[M] parameter checks its argument is a gradient of M with the params' shapes and dtypes (Runtime
    checks)".
    """

    @gv.checked
    def descend(m: Mlp, g: gv.Grad[Mlp]) -> int:
        return len(g)

    m, g = Mlp(), gradient()
    assert descend(m, g) == 3
    other = gv.value_and_grad(lambda m: m.w1.sum(), Other())[1]
    for wrong in (other, g.to(torch.float64), dict(g), g.w1):
        with pytest.raises(ModelMismatchError):
            descend(m, wrong)
    narrow = Mlp()
    narrow.w1 = nn.Parameter(torch.zeros(1, H))
    with pytest.raises(ModelMismatchError, match="shape"):
        descend(narrow, g)
