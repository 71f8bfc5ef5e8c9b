"""What is counted by thresholds is what torch's own casts give, at every edge and for any bits."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gradviz.grad import kernels
from gradviz.grad import rounding as module
from gradviz.grad.rounding import FATES, NARROW, roundings

DTYPES = [torch.float32, torch.float64]
BITS = {torch.float32: np.uint32, torch.float64: np.uint64}
WIDTHS = {torch.float32: np.float32, torch.float64: np.float64}


def cast(tensor: torch.Tensor) -> np.ndarray:
    """The fates of entries, by casting them."""
    fates = []
    for dtype in NARROW:
        narrow = tensor.to(dtype).to(torch.float64)
        is_finite, is_left_finite = tensor.isfinite(), narrow.isfinite()
        is_too_large = is_finite & ~is_left_finite
        if dtype == torch.float8_e4m3fn:  # saturates, or not: what is half a step beyond 448 is not rounded to it
            is_too_large |= is_finite & ((tensor.float().double() - narrow).abs() > 16)
        is_subnormal = (narrow != 0) & (narrow.abs() < torch.finfo(dtype).smallest_normal)
        counted = {
            "entries": torch.ones_like(is_finite),
            "zero": tensor == 0,
            "underflow": (tensor != 0) & (narrow == 0),
            "subnormal": is_subnormal,
            "overflow": is_too_large,
            "nonfinite": ~is_finite,
        }
        fates.append([int(counted[fate].sum()) for fate in FATES])
    return np.array(fates)


def counted(tensor: torch.Tensor, dtype: torch.dtype) -> dict[str, int]:
    """What is not 0 among the fates in one dtype."""
    fates = dict(zip(FATES, roundings([tensor])[0, NARROW.index(dtype)].tolist(), strict=True))
    assert fates.pop("entries") == tensor.numel()
    return {fate: n for fate, n in fates.items() if n}


@pytest.mark.parametrize(
    ("dtype", "lost", "kept", "subnormal", "normal", "largest", "too_large"),
    [
        (torch.float16, 2**-25, 1.01 * 2**-25, 2**-14 - 1.01 * 2**-25, 2**-14 - 2**-25, 65519.9, 65520.0),
        (torch.bfloat16, 2**-134, 1.1 * 2**-134, 2**-126 - 1.1 * 2**-134, 2**-126 - 2**-134, 3.3895e38, 3.3962e38),
        (torch.float8_e4m3fn, 2**-10, 1.01 * 2**-10, 2**-6 - 1.01 * 2**-10, 2**-6 - 2**-10, 464.0, 464.01),
        (torch.float8_e5m2, 2**-17, 1.01 * 2**-17, 2**-14 - 1.01 * 2**-17, 2**-14 - 2**-17, 61439.0, 61440.0),
    ],
)
def test_the_edges_of_each_dtype_by_hand(dtype, lost, kept, subnormal, normal, largest, too_large):
    for sign in (1, -1):
        for value, fate in [
            (lost, "underflow"),
            (kept, "subnormal"),
            (subnormal, "subnormal"),
            (normal, None),
            (largest, None),
            (too_large, "overflow"),
        ]:
            assert counted(torch.tensor([sign * value]), dtype) == ({fate: 1} if fate else {}), value


def test_a_zero_is_not_lost_and_what_is_not_finite_was_not_made_so():
    tensor = torch.tensor([0.0, -0.0, math.nan, -math.nan, math.inf, -math.inf, 1.0])
    for dtype in NARROW:
        assert counted(tensor, dtype) == {"zero": 2, "nonfinite": 4}


@pytest.mark.parametrize("dtype", DTYPES)
def test_at_every_edge_and_beside_it_torch_casts_so(dtype):
    number = WIDTHS[dtype]
    for edge in module._edges(dtype)[2:]:
        for value in (np.nextafter(edge, number(0)), edge, np.nextafter(edge, number(math.inf))):
            for signed in (value, -value):
                alone = torch.tensor([signed], dtype=dtype)
                # Of many at once torch casts by other instructions.
                for tensor in (alone, alone.expand(64).contiguous()):
                    np.testing.assert_array_equal(roundings([tensor])[0], cast(tensor), err_msg=repr(signed))


def near_edges(dtype: torch.dtype) -> st.SearchStrategy[int]:
    """The bits of numbers within a few steps of an edge."""
    edges = module._edges(dtype).view(BITS[dtype]).tolist()
    sign = 1 << (8 * np.dtype(BITS[dtype]).itemsize - 1)
    steps = st.tuples(st.sampled_from(edges), st.integers(-3, 3), st.booleans())
    return steps.map(lambda step: max(step[0] + step[1], 0) | (sign if step[2] else 0))


def any_numbers(dtype: torch.dtype) -> st.SearchStrategy[np.ndarray]:
    """Any bits at all, and often those of a number at an edge."""
    width = 8 * np.dtype(BITS[dtype]).itemsize
    elements = st.integers(0, 2**width - 1) | near_edges(dtype)
    return hnp.arrays(BITS[dtype], st.integers(0, 40), elements=elements).map(lambda bits: bits.view(WIDTHS[dtype]))


@settings(max_examples=200)
@given(st.sampled_from(DTYPES).flatmap(any_numbers))
def test_any_tensor_counts_as_torch_casts_it(values):
    tensor = torch.from_numpy(values.copy())
    np.testing.assert_array_equal(roundings([tensor])[0], cast(tensor))


@settings(max_examples=100)
@given(st.sampled_from(DTYPES).flatmap(any_numbers))
def test_the_way_of_other_devices_gives_the_same_counts(values):
    tensor = torch.from_numpy(values.copy())
    own = module._by_torch(tensor).numpy()[None]
    np.testing.assert_array_equal(module._fates(np.array([tensor.numel()]), own)[0], cast(tensor))


@pytest.mark.parametrize("dtype", NARROW)
def test_what_is_in_few_bits_already_loses_nothing_in_them(dtype):
    torch.manual_seed(0)
    tensor = (torch.randn(3000) * 2.0 ** torch.randint(-24, 5, (3000,))).to(dtype)
    kept = tensor[tensor.float() != 0]
    n_subnormal = int((kept.float().abs() < torch.finfo(dtype).smallest_normal).sum())
    assert counted(kept, dtype) == ({"subnormal": n_subnormal} if n_subnormal else {})


@pytest.mark.parametrize("length", [*range(6), kernels.BLOCK - 1, kernels.BLOCK, kernels.BLOCK + 1, 10_007])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_entry_counts_once_whatever_the_length(dtype, length):
    torch.manual_seed(length)
    tensor = torch.randn(length, dtype=dtype) * 2.0 ** torch.randint(-30, 20, (length,))
    np.testing.assert_array_equal(roundings([tensor])[0], cast(tensor))


def test_complex_entries_count_by_their_magnitude_and_absent_ones_as_zeros():
    assert counted(torch.tensor([3e4 + 6e4j, 0]), torch.float16) == {"zero": 1, "overflow": 1}
    sparse = torch.sparse_coo_tensor(torch.tensor([[1, 2]]), torch.tensor([1e-9, 0.0]), (9,), check_invariants=True)
    assert counted(sparse, torch.float16) == {"zero": 8, "underflow": 1}


def test_tensors_of_any_form_keep_their_places_and_are_left_as_they_are():
    torch.manual_seed(0)
    tensors = [torch.randn(8, 12).t(), torch.randn(3, dtype=torch.float64), torch.randn(5)[::2], torch.randn(0)]
    copies = [tensor.clone() for tensor in tensors]
    together = roundings(tensors)
    np.testing.assert_array_equal(together, np.concatenate([roundings([tensor]) for tensor in tensors]))
    assert all(map(torch.equal, tensors, copies))
    assert roundings([]).shape == (0, len(NARROW), len(FATES))


def test_without_the_compiler_the_counts_are_the_same(monkeypatch):
    torch.manual_seed(0)
    tensors = [torch.randn(70) * 1e-6, torch.randn(6, dtype=torch.bfloat16), torch.randn(5, dtype=torch.float64)]
    compiled = roundings(tensors)
    monkeypatch.setattr(module._count, "_call", kernels._leave_in_doubt)
    np.testing.assert_array_equal(roundings(tensors), compiled)


def test_what_is_subnormal_is_lost_and_no_zero_where_such_numbers_are_flushed():
    tensor = torch.full((5,), 1e-44)
    torch.set_flush_denormal(True)
    try:
        assert counted(tensor, torch.float16) == {"underflow": 5}
    finally:
        torch.set_flush_denormal(False)
