"""Statistics agree with plain torch in double precision, whatever the dtype, size, layout and range."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gradviz.grad import kernels
from gradviz.grad import statistics as module
from gradviz.grad.statistics import STATISTICS, OneByOne, Statistics, statistics
from gradviz.history import rows

NAMES = {name: place for place, name in enumerate(STATISTICS)}


def expected(tensor: torch.Tensor) -> dict[str, float]:
    """What torch says in double precision."""
    wide = tensor.detach().to_dense() if tensor.is_sparse else tensor.detach()
    wide = (wide.abs() if wide.is_complex() else wide).double().reshape(-1)
    return {
        "norm": torch.linalg.vector_norm(wide).item(),
        "mean": wide.mean().item(),
        "std": wide.std().item() if wide.numel() > 1 else math.nan,
        "max_abs": wide.abs().max().item(),
        "zero_fraction": (wide == 0).double().mean().item(),
        "nan": wide.isnan().sum().item(),
        "posinf": wide.isposinf().sum().item(),
        "neginf": wide.isneginf().sum().item(),
    }


def norms(tensors: list[torch.Tensor]) -> np.ndarray:
    return Statistics(tensors, only_norms=True)(tensors)


def check(tensor: torch.Tensor, row: np.ndarray, rtol: float = 1e-5) -> None:
    for name, value in expected(tensor).items():
        # A mean of values that cancel is right to the size of the values, not to its own.
        slack = 1e-6 * expected(tensor)["max_abs"] if name in ("mean", "std") else 0
        slack = slack if math.isfinite(slack) else 0
        np.testing.assert_allclose(row[NAMES[name]], value, rtol=rtol, atol=slack, err_msg=name)


def test_the_history_keeps_the_same_statistics_in_the_same_order():
    assert rows.STATISTICS == STATISTICS


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (64, 65), (300, 301), (2, 0)])
def test_every_dtype_and_size_gives_the_numbers_of_torch(dtype, shape):
    torch.manual_seed(0)
    tensor = torch.randn(shape, dtype=dtype)
    row = statistics([tensor])[0]
    if tensor.numel():
        check(tensor, row)
    else:
        assert row[0] == 0
        assert np.isnan(row[1:5]).all()


def test_many_tensors_of_mixed_kinds_keep_their_places():
    torch.manual_seed(1)
    tensors = [
        torch.randn(40, 30),
        torch.randn(200_000),
        torch.zeros(5),
        torch.randn(9, dtype=torch.float64),
        torch.randn(0),
        torch.randn(6, dtype=torch.bfloat16),
        torch.randn(10, 20).t(),
        torch.ones(1).expand(50),
        torch.randn(30, 300)[:, ::3],
        *[torch.randn(1000) for _ in range(100)],
    ]
    table = statistics(tensors)
    for tensor, row in zip(tensors, table, strict=True):
        if tensor.numel():
            check(tensor, row)
    assert statistics([]).shape == (0, len(STATISTICS))


@pytest.mark.parametrize("numel", [3, 10_000, 100_000])
@pytest.mark.parametrize("size", [1e-45, 1e-30, 1e-23, 1e-19, 1e19, 1e20, 3e38])
def test_a_norm_is_zero_or_infinite_only_where_the_entries_are(size, numel):
    tensor = torch.full((numel,), size)
    row = statistics([tensor, torch.ones(2)])[0]
    check(tensor, row)
    assert 0 < row[0] < math.inf


def test_a_vanished_net_is_measured_and_its_zeros_stay_zero():
    tensors = [torch.randn(32, 32) * 10.0**-power for power in range(0, 46, 3)] + [torch.zeros(32)]
    table = statistics(tensors)
    for tensor, row in zip(tensors, table, strict=True):
        check(tensor, row)
    assert table[-1, 0] == 0


def test_float64_beyond_float32_is_right():
    for size in (1e-200, 1e-310, 1e200):  # torch's own norm gives 0 and inf here
        row = statistics([torch.tensor([size, -size, 0.0], dtype=torch.float64)])[0]
        np.testing.assert_allclose(row[:4], [math.sqrt(2) * size, 0, size, size], rtol=1e-12)


def test_half_precision_squares_neither_overflow_nor_vanish():
    for size in (6e4, 300.0, 1e-4):
        tensor = torch.full((4,), size, dtype=torch.float16)
        check(tensor, statistics([tensor])[0])


def test_spread_far_from_zero_keeps_its_digits():
    torch.manual_seed(0)
    for numel in (100, 100_000):
        tensor = 1000 + torch.randn(numel) * 1e-2
        np.testing.assert_allclose(statistics([tensor])[0, NAMES["std"]], tensor.double().std().item(), rtol=1e-6)
    constant = statistics([torch.full((1000,), 0.1)])[0]
    assert constant[NAMES["std"]] < 1e-9


@pytest.mark.parametrize("numel", [8, 100_000])
def test_non_finite_entries_are_counted_apart_and_show_in_the_norm(numel):
    def with_entries(*entries: float) -> torch.Tensor:
        tensor = torch.ones(numel)
        tensor[: len(entries)] = torch.tensor(entries)
        return tensor

    nan, inf = math.nan, math.inf
    table = statistics([with_entries(nan, nan, inf), with_entries(inf, -inf, -inf), with_entries(-inf), with_entries()])
    assert table[:, 5:].tolist() == [[2, 1, 0], [0, 1, 2], [0, 0, 1], [0, 0, 0]]
    np.testing.assert_array_equal(table[:3, 0], [nan, inf, inf])
    np.testing.assert_array_equal(table[:3, 1], [nan, nan, -inf])
    np.testing.assert_array_equal(table[:3, 3], [nan, inf, inf])
    assert np.isnan(table[:3, 2]).all()


def test_uncoalesced_sparse_gradients_give_the_numbers_of_dense_ones():
    indices = torch.tensor([[1, 1, 2]])
    sparse = torch.sparse_coo_tensor(
        indices, torch.tensor([[1.0, 2.0], [3.0, 4.0], [-5.0, 0.0]]), (6, 2), check_invariants=True
    )
    check(sparse, statistics([sparse])[0])
    nothing = torch.sparse_coo_tensor(
        torch.empty(1, 0, dtype=torch.long), torch.empty(0, 2), (6, 2), check_invariants=True
    )
    check(nothing, statistics([nothing])[0])


def test_the_tensors_are_left_as_they_are():
    tensors = [torch.randn(5), torch.randn(100_000), torch.randn(3, dtype=torch.float16)]
    copies, versions = [t.clone() for t in tensors], [t._version for t in tensors]
    statistics(tensors)
    assert all(torch.equal(a, b) for a, b in zip(tensors, copies, strict=True))
    assert [t._version for t in tensors] == versions


def test_gradients_with_a_graph_can_be_measured():
    w = torch.ones(3, requires_grad=True)
    (g,) = torch.autograd.grad((w**3).sum(), [w], create_graph=True)
    assert statistics([g])[0, 0] == pytest.approx(math.sqrt(27))


def test_the_way_of_other_devices_gives_the_same_table():
    torch.manual_seed(0)
    tensors = [
        torch.randn(50, 3),
        torch.full((10,), 1e-30),
        torch.full((10,), 1e30),
        torch.zeros(4),
        torch.tensor([math.nan, 1.0]),
        torch.tensor([math.inf, -math.inf, 2.0]),
        torch.tensor(3.0),
        torch.empty(0),
        torch.randn(7, dtype=torch.complex64),
        torch.randn(7).to(torch.bfloat16),
        torch.sparse_coo_tensor(torch.tensor([[1, 1]]), torch.tensor([1.0, 2.0]), (4,), check_invariants=True),
    ]
    there = module._on_device(tensors)
    here = statistics(tensors)
    finite = np.isfinite(here)
    np.testing.assert_allclose(there[finite], here[finite], rtol=1e-5, atol=1e-7)
    norms_and_counts = [0, 5, 6, 7]
    np.testing.assert_allclose(there[:, norms_and_counts], here[:, norms_and_counts], rtol=1e-5)


@settings(max_examples=150)
@given(hnp.arrays(np.float32, hnp.array_shapes(max_dims=2, max_side=40), elements=st.floats(width=32)))
def test_any_float32_tensor(array):
    tensor = torch.from_numpy(array.copy())
    row, want = statistics([tensor])[0], expected(tensor)
    np.testing.assert_array_equal(row[5:], [want["nan"], want["posinf"], want["neginf"]])
    np.testing.assert_allclose(row[NAMES["zero_fraction"]], want["zero_fraction"], atol=1e-12)
    np.testing.assert_allclose(row[[0, 3]], [want["norm"], want["max_abs"]], rtol=1e-5)


KEPT = [0, 5, 6, 7]
"""What `norms` tells: the norm, and the entries that are not finite."""


@pytest.mark.parametrize("size", [0.0, 1e-45, 1e-30, 1e-19, 1.0, 1e19, 3e38, math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("numel", [1, 3, 100_000])
def test_norms_alone_are_as_right_at_both_ends(size, numel):
    tensor = torch.full((numel,), size)
    row = norms([torch.ones(2), tensor])[1]
    np.testing.assert_allclose(row[KEPT], [expected(tensor)[STATISTICS[place]] for place in KEPT], rtol=1e-5)
    assert np.isnan(row[1:5]).all()


def test_norms_of_every_kind_of_tensor_are_those_among_all_statistics():
    torch.manual_seed(0)
    plain = [torch.randn(40, 30), torch.zeros(5), torch.randn(()), torch.randn(301, 300), torch.randn(30, 300)[:, ::3]]
    others = [
        torch.randn(6, dtype=torch.bfloat16),
        torch.full((4,), 6e4, dtype=torch.float16),
        torch.randn(9, dtype=torch.float64),
        torch.randn(7, dtype=torch.complex64),
        torch.randn(0),
        torch.sparse_coo_tensor(torch.tensor([[1, 1]]), torch.tensor([1.0, 2.0]), (4,), check_invariants=True),
    ]
    for tensors in (plain, [*plain, *others], others, [torch.randn(0)]):
        np.testing.assert_allclose(norms(tensors)[:, KEPT], statistics(tensors)[:, KEPT], rtol=1e-5)
    assert norms([]).shape == (0, len(STATISTICS))


def test_norms_of_a_vanished_net_are_measured_and_its_zeros_stay_zero():
    tensors = [torch.randn(32, 32) * 10.0**-power for power in range(0, 46, 3)] + [torch.zeros(32)]
    wanted = [expected(tensor)["norm"] for tensor in tensors]
    np.testing.assert_allclose(norms(tensors)[:, 0], wanted, rtol=1e-5)


@pytest.mark.parametrize("of", [statistics, norms])
def test_the_norm_of_a_large_tensor_of_equal_entries_is_right(of):
    tensor = torch.full((3_000_000,), 0.1)  # torch's own is off by two thousandths here
    np.testing.assert_allclose(of([tensor])[0, 0], tensor.double().norm().item(), rtol=1e-5)


def mixed(seed: int) -> list[torch.Tensor]:
    """Some of every way: stacked, alone, in pieces; with rows of zeros, tiny and huge entries, NaN and infinities."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=dtype)

    tensors = [normal(8, 8) for _ in range(40)] + [normal(70_000), normal(3), normal(5, 5, dtype=torch.float64)]
    tensors += (
        [normal(1) for _ in range(20)] + [normal(12, dtype=torch.float64) for _ in range(17)] + [normal(300, 300)]
    )
    places = torch.randperm(len(tensors), generator=generator).tolist()
    for place, value in zip(places, (0.0, 1e-30, 1e30, math.nan, math.inf, -math.inf, 5.0), strict=False):
        tensors[place].fill_(value)
    for place, value in zip(places[10:], (0.0, math.nan, math.inf, -math.inf), strict=False):
        tensors[place].view(-1)[0] = value
    return tensors


@pytest.mark.parametrize("only_norms", [False, True])
def test_what_is_kept_from_tensors_to_tensors_is_never_a_number(only_norms):
    measure = Statistics(mixed(0), only_norms=only_norms)
    for seed in (1, 2, 2, 3, 0):
        tensors = mixed(seed)
        table = measure(tensors)
        np.testing.assert_array_equal(table, Statistics(tensors, only_norms=only_norms)(tensors))
        for tensor, row in zip(tensors, table, strict=True):
            if only_norms:
                want = expected(tensor)
                np.testing.assert_allclose(row[KEPT], [want[STATISTICS[place]] for place in KEPT], rtol=1e-5)
                assert np.isnan(row[1:5]).all()
            else:
                check(tensor, row)


@pytest.mark.parametrize("n_alike", [1, 20])
@pytest.mark.parametrize(
    "other",
    [
        lambda t: t.to_sparse(),
        lambda t: t.clone().requires_grad_(),
        lambda t: t.t().contiguous().t(),
        lambda t: t[:1, :1].expand(4, 6),
    ],
    ids=["sparse", "with a graph", "transposed", "expanded"],
)
@pytest.mark.parametrize("only_norms", [False, True])
def test_a_tensor_that_comes_in_another_form_than_before_is_measured_all_the_same(other, n_alike, only_norms):
    torch.manual_seed(0)
    plain = [torch.randn(4, 6) for _ in range(n_alike)]
    there = [other(t) for t in plain]
    measure = Statistics(plain, only_norms=only_norms)
    for tensors in (plain, there, plain, [*there[:-1], plain[-1]], there):
        for tensor, row in zip(tensors, measure(tensors), strict=True):
            if only_norms:
                np.testing.assert_allclose(row[0], expected(tensor.detach())["norm"], rtol=1e-5)
            else:
                check(tensor.detach(), row)


def test_a_tensor_says_the_same_in_a_stack_and_alone():
    torch.manual_seed(0)
    alike = [torch.randn(20, 30) for _ in range(30)]
    together, alone = statistics(alike), np.concatenate([statistics([t]) for t in alike])
    np.testing.assert_array_equal(together[:, [3, 4, 5, 6, 7]], alone[:, [3, 4, 5, 6, 7]])
    np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-7)


NARROW = [torch.float32, torch.float16, torch.bfloat16, torch.complex64]


def in_other_ways(tensor: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """The compiled pass, norms alone, the careful way, and that of other devices."""
    rows = [statistics([tensor])[0].copy(), norms([tensor])[0].copy()]
    for each in kernels.KERNELS.values():
        monkeypatch.setattr(each.measure_all, "_call", kernels._leave_in_doubt)
    return [*rows, statistics([tensor])[0], module._on_device([tensor])[0]]


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("numel", [2, 7, 50_000])
def test_what_is_told_of_narrow_entries_has_float32_s_precision_whichever_way_it_is_measured(dtype, numel, monkeypatch):
    torch.manual_seed(0)
    tensor = torch.randn(numel, dtype=dtype)
    tensor[0] = 0
    for row in in_other_ways(tensor, monkeypatch):
        np.testing.assert_array_equal(row, row.astype(np.float32))
        np.testing.assert_allclose(row[0], expected(tensor)["norm"], rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_what_is_told_of_wide_entries_keeps_its_digits(dtype, monkeypatch):
    torch.manual_seed(0)
    tensor = torch.randn(50, dtype=dtype)
    want = list(expected(tensor).values())
    for row in in_other_ways(tensor, monkeypatch):
        told = np.isfinite(row)
        np.testing.assert_allclose(row[told], np.array(want)[told], rtol=1e-13)
        assert row[0] != np.float32(row[0])


@pytest.mark.parametrize("size", [1e-45, 1e-42, 1e-39, 3.4e38])
def test_a_number_that_float32_does_not_hold_stays_itself(size, monkeypatch):
    tensor = torch.full((9,), size)
    want = expected(tensor)
    for row in in_other_ways(tensor, monkeypatch)[:3]:
        told = want["norm"] if want["norm"] > 3e38 or want["norm"] < 1e-38 else np.float32(want["norm"])
        assert row[0] == pytest.approx(told, rel=1e-15, abs=0)
    assert statistics([torch.tensor([size, -size])])[0, NAMES["mean"]] == 0
    one = torch.tensor([size, 0.0, 0.0])
    assert statistics([one])[0, NAMES["mean"]] == pytest.approx(one[0].item() / 3, rel=1e-7, abs=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_not_all_are_zero_where_a_single_one_is_not(dtype, monkeypatch):
    values = torch.tensor([1.0], dtype=dtype)
    tensor = torch.sparse_coo_tensor(torch.tensor([[5]]), values, (2**30,), check_invariants=True)
    for row in in_other_ways(tensor, monkeypatch)[::2]:
        assert row[NAMES["zero_fraction"]] == 1 - 2.0**-30
    nothing = torch.sparse_coo_tensor(torch.empty(1, 0, dtype=torch.long), values[:0], (2**30,), check_invariants=True)
    assert statistics([nothing])[0, NAMES["zero_fraction"]] == 1


@settings(max_examples=150)
@given(hnp.arrays(np.float32, st.integers(1, 60), elements=st.floats(width=32)))
def test_a_number_is_zero_infinite_or_nan_only_where_it_is_so_in_float64(array):
    row, want = statistics([torch.from_numpy(array.copy())])[0], expected(torch.from_numpy(array.copy()))
    for name in ("norm", "mean", "max_abs"):
        value = row[NAMES[name]]
        assert math.isnan(value) == math.isnan(want[name])
        assert math.isinf(value) == math.isinf(want[name])
        assert name == "mean" or (value == 0) == (want[name] == 0)  # a mean's own zero depends on the order of its sum


def test_tensors_that_come_one_by_one_have_the_same_statistics_whatever_came_before():
    torch.manual_seed(2)
    tensors = [
        torch.randn(40, 30),
        torch.tensor([math.nan, math.inf, -math.inf, 0.0, 1.0]),
        torch.randn(7, dtype=torch.float64),
        torch.full((5,), 1e-30),
        torch.full((3,), 1e30) + torch.arange(3),
        torch.full((9,), 1e4) + 1e-3 * torch.randn(9),
        torch.randn(6, dtype=torch.bfloat16),
        torch.randn(10, 20).t(),
        torch.ones(1).expand(50),
        torch.randn(3, dtype=torch.complex64),
        torch.randn(8, dtype=torch.complex64).conj().imag,
        torch.eye(4).to_sparse(),
        torch.randn(()),
        torch.zeros(0, 3),
        torch.zeros(6),
        torch.randn(2, 2),
    ]
    measure = OneByOne()
    rows_of_each = [measure(tensor) for tensor in tensors]
    for tensor, row in zip(tensors, rows_of_each, strict=True):
        np.testing.assert_array_equal(row, statistics([tensor])[0])


@pytest.mark.parametrize("only_norms", [False, True])
def test_samples_that_are_taken_on_the_way_are_those_that_are_taken_by_themselves(only_norms):
    torch.manual_seed(0)
    tensors = [torch.randn(64, 64), torch.randn(3), torch.zeros(0), torch.randn(100, dtype=torch.float64)]
    measure = Statistics(tensors, only_norms=only_norms, samples=True)
    measure(tensors)
    on_the_way = measure.sampled()
    assert on_the_way == measure.sample(tensors)
    tensors[3].data.mul_(2)
    assert measure.sample(tensors) != on_the_way
    sparse = [torch.randn(2).to_sparse()]
    measure = Statistics(sparse, samples=True)
    measure(sparse)
    assert measure.sampled() is None
