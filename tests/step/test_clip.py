"""Clipping is torch's, out of place, and lies about nothing that is not finite."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import nn

from gradviz.errors import OptimizerError
from gradviz.grad.algebra import Blank, Grad
from gradviz.step.clip import as_clip

nan, inf = math.nan, math.inf


class Named(nn.Module):
    """A model with parameters shaped like these."""

    def __init__(self, *values: torch.Tensor) -> None:
        super().__init__()
        for place, value in enumerate(values):
            self.register_parameter(f"p{place}", nn.Parameter(torch.zeros(value.shape, dtype=value.dtype)))


def grad(*values: torch.Tensor | list[float] | float) -> Grad:
    tensors = [value if isinstance(value, torch.Tensor) else torch.tensor(value) for value in values]
    return Grad(Named(*tensors), tensors)


def clipped(clip: object, *values: torch.Tensor | list[float] | float) -> Grad:
    function = as_clip(clip)
    assert function is not None
    return function(grad(*values))


def half_used() -> Grad:
    model = nn.ModuleDict({"used": nn.Linear(2, 1), "idle": nn.Linear(3, 2)})
    return Grad(model, [torch.full((1, 2), 3.0), torch.tensor([4.0]), None, None])


# By norm ---------------------------------------------------------------------------------------------------------


def test_the_whole_gradient_is_scaled_to_the_norm():
    whole = grad([3.0, 0.0], [4.0])
    clip = as_clip(1.0)
    made = clip(whole)
    assert made.p0.tolist() == pytest.approx([0.6, 0])
    assert made.p1.tolist() == pytest.approx([0.8])
    assert [leaf.tolist() for leaf in whole.values()] == [[3, 0], [4]]
    assert whole.norm().item() == 5


@pytest.mark.parametrize("limit", [5.00001, 6, 6.0, inf])
def test_a_norm_within_the_limit_leaves_the_very_same(limit):
    whole = grad([3.0, 0.0], [4.0])
    assert as_clip(limit)(whole) is whole


@settings(max_examples=50)
@given(st.integers(0, 2**16), st.floats(0.01, 10))
def test_the_factor_is_torch_s_to_the_bit(seed, limit):
    torch.manual_seed(seed)
    ours = grad(torch.randn(5).tolist(), torch.randn(3).tolist())
    theirs = [nn.Parameter(torch.zeros_like(leaf)) for leaf in ours.values()]
    for p, leaf in zip(theirs, ours.values(), strict=True):
        p.grad = leaf.clone()
    nn.utils.clip_grad_norm_(theirs, limit)
    assert all(torch.equal(p.grad, leaf) for p, leaf in zip(theirs, as_clip(limit)(ours).values(), strict=True))


@pytest.mark.case("C08")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_finite_16_bit_gradient_whose_squares_overflow_is_clipped_not_zeroed(dtype):
    made = clipped(1.0, torch.tensor([300.0, 0.0], dtype=dtype))
    assert made.p0.dtype == dtype
    assert made.norm().item() == pytest.approx(1, rel=1e-3)
    built = grad(torch.tensor([300.0], dtype=dtype))
    assert (built * (1 / built.norm())).norm().item() == pytest.approx(1, rel=1e-3)


def test_squares_that_overflow_float32_are_clipped_too():
    made = clipped(1.0, [3e25, -4e25])
    assert made.p0.tolist() == pytest.approx([0.6, -0.8])


def test_a_norm_beyond_float32_of_entries_within_it_is_clipped_too():
    made = clipped(1.0, [3e38, -3e38], torch.tensor([5.0], dtype=torch.float16))
    assert made.p0.tolist() == pytest.approx([0.5**0.5, -(0.5**0.5)])


@pytest.mark.parametrize("limit", [1.0, inf])
@pytest.mark.parametrize("bad", [nan, inf, -inf])
def test_a_norm_that_is_not_finite_leaves_the_gradient_as_it_is(bad, limit):
    whole = grad([3.0, bad], [4.0])
    assert as_clip(limit)(whole) is whole
    assert whole.p1.tolist() == [4]


@pytest.mark.parametrize("clip", [0.1, 1e3, ("norm", 0.5), ("value", 0.01), ["value", 10]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_torch_s_own_clipping(clip, dtype):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 3)).to(dtype)
    model(torch.randn(4, 7, dtype=dtype)).square().sum().backward()
    whole = Grad(model, [p.grad.clone() for p in model.parameters()])
    made = as_clip(clip)(whole)
    kind, limit = clip if isinstance(clip, tuple | list) else ("norm", clip)
    reference = nn.utils.clip_grad_norm_ if kind == "norm" else nn.utils.clip_grad_value_
    reference(model.parameters(), limit)
    for leaf, p in zip(made.values(), model.parameters(), strict=True):
        torch.testing.assert_close(leaf, p.grad, rtol=1e-6, atol=0)


entries = st.floats(-1e6, 1e6, width=32)


@given(hnp.arrays(np.float32, st.integers(1, 20), elements=entries), st.floats(1e-3, 1e3))
def test_the_norm_afterwards_is_within_the_limit_and_the_direction_kept(values, limit):
    whole = grad(torch.from_numpy(values[::2].copy()), torch.from_numpy(values[1::2].copy()))
    made = as_clip(limit)(whole)
    assert made.norm().item() <= limit * (1 + 1e-5)
    one, two = (torch.cat([leaf.double() for leaf in each.values()]) for each in (whole, made))
    if made is not whole:
        assert torch.allclose(two, one * (two.norm() / one.norm()), rtol=1e-5, atol=1e-30)


# By value --------------------------------------------------------------------------------------------------------


def test_every_entry_is_brought_within_the_limits_and_nan_stays_nan():
    whole = grad([3.0, -0.2, nan], [-inf], torch.tensor(0.7))
    made = as_clip(("value", 0.5))(whole)
    assert made.p0.tolist() == pytest.approx([0.5, -0.2, nan], nan_ok=True)
    assert made.p1.tolist() == [-0.5]
    assert made.p2.item() == 0.5
    assert whole.p1.tolist() == [-inf]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("limit", [0.5, 1e6, 1e300, inf])
def test_every_dtype_is_kept_for_limits_beyond_its_range_too(dtype, limit):
    made = clipped(("value", limit), torch.tensor([1.0, -inf]).to(dtype), torch.ones(1))
    assert made.p0.dtype == dtype
    bound = limit if limit == inf else min(limit, torch.finfo(dtype).max)
    assert torch.equal(made.p0, torch.tensor([min(1.0, limit), -bound], dtype=dtype))


def test_complex_gradients_have_no_order():
    values = torch.tensor([3 + 4j])
    with pytest.raises(OptimizerError, match=r"p1 is torch.complex64.* Write clip=0.5 to clip by norm"):
        clipped(("value", 0.5), [1.0], values)
    assert clipped(1.0, values).p0.tolist() == pytest.approx([0.6 + 0.8j])


@given(hnp.arrays(np.float32, st.integers(0, 20), elements=st.floats(width=32)), st.floats(2**-10, 2**10, width=32))
def test_clipping_by_value_is_numpy_s_clip(values, limit):
    made = clipped(("value", limit), torch.from_numpy(values))
    np.testing.assert_array_equal(made.p0.numpy(), np.clip(values, -np.float32(limit), np.float32(limit)))


# Both ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clip", [1.0, ("value", 0.5)])
def test_unused_parameters_stay_unused_and_unmade(clip):
    made = as_clip(clip)(half_used())
    assert made.unused == ("idle.weight", "idle.bias")
    assert isinstance(made._leaves["idle.weight"], Blank)
    assert "zeros" not in vars(made._leaves["idle.weight"])
    assert (made.used.bias < 4).all()


@pytest.mark.parametrize("beside_dense", [False, True])
def test_sparse_gradients_count_an_entry_that_stands_twice_by_its_sum(beside_dense):
    sparse = torch.sparse_coo_tensor([[0, 0, 2]], [0.4, 0.2, -4.0], (4,), check_invariants=True)
    others = [torch.tensor([3.0])] if beside_dense else []
    by_value = clipped(("value", 0.5), sparse, *others)
    assert by_value.p0.layout is torch.sparse_coo
    assert by_value.p0.to_dense().tolist() == [0.5, 0, -0.5, 0]
    by_norm = clipped(1.0, sparse, *others)
    assert by_norm.p0.layout is torch.sparse_coo
    assert by_norm.norm().item() == pytest.approx(1, rel=1e-5)
    assert sparse.to_dense().tolist() == pytest.approx([0.6, 0, -4, 0])


def test_no_clipping_is_none():
    assert as_clip(None) is None


@pytest.mark.parametrize("clip", [np.float32(1), ("norm", np.float64(1))])
def test_numpy_s_numbers_are_numbers(clip):
    assert clipped(clip, [3.0, 4.0]).norm().item() == pytest.approx(1)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "above 0; got clip=0"),
        (-1.0, "above 0; got clip=-1.0"),
        (nan, "above 0; got clip=nan"),
        (("value", 0), r"got clip=\('value', 0\)"),
        (True, "got clip=True"),
        (("norm", True), r"got clip=\('norm', True\)"),
        ("norm", "got clip='norm'"),
        (("vale", 0.5), "did you mean 'value'"),
        ((1.0, 2.0), r"got clip=\(1.0, 2.0\)"),
        (("value", 1.0, 2.0), "got clip="),
        (torch.tensor(1.0), "got clip=a tensor"),
        ({"value": 1.0}, "got clip=a dict"),
    ],
)
def test_anything_else_is_refused_with_the_line_to_write(value, words):
    with pytest.raises(OptimizerError, match=words) as caught:
        as_clip(value)
    assert 'Write clip=1.0 to clip by norm, or clip=("value", 0.5).' in str(caught.value)
