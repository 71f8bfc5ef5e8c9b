"""value_and_grad is backward() to the bit, touches nothing, and never answers with a silent zero."""

from __future__ import annotations

import collections
import copy
import functools
import gc
import inspect
import typing
import warnings
import weakref
from collections.abc import Callable
from typing import Annotated, Any, Optional, Union

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, rnn
from torch.utils.checkpoint import checkpoint

import gradviz as gv
from gradviz.errors import (
    FunctionError,
    GradvizError,
    ModelError,
    ModelMismatchError,
    NotAScalarError,
    NothingReachedError,
    UnusedParameterWarning,
)
from gradviz.grad import autodiff
from gradviz.grad.algebra import Grad
from gradviz.step.objective import Output
from gradviz.step.train_step import train_step

# Against backward() ---------------------------------------------------------------------------------------------------


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        self.rnn = kind(3, 5, batch_first=True, **options)
        self.head = nn.LazyLinear(2)
        self.head(self.rnn(torch.zeros(1, 1, 3))[0])

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[0])


class Packed(Recurrent):
    def forward(self, x: Tensor) -> Tensor:
        packed = rnn.pack_padded_sequence(x, torch.tensor([7, 4, 1]), batch_first=True)
        return self.head(rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0])


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(7, 4)
        self.mid = nn.Linear(4, 4)
        self.lin = nn.Linear(4, 7)
        self.lin.weight = self.emb.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.lin(self.mid(self.emb(ids)).tanh())


class Bag(nn.Module):
    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.emb = nn.Embedding(9, 4, sparse=sparse)
        self.head = nn.Linear(4, 2)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.emb(ids).mean(dim=1))


class Transformer(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **options)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 4, 3, groups=2),
        nn.GroupNorm(2, 4),
        nn.Flatten(),
        nn.Linear(4 * 2 * 2, 5),
    )


def batch_norm_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3), nn.BatchNorm1d(3)
    )


def image(**options: Any) -> Tensor:
    return torch.randn(2, 3, 8, 8).contiguous(**options)


def ids(rows: int = 6) -> Tensor:
    return torch.randint(0, 7, (rows, 5))


NETS: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "mlp": lambda: (nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.Linear(8, 2)), torch.randn(6, 3)),
    "cnn": lambda: (cnn(), image()[:, :, :8, :8]),
    "cnn channels_last": lambda: (
        cnn().to(memory_format=torch.channels_last),
        image(memory_format=torch.channels_last),
    ),
    "transposed convolution": lambda: (nn.ConvTranspose2d(3, 2, 3, stride=2), image()),
    "rnn": lambda: (Recurrent(nn.RNN), torch.randn(4, 6, 3)),
    "lstm": lambda: (Recurrent(nn.LSTM), torch.randn(4, 6, 3)),
    "lstm, two layers, both ways": lambda: (Recurrent(nn.LSTM, num_layers=2, bidirectional=True), torch.randn(4, 6, 3)),
    "lstm, packed": lambda: (Packed(nn.LSTM), torch.randn(3, 7, 3)),
    "gru": lambda: (Recurrent(nn.GRU), torch.randn(4, 6, 3)),
    "gru in float64": lambda: (Recurrent(nn.GRU).double(), torch.randn(4, 6, 3).double()),
    "transformer": lambda: (Transformer(dropout=0.0), torch.randn(2, 5, 8)),
    "transformer with dropout": lambda: (Transformer(dropout=0.3), torch.randn(2, 5, 8)),
    "transformer in eval mode": lambda: (Transformer().eval(), torch.randn(2, 5, 8)),
    "tied embedding": lambda: (Tied(), ids()),
    "weight norm": lambda: (
        nn.Sequential(parametrizations.weight_norm(nn.Linear(3, 4)), nn.Tanh(), nn.Linear(4, 1)),
        torch.randn(5, 3),
    ),
    "orthogonal": lambda: (
        nn.Sequential(parametrizations.orthogonal(nn.Linear(3, 3)), nn.Linear(3, 1)),
        torch.randn(5, 3),
    ),
    "spectral norm": lambda: (parametrizations.spectral_norm(nn.Linear(3, 4)), torch.randn(5, 3)),
    "batch norm": lambda: (batch_norm_net(), image()),
    "batch norm in eval mode": lambda: (batch_norm_net().eval(), image()),
    "instance norm": lambda: (nn.InstanceNorm2d(3, affine=True, track_running_stats=True), image()),
    "layer norm": lambda: (nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)), torch.randn(5, 3)),
    "3-D linear": lambda: (nn.Linear(3, 4), torch.randn(2, 5, 3)),
    "4-D linear": lambda: (nn.Linear(3, 4), torch.randn(2, 2, 5, 3)),
    "bilinear": lambda: (Twice(nn.Bilinear(3, 3, 2)), torch.randn(5, 3)),
    "dense embedding": lambda: (Bag(sparse=False), ids()),
    "sparse embedding": lambda: (Bag(sparse=True), ids()),
    "float64": lambda: (
        nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double(),
        torch.randn(5, 3).double(),
    ),
    "bfloat16": lambda: (
        nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).bfloat16(),
        torch.randn(5, 3).bfloat16(),
    ),
    "float16": lambda: (nn.Linear(3, 4).half(), torch.randn(5, 3).half()),
    "complex": lambda: (nn.Linear(3, 4, dtype=torch.complex64), torch.randn(5, 3, dtype=torch.complex64)),
    "partly frozen": lambda: (frozen_first(), torch.randn(5, 3)),
}


class Twice(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, x)


def frozen_first() -> nn.Module:
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    net[0].requires_grad_(False)
    return net


def loss(model: nn.Module, x: Tensor) -> Tensor:
    y = model(x)
    return (y.abs() if y.is_complex() else y).square().mean()


def equal(a: Tensor, b: Tensor) -> bool:
    if a.dtype != b.dtype or a.layout != b.layout or a.shape != b.shape:
        return False
    return torch.equal(a.to_dense(), b.to_dense()) if a.is_sparse else torch.equal(a, b)


def by_backward(model: nn.Module, f: Callable[..., Tensor], *args: Any) -> tuple[Tensor, dict[str, Tensor]]:
    """The gradients that plain torch leaves on a copy of the model."""
    model = copy.deepcopy(model)
    value = f(model, *args)
    value.backward()
    return value.detach(), {name: p.grad for name, p in model.named_parameters() if p.requires_grad}


def assert_like_backward(model: nn.Module, f: Callable[..., Tensor], *args: Any) -> Grad:
    torch.manual_seed(3)
    want_value, want = by_backward(model, f, *args)
    torch.manual_seed(3)
    value, g = gv.value_and_grad(f, model, *args)
    assert equal(value, want_value)
    assert list(g) == list(want)
    for name, leaf in g.items():
        assert equal(leaf, want[name]), name
    return g


@pytest.mark.parametrize("net", NETS.values(), ids=NETS.keys())
def test_value_and_gradient_equal_backward_to_the_bit(net):
    torch.manual_seed(0)
    model, x = net()
    g = assert_like_backward(model, loss, x)
    for name, p in model.named_parameters():
        if p.requires_grad:
            assert (g[name].shape, g[name].dtype, g[name].device) == (p.shape, p.dtype, p.device)
    assert g.unused == ()


@pytest.mark.parametrize("net", NETS.values(), ids=NETS.keys())
def test_the_model_is_left_as_a_plain_forward_leaves_it(net):
    torch.manual_seed(0)
    model, x = net()
    plain = copy.deepcopy(model)
    parameters = list(model.parameters())
    flags = [child.training for child in model.modules()]
    input_before = x.clone()
    torch.manual_seed(3)
    loss(plain, x)
    stream = torch.get_rng_state()
    torch.manual_seed(3)
    gv.value_and_grad(loss, model, x)
    assert torch.equal(torch.get_rng_state(), stream)
    for (name, got), want in zip(model.state_dict().items(), plain.state_dict().values(), strict=True):
        assert torch.equal(got, want), name
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    assert [child.training for child in model.modules()] == flags
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(x, input_before)


@pytest.mark.case("C19")
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_gate_gradients_of_recurrent_nets_are_right_after_a_cast_and_after_a_step(kind):
    torch.manual_seed(0)
    model = Recurrent(kind)
    x = torch.randn(4, 6, 3)
    assert_like_backward(model, loss, x)
    model.double()
    g = assert_like_backward(model, loss, x.double())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for name, p in model.named_parameters():
        p.grad = g[name]
    optimizer.step()
    after = assert_like_backward(model, loss, x.double())
    assert not equal(after.rnn.weight_ih_l0, g.rnn.weight_ih_l0)
    for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
        assert after.rnn[name].count_nonzero() > 0


@pytest.mark.case("C19")
def test_a_recurrent_net_called_statelessly_uses_the_weights_it_is_given():
    torch.manual_seed(0)
    model = Recurrent(nn.LSTM)

    def twice_the_weights(m: nn.Module, x: Tensor) -> Tensor:
        doubled = {name: 2 * p for name, p in m.named_parameters()}
        return torch.func.functional_call(m, doubled, (x,)).square().mean()

    x = torch.randn(4, 6, 3)
    g = assert_like_backward(model, twice_the_weights, x)
    doubled = copy.deepcopy(model)
    with torch.no_grad():
        for p in doubled.parameters():
            p.mul_(2)
    _, direct = gv.value_and_grad(loss, doubled, x)
    for name, leaf in g.items():
        torch.testing.assert_close(leaf, 2 * direct[name])


def test_a_compiled_model_gives_the_plain_one_s_gradient_under_the_plain_names():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), torch.randn(5, 3)
    plain = gv.value_and_grad(loss, model, x)[1]
    compiled = gv.value_and_grad(loss, torch.compile(model, backend="eager"), x)[1]
    assert list(plain) == list(compiled)
    assert (plain - compiled).norm() == 0


# The two-layer net worked out by hand ---------------------------------------------------------------------------------


class TwoLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense_0 = nn.Linear(3, 2)
        self.dense_1 = nn.Linear(2, 1)
        with torch.no_grad():
            self.dense_0.weight.copy_(torch.tensor([[0.1, -0.2], [0.3, 0.4], [-0.5, 0.6]]).t())
            self.dense_0.bias.copy_(torch.tensor([0.05, -0.05]))
            self.dense_1.weight.copy_(torch.tensor([[0.7], [-0.8]]).t())
            self.dense_1.bias.copy_(torch.tensor([0.1]))

    def forward(self, x: Tensor) -> Tensor:
        return self.dense_1(self.dense_0(x).relu())


X, Y = torch.tensor([[1.0, -1.0, 2.0], [0.5, 0.0, -1.0]]), torch.tensor([[1.0], [-1.0]])


def mse(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.mse_loss(model(x), y)


def test_the_two_layer_net_has_the_gradient_worked_out_by_hand():
    model = TwoLayers()
    torch.testing.assert_close(model(X), torch.tensor([[-0.34], [0.52]]))
    value, g = gv.value_and_grad(mse, model, X, Y)
    assert value.item() == pytest.approx(2.053)
    want = {
        "dense_0.weight": torch.tensor([[0.532, 1.072], [0.0, -1.072], [-1.064, 2.144]]).t(),
        "dense_0.bias": torch.tensor([1.064, 1.072]),
        "dense_1.weight": torch.tensor([[0.912], [-0.737]]).t(),
        "dense_1.bias": torch.tensor([0.18]),
    }
    assert list(g) == list(want)
    for name, leaf in want.items():
        torch.testing.assert_close(g[name], leaf, rtol=1e-5, atol=1e-6)
    assert gv.norm(g).item() == pytest.approx(3.463931, abs=1e-6)
    assert g.dense_1.norm().item() == pytest.approx(1.186302, abs=1e-6)


def test_freezing_the_first_layer_leaves_the_second_s_numbers_as_they_were():
    model = TwoLayers()
    model.dense_0.requires_grad_(False)
    _, g = gv.value_and_grad(mse, model, X, Y)
    assert list(g) == ["dense_1.weight", "dense_1.bias"]
    assert gv.norm(g).item() == pytest.approx(1.186302, abs=1e-6)
    torch.testing.assert_close(g.dense_1.weight, torch.tensor([[0.912, -0.737]]))


def test_a_penalty_on_a_parameter_read_directly_is_differentiated():
    def penalised(model: TwoLayers, x: Tensor, y: Tensor) -> Tensor:
        return mse(model, x, y) + 1e-3 * model.dense_0.weight.square().sum()

    value, g = gv.value_and_grad(penalised, TwoLayers(), X, Y)
    assert value.item() == pytest.approx(2.05391)
    torch.testing.assert_close(
        g.dense_0.weight.t(),
        torch.tensor([[0.5322, 1.0716], [0.0006, -1.0712], [-1.065, 2.1452]]),
        rtol=1e-4,
        atol=1e-6,
    )
    torch.testing.assert_close(g.dense_0.bias, torch.tensor([1.064, 1.072]))


# What is not touched --------------------------------------------------------------------------------------------------


def test_existing_grads_of_any_leaf_stay_the_same_objects_with_the_same_values():
    model, teacher = nn.Linear(3, 2), nn.Linear(3, 2)
    x = torch.randn(4, 3, requires_grad=True)
    kept = {}
    for leaf in (*model.parameters(), *teacher.parameters(), x):
        leaf.grad = torch.full_like(leaf, 7)
        kept[leaf] = leaf.grad

    def distance(m: nn.Module, x: Tensor) -> Tensor:
        return (m(x) - teacher(x)).square().mean()

    value, g = gv.value_and_grad(distance, model, x)
    for leaf, before in kept.items():
        assert leaf.grad is before
        assert (before == 7).all()
    fresh = nn.Linear(3, 2)
    fresh.load_state_dict(model.state_dict())
    again, h = gv.value_and_grad(distance, fresh, x.detach())  # nothing was read from .grad either
    assert equal(value, again)
    assert (g - h).norm() == 0


def test_leaves_beside_the_model_get_no_grad():
    model, teacher = nn.Linear(3, 2), nn.Linear(3, 2)
    x = torch.randn(4, 3, requires_grad=True)
    gv.value_and_grad(lambda m, x: (m(x) - teacher(x)).square().mean(), model, x)
    assert x.grad is None
    assert all(p.grad is None for p in (*model.parameters(), *teacher.parameters()))


def test_no_train_or_eval_flag_moves_and_the_forward_runs_under_the_flags_it_finds():
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5), nn.BatchNorm1d(2))
    model[2].eval()
    seen = []

    def f(m: nn.Module, x: Tensor) -> Tensor:
        seen.append([child.training for child in m.modules()])
        return m(x).square().mean()

    gv.value_and_grad(f, model, torch.randn(4, 2))
    assert seen == [[True, True, True, False]]
    assert [child.training for child in model.modules()] == [True, True, True, False]
    model.eval()
    gv.value_and_grad(f, model, torch.randn(4, 2))
    assert seen[1] == [False] * 4


@pytest.mark.parametrize(
    "context", [torch.no_grad, torch.inference_mode, torch.enable_grad, torch.autograd.detect_anomaly]
)
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_it_works_inside_no_grad_and_inference_mode_and_leaves_them_as_they_are(context):
    model, x = TwoLayers(), X
    with context():
        flags = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        value, g = gv.value_and_grad(mse, model, x, Y)
        assert (torch.is_grad_enabled(), torch.is_inference_mode_enabled()) == flags
    assert gv.norm(g).item() == pytest.approx(3.463931, abs=1e-6)
    assert not value.is_inference()
    assert not any(leaf.is_inference() for leaf in g.values())
    assert (g - g).norm() == 0


def test_the_grad_mode_comes_back_when_f_raises():
    def fail(m: nn.Module) -> Tensor:
        assert torch.is_grad_enabled()
        raise KeyError("boom")

    model = nn.Linear(1, 1)
    with torch.no_grad():
        with pytest.raises(KeyError, match="boom"):
            gv.value_and_grad(fail, model)
        assert not torch.is_grad_enabled()
    with torch.inference_mode():
        with pytest.raises(KeyError, match="boom"):
            gv.value_and_grad(fail, model)
        assert torch.is_inference_mode_enabled()
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("kind", ["argument", "model", "integer argument", "nested argument"])
def test_tensors_made_in_inference_mode_get_an_error_that_says_what_to_write(kind):
    with torch.inference_mode():
        x, at = torch.ones(2, 3), torch.tensor([1, 2])
        inside = nn.Linear(3, 1)
    calls: dict[str, Callable[[], Any]] = {
        "argument": lambda: gv.value_and_grad(loss, nn.Linear(3, 1), x),
        "model": lambda: gv.value_and_grad(loss, inside, torch.ones(2, 3)),
        "integer argument": lambda: gv.value_and_grad(loss, nn.Embedding(4, 2), at),
        "nested argument": lambda: gv.value_and_grad(lambda m, batch: loss(m, batch["x"]), nn.Linear(3, 1), {"x": x}),
    }
    with pytest.raises(GradvizError, match="inference mode") as error:
        calls[kind]()
    assert error.value.code in ("E1105", "E0202")
    assert "clone" in str(error.value) or "no_grad" in str(error.value)


def test_an_inference_tensor_that_autograd_need_not_keep_is_fine():
    with torch.inference_mode():
        shift = torch.ones(2, 1)
    value, g = gv.value_and_grad(lambda m, x, s: (m(x) + s).sum(), nn.Linear(3, 1), torch.ones(2, 3), shift)
    assert g.bias.item() == 2
    assert not value.is_inference()


def test_an_error_of_f_s_own_comes_through_as_it_is():
    for error in (RuntimeError("mine"), ValueError("mine"), KeyboardInterrupt()):

        def fail(m: nn.Module, error: BaseException = error) -> Tensor:
            raise error

        with pytest.raises(type(error)) as caught:
            gv.value_and_grad(fail, nn.Linear(1, 1))
        assert caught.value is error


def test_arguments_arrive_as_they_were_given_also_by_keywords_called_f_and_model():
    seen = {}

    def take(m: nn.Module, *args: Any, **kwargs: Any) -> Tensor:
        seen.update(args=args, kwargs=kwargs)
        return m.weight.sum()

    model = nn.Linear(1, 1, bias=False)
    thing = object()
    gv.value_and_grad(take, model, 1, thing, f=2, model="x", self=None)
    assert seen == {"args": (1, thing), "kwargs": {"f": 2, "model": "x", "self": None}}


def test_missing_arguments_are_python_s_own_type_error():
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'y'"):
        gv.value_and_grad(mse, TwoLayers(), X)


# Nesting and higher orders --------------------------------------------------------------------------------------------


def test_create_graph_gives_the_hessian_of_a_quadratic():
    torch.manual_seed(0)
    matrix = torch.randn(3, 3)
    model = nn.Linear(3, 1, bias=False)

    def quadratic(m: nn.Linear) -> Tensor:
        return (m.weight @ matrix @ m.weight.t()).squeeze()

    _, g = gv.value_and_grad(quadratic, model, create_graph=True)
    rows = [torch.autograd.grad(entry, model.weight, retain_graph=True)[0][0] for entry in g.weight[0]]
    torch.testing.assert_close(torch.stack(rows), matrix + matrix.t())
    assert gv.value_and_grad(quadratic, model)[1].weight.grad_fn is None


def penalty_by_hand(model: nn.Module, x: Tensor) -> list[Tensor]:
    parameters = list(model.parameters())
    first = torch.autograd.grad(loss(model, x), parameters, create_graph=True)
    return list(torch.autograd.grad(sum(g.square().sum() for g in first), parameters))


def test_a_gradient_of_a_gradient_s_norm_equals_torch_by_hand():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), torch.randn(5, 3)

    def penalty(m: nn.Module, x: Tensor) -> Tensor:
        return gv.value_and_grad(loss, m, x, create_graph=True)[1].norm().square()

    value, g = gv.value_and_grad(penalty, model, x)
    assert value.item() == pytest.approx(gv.value_and_grad(loss, model, x)[1].norm().item() ** 2, rel=1e-5)
    for (name, leaf), hand in zip(g.items(), penalty_by_hand(model, x), strict=True):
        torch.testing.assert_close(leaf, hand, msg=name)
        assert not leaf.requires_grad


def test_the_algebra_keeps_the_graph_of_a_gradient_made_with_one():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), torch.randn(5, 3)

    def penalty(m: nn.Module, x: Tensor) -> Tensor:
        _, g = gv.value_and_grad(loss, m, x, create_graph=True)
        return sum(leaf.square().sum() for leaf in (3 * g - g - g / 1).values())

    for (_, leaf), hand in zip(gv.value_and_grad(penalty, model, x)[1].items(), penalty_by_hand(model, x), strict=True):
        torch.testing.assert_close(leaf, hand)


def test_f_may_take_the_gradient_of_another_model():
    torch.manual_seed(0)
    inner, outer = nn.Linear(2, 1), nn.Linear(2, 1)
    x = torch.randn(4, 2)

    def outer_loss(m: nn.Module, x: Tensor) -> Tensor:
        _, g = gv.value_and_grad(loss, inner, x)
        stepped = {name: p - 0.1 * g[name] for name, p in inner.named_parameters()}
        target = torch.func.functional_call(inner, stepped, (x,)).detach()
        return F.mse_loss(m(x), target)

    _, g = gv.value_and_grad(outer_loss, outer, x)
    plain = copy.deepcopy(inner)
    loss(plain, x).backward()
    torch.optim.SGD(plain.parameters(), lr=0.1).step()
    _, want = gv.value_and_grad(mse, outer, x, plain(x).detach())
    for name in g:
        torch.testing.assert_close(g[name], want[name])
    assert inner.weight.grad is None


def test_a_look_ahead_objective_differentiates_through_its_own_step():
    torch.manual_seed(0)
    model, x, y = nn.Linear(2, 1), torch.randn(4, 2), torch.randn(4, 1)

    def look_ahead(m: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        _, g = gv.value_and_grad(mse, m, x, y, create_graph=True)
        stepped = {name: p - 0.1 * g[name] for name, p in m.named_parameters()}
        return F.mse_loss(torch.func.functional_call(m, stepped, (x,)), y)

    _, g = gv.value_and_grad(look_ahead, model, x, y)
    parameters = list(model.parameters())
    first = torch.autograd.grad(mse(model, x, y), parameters, create_graph=True)
    stepped = {name: p - 0.1 * step for (name, p), step in zip(model.named_parameters(), first, strict=True)}
    want = torch.autograd.grad(F.mse_loss(torch.func.functional_call(model, stepped, (x,)), y), parameters)
    for leaf, hand in zip(g.values(), want, strict=True):
        torch.testing.assert_close(leaf, hand)


def test_a_nested_call_s_value_is_a_constant_to_the_outer_one():
    model, x = nn.Linear(2, 1), torch.ones(1, 2)
    _, g = gv.value_and_grad(lambda m, x: m(x).sum() * gv.value_and_grad(loss, m, x)[0], model, x)
    torch.testing.assert_close(g.bias, loss(model, x).detach().reshape(1))


@pytest.mark.parametrize("net", ["mlp", "cnn", "batch norm in eval mode", "float64", "bfloat16"])
def test_value_and_leaves_carry_no_graph(net):
    model, x = NETS[net]()
    value, g = gv.value_and_grad(loss, model, x)
    for tensor in (value, *g.values()):
        assert tensor.grad_fn is None
        assert not tensor.requires_grad


def test_the_graph_is_freed_at_once():
    model = nn.Linear(2, 1)
    hidden: list[weakref.ref[Tensor]] = []

    def f(m: nn.Module, x: Tensor) -> Tensor:
        y = m(x).tanh()
        hidden.append(weakref.ref(y))
        return y.square().mean()

    _ = gv.value_and_grad(f, model, torch.ones(3, 2))
    assert hidden[0]() is None


# Cases C01-C06 --------------------------------------------------------------------------------------------------------


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(2, 2)
        self.first = nn.Linear(2, 1)
        self.second = nn.Sequential(nn.Linear(2, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.first(self.body(x))


@pytest.mark.case("C01")
def test_a_second_head_that_is_never_called_is_named_in_full_and_reads_as_zeros():
    def one_head(m: nn.Module, x: Tensor) -> Tensor:
        return m(x).square().mean()

    with pytest.warns(UnusedParameterWarning) as caught:
        _, g = gv.value_and_grad(one_head, TwoHeads(), torch.ones(3, 2))
    assert [str(w.message).split()[0] for w in caught] == ["second.0.weight", "second.0.bias"]
    assert all("one_head" in str(w.message) for w in caught)
    assert {w.filename for w in caught} == {__file__}
    assert {w.category.code for w in caught} == {"W1101"}
    assert g.unused == ("second.0.weight", "second.0.bias")
    assert g.second.norm() == 0
    assert g.first.norm() > 0


@pytest.mark.case("C02")
def test_unused_is_told_from_vanished_and_no_parameter_at_all_is_an_error():
    def branch_a(m: nn.Module, x: Tensor) -> Tensor:
        return (m.first(x) * 0).sum()

    with pytest.warns(UnusedParameterWarning):
        _, g = gv.value_and_grad(branch_a, TwoHeads(), torch.ones(3, 2))
    assert "first.weight" not in g.unused  # vanished: a path, but zeros
    assert g.first.norm() == 0
    assert "second.0.weight" in g.unused
    with pytest.raises(NothingReachedError) as error:
        gv.value_and_grad(lambda m, x: x.sum(), TwoHeads(), torch.ones(3, 2))
    assert error.value.code == "E1107"
    assert isinstance(error.value, ValueError)


@pytest.mark.parametrize(
    "f",
    [
        lambda m, x: x.sum(),
        lambda m, x: (x * x).mean(),
        lambda m, x: m(x).sum().detach(),
        lambda m, x: torch.tensor(m(x).sum().item()),
        lambda m, x: m(x.detach()).detach().sum() + x.sum(),
        lambda m, x: (m(x) > 0).float().mean(),
    ],
)
@pytest.mark.parametrize("needs_grad", [False, True])
def test_a_value_that_reaches_no_parameter_is_an_error_also_when_an_argument_needs_a_gradient(f, needs_grad):
    with pytest.raises(NothingReachedError) as error:
        gv.value_and_grad(f, nn.Linear(2, 1), torch.ones(3, 2, requires_grad=needs_grad))
    assert error.value.code == "E1107"


def test_a_no_grad_block_inside_f_hides_its_parameters_and_they_are_named():
    def partly_hidden(m: nn.Module, x: Tensor) -> Tensor:
        with torch.no_grad():
            x = m.body(x)
        return m.first(x).sum()

    model = TwoHeads()
    del model.second
    with pytest.warns(UnusedParameterWarning) as caught:
        _, g = gv.value_and_grad(partly_hidden, model, torch.ones(3, 2))
    assert len(caught) == 2
    assert g.unused == ("body.weight", "body.bias")


@pytest.mark.case("C03")
@pytest.mark.filterwarnings("ignore::gradviz.errors.UnusedParameterWarning")
def test_zeros_of_unused_parameters_carry_no_graph_nor_does_anything_made_of_them():
    value, g = gv.value_and_grad(lambda m, x: m(x).sum(), TwoHeads(), torch.ones(3, 2))
    for gradient in (g, 2 * g, g - g, g / 2, g + g, -g):
        for leaf in gradient.values():
            assert not leaf.requires_grad
            assert leaf.grad_fn is None
    assert not value.requires_grad
    assert value.grad_fn is None


@pytest.mark.case("C04")
def test_frozen_parameters_are_left_out_and_an_all_frozen_model_is_a_readable_error():
    model = TwoHeads()
    model.second.requires_grad_(False)
    model.first.bias.requires_grad_(False)
    g = assert_like_backward(model, loss, torch.ones(3, 2))
    assert list(g) == ["body.weight", "body.bias", "first.weight"]
    assert g.unused == ()
    with pytest.raises(AttributeError, match="frozen"):
        _ = g.first.bias
    model.requires_grad_(False)
    with pytest.raises(
        NothingReachedError, match=r"TwoHeads has no trainable parameter \(0 of 6\).*requires_grad_\(True\)"
    ):
        gv.value_and_grad(loss, model, torch.ones(3, 2))
    with pytest.raises(NothingReachedError, match=r"\(0 of 0\)"):
        gv.value_and_grad(loss, nn.ReLU(), torch.ones(3, 2))


@pytest.mark.case("C05")
def test_a_tied_weight_is_one_leaf_counted_once_and_its_other_name_is_an_alias():
    torch.manual_seed(0)
    model, at = Tied(), ids()
    g = assert_like_backward(model, loss, at)
    assert list(g) == ["emb.weight", "mid.weight", "mid.bias", "lin.bias"]
    assert g["lin.weight"] is g["emb.weight"]
    flat = torch.cat([p.reshape(-1) for p in by_backward(model, loss, at)[1].values()])
    assert gv.norm(g).item() == pytest.approx(flat.norm().item(), rel=1e-6)


@pytest.mark.case("C06")
@pytest.mark.parametrize("passed", [("emb.weight",), ("lin.weight",), ("emb.weight", "lin.weight")])
def test_a_stateless_call_of_a_tied_model_gives_the_sum_over_both_uses(passed):
    torch.manual_seed(0)
    model, at = Tied(), ids()

    def stateless(m: nn.Module, at: Tensor) -> Tensor:
        weight = m.emb.weight * 1
        return torch.func.functional_call(m, dict.fromkeys(passed, weight), (at,)).square().mean()

    _, g = gv.value_and_grad(stateless, model, at)
    _, want = by_backward(model, loss, at)
    for name in want:
        torch.testing.assert_close(g[name], want[name])


def test_a_tied_model_still_has_its_own_parameters_after_a_stateless_call():
    model, at = Tied(), ids()
    before = [id(p) for p in model.parameters()]
    gv.value_and_grad(
        lambda m, at: torch.func.functional_call(m, {"lin.weight": m.emb.weight * 2}, (at,)).sum(), model, at
    )
    assert [id(p) for p in model.parameters()] == before
    assert list(gv.value_and_grad(loss, model, at)[1]) == ["emb.weight", "mid.weight", "mid.bias", "lin.bias"]


# Other cases of the list ----------------------------------------------------------------------------------------------


@pytest.mark.case("C16")
def test_a_lazy_model_is_told_to_run_one_batch_first_and_works_afterwards():
    model, x = nn.Sequential(nn.Linear(3, 4), nn.LazyLinear(2)), torch.randn(5, 3)
    with pytest.raises(ModelError, match="first"):
        gv.value_and_grad(loss, model, x)
    model(x)
    g = assert_like_backward(model, loss, x)
    assert g["1.weight"].shape == (2, 4)


@pytest.mark.case("C17")
@pytest.mark.parametrize(
    ("parametrized", "names"),
    [
        (
            parametrizations.weight_norm,
            ["bias", "parametrizations.weight.original0", "parametrizations.weight.original1"],
        ),
        (parametrizations.orthogonal, ["bias", "parametrizations.weight.original"]),
        (parametrizations.spectral_norm, ["bias", "parametrizations.weight.original"]),
    ],
)
def test_leaves_of_a_parametrized_layer_are_its_originals_and_no_warning_is_drawn(parametrized, names):
    torch.manual_seed(0)
    model, x = nn.Sequential(parametrized(nn.Linear(3, 3))), torch.randn(5, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, g = gv.value_and_grad(loss, model, x)
    assert list(g) == [f"0.{name}" for name in names]
    assert all(leaf.count_nonzero() for leaf in g.values())
    with pytest.raises(AttributeError, match="no field 'weight'"):
        _ = g[0].weight


@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated:FutureWarning")
def test_the_old_weight_norm_works_too():
    x = torch.randn(4, 3)
    ours, theirs = nn.Linear(3, 2), nn.Linear(3, 2)
    theirs.load_state_dict(ours.state_dict())
    _, g = gv.value_and_grad(loss, nn.utils.weight_norm(ours), x)
    loss(nn.utils.weight_norm(theirs), x).backward()
    assert list(g) == ["bias", "weight_g", "weight_v"]
    for name, p in theirs.named_parameters():
        assert equal(g[name], p.grad)


@pytest.mark.case("C20")
@pytest.mark.parametrize("forwards", [1, 2])
def test_running_statistics_move_once_for_each_forward_as_in_a_hand_written_step(forwards):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), torch.randn(6, 3)
    plain = copy.deepcopy(model)

    def f(m: nn.Module, x: Tensor) -> Tensor:
        return sum(m(x + place).square().mean() for place in range(forwards))

    _, g = gv.value_and_grad(f, model, x)
    f(plain, x).backward()
    assert model[1].num_batches_tracked == forwards
    for name, buffer in model.named_buffers():
        assert torch.equal(buffer, dict(plain.named_buffers())[name])
    for name, p in plain.named_parameters():
        assert torch.equal(g[name], p.grad)


@pytest.mark.case("C20")
def test_a_diagnostics_call_in_eval_mode_leaves_the_buffers_alone():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)), torch.randn(6, 3)
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}

    def f(m: nn.Module, x: Tensor, mode: gv.Eval) -> Tensor:
        return mode(m)(x).square().mean()

    _, g = gv.value_and_grad(f, model, x, gv.Eval())
    for name, buffer in model.named_buffers():
        assert torch.equal(buffer, before[name])
    assert all(child.training for child in model.modules())
    _, want = by_backward(model.eval(), loss, x)
    for name in g:
        assert torch.equal(g[name], want[name])


def with_checkpoints(reentrant: bool) -> nn.Module:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(3, 3)
            self.block = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
            self.last = nn.Linear(3, 1)
            self.checkpointed = True

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            x = checkpoint(self.block, x, use_reentrant=reentrant) if self.checkpointed else self.block(x)
            return self.last(x)

    torch.manual_seed(0)
    return Net()


@pytest.mark.case("C21")
def test_checkpointing_without_reentry_gives_the_same_bits():
    model, x = with_checkpoints(reentrant=False), torch.randn(4, 3)
    g = assert_like_backward(model, loss, x)
    model.checkpointed = False
    assert (gv.value_and_grad(loss, model, x)[1] - g).norm() == 0


def input_needs_grad(model: nn.Module, x: Tensor) -> Tensor:
    return model(x.requires_grad_()).square().mean()


@pytest.mark.case("C21")
@pytest.mark.parametrize("freeze", [[], ["first"], ["first", "last"]], ids=["nothing", "first", "both ends"])
def test_reentrant_checkpointing_is_refused_with_the_fix_and_never_reads_as_zeros(freeze):
    model = with_checkpoints(reentrant=True)
    for name in freeze:
        model.get_submodule(name).requires_grad_(False)
    with pytest.raises(NothingReachedError, match="use_reentrant=False") as error:
        gv.value_and_grad(input_needs_grad, model, torch.randn(4, 3))
    assert error.value.code == "E1107"
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.case("C21")
def test_reentrant_checkpointing_is_refused_also_after_the_same_parameters_were_rightly_called_unused():
    def f(m: nn.Module, x: Tensor, with_block: bool) -> Tensor:
        x = m.first(x)
        return m.last(checkpoint(m.block, x, use_reentrant=True) if with_block else x).square().mean()

    model, x = with_checkpoints(reentrant=True), torch.randn(4, 3, requires_grad=True)
    model.first.requires_grad_(False)
    with pytest.warns(UnusedParameterWarning):
        gv.value_and_grad(f, model, x, False)
    with pytest.raises(NothingReachedError, match="use_reentrant=False"):
        gv.value_and_grad(f, model, x, True)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")
@pytest.mark.case("C21")
def test_a_reentrant_block_fed_with_plain_data_is_at_least_named_as_unused():
    model = with_checkpoints(reentrant=True)
    model.first.requires_grad_(False)

    def fed_with_data(m: nn.Module, x: Tensor) -> Tensor:
        return m(x).square().mean()

    with pytest.warns(UnusedParameterWarning, match=r"block\.0\.(weight|bias) was never reached"):
        _, g = gv.value_and_grad(fed_with_data, model, torch.randn(4, 3))
    assert g.unused == ("block.0.weight", "block.0.bias")


RETURNS: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "None": (lambda y: None, "returned a NoneType"),
    "a float": (lambda y: y.mean().item(), "returned a float"),
    "an int": (lambda y: 3, "returned a int"),
    "a string": (lambda y: "loss", "returned a str"),
    "a numpy number": (lambda y: y.detach().numpy().mean(), "returned a float32"),
    "a pair": (lambda y: (y.mean(), y), "returned a tuple of 2"),
    "a pair of losses": (lambda y: [y.mean(), y.sum()], "returned a list of 2"),
    "a tuple of one": (lambda y: (y.mean(),), "returned a tuple of 1"),
    "a dict": (lambda y: {"loss": y.mean()}, "returned a dict"),
    "a vector": (lambda y: y.mean(dim=1), r"returned a tensor of shape \(3,\).*\.mean\(\) or \.sum\(\)"),
    "one in a vector": (lambda y: y.mean().reshape(1), r"returned a tensor of shape \(1,\)"),
    "an empty tensor": (lambda y: y[:0], r"returned a tensor of shape \(0, 2\)"),
    "an int tensor": (lambda y: torch.tensor(3), "returned a scalar of torch.int64"),
    "a bool tensor": (lambda y: (y > 0).all(), "returned a scalar of torch.bool"),
    "a complex tensor": (lambda y: torch.complex(y.mean(), y.mean()), "returned a scalar of torch.complex64"),
    "a module": (lambda y: nn.ReLU(), "returned a ReLU"),
}


@pytest.mark.case("C23")
@pytest.mark.parametrize(("wrap", "words"), RETURNS.values(), ids=RETURNS.keys())
def test_what_is_no_floating_scalar_is_refused_and_the_message_says_what_came_back(wrap, words):
    def objective(m: nn.Module, x: Tensor) -> Any:
        return wrap(m(x))

    with pytest.raises(NotAScalarError, match=words) as error:
        gv.value_and_grad(objective, nn.Linear(2, 2), torch.ones(3, 2))
    assert error.value.code == "E1106"
    assert isinstance(error.value, ValueError)
    assert isinstance(error.value, GradvizError)
    assert "objective" in str(error.value)
    assert "scalar" in str(error.value)
    assert "wanted" in str(error.value)


@pytest.mark.case("C23")
def test_a_value_that_is_not_a_number_or_infinite_is_an_answer_and_no_error():
    model, x = nn.Linear(2, 1, bias=False), torch.ones(1, 2)
    value, g = gv.value_and_grad(lambda m, x: m(x).sum() * torch.nan, model, x)
    assert value.isnan()
    assert g.weight.isnan().all()
    value, g = gv.value_and_grad(lambda m, x: m(x).sum() * torch.inf, model, x)
    assert value.isinf()
    assert g.norm().isinf()


@pytest.mark.case("C25")
@pytest.mark.parametrize("aux", [lambda y: (y.mean(), y), lambda y: (y.mean(), (y, {"y": y})), lambda y: [y.mean(), y]])
@pytest.mark.parametrize("mode", [None, gv.Train(seed=1), gv.Eval()])
def test_auxiliary_output_is_refused_with_where_to_put_it_with_and_without_a_mode(aux, mode):
    def with_aux(m: nn.Module, x: Tensor, mode: Any) -> Any:
        return aux((mode(m) if mode else m)(x))

    with pytest.raises(NotAScalarError, match="no auxiliary output") as error:
        gv.value_and_grad(with_aux, nn.Linear(2, 2), torch.ones(3, 2), mode)
    assert "gv.sow" in str(error.value)
    assert "objective for gv.train_step" in str(error.value)


@pytest.mark.case("C24")
def test_values_and_predictions_that_are_kept_for_200_steps_hold_no_graph():
    model, x = nn.Linear(2, 2), torch.ones(3, 2)
    hidden: list[weakref.ref[Tensor]] = []

    def f(m: nn.Module, x: Tensor) -> Tensor:
        y = m(x)
        hidden.append(weakref.ref(y))
        return y.square().mean()

    values = [gv.value_and_grad(f, model, x)[0] for _ in range(200)]
    assert not any(value.grad_fn or value.requires_grad for value in values)
    assert all(ref() is None for ref in hidden)

    def objective(forward: Any, model_state: Any, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Output]:
        output = forward(model_state, inputs)
        return F.mse_loss(output.prediction, targets), output

    step = train_step(model, objective, "sgd")
    batch = x, torch.zeros(3, 2)
    state = step.init(batch)
    predictions = []
    for _ in range(200):
        state = step(batch, state)
        predictions.append(state.y_pred)
    assert not any(prediction.grad_fn or prediction.requires_grad for prediction in predictions)


@pytest.mark.case("C30")
def test_the_dtype_table_tells_autocast_from_a_pure_bfloat16_model():
    x = torch.randn(5, 3)

    def under_autocast(m: nn.Module, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = m(x)
        assert y.dtype == torch.bfloat16
        return y.square().mean()

    model = nn.Linear(3, 2)
    value, g = gv.value_and_grad(under_autocast, model, x)
    assert g.to_frame()["dtype"].tolist() == ["float32", "float32"]
    assert value.dtype == torch.bfloat16
    assert_like_backward(model, under_autocast, x)
    _, g = gv.value_and_grad(loss, model.bfloat16(), x.bfloat16())
    assert g.to_frame()["dtype"].tolist() == ["bfloat16", "bfloat16"]


def test_autocast_around_the_call_is_the_same_as_inside():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), torch.randn(5, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        g = assert_like_backward(model, loss, x)
    assert {leaf.dtype for leaf in g.values()} == {torch.float32}


@pytest.mark.case("C32")
def test_gradients_example_by_example_of_a_tied_model_sum_to_the_whole():
    torch.manual_seed(0)
    model, at = Tied(), ids(rows=4)

    def summed(m: nn.Module, at: Tensor) -> Tensor:
        return m(at).square().sum()

    _, whole = gv.value_and_grad(summed, model, at)
    first, *rest = (gv.value_and_grad(summed, model, row[None])[1] for row in at)
    total = functools.reduce(lambda a, b: a + b, rest, first)
    for name in whole:
        torch.testing.assert_close(total[name], whole[name])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_value_keeps_the_dtype_f_returned(dtype):
    model = nn.Linear(2, 1)
    value, g = gv.value_and_grad(lambda m, x: m(x).sum().to(dtype), model, torch.ones(1, 2))
    assert value.dtype == dtype
    assert value.shape == ()
    assert g.weight.dtype == torch.float32


def test_parameters_of_several_dtypes_each_get_their_own():
    model = nn.ParameterDict(
        {"a": torch.ones(2).half(), "b": torch.ones(2).double(), "c": torch.ones((), dtype=torch.cfloat)}
    )
    _, g = gv.value_and_grad(lambda m: m["a"].float().sum() + m["b"].sum() + m["c"].abs(), model)
    assert [leaf.dtype for leaf in g.values()] == [torch.float16, torch.float64, torch.complex64]


# What f changes -------------------------------------------------------------------------------------------------------


def spoil(x: Tensor) -> None:
    with torch.no_grad():
        x.mul_(2)


class Pair(typing.NamedTuple):
    left: Tensor
    right: Tensor


CHANGES: dict[str, tuple[Callable[..., None], tuple[Any, ...], dict[str, Any], str]] = {
    "positional": (lambda x: spoil(x), (torch.ones(2),), {}, "'x'"),
    "keyword": (lambda x, y: spoil(y), (torch.ones(2),), {"y": torch.ones(2)}, "'y'"),
    "in a list": (lambda x: spoil(x[1]), ([torch.ones(2), torch.ones(2)],), {}, r"'x'\[1\]"),
    "in a tuple": (lambda x: spoil(x[0]), ((torch.ones(2), 3),), {}, r"'x'\[0\]"),
    "in a named tuple": (lambda x: spoil(x.right), (Pair(torch.ones(2), torch.ones(2)),), {}, "'x'.*right"),
    "in a dict": (lambda x: spoil(x["ids"]), ({"mask": torch.ones(2), "ids": torch.ones(2)},), {}, r"'x'\['ids'\]"),
    "deep": (lambda x: spoil(x["a"][1]["b"]), ({"a": [0, {"b": torch.ones(2)}]},), {}, r"'x'\['a'\]\[1\]\['b'\]"),
    "deep in a keyword": (lambda x=None: spoil(x[0][0]), (), {"x": [[torch.ones(2)]]}, r"'x'\[0\]\[0\]"),
    "ordered dict": (
        lambda x: spoil(x["b"]),
        (collections.OrderedDict(a=torch.ones(2), b=torch.ones(2)),),
        {},
        r"'x'\['b'\]",
    ),
    "integers": (lambda x: x.add_(1), (torch.ones(2, dtype=torch.long),), {}, "'x'"),
    "a part": (lambda x: x[0].zero_(), (torch.ones(2, 2),), {}, "'x'"),
    "through detach": (lambda x: x.detach().zero_(), (torch.ones(2),), {}, "'x'"),
    "by index": (lambda x: x.__setitem__(0, 5.0), (torch.ones(2),), {}, "'x'"),
    "by out=": (lambda x: torch.add(torch.ones(2), 1, out=x), (torch.ones(2),), {}, "'x'"),
}


@pytest.mark.parametrize(("change", "args", "kwargs", "name"), CHANGES.values(), ids=CHANGES.keys())
def test_an_argument_changed_in_place_is_named_and_said_to_be_already_changed(change, args, kwargs, name):
    def f(m: nn.Module, *args: Any, **kwargs: Any) -> Tensor:
        change(*args, **kwargs)
        return m.weight.sum()

    f.__signature__ = named_like(change)
    with pytest.raises(
        FunctionError, match=f"changed its argument {name} in place, and it is already changed"
    ) as error:
        gv.value_and_grad(f, nn.Linear(2, 2, bias=False), *args, **kwargs)
    assert error.value.code == "E1105"
    assert isinstance(error.value, TypeError)
    assert "clone" in str(error.value)


def named_like(change: Callable[..., None]) -> Any:
    model = inspect.Parameter("m", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return inspect.Signature([model, *inspect.signature(change).parameters.values()])


def test_a_positional_argument_beyond_the_names_of_the_signature_is_still_told():
    def f(m: nn.Module, *xs: Tensor) -> Tensor:
        spoil(xs[2])
        return m.weight.sum()

    with pytest.raises(FunctionError, match=r"changed its argument .*2.* in place"):
        gv.value_and_grad(f, nn.Linear(2, 2, bias=False), *[torch.ones(1) for _ in range(3)])


def test_an_argument_is_really_changed_when_the_error_says_so():
    x = torch.ones(2)
    with pytest.raises(FunctionError, match="already changed"):
        gv.value_and_grad(lambda m, x: spoil(x) or m.weight.sum(), nn.Linear(2, 2, bias=False), x)
    assert x.tolist() == [2, 2]


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_a_parameter_changed_in_place_is_named(name):
    model = nn.Sequential(nn.Linear(2, 1))

    def f(m: nn.Module, x: Tensor) -> Tensor:
        spoil(m[0].get_parameter(name))
        return m(x).sum()

    with pytest.raises(FunctionError, match=rf"changed the parameter '0\.{name}' in place, and it is already changed"):
        gv.value_and_grad(f, model, torch.ones(1, 2))


def test_a_frozen_parameter_changed_in_place_is_named_too():
    model = nn.Linear(2, 1)
    model.bias.requires_grad_(False)
    with pytest.raises(FunctionError, match="changed the parameter 'bias'"):
        gv.value_and_grad(lambda m, x: spoil(m.bias) or m(x).sum(), model, torch.ones(1, 2))


def test_a_step_taken_inside_f_is_refused():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def whole_step(m: nn.Module, x: Tensor) -> Tensor:
        m(x).sum().backward()
        optimizer.step()
        return m(x).sum()

    with pytest.raises(FunctionError, match="changed the parameter 'weight'"):
        gv.value_and_grad(whole_step, model, torch.ones(1, 2))


def test_buffers_and_tensors_f_made_itself_may_change():
    model = nn.BatchNorm1d(2)
    model.register_buffer("calls", torch.zeros(()))

    def f(m: nn.Module, x: Tensor) -> Tensor:
        m.calls += 1
        work = x.clone()
        work.mul_(3)
        return m(work).relu_().sum()

    gv.value_and_grad(f, model, torch.randn(4, 2))
    assert model.calls == 1
    assert model.num_batches_tracked == 1


def test_an_argument_may_be_changed_between_calls_and_other_models_may_be_given():
    x, teacher = torch.ones(3, 2), nn.BatchNorm1d(2)

    def f(m: nn.Module, x: Tensor, teacher: nn.Module) -> Tensor:
        return (m(x) - teacher(x)).square().mean()

    for _ in range(2):
        gv.value_and_grad(f, nn.Linear(2, 2), x, teacher)
        x.mul_(2)


def test_a_changed_argument_is_told_before_the_return_value_is():
    with pytest.raises(FunctionError, match="changed its argument"):
        gv.value_and_grad(lambda m, x: spoil(x), nn.Linear(2, 1), torch.ones(2))


# What f and model are -------------------------------------------------------------------------------------------------


class Wanted(nn.Linear):
    def loss(self, x: Tensor) -> Tensor:
        return self(x).sum()

    def against(self, m: Wanted, x: Tensor) -> Tensor:
        return (self(x) - m(x)).square().sum()


class Special(Wanted):
    pass


class Mixin:
    scale = 2.0


class Mixed(Mixin, Wanted):
    pass


@pytest.mark.parametrize(
    "f",
    [3, None, "loss", torch.tensor(1.0), nn.Linear(2, 1), lambda: torch.ones(()), [loss]],
    ids=["number", "None", "string", "tensor", "module", "no parameter", "list"],
)
def test_what_is_no_function_of_a_model_is_refused_with_the_line_to_write(f):
    with pytest.raises(FunctionError) as error:
        gv.value_and_grad(f, nn.Linear(2, 1))
    assert error.value.code == "E1105"
    assert isinstance(error.value, TypeError)
    assert isinstance(error.value, GradvizError)


def test_a_function_whose_only_parameter_is_a_keyword_is_refused():
    def f(*, m: nn.Module) -> Tensor:
        return m.weight.sum()

    with pytest.raises(FunctionError):
        gv.value_and_grad(f, nn.Linear(2, 1))


@pytest.mark.parametrize(
    "model",
    [3, None, torch.ones(2), [nn.Linear(1, 1)], nn.Linear, {"weight": torch.ones(1)}],
    ids=["number", "None", "tensor", "list", "class", "dict"],
)
def test_what_is_no_model_is_refused(model):
    with pytest.raises(FunctionError, match=r"is the model, a torch\.nn\.Module") as error:
        gv.value_and_grad(loss, model, torch.ones(1, 2))
    assert error.value.code == "E1105"


def unannotated(m, x):
    return m(x).sum()


def exact(m: Wanted, x: Tensor) -> Tensor:
    return m(x).sum()


def any_module(m: nn.Module, x: Tensor) -> Tensor:
    return m(x).sum()


def with_star(*args: Any) -> Tensor:
    return args[0](args[1]).sum()


def real_class(m, x):
    return m(x).sum()


real_class.__annotations__["m"] = Wanted


class Callable_:
    def __call__(self, m: Wanted, x: Tensor) -> Tensor:
        return m(x).sum()


HOLDER = Wanted(2, 1)
GOOD = {
    "unannotated": unannotated,
    "string": exact,
    "class": real_class,
    "any module": any_module,
    "star": with_star,
    "lambda": lambda m, x: m(x).sum(),
    "partial": functools.partial(exact),
    "partial with a keyword": functools.partial(exact, x=torch.ones(1, 2)),
    "unbound method": Wanted.loss,
    "bound method": HOLDER.against,
    "callable": Callable_(),
    "decorated": functools.wraps(exact)(lambda *args: exact(*args)),
    "compiled": torch.compile(exact, backend="eager"),
}


@pytest.mark.parametrize("kind", [Wanted, Special, Mixed])
@pytest.mark.parametrize("f", GOOD.values(), ids=GOOD.keys())
def test_a_model_of_the_annotated_class_or_a_subclass_is_taken(f, kind):
    args = () if isinstance(f, functools.partial) and f.keywords else (torch.ones(1, 2),)
    _, g = gv.value_and_grad(f, kind(2, 1), *args)
    assert g.bias.count_nonzero() == 1


@pytest.mark.parametrize("name", ["string", "class", "partial", "bound method", "callable", "decorated"])
def test_a_model_of_another_class_is_refused_naming_both(name):
    with pytest.raises(ModelMismatchError, match="wants a Wanted; the model given is a Linear") as error:
        gv.value_and_grad(GOOD[name], nn.Linear(2, 1), torch.ones(1, 2))
    assert error.value.code == "E0904"
    assert isinstance(error.value, TypeError)


def test_a_base_class_where_a_subclass_is_annotated_is_refused():
    def only_special(m: Special) -> Tensor:
        return m.weight.sum()

    only_special.__annotations__["m"] = Special
    with pytest.raises(ModelMismatchError, match="wants a Special; the model given is a Wanted"):
        gv.value_and_grad(only_special, Wanted(2, 1))


def test_a_compiled_model_counts_as_what_it_wraps():
    compiled = torch.compile(Wanted(2, 1), backend="eager")
    gv.value_and_grad(exact, compiled, torch.ones(1, 2))
    with pytest.raises(ModelMismatchError, match="the model given is a Linear"):
        gv.value_and_grad(exact, torch.compile(nn.Linear(2, 1), backend="eager"), torch.ones(1, 2))


@pytest.mark.parametrize("annotation", [int, Tensor, str, gv.Train, dict])
def test_an_annotation_that_no_model_can_satisfy_is_refused(annotation):
    def f(m, x):
        return m(x).sum()

    f.__annotations__["m"] = annotation
    with pytest.raises(FunctionError, match=annotation.__name__):
        gv.value_and_grad(f, nn.Linear(2, 1), torch.ones(1, 2))


@pytest.mark.parametrize(
    "annotation",
    [
        Any,
        object,
        Callable,
        typing.Callable[..., Tensor],
        Wanted | None,
        Optional[Wanted],  # noqa: UP045
        Union[Wanted, nn.Conv2d],  # noqa: UP007
        Annotated[Wanted, "the model"],
        typing.TypeVar("T", bound=nn.Module),
        Mixin,
    ],
    ids=str,
)
def test_an_annotation_that_the_model_satisfies_is_taken_however_it_is_written(annotation):
    def f(m, x):
        return m(x).sum()

    f.__annotations__["m"] = annotation
    _, g = gv.value_and_grad(f, Mixed(2, 1), torch.ones(1, 2))
    assert g.bias.item() == 1


def test_a_name_in_another_annotation_that_only_a_type_checker_knows_does_not_switch_the_check_off():
    def f(m: Wanted, x: OnlyForTheTypeChecker) -> Tensor:  # noqa: F821
        return m(x).sum()

    gv.value_and_grad(f, Wanted(2, 1), torch.ones(1, 2))
    with pytest.raises(ModelMismatchError, match="wants a Wanted"):
        gv.value_and_grad(f, nn.Linear(2, 1), torch.ones(1, 2))


def test_an_annotation_that_cannot_be_resolved_is_no_error():
    def f(m: OnlyForTheTypeChecker, x: Tensor) -> Tensor:  # noqa: F821
        return m(x).sum()

    assert gv.value_and_grad(f, nn.Linear(2, 1), torch.ones(1, 2))[1].bias.item() == 1


def test_a_class_that_a_notebook_cell_defined_again_is_still_the_same_one():
    def define() -> type[nn.Module]:
        class Net(nn.Linear):
            pass

        return Net

    def f(m, x):
        return m(x).sum()

    old, new = define(), define()
    f.__annotations__["m"] = old
    _, g = gv.value_and_grad(f, old(2, 1), torch.ones(1, 2))
    _, h = gv.value_and_grad(f, new(2, 1), torch.ones(1, 2))
    assert (g + h).bias.item() == 2


# Wrappers -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def process_group(tmp_path):
    """One process that is a whole group, over a file."""
    dist = torch.distributed
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def refused(model: nn.Module) -> str:
    with pytest.raises(ModelError) as error:
        gv.value_and_grad(loss, model, torch.ones(2, 3))
    assert error.value.code == "E0202"
    assert all(p.grad is None for p in model.parameters())
    return str(error.value)


@pytest.mark.usefixtures("process_group")
def test_ddp_is_refused_and_its_module_is_not():
    wrapped = nn.parallel.DistributedDataParallel(nn.Linear(3, 1))
    assert "DistributedDataParallel" in refused(wrapped)
    assert "model.module" in refused(wrapped)
    assert "DistributedDataParallel" in refused(nn.Sequential(wrapped))  # also deeper
    assert gv.value_and_grad(loss, wrapped.module, torch.ones(2, 3))[1].norm() > 0


@pytest.mark.usefixtures("process_group")
def test_a_subclass_of_ddp_is_refused_too():
    class Mine(nn.parallel.DistributedDataParallel):
        pass

    assert "DistributedDataParallel" in refused(Mine(nn.Linear(3, 1)))


@pytest.mark.usefixtures("process_group")
def test_fully_sharded_models_are_refused():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = nn.Sequential(nn.Linear(3, 1))
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    assert "FSDP" in refused(model)


@pytest.mark.usefixtures("process_group")
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
def test_the_older_fully_sharded_wrapper_is_refused():
    from torch.distributed.fsdp import FullyShardedDataParallel

    assert "FullyShardedDataParallel" in refused(
        FullyShardedDataParallel(nn.Linear(3, 1), device_id=torch.device("cpu"))
    )


def test_data_parallel_is_refused():
    assert "DataParallel" in refused(nn.DataParallel(nn.Linear(3, 1)))


# The warning ----------------------------------------------------------------------------------------------------------


def warned(call: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(w.message).split()[0] for w in caught if issubclass(w.category, UnusedParameterWarning)]


SECOND = ["second.0.weight", "second.0.bias"]


def test_each_function_and_parameter_is_warned_of_once():
    def one(m: nn.Module, x: Tensor) -> Tensor:
        return m(x).sum()

    def other(m: nn.Module, x: Tensor) -> Tensor:
        return m(x).mean()

    model, x = TwoHeads(), torch.ones(3, 2)
    assert warned(lambda: gv.value_and_grad(one, model, x)) == SECOND
    assert warned(lambda: gv.value_and_grad(one, model, x)) == []
    assert warned(lambda: gv.value_and_grad(other, model, x)) == SECOND
    model.extra = nn.Linear(1, 1)
    assert warned(lambda: gv.value_and_grad(one, model, x)) == ["extra.weight", "extra.bias"]


def test_a_lambda_in_a_loop_warns_once():
    model, x = TwoHeads(), torch.ones(3, 2)
    said = warned(lambda: [gv.value_and_grad(lambda m, x: m(x).sum(), model, x) for _ in range(5)])
    assert said == SECOND


def plain_sum(m: nn.Module, x: Tensor, scale: float = 1.0) -> Tensor:
    return m(x).sum() * scale


def test_a_partial_or_a_bound_method_made_anew_at_each_step_warns_once():
    class Trainer:
        def loss(self, m: nn.Module, x: Tensor) -> Tensor:
            return m(x).sum()

    model, x = TwoHeads(), torch.ones(3, 2)
    partial = warned(lambda: [gv.value_and_grad(functools.partial(plain_sum, scale=i), model, x) for i in range(1, 4)])
    assert partial == SECOND
    assert warned(lambda: [gv.value_and_grad(Trainer().loss, model, x) for _ in range(3)]) == SECOND


def test_a_callable_object_made_anew_at_each_step_warns_once():
    class Loss:
        def __call__(self, m: nn.Module, x: Tensor) -> Tensor:
            return m(x).sum()

    model, x = TwoHeads(), torch.ones(3, 2)
    assert warned(lambda: [gv.value_and_grad(Loss(), model, x) for _ in range(3)]) == SECOND


def test_gradients_stay_marked_as_unused_after_the_warning_was_given():
    model, x = TwoHeads(), torch.ones(3, 2)

    def f(m: nn.Module, x: Tensor) -> Tensor:
        return m(x).sum()

    warned(lambda: gv.value_and_grad(f, model, x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert gv.value_and_grad(f, model, x)[1].unused == tuple(SECOND)


def test_the_warning_is_a_user_warning_with_a_code():
    assert issubclass(UnusedParameterWarning, UserWarning)
    assert UnusedParameterWarning.code == "W1101"


def test_what_f_reaches_only_sometimes_is_warned_of_when_it_is_not():
    model, x = TwoHeads(), torch.ones(3, 2)

    def either(m: nn.Module, x: Tensor, both: bool) -> Tensor:
        return m(x).sum() + (m.second(x).sum() if both else 0)

    assert warned(lambda: gv.value_and_grad(either, model, x, True)) == []
    assert warned(lambda: gv.value_and_grad(either, model, x, False)) == SECOND
    assert gv.value_and_grad(either, model, x, True)[1].unused == ()


def test_a_value_that_is_a_parameter_itself_does_not_follow_it():
    model = nn.Module()
    model.w = nn.Parameter(torch.tensor(1.5))
    value, _ = gv.value_and_grad(lambda m: m.w, model)
    with torch.no_grad():
        model.w.add_(1)
    assert value == 1.5


def test_autocast_around_several_calls_differentiates_the_newest_weights():
    model = nn.Linear(1, 1, bias=False)
    nn.init.ones_(model.weight)
    with torch.autocast("cpu", torch.bfloat16):
        for weight in (1.0, 3.0):
            with torch.no_grad():
                model.weight.fill_(weight)
            value, g = gv.value_and_grad(lambda m, x: m(x).float().square().sum(), model, torch.ones(1, 1))
            assert (value.item(), g.weight.item()) == (weight**2, 2 * weight)


def test_leaves_share_no_memory_with_each_other():
    model = nn.Module()
    model.a, model.b, model.w = (nn.Parameter(torch.ones(3)) for _ in range(3))
    _, g = gv.value_and_grad(lambda m: (m.a + m.b).sum() + m.w.sum(), model)
    g.a.zero_()
    g.w[0] = 5
    assert g.b.tolist() == [1, 1, 1]
    assert g.w.tolist() == [5, 1, 1]


def test_two_functions_under_one_wrapper_are_two():
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = nn.Linear(1, 1), nn.Linear(1, 1, bias=False)

    def wrapped(function):
        @functools.wraps(function)
        def call(*args):
            return function(*args)

        return call

    for f in (wrapped(lambda m, x: m.used(x).sum()), wrapped(lambda m, x: 2 * m.used(x).sum())):
        with pytest.warns(UnusedParameterWarning):
            gv.value_and_grad(f, Idle(), torch.ones(1, 1))


def test_a_model_with_an_equality_of_its_own_is_itself():
    class Equal(nn.Linear):
        def __eq__(self, other):
            return isinstance(other, Equal)

        def __hash__(self):
            return 1

    first, second = Equal(1, 1), Equal(1, 1)
    for model in (first, second):
        _, g = gv.value_and_grad(lambda m, x: m(x).sum(), model, torch.ones(1, 1))
        assert g.unused == ()


def test_dead_models_that_lead_back_to_themselves_do_not_pile_up():
    class Saves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2)
            self.inner.register_forward_hook(self.save)

        def save(self, *_):
            self.seen = 1

        def forward(self, x):
            return self.inner(x)

    alive = []
    for _ in range(20):
        model = Saves()
        gv.value_and_grad(lambda m, x: m(x).sum(), model, torch.ones(1, 2))
        alive.append(weakref.ref(model))
    del model
    gc.collect()
    assert sum(reference() is not None for reference in alive) <= 4


def test_a_compiled_model_takes_a_mode():
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5), nn.Linear(2, 1))
    compiled = torch.compile(model, backend="eager")

    def f(m, x, mode):
        return mode(m)(x).sum()

    _, g = gv.value_and_grad(f, compiled, torch.ones(1, 2), gv.Eval())
    _, plain = gv.value_and_grad(f, model, torch.ones(1, 2), gv.Eval())
    assert all(torch.equal(g[name], plain[name]) for name in plain)


# The engine itself ----------------------------------------------------------------------------------------------------


def small_loss() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    return model, model(torch.randn(5, 3)).square().mean()


def taken(model: nn.Module) -> list[Tensor]:
    return [p.grad for p in model.parameters() if p.grad is not None]


def test_the_engine_without_its_wrapper_gives_the_same_bits_and_adds_up():
    for times in (1, 2):
        ours, theirs = small_loss()[0], small_loss()[0]
        for model, backward in ((ours, autodiff.run_backward), (theirs, torch.autograd.backward)):
            for _ in range(times):
                backward(model(torch.ones(2, 3)).square().mean())
        assert len(taken(ours)) == 4
        assert all(map(torch.equal, taken(ours), taken(theirs)))


class Loss(Tensor):
    pass


@pytest.mark.parametrize("reason", ["another engine", "a log", "a subclass"])
def test_it_is_left_to_torch_where_the_wrapper_may_matter(reason, monkeypatch):
    model, loss = small_loss()
    asked = []
    whole = torch.autograd.backward
    monkeypatch.setattr(torch.autograd, "backward", lambda *given, **keys: asked.append(given) or whole(*given, **keys))
    if reason == "another engine":
        monkeypatch.setattr(autodiff, "_engine_takes_it", lambda: False)
    elif reason == "a log":
        monkeypatch.setattr(torch.autograd.graph.log, "isEnabledFor", lambda level: True)
    else:
        loss = loss.as_subclass(Loss)
    autodiff.run_backward(loss)
    assert asked
    assert len(taken(model)) == 4


def test_an_engine_that_takes_other_arguments_is_found_out_before_it_is_used(monkeypatch):
    def refuses(*given: Any, **keys: Any) -> None:
        raise TypeError("run_backward() takes other arguments")

    assert autodiff._engine_takes_it()
    monkeypatch.setattr(autodiff, "_run", refuses)
    assert not autodiff._engine_takes_it.__wrapped__()


def test_what_a_backward_pass_raises_comes_as_it_is():
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            raise RuntimeError("no gradient today")

    leaf = torch.ones((), requires_grad=True)
    with pytest.raises(RuntimeError, match="no gradient today"):
        autodiff.run_backward(Fails.apply(leaf))
