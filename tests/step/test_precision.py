"""What a model is kept in, computes in and gives, and that its module is left as it was."""

from __future__ import annotations

import copy
import pickle
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_sequence
from torch.utils._pytree import tree_leaves

from gradviz.errors import PolicyError
from gradviz.step.policy import Policy
from gradviz.step.precision import Precision

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
POLICIES = [
    (F16, F16, F32),
    (None, BF16, F32),
    (BF16, None, None),
    (F64, F64, F64),
    (None, F16, None),
    (F16, F32, None),
]


@pytest.fixture(autouse=True)
def _same_numbers():
    torch.manual_seed(0)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.inner = nn.Linear(4, 4)
        self.decoder = nn.Linear(4, 7)
        self.decoder.weight = self.embedding.weight

    def forward(self, tokens):
        return self.decoder(self.inner(self.embedding(tokens)))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 4, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        h = x.new_zeros(4, len(x), 4).float()
        hidden, (h, _) = self.lstm(x, (h, h))
        return {"head": self.head(hidden), "state": (h, [x.size(1)])}


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        mask = torch.triu(torch.full((x.size(1), x.size(1)), float("-inf")), 1)
        return self.attention(query=x, key=x, value=x, attn_mask=mask)[0]


def mlp():
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def convolution():
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 2))


def weight_norm():
    return nn.Sequential(parametrizations.weight_norm(nn.Linear(3, 4)), parametrizations.spectral_norm(nn.Linear(4, 2)))


MODELS = {
    "mlp": (mlp, lambda: torch.randn(6, 3)),
    "transformer": (
        lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0, batch_first=True),
        lambda: torch.randn(2, 5, 4),
    ),
    "encoder": (
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, dropout=0, batch_first=True), 2),
        lambda: {
            "src": torch.randn(2, 5, 4),
            "src_key_padding_mask": torch.tensor([[False] * 5, [False] * 3 + [True] * 2]),
        },
    ),
    "lstm": (Recurrent, lambda: torch.randn(2, 5, 3)),
    "attention": (Attention, lambda: torch.randn(2, 5, 4)),
    "convolution": (convolution, lambda: torch.randn(3, 2, 4, 4)),
    "tied": (Tied, lambda: torch.randint(7, (2, 5))),
    "weight norm": (weight_norm, lambda: torch.randn(6, 3)),
}


def under(policy, model):
    precision = Precision(policy, model)
    precision.convert()
    return precision


def total(prediction):
    return sum(leaf.double().exp().sum() for leaf in tree_leaves(prediction) if isinstance(leaf, torch.Tensor))


def gradients(model, precision, inputs):
    parameters = dict(model.named_parameters())
    grads = torch.autograd.grad(total(precision(model, inputs)), list(parameters.values()))
    return dict(zip(parameters, grads, strict=True))


def build_like(build, model):
    same = build().eval()
    same.use_nested_tensor = False  # torch's fast path, which has zeros where the slow one pads
    same.load_state_dict({name: t.float() if t.is_floating_point() else t for name, t in model.state_dict().items()})
    return same


def hooks(model):
    return [dict(table) for m in model.modules() for table in (m._forward_pre_hooks, m._forward_pre_hooks_with_kwargs)]


@pytest.mark.parametrize("dtypes", POLICIES, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_every_kind_of_model_runs_and_has_gradients_in_its_own_dtypes(name, dtypes):
    build, inputs = MODELS[name]
    model = build()
    own = dict(model.named_parameters())
    precision = under(Policy(*dtypes), model)
    structure = hooks(model)
    for mode in (True, False, True):
        model.train(mode)
        for parameter, gradient in gradients(model, precision, inputs()).items():
            assert gradient.dtype == model.get_parameter(parameter).dtype
            assert torch.isfinite(gradient).all()
    model.eval()
    x = inputs()
    with torch.no_grad():
        plain = build_like(build, model)(**x) if isinstance(x, dict) else build_like(build, model)(x)
        prediction = precision(model, x)
        for leaf, wide in zip(tree_leaves(prediction), tree_leaves(plain), strict=True):
            if isinstance(leaf, torch.Tensor) and leaf.shape == wide.shape:
                torch.testing.assert_close(leaf.double(), wide.double(), rtol=0.1, atol=0.1)
        for leaf in tree_leaves(prediction):
            if isinstance(leaf, torch.Tensor) and dtypes[2] is not None:
                assert leaf.dtype == dtypes[2]
    assert all(model.get_parameter(parameter) is p for parameter, p in own.items())
    for module in model.modules():
        wanted = F32 if isinstance(module, nn.BatchNorm2d) or dtypes[0] is None else dtypes[0]
        tensors = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        assert {t.dtype for t in tensors if t.is_floating_point()} <= {wanted}
    assert hooks(model) == structure
    copy.deepcopy(model)
    if name != "weight norm":  # torch pickles no parametrized module
        pickle.loads(pickle.dumps(model))


@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_a_bfloat16_pass_are_close_to_those_of_float32(name):
    build, inputs = MODELS[name]
    model, x = build(), inputs()
    plain, rounded = (gradients(model, under(policy, model), x) for policy in (Policy(), Policy(compute=BF16)))
    for parameter, gradient in plain.items():
        assert rounded[parameter].dtype == F32
        assert (rounded[parameter] - gradient).norm() < 0.1 * gradient.norm() + 1e-2


@pytest.mark.parametrize("compute", [F16, BF16, F64])
def test_a_pass_is_the_one_cast_by_hand_bit_for_bit(compute):
    model, x = mlp(), torch.randn(6, 3)
    prediction = under(Policy(compute=compute), model)(model, x)
    w1, b1, w2, b2 = (p.to(compute) for p in model.parameters())
    by_hand = F.linear(torch.tanh(F.linear(x.to(compute), w1, b1)), w2, b2)
    assert prediction.dtype == compute
    assert torch.equal(prediction, by_hand)
    ours, theirs = (torch.autograd.grad(total(y), list(model.parameters())) for y in (prediction, by_hand))
    assert all(map(torch.equal, ours, theirs))


def test_batch_norm_gets_float32_and_moves_its_own_statistics():
    model = convolution()
    precision = under(Policy(F16, F16), model)
    seen = []
    model[1].register_forward_hook(lambda _, args, output: seen.append((args[0].dtype, output.dtype)))
    mean = model[1].running_mean
    precision(model, torch.randn(3, 2, 4, 4))
    assert seen == [(F32, F32)]
    assert mean is model[1].running_mean
    assert mean.dtype == F32
    assert mean.abs().sum() > 0
    assert model[1].num_batches_tracked == 1


def test_statistics_that_are_computed_in_16_bits_are_put_back_into_float32():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1))
    precision = under(Policy(compute=BF16, except_=()), model)
    mean, x = model[0].running_mean, torch.randn(16, 3) + 2
    precision(model, x)
    assert mean is model[0].running_mean
    assert mean.dtype == F32
    torch.testing.assert_close(mean, 0.1 * x.mean(0), rtol=0.02, atol=0.02)
    held = mean.fill_(1 + 2**-20)  # rounds to 1 in bfloat16
    model.eval()
    precision(model, x)
    assert torch.equal(held, torch.full((3,), 1 + 2**-20))


class Growing(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        self.seen = torch.cat([self.seen, x.detach().mean(0)])
        return x * self.scale


def test_a_buffer_that_grows_stays_in_its_own_dtype():
    model = Growing()
    under(Policy(compute=BF16), model)(model, torch.ones(2, 2))
    assert model.seen.tolist() == [0, 1, 1]
    assert model.seen.dtype == F32


@pytest.mark.parametrize("dtypes", [(None, None, None), (None, BF16, F32), (F16, None, None)], ids=str)
def test_other_tensors_by_name_stand_in_and_their_buffers_move(dtypes):
    model = convolution()
    precision = under(Policy(*dtypes), model)
    own_mean = model[1].running_mean.clone()
    tensors = {name: t.detach().clone() for name, t in model.state_dict().items()}
    tensors["4.bias"] = torch.full((2,), 3.0, requires_grad=True)
    tensors["4.weight"] = torch.zeros(2, 12)
    mean = tensors["1.running_mean"].clone()
    prediction = precision(model, torch.randn(3, 2, 4, 4), tensors)
    assert prediction.tolist() == [[3.0, 3.0]] * 3
    assert torch.autograd.grad(prediction.float().sum(), tensors["4.bias"])[0].tolist() == [3, 3]
    assert not torch.equal(tensors["1.running_mean"], mean)
    assert tensors["1.running_mean"].dtype == F32
    assert torch.equal(model[1].running_mean, own_mean)


@pytest.mark.parametrize("dtypes", [(None, None, None), (None, BF16, None)], ids=str)
def test_one_name_of_a_tied_tensor_stands_for_all(dtypes):
    model = Tied()
    precision = under(Policy(*dtypes), model)
    tensors = {"embedding.weight": torch.zeros(7, 4), "decoder.bias": torch.zeros(7)}
    assert precision(model, torch.tensor([1, 2]), tensors).abs().max() == 0
    assert model.decoder.weight is model.embedding.weight


def test_a_module_in_two_places_is_cast_once_and_put_back():
    shared = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 3))
    model = nn.Sequential(shared, nn.ReLU(), shared)
    precision = under(Policy(compute=BF16, except_=()), model)
    tensors = {name: t.clone() for name, t in dict(model.state_dict()).items()}
    tensors["0.1.weight"] = torch.ones(3, 3)
    precision(model, torch.randn(5, 3), tensors)
    gradients(model, precision, torch.randn(5, 3))
    assert {p.dtype for p in model.parameters()} == {F32}
    assert shared[0].running_mean.dtype == F32


def test_a_parameter_tied_to_an_excepted_module_stays_and_its_other_module_computes_all_the_same():
    model = Tied()
    precision = Precision(Policy(params=BF16, except_="embedding"), model)
    assert set(precision.convert()) == {"inner.weight", "inner.bias", "decoder.bias"}
    assert model.decoder.weight.dtype == F32
    assert precision(model, torch.tensor([1, 2])).dtype == BF16


def test_what_was_rounded_is_handed_out():
    model = mlp()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    handed = Precision(Policy(params=F16), model).convert()
    assert list(handed) == list(before)
    assert all(torch.equal(handed[name], before[name]) for name in before)
    assert Precision(Policy(params=F64), model).convert() == {}


def test_complex_and_integer_tensors_are_left_alone():
    model = nn.Linear(2, 2)
    model.phase = nn.Parameter(torch.ones(2, dtype=torch.complex64))
    model.register_buffer("count", torch.tensor(3))
    precision = under(Policy(F16, F16, F16), model)
    assert (model.phase.dtype, model.count.dtype) == (torch.complex64, torch.int64)
    seen = []
    model.register_forward_hook(lambda _, args, output: seen.append(args[0].dtype))
    precision(model, torch.ones(1, 2))
    assert seen == [F16]


def test_packed_sequences_are_cast():
    model = nn.GRU(3, 4)
    packed = pack_sequence([torch.randn(4, 3), torch.randn(2, 3)])
    output, hidden = under(Policy(F16, F16, F32), model)(model, packed)
    assert output.data.dtype == hidden.dtype == F32


def test_an_lstm_trains_after_conversion():
    model = nn.LSTM(3, 4)
    precision = under(Policy(F64), model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(5, 2, 3)
    losses = []
    for _ in range(3):
        loss = total(precision(model, x)[0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] > losses[1] > losses[2]


def test_hooks_are_gone_after_an_error():
    model = mlp()
    precision = under(Policy(compute=F16), model)
    own = list(model.parameters())
    with pytest.raises(RuntimeError, match="shape"):
        precision(model, torch.ones(2, 7))
    assert not any(map(len, hooks(model)))
    assert all(p is q for p, q in zip(model.parameters(), own, strict=True))


def test_one_tensor_given_thrice_is_one_tensor_still():
    model = nn.MultiheadAttention(4, 2)
    model.register_forward_hook(lambda _, args, output: same.append(args[0] is args[1] is args[2]))
    same = []
    x = torch.randn(5, 1, 4)
    under(Policy(compute=BF16), model)(model, (x, x, x))
    assert same == [True]


def test_the_fast_path_of_attention_is_as_it_was():
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        under(Policy(compute=BF16), mlp())(mlp(), torch.ones(2, 3))
        assert not torch.backends.mha.get_fastpath_enabled()
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    under(Policy(compute=BF16), mlp())(mlp(), torch.ones(2, 3))
    assert torch.backends.mha.get_fastpath_enabled()


def test_no_policy_calls_the_module_plainly():
    model, x = mlp(), torch.randn(2, 3)
    model.register_forward_hook(lambda module, *_: hooked.append(list(module[0]._forward_pre_hooks)))
    hooked = []
    precision = Precision(Policy(), model)
    assert torch.equal(precision(model, x), model(x))
    assert hooked == [[], []]
    assert precision.convert() == {}
    assert precision.input_dtype(F64) == F64


def refusal(model, x):
    """What torch says where it cannot do it by itself: not every processor has a bfloat16 LSTM."""
    try:
        model(**x) if isinstance(x, dict) else model(x)
    except RuntimeError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("policy", [Policy(), Policy(compute=BF16), Policy(F16, F16, F32), Policy(BF16)], ids=repr)
@pytest.mark.parametrize("name", MODELS)
def test_autocast_around_it_still_works(name, policy):
    build, inputs = MODELS[name]
    model = build()
    precision = under(policy, model)
    with torch.autocast("cpu", BF16):
        if policy == Policy() and (said := refusal(model, inputs())):
            with pytest.raises(RuntimeError, match=re.escape(said)):
                precision(model, inputs())
            return
        prediction = precision(model, inputs())
    grads = torch.autograd.grad(total(prediction), list(model.parameters()))
    assert all(g.dtype == p.dtype for g, p in zip(grads, model.parameters(), strict=True))


@pytest.mark.parametrize("policy", [Policy(compute=BF16), Policy(BF16)], ids=repr)
def test_a_compiled_model_computes_the_same(policy):
    model, x = mlp(), torch.randn(4, 3)
    precision = under(policy, model)
    expected = precision(model, x)
    compiled = torch.compile(model, backend="eager")
    precision = Precision(policy, compiled)
    for _ in range(2):
        prediction = precision(compiled, x)
        assert prediction.dtype == BF16
        torch.testing.assert_close(prediction, expected)
    tensors = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    assert precision(compiled, x, tensors).abs().max() == 0


def test_inputs_are_cast_to_what_the_first_module_computes_in():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    assert Precision(Policy(F16, BF16), model).input_dtype(F32) == BF16
    assert Precision(Policy(F16), model).input_dtype(F32) == F16
    assert Precision(Policy(output=F16), model).input_dtype(F32) == F32
    assert Precision(Policy(compute=BF16, only="1"), model).input_dtype(F32) == F32
    assert Precision(Policy(compute=BF16), nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2))).input_dtype(F64) == F32


def test_a_changed_tree_is_seen():
    model = mlp()
    precision = under(Policy(F16), model)
    model[0] = nn.Linear(3, 5)
    assert precision(model, torch.randn(2, 3)).dtype == F16


def test_a_pattern_that_fits_nothing_is_refused_before_anything_moved():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    before = {name: (t, t.dtype) for name, t in model.state_dict(keep_vars=True).items()}
    for policy in (Policy(F16, except_="head"), Policy(F16, only="1")):
        with pytest.raises(PolicyError, match=r"fits no module|is for no module"):
            Precision(policy, model)
    assert {name: (t, t.dtype) for name, t in model.state_dict(keep_vars=True).items()} == before


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_module_is_refused():
    model = nn.Sequential(torch.jit.script(nn.Linear(2, 2)))
    with pytest.raises(PolicyError, match=r"before torch\.jit\.script, or .* model\.to\(torch\.bfloat16\)"):
        Precision(Policy(compute=BF16), model)
    assert Precision(Policy(), model)(model, torch.ones(1, 2)).dtype == F32


def test_a_conversion_is_undone_when_what_follows_fails():
    model = nn.BatchNorm1d(2)
    model.weight.grad = torch.ones(2)
    before = [(t, t.dtype, t.data_ptr()) for t in (*model.parameters(), *model.buffers(), model.weight.grad)]

    def fail():
        with Precision(Policy(F16, except_=()), model).converted() as rounded:
            assert set(rounded) == {"weight", "bias"}
            assert {model.weight.dtype, model.running_mean.dtype, model.weight.grad.dtype} == {F16}
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    after = [(t, t.dtype, t.data_ptr()) for t in (*model.parameters(), *model.buffers(), model.weight.grad)]
    assert all(a[0] is b[0] and a[1:] == b[1:] for a, b in zip(before, after, strict=True))


def test_a_parameter_that_would_become_infinite_is_refused():
    model = mlp()
    nn.init.constant_(model[2].bias, -70000.0)
    with pytest.raises(PolicyError, match=r'2\.bias has an entry of size 70000, and float16 .* except_="2"'):
        Precision(Policy(F16), model)
    Precision(Policy(BF16), model)
    Precision(Policy(F16, except_="2"), model)


@given(
    st.sampled_from([None, F16, BF16, F32, F64]),
    st.sampled_from([None, F16, BF16, F32, F64]),
    st.sampled_from([None, F16, BF16, F32, F64]),
)
def test_every_policy_has_the_dtypes_it_says(params, compute, output):
    model = mlp()
    precision = under(Policy(params, compute, output), model)
    x = torch.randn(2, 3).to(precision.input_dtype(F32))
    prediction = precision(model, x)
    assert prediction.dtype == (output or compute or params or F32)
    assert {p.dtype for p in model.parameters()} == {params or F32}
    assert {g.dtype for g in gradients(model, precision, x).values()} == {params or F32}
