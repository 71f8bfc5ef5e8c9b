"""Every entry is counted once, in the one bin of the fixed grid that holds it, whatever it is stored as."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gradviz.grad import histograms as module
from gradviz.grad import kernels
from gradviz.grad.histograms import EDGES, HIGH, LOW, N_BINS, histograms

DTYPES = [torch.float32, torch.float64]
BITS = {torch.float32: np.uint32, torch.float64: np.uint64}
WIDTHS = {torch.float32: np.float32, torch.float64: np.float64}
ZEROS, NANS, INFINITIES = (0.0, 0.0), (math.nan, math.nan), (math.inf, math.inf)


def bins(tensor: torch.Tensor) -> dict[tuple[float, float], int]:
    """The bins that are not empty, by their ends; NaN under its text."""
    (counts,) = histograms([tensor])
    places = np.flatnonzero(counts)
    ends = zip(LOW[places].tolist(), HIGH[places].tolist(), strict=True)
    return {
        NANS if math.isnan(low) else (low, high): n
        for (low, high), n in zip(ends, counts[places].tolist(), strict=True)
    }


def expected(values: np.ndarray) -> np.ndarray:
    """The counts, by comparing each value with the ends of every bin."""
    wide, counts = values.astype(np.float64), np.zeros(N_BINS, np.int64)
    for place, (low, high) in enumerate(zip(LOW, HIGH, strict=True)):
        if math.isnan(low):
            counts[place] = np.isnan(wide).sum()
        elif low == high:
            counts[place] = (wide == low).sum()
        elif low == 0 or high == 0:
            counts[place] = ((low < wide) & (wide < high)).sum()
        elif low > 0:
            counts[place] = ((low <= wide) & (wide < high)).sum()
        else:
            counts[place] = ((low < wide) & (wide <= high)).sum()
    return counts


def test_there_are_four_bins_an_octave_on_either_side_and_they_leave_no_gap():
    assert EDGES[0] == 2.0**-48
    assert EDGES[-1] == 2.0**16
    assert len(EDGES) == 4 * 64 + 1
    assert (LOW[:259] == -HIGH[260:519][::-1]).all()
    assert (HIGH[1:258] == LOW[2:259]).all()
    assert (HIGH[261:517] == LOW[262:518]).all()
    assert (LOW[259], HIGH[259]) == ZEROS
    assert (LOW[518], HIGH[518]) == INFINITIES
    assert np.isnan([LOW[519], HIGH[519]]).all()
    assert not np.signbit(LOW[259:519]).any()
    assert not np.signbit(HIGH[258:519]).any()


def test_the_edges_are_the_powers_of_two_to_the_last_digit():
    with localcontext() as context:
        context.prec = 60
        for place, edge in enumerate(EDGES.tolist()):
            exact = Decimal(2) ** (Decimal(place) / 4 - 48)
            neighbours = [math.nextafter(edge, 0), edge, math.nextafter(edge, math.inf)]
            assert min(neighbours, key=lambda near: abs(Decimal(near) - exact)) == edge


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_bin_holds_the_edge_nearer_to_zero_and_not_the_other(dtype, sign):
    number = WIDTHS[dtype]
    ends = [0.0, *EDGES.tolist(), math.inf]
    for below, edge, above in zip(ends, ends[1:], ends[2:], strict=False):
        nearest = number(edge)
        at = nearest if float(nearest) >= edge else np.nextafter(nearest, number(math.inf))
        assert float(at) == edge or dtype is torch.float32
        before = np.nextafter(at, number(0))
        outer, inner = ((edge, above), (below, edge)) if sign > 0 else ((-above, -edge), (-edge, 0.0 - below))
        assert bins(torch.tensor([sign * at], dtype=dtype)) == {outer: 1}
        assert bins(torch.tensor([sign * before], dtype=dtype)) == {inner: 1}


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_no_number_of_the_grid_is_counted_apart(dtype):
    smallest = 1e-45 if dtype is torch.float32 else 5e-324
    largest = torch.finfo(dtype).max
    values = [0.0, -0.0, smallest, -smallest, -smallest, largest, largest, -largest, math.nan, -math.nan]
    assert bins(torch.tensor([*values, math.inf, math.inf, -math.inf], dtype=dtype)) == {
        (-math.inf, -math.inf): 1,
        (-math.inf, -(2.0**16)): 1,
        (-(2.0**-48), 0.0): 2,
        ZEROS: 2,
        (0.0, 2.0**-48): 1,
        (2.0**16, math.inf): 2,
        INFINITIES: 2,
        NANS: 2,
    }


def any_numbers(dtype: torch.dtype) -> st.SearchStrategy[np.ndarray]:
    """Any bits at all, and often those of a number on the grid."""
    of_grid = st.floats(-70000, 70000, width=32).map(lambda value: WIDTHS[dtype](value).view(BITS[dtype]))
    width = 8 * np.dtype(BITS[dtype]).itemsize
    elements = st.integers(0, 2**width - 1) | of_grid.map(int)
    return hnp.arrays(BITS[dtype], st.integers(0, 40), elements=elements).map(lambda bits: bits.view(WIDTHS[dtype]))


@settings(max_examples=150)
@given(st.sampled_from(DTYPES).flatmap(any_numbers))
def test_any_tensor(values):
    np.testing.assert_array_equal(histograms([torch.from_numpy(values.copy())])[0], expected(values))


@settings(max_examples=60)
@given(st.lists(any_numbers(torch.float32), min_size=1, max_size=5))
def test_merged_counts_are_those_of_all_entries_together(parts):
    tensors = [torch.from_numpy(part.copy()) for part in parts]
    np.testing.assert_array_equal(histograms(tensors).sum(axis=0), histograms([torch.cat(tensors)])[0])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", [*range(6), kernels.BLOCK - 1, kernels.BLOCK, kernels.BLOCK + 1, 10_007])
def test_every_entry_counts_once_whatever_the_length(dtype, length):
    torch.manual_seed(length)
    tensor = torch.randn(length, dtype=dtype)
    (counts,) = histograms([tensor])
    assert counts.sum() == length
    np.testing.assert_array_equal(counts, expected(tensor.numpy()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn])
def test_entries_of_fewer_bits_lie_where_their_values_do(dtype):
    torch.manual_seed(0)
    tensor = torch.randn(300).to(dtype)
    np.testing.assert_array_equal(histograms([tensor])[0], expected(tensor.float().numpy()))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_entries_count_by_their_magnitude(dtype):
    tensor = torch.tensor([3 + 4j, -1, 0, complex(math.nan, 1), complex(-math.inf, 1)], dtype=dtype)
    np.testing.assert_array_equal(histograms([tensor])[0], expected(np.array([5, 1, 0, math.nan, math.inf])))


def test_what_a_sparse_tensor_leaves_out_is_zero_and_what_it_says_twice_is_added_first():
    sparse = torch.sparse_coo_tensor(
        torch.tensor([[1, 1, 2]]), torch.tensor([[1.0, 2.0], [3.0, 4.0], [-5.0, 0.0]]), (6, 2), check_invariants=True
    )
    np.testing.assert_array_equal(histograms([sparse])[0], expected(sparse.to_dense().numpy()))
    nothing = torch.sparse_coo_tensor(torch.empty(1, 0, dtype=torch.long), torch.empty(0), (9,), check_invariants=True)
    assert bins(nothing) == {ZEROS: 9}


@pytest.mark.parametrize(
    "other",
    [
        lambda t: t.t(),
        lambda t: t[:, ::3],
        lambda t: t[:1, :1].expand(4, 6),
        lambda t: t.clone().requires_grad_(),
        lambda t: torch.complex(t, t).conj().imag,
        lambda t: t[0, 0],
        lambda t: t[:0],
    ],
    ids=["transposed", "strided", "expanded", "with a graph", "negated", "of no dimension", "empty"],
)
def test_a_tensor_of_any_form_counts_as_it_reads(other):
    torch.manual_seed(0)
    tensor = other(torch.randn(8, 12))
    plain = np.array(tensor.detach().reshape(-1).tolist(), np.float32)
    np.testing.assert_array_equal(histograms([tensor])[0], expected(plain))


def test_zeros_that_have_no_memory_are_zeros():
    assert bins(torch._efficientzerotensor(4)) == {ZEROS: 4}


def test_many_tensors_keep_their_places_and_are_left_as_they_are():
    torch.manual_seed(0)
    tensors = [torch.randn(5), torch.randn(3, 4, dtype=torch.float64), torch.randn(2, dtype=torch.float16)]
    copies, versions = [t.clone() for t in tensors], [t._version for t in tensors]
    together = histograms(tensors)
    np.testing.assert_array_equal(together, np.concatenate([histograms([t]) for t in tensors]))
    assert all(map(torch.equal, tensors, copies))
    assert [t._version for t in tensors] == versions
    assert histograms([]).shape == (0, N_BINS)


@settings(max_examples=100)
@given(st.sampled_from(DTYPES).flatmap(any_numbers))
def test_the_way_of_other_devices_gives_the_same_counts(values):
    tensor = torch.from_numpy(values.copy())
    np.testing.assert_array_equal(module._by_torch(tensor).numpy(), expected(values))


def test_another_device_takes_large_tensors_in_pieces(monkeypatch):
    monkeypatch.setattr(module, "PIECE", 100)
    torch.manual_seed(0)
    tensor = torch.randn(1001)
    np.testing.assert_array_equal(module._by_torch(tensor).numpy(), expected(tensor.numpy()))


def test_without_the_compiler_the_counts_are_the_same(monkeypatch):
    torch.manual_seed(0)
    sparse = torch.sparse_coo_tensor(torch.tensor([[1, 2]]), torch.tensor([1.0, 2.0]), (9,), check_invariants=True)
    tensors = [torch.randn(70), torch.randn(6, dtype=torch.bfloat16), sparse, torch.randn(5, dtype=torch.float64)]
    compiled = histograms(tensors)
    monkeypatch.setattr(module._count, "_call", kernels._leave_in_doubt)
    np.testing.assert_array_equal(histograms(tensors), compiled)


def test_what_is_subnormal_is_no_zero_where_such_numbers_are_flushed():
    tensor = torch.full((5,), 1e-44)
    torch.set_flush_denormal(True)
    try:
        assert bins(tensor) == {(0.0, 2.0**-48): 5}
    finally:
        torch.set_flush_denormal(False)
