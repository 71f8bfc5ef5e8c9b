"""Float32 masters: small updates add up, and what others write is taken over."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from gradviz.errors import OptimizerError
from gradviz.step.masters import Masters
from gradviz.step.policy import Policy
from gradviz.step.precision import Precision
from gradviz.step.train_step import train_step

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32


def half(*values, dtype=F16):
    return nn.Parameter(torch.tensor(values, dtype=dtype))


@pytest.mark.case("axon-T6")
@pytest.mark.parametrize("gradient", [1.0, 1e-2, 1e-3, 1e-4, 1e-6])
def test_adam_moves_a_float16_parameter_as_it_would_a_float32_one(gradient):
    p = half(1.0)
    masters = Masters({"p": p})
    optimizer = torch.optim.Adam(masters.optimized, lr=1e-3)
    values = []
    for _ in range(3):
        masters.refresh()
        masters.of(p).grad = torch.tensor([gradient])
        optimizer.step()
        masters.hand_down()
        values.append(round(p.item(), 8))
    assert values[0] == 0.99902344
    assert values[2] == 0.99707031


def test_small_updates_add_up_that_alone_would_vanish():
    p = half(1.0, dtype=BF16)
    masters = Masters({"p": p})
    optimizer = torch.optim.SGD(masters.optimized, lr=1e-3)
    for _ in range(100):
        masters.of(p).grad = torch.ones(1)
        optimizer.step()
        masters.hand_down()
    assert p.item() == torch.tensor(0.9).bfloat16().item()
    alone = half(1.0, dtype=BF16)
    optimizer = torch.optim.SGD([alone], lr=1e-3)
    for _ in range(100):
        alone.grad = torch.ones_like(alone)
        optimizer.step()
    assert alone.item() == 1


def test_only_16_bit_parameters_have_copies():
    parameters = {"a": half(1.0), "b": nn.Parameter(torch.ones(2)), "c": half(1.0, dtype=BF16)}
    masters = Masters(parameters)
    a, b, c = parameters.values()
    assert len(masters) == 2
    assert masters.of(b) is b
    assert [id(p) for p in masters.optimized] == [id(masters.of(p)) for p in (a, b, c)]
    assert all(masters.of(p).dtype == F32 and masters.of(p).requires_grad for p in (a, c))
    assert not Masters({"b": b})


def test_masters_begin_with_the_digits_that_rounding_took():
    model = nn.Linear(3, 2)
    weight = model.weight.detach().clone()
    before = Precision(Policy(params=F16), model).convert()
    masters = Masters(dict(model.named_parameters()), before)
    assert torch.equal(masters.of(model.weight), weight)
    masters.refresh()
    assert torch.equal(masters.of(model.weight), weight)
    before["weight"].zero_()
    assert torch.equal(masters.of(model.weight), weight)


def test_what_is_loaded_is_taken_over():
    model = nn.Linear(3, 2).half()
    masters = Masters(dict(model.named_parameters()))
    other = nn.Linear(3, 2).half()
    model.load_state_dict(other.state_dict())
    masters.refresh()
    assert torch.equal(masters.of(model.weight), other.weight.float())
    model.weight.data = torch.zeros(2, 3, dtype=F16)
    masters.refresh()
    assert masters.of(model.weight).abs().max() == 0


def test_writing_through_data_leaves_no_trace_but_a_thorough_look_sees_it():
    p, untouched = half(1.0, 3.0), half(1.0)
    masters = Masters({"p": p, "untouched": untouched}, {"untouched": torch.tensor([1 + 2**-20])})
    p.data.fill_(2.0)
    masters.refresh()
    assert masters.of(p).tolist() == [1, 3]
    masters.refresh(thorough=True)
    assert masters.of(p).tolist() == [2, 2]
    assert masters.of(untouched).item() == 1 + 2**-20
    masters.of(p).grad = torch.ones(2)
    masters.hand_down()
    assert p.tolist() == [2, 2]


def test_only_entries_that_were_written_lose_their_hidden_digits():
    p = half(1.0, 2.0, float("nan"))
    masters = Masters({"p": p}, {"p": torch.tensor([1 + 2**-20, 2 + 2**-20, float("nan")])})
    with torch.no_grad():
        p[0] = 5
    masters.refresh()
    assert masters.of(p).tolist()[:2] == [5, 2 + 2**-20]
    assert masters.of(p)[2].isnan()


def test_what_is_handed_down_is_not_taken_back():
    p = half(1.0)
    masters = Masters({"p": p})
    with torch.no_grad():
        masters.of(p).fill_(1 + 2**-20)
    masters.of(p).grad = torch.ones(1)
    masters.hand_down()
    masters.refresh()
    assert masters.of(p).item() == 1 + 2**-20


def test_parameters_that_took_no_part_stay_as_they_are():
    a, b = half(1.0), half(float("nan"), -0.0)
    masters = Masters({"a": a, "b": b})
    version, bits = b._version, b.detach().view(torch.int16).clone()
    masters.of(a).grad = torch.ones(1)
    with torch.no_grad():
        masters.of(a).fill_(3)
        masters.of(b).fill_(3)
    masters.hand_down()
    assert a.item() == 3
    assert b._version == version
    assert torch.equal(b.detach().view(torch.int16), bits)
    masters.drop_gradients()
    with torch.no_grad():
        masters.of(a).fill_(4)
    masters.hand_down()
    assert a.item() == 3


def test_gradients_are_widened_for_masters_alone():
    a, b = half(1.0), nn.Parameter(torch.ones(1, dtype=torch.float64))
    masters = Masters({"a": a, "b": b})
    wide = masters.widened([a, b, a], [torch.ones(1, dtype=F16), torch.ones(1, dtype=torch.float64), None])
    assert [g if g is None else g.dtype for g in wide] == [F32, torch.float64, None]
    assert [id(p) for p in masters.of_all([b, a])] == [id(b), id(masters.of(a))]
    given = [torch.ones(1)]
    assert Masters({"b": b}).widened([b], given) is given


def test_a_parameter_may_join_or_replace_another():
    a, b = half(1.0), half(2.0)
    masters = Masters({"a": a})
    assert masters.add("b", b) is masters.of(b)
    new = nn.Parameter(torch.ones(1))
    assert masters.add("a", new) is new
    assert [p.item() for p in masters.optimized] == [1, 2]
    assert len(masters) == 1
    assert masters.of(a) is a


def test_a_converted_model_is_refused_before_anything_moved():
    model = nn.Linear(1, 1).half()
    masters = Masters(dict(model.named_parameters()))
    model.float()
    with pytest.raises(OptimizerError, match=r"weight was torch.float16 on cpu .* is torch.float32 on cpu now"):
        masters.refresh()


def test_nothing_is_taken_over_where_one_parameter_is_refused():
    a, b = half(1.0), half(1.0)
    masters = Masters({"a": a, "b": b})
    with torch.no_grad():
        a.fill_(5)
    b.data = b.data.float()
    with pytest.raises(OptimizerError, match=r"b was torch\.float16"):
        masters.refresh()
    assert masters.of(a).item() == 1


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda step: pickle.loads(pickle.dumps(step))], ids=["deepcopy", "pickle"]
)
@pytest.mark.parametrize("freezes", [False, True])
def test_a_copied_step_trains_on_as_the_first_one_does(copied, freezes):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
    step = train_step(model, "mean_squared_error", "adamw", policy=Policy(params=BF16), keep_gradients=True)
    batch = torch.randn(16, 3), torch.randn(16, 1)
    state = step.init(batch)
    for _ in range(3):
        state = step(batch, state)
    twin, twin_state = copied((step, state))
    if freezes:
        for each in (step, twin):
            each.model[0].requires_grad_(False)
    for _ in range(4):
        state, twin_state = step(batch, state), twin(batch, twin_state)
    assert len(twin.masters) == 4
    for name, value in model.state_dict().items():
        assert torch.equal(value, twin.model.state_dict()[name]), name
    for p, q in zip(model.parameters(), twin.model.parameters(), strict=True):
        assert p is not q
        assert twin.masters.of(q) is not step.masters.of(p)
        assert torch.equal(step.masters.of(p), twin.masters.of(q))
    assert all(torch.equal(gradient, twin_state.gradients[name]) for name, gradient in state.gradients.items())
    assert not torch.equal(step.masters.of(model[3].weight), model[3].weight.float())


@given(
    st.sampled_from([F16, BF16]),
    st.lists(st.floats(width=32, min_value=-60000, max_value=60000), min_size=1, max_size=20),
    st.data(),
)
def test_after_a_refresh_the_master_rounds_to_its_parameter(dtype, values, data):
    value = torch.tensor(values)
    p = nn.Parameter(value.to(dtype))
    masters = Masters({"p": p}, {"p": value})
    place = data.draw(st.integers(0, len(values) - 1))
    with torch.no_grad():
        p[place] = data.draw(st.floats(width=16, allow_nan=True))
    masters.refresh()
    assert torch.equal(masters.of(p).to(dtype).nan_to_num(7.0), p.nan_to_num(7.0))
    kept = [index for index in range(len(values)) if index != place]
    assert torch.equal(masters.of(p)[kept], value[kept])
