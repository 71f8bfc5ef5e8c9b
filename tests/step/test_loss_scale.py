"""A loss scale lifts the loss, brings the gradients back, and adjusts itself without rewriting what it was."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import nn

from gradviz.errors import LossScaleError
from gradviz.grad.algebra import Blank, Grad
from gradviz.step.loss_scale import LossScale, all_finite, as_loss_scale, first_nonfinite, scale_used, unscale_in_place

nan, inf = math.nan, math.inf
MOST = torch.finfo(torch.float32).max
SCALES = [LossScale.identity(), LossScale.static(), LossScale.dynamic()]
FINITE, INFINITE, NAN = (torch.tensor([value]) for value in (1.0, inf, nan))


def read(state: dict[str, torch.Tensor]) -> tuple[float, int]:
    return state["loss_scale"].item(), int(state["counter"])


def trail(loss_scale: LossScale, gradients: list[torch.Tensor]) -> list[tuple[float, int]]:
    """Scale and counter after each step."""
    state, seen = loss_scale.init(), []
    for gradient in gradients:
        _, state = loss_scale.unscale([gradient], state)
        assert {name: (t.dtype, t.ndim) for name, t in state.items()} == {
            "loss_scale": (torch.float32, 0),
            "counter": (torch.int64, 0),
        }
        seen.append(read(state))
    return seen


class TwoLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.second = nn.Linear(2, 1)


def grad_of(first: list[float], second: list[float] | None) -> Grad:
    """Biases get these gradients, weights the gradient 1."""
    weight = None if second is None else torch.ones(1, 2)
    bias = None if second is None else torch.tensor(second)
    return Grad(TwoLayers(), [torch.ones(2, 2), torch.tensor(first), weight, bias])


# State, scaling and unscaling ------------------------------------------------------------------------------------


def test_states_are_float32_and_int64_from_the_start():
    assert LossScale.identity().init() == {}
    assert {name: t.dtype for name, t in LossScale.static(3).init().items()} == {"loss_scale": torch.float32}
    dynamic = LossScale.dynamic().init()
    assert {name: (t.dtype, t.ndim) for name, t in dynamic.items()} == {
        "loss_scale": (torch.float32, 0),
        "counter": (torch.int64, 0),
    }
    assert read(dynamic) == (32768.0, 0)


@pytest.mark.case("axon-S1")
def test_a_static_scale_multiplies_every_leaf_and_unscaling_gives_the_originals():
    assert LossScale.static().init()["loss_scale"].item() == 32768
    loss_scale = LossScale.static(3**15)
    state = loss_scale.init()
    assert state["loss_scale"].item() == 14348907
    tree = {"a": torch.tensor([1.0, 2.0, 3.0]), "b": {"c": torch.tensor([4.0, 5.0, 6.0])}}
    scaled = loss_scale.scale(tree, state)
    assert torch.equal(scaled["a"], tree["a"] * 14348907)
    assert torch.equal(scaled["b"]["c"], tree["b"]["c"] * 14348907)
    back, after = loss_scale.unscale(scaled, state)
    torch.testing.assert_close(back, tree)
    assert after is state
    assert state["loss_scale"].item() == 14348907


def test_identity_hands_back_the_very_same():
    loss_scale = LossScale.identity()
    state = loss_scale.init()
    loss, gradients = torch.tensor(1.0), [INFINITE]
    assert loss_scale.scale(loss, state) is loss
    for made in (loss_scale.unscale(gradients, state), loss_scale.unscaled(gradients, state, False)):
        assert made[0] is gradients
        assert made[1] is state


def test_only_identity_takes_steps_that_are_not_finite():
    assert [loss_scale.skips_nonfinite for loss_scale in SCALES] == [False, True, True]


@pytest.mark.parametrize("loss_scale", SCALES[1:])
def test_a_float16_loss_is_promoted_instead_of_overflowing(loss_scale):
    loss = torch.tensor(6e4, dtype=torch.float16, requires_grad=True)
    scaled = loss_scale.scale(loss, loss_scale.init())
    assert scaled.dtype == torch.float32
    assert scaled.item() == loss.item() * 2**15
    assert torch.autograd.grad(scaled, loss)[0].item() == 2**15
    assert loss_scale.scale(loss.double(), loss_scale.init()).dtype == torch.float64


@pytest.mark.parametrize("loss_scale", SCALES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.complex64])
def test_unscaling_keeps_every_dtype_and_what_came(loss_scale, dtype):
    gradients = {"a": torch.tensor([8.0, inf]).to(dtype), "b": [torch.tensor(4.0).to(dtype), None, "text"]}
    back, _ = loss_scale.unscale(gradients, loss_scale.init())
    assert (back["a"].dtype, back["b"][0].dtype) == (dtype, dtype)
    assert back["b"][1:] == [None, "text"]
    assert gradients["a"][0] == 8


def test_a_scale_beyond_float16_unscales_float16():
    loss_scale = LossScale.static(2**20)
    (back,), _ = loss_scale.unscale([torch.tensor([65504.0], dtype=torch.float16)], loss_scale.init())
    assert back.item() == pytest.approx(65504 / 2**20, rel=1e-3)


@pytest.mark.parametrize("loss_scale", SCALES)
def test_unused_leaves_stay_unused_and_unmade(loss_scale):
    grad = grad_of([2.0, 4.0], None)
    state = loss_scale.init()
    back, _ = loss_scale.unscale(loss_scale.scale(grad, state), state)
    assert back.unused == ("second.weight", "second.bias")
    assert "zeros" not in vars(back._leaves["second.weight"])
    assert isinstance(back._leaves["second.weight"], Blank)
    assert back.first.bias.tolist() == [2, 4]
    nested, _ = loss_scale.unscale({"all": grad}, state)
    assert nested["all"].unused == back.unused


powers = st.integers(-20, 40).map(lambda exponent: 2.0**exponent)
moderate = st.floats(-(2.0**40), 2.0**40, width=32).filter(lambda x: x == 0 or abs(x) > 2.0**-60)


@given(hnp.arrays(np.float32, hnp.array_shapes(min_dims=0), elements=moderate), powers, st.booleans())
def test_unscaling_undoes_scaling_by_a_power_of_two_to_the_bit(values, scale, is_static):
    loss_scale = LossScale.static(scale) if is_static else LossScale.dynamic(scale, minimum=scale / 4)
    state = loss_scale.init()
    tensor = torch.from_numpy(values)
    back, _ = loss_scale.unscale(loss_scale.scale(tensor, state), state)
    assert back.dtype == tensor.dtype
    assert torch.equal(back, tensor)


# The dynamic scale -----------------------------------------------------------------------------------------------


@pytest.mark.case("axon-S2")
def test_finite_gradients_count_up_and_double_the_scale_at_the_period():
    expected = [(10, 1), (10, 2), (10, 3), (10, 4), (20, 0), (20, 1), (20, 2), (20, 3), (20, 4), (40, 0)]
    assert trail(LossScale.dynamic(10, period=5), [FINITE] * 10) == expected


@pytest.mark.case("axon-S3")
def test_infinities_halve_the_scale_down_to_its_minimum():
    assert trail(LossScale.dynamic(10, period=5), [INFINITE] * 5) == [(5, 0), (2.5, 0), (1.25, 0), (1, 0), (1, 0)]
    assert trail(LossScale.dynamic(20, minimum=2), [INFINITE] * 5) == [(10, 0), (5, 0), (2.5, 0), (2, 0), (2, 0)]


@pytest.mark.case("axon-S4")
def test_an_infinity_starts_the_count_again():
    gradients = [FINITE, FINITE, INFINITE, FINITE, FINITE, FINITE]
    expected = [(10, 1), (10, 2), (5, 0), (5, 1), (5, 2), (10, 0)]
    assert trail(LossScale.dynamic(10, period=3), gradients) == expected


@pytest.mark.case("axon-S5")
def test_the_default_scale_reaches_its_floor_after_fifteen_and_no_growth_overflows():
    seen = [scale for scale, _ in trail(LossScale.dynamic(), [-INFINITE] * 17)]
    assert seen == [2.0**exponent for exponent in range(14, -1, -1)] + [1, 1]
    (seen,) = trail(LossScale.dynamic(3e38, period=1), [FINITE])
    assert seen == (torch.tensor(3e38).item(), 0)


@pytest.mark.case("axon-S6")
def test_nan_counts_as_not_finite():
    assert trail(LossScale.dynamic(10, period=5), [FINITE, NAN]) == [(10, 1), (5, 0)]


def test_a_state_is_never_written_into():
    loss_scale = LossScale.dynamic(10, period=2)
    states = [loss_scale.init()]
    for gradient in (FINITE, FINITE, INFINITE):
        states.append(loss_scale.unscale([gradient], states[-1])[1])
    assert [read(state) for state in states] == [(10, 0), (10, 1), (20, 0), (10, 0)]
    assert len({t.data_ptr() for state in states for t in state.values()}) == 8


@pytest.mark.parametrize("finite", [True, False])
def test_a_caller_may_say_whether_gradients_are_finite(finite):
    loss_scale = LossScale.dynamic(8)
    (back,), state = loss_scale.unscaled([FINITE], loss_scale.init(), finite)
    assert back.tolist() == [1 / 8]
    assert read(state) == ((8, 1) if finite else (4, 0))
    static = LossScale.static(8)
    before = static.init()
    assert static.unscaled([FINITE], before, finite)[1] is before


numbers = st.floats(1e-30, 1e38)


@given(
    st.tuples(numbers, numbers),
    st.floats(1.01, 1e10),
    st.integers(1, 3),
    st.lists(st.sampled_from([FINITE, INFINITE, NAN]), max_size=40),
)
def test_the_scale_stays_between_its_minimum_and_the_largest_float32(ends, factor, period, gradients):
    minimum, scale = sorted(ends)
    loss_scale = LossScale.dynamic(scale, period=period, factor=factor, minimum=minimum)
    floor = torch.tensor(minimum, dtype=torch.float32).item()
    for seen, counter in trail(loss_scale, gradients):
        assert floor <= seen <= MOST
        assert 0 <= counter < period


# What is a loss scale --------------------------------------------------------------------------------------------


class Halves:
    def init(self):
        return torch.tensor(4.0)

    def scale(self, value, state):
        return value * state

    def unscale(self, gradients, state):
        return gradients / state, state / 2


def test_names_and_objects_are_taken():
    assert as_loss_scale(None) == as_loss_scale("identity") == LossScale.identity()
    assert as_loss_scale("static") == LossScale.static(2**15)
    assert as_loss_scale("dynamic") == LossScale.dynamic(2**15, period=2000, factor=2, minimum=1)
    own = Halves()
    assert as_loss_scale(own) is own
    assert as_loss_scale(SCALES[2]) is SCALES[2]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("dynamc", "did you mean 'dynamic'"),
        ("Static", "did you mean 'static'"),
        (1024, r'got an int. Write "dynamic", or gv.LossScale.static\(2\*\*15\)'),
        (LossScale, "the class LossScale, not an object of it"),
        (Halves, "the class Halves, not an object of it"),
        (LossScale.dynamic, "which has to be called"),
        (torch.amp.GradScaler("cpu"), "GradScaler without init and unscale"),
    ],
)
def test_what_is_none_is_refused(value, words):
    with pytest.raises(LossScaleError, match=words):
        as_loss_scale(value)


@pytest.mark.parametrize("bad", [0, -1, nan, inf, 1e39, 1e-50, True, "8", None])
@pytest.mark.parametrize("name", ["scale", "factor", "minimum"])
def test_numbers_that_float32_cannot_scale_by_are_refused(name, bad):
    with pytest.raises(LossScaleError, match=f"{name} must be a number above 0 .* Write gv.LossScale.dynamic"):
        LossScale.dynamic(**{name: bad})
    with pytest.raises(LossScaleError, match=r"scale must be a number above 0 .* Write gv.LossScale.static"):
        LossScale.static(bad)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"period": 0}, "period counts steps"),
        ({"period": 2.5}, "got 2.5"),
        ({"period": True}, "got True"),
        ({"factor": 1}, "larger than 1"),
        ({"factor": 0.5}, "larger than 1"),
        ({"factor": 1 + 1e-12}, "larger than 1 in float32"),
        ({"scale": 1, "minimum": 2}, "begins at 1.0, below its minimum of 2.0"),
    ],
)
def test_a_dynamic_scale_that_could_not_move_is_refused(options, words):
    with pytest.raises(LossScaleError, match=words):
        LossScale.dynamic(**options)


@pytest.mark.parametrize("loss_scale", SCALES)
def test_a_loss_scale_is_immutable_and_reads_as_the_line_that_makes_it(loss_scale):
    assert eval(repr(loss_scale), {"LossScale": LossScale}) == loss_scale
    assert pickle.loads(pickle.dumps(loss_scale)) == loss_scale
    with pytest.raises(AttributeError):
        loss_scale.initial = 2.0


def test_the_scale_used_is_what_a_loss_of_1_becomes():
    assert [scale_used(loss_scale, loss_scale.init()) for loss_scale in SCALES] == [1, 32768, 32768]
    assert scale_used(Halves(), Halves().init()) == 4


# Finite or not ---------------------------------------------------------------------------------------------------


def sparse(*values: float) -> torch.Tensor:
    """Two values on one place, others on their own."""
    places = [[0, *range(len(values) - 1)]]
    return torch.sparse_coo_tensor(places, list(values), (5,), check_invariants=True)


@pytest.mark.parametrize(
    "gradients",
    [
        [],
        {},
        [None],
        [torch.zeros(0), torch.zeros(0, 3)],
        [torch.zeros(0), torch.tensor([1e20, 1e20])],
        [torch.full((9,), 6e4, dtype=torch.float16), torch.ones(2, dtype=torch.float64)],
        [torch.full((9,), 1e300, dtype=torch.float64)],
        {"a": torch.tensor(3.0, dtype=torch.bfloat16), "b": {"c": torch.tensor([MOST])}},
        [sparse(1.0, 2.0, 1e30), torch.ones(3)],
        [torch.tensor([complex(3e38, 3e38)]), torch.tensor([1j]).conj()],
        [torch.tensor([400.0]).to(torch.float8_e4m3fn)],
    ],
)
def test_finite_entries_are_finite_also_where_their_norm_overflows(gradients):
    assert all_finite(gradients)


@pytest.mark.parametrize(
    "gradients",
    [
        [torch.zeros(0), torch.ones(2), torch.tensor([1.0, nan])],
        {"a": torch.tensor([6e4, 6e4, -inf], dtype=torch.float16), "b": torch.ones(1)},
        [torch.ones(1, dtype=torch.float64), torch.tensor(inf)],
        [sparse(1.0, 2.0, nan)],
        [sparse(3e38, 3e38)],
        [torch.tensor([complex(1, nan)])],
        [torch.tensor([complex(inf, 1)]).conj()],
        [torch.tensor([1.0, nan]).to(torch.float8_e4m3fn)],
        [torch.tensor([1.0, inf]).to(torch.float8_e5m2)],
    ],
)
def test_an_infinity_or_a_nan_is_found(gradients):
    assert not all_finite(gradients)


extremes = st.sampled_from([0, 1, -6e4, 1e20, 1e300, nan, inf, -inf])
leaves = st.builds(
    lambda values, dtype: torch.tensor(values, dtype=torch.float64).to(dtype),
    st.lists(extremes, max_size=4),
    st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]),
)


@given(st.lists(leaves, max_size=4))
def test_finite_is_what_torch_says_of_every_entry(tensors):
    assert all_finite(tensors) == all(bool(t.isfinite().all()) for t in tensors)


def test_a_gradient_is_finite_by_its_reached_leaves():
    grad = grad_of([1.0, 2.0], None)
    assert all_finite(grad)
    assert "zeros" not in vars(grad._leaves["second.bias"])
    assert not all_finite({"one": grad, "other": grad_of([nan, 1.0], None)})


@pytest.mark.parametrize(
    ("first", "second", "name"),
    [
        ([1.0, 1e20], [1e20], None),
        ([nan, 1.0], [1.0], "first.bias"),
        ([nan, 1.0], [-inf], "second.bias"),
        ([inf, 1.0], None, "first.bias"),
        ([1.0, 1.0], None, None),
    ],
)
def test_the_parameter_nearest_the_loss_is_named(first, second, name):
    assert first_nonfinite(grad_of(first, second)) == name


@given(
    st.lists(st.lists(st.floats(-(2.0**90), 2.0**90, width=32), min_size=1, max_size=5), min_size=1, max_size=4),
    st.integers(0, 40),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_dividing_in_place_is_dividing_to_the_bit(values, power, dtype):
    scale = float(2**power)
    gradients = [torch.tensor(entries, dtype=dtype) for entries in values]
    expected = [gradient / scale for gradient in gradients]
    assert unscale_in_place(gradients, scale) is True
    assert all(map(torch.equal, gradients, expected))


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_dividing_in_place_finds_what_is_not_finite(bad):
    gradients = [torch.ones(3), torch.tensor([1.0, bad])]
    assert unscale_in_place(gradients, 4.0) is False
    assert gradients[0].tolist() == [0.25] * 3


@pytest.mark.parametrize(
    ("gradients", "scale"),
    [
        ([torch.ones(2)], 3.0),
        ([torch.ones(2)], 0.5),
        ([torch.ones(2), torch.ones(2).double()], 4.0),
        ([torch.ones(2).half()], 4.0),
        ([torch.ones(2, dtype=torch.complex64)], 4.0),
    ],
)
def test_what_one_pass_cannot_divide_is_left_alone(gradients, scale):
    before = [gradient.clone() for gradient in gradients]
    assert unscale_in_place(gradients, scale) is None
    assert all(map(torch.equal, gradients, before))
