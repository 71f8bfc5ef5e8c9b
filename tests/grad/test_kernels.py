"""One pass reads every entry once, wherever it stands, of tensors of any length."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gradviz
from gradviz.errors import RecordingWarning
from gradviz.grad import kernels
from gradviz.grad.kernels import BLOCK, FORMS
from gradviz.grad.statistics import STATISTICS, Statistics, statistics

DTYPES = list(FORMS)
LENGTHS = [*range(1, 18), 4 * BLOCK - 1, 4 * BLOCK, 4 * BLOCK + 1, 4 * (BLOCK + 1), 8 * BLOCK + 7, 40 * BLOCK + 3]


def of(tensor: torch.Tensor, name: str) -> float:
    return float(statistics([tensor])[0, STATISTICS.index(name)])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", LENGTHS)
def test_every_entry_counts_once_whatever_the_length(length, dtype):
    powers = torch.arange(1, length + 1, dtype=dtype)  # sums of whole numbers are exact
    table = statistics([powers])[0]
    wide = powers.double()
    narrow = np.dtype(str(dtype).removeprefix("torch.")).type
    assert table[0] == pytest.approx(float(narrow(math.sqrt(wide.square().sum().item()))), rel=1e-14)
    assert table[1] == pytest.approx(float(narrow(wide.mean().item())), rel=1e-14)
    assert table[3:].tolist() == [length, 0, 0, 0, 0]
    norm = Statistics([powers], only_norms=True)([powers])[0, 0]
    assert norm == pytest.approx(table[0], rel=1e-14)


@settings(max_examples=60)
@given(st.sampled_from(LENGTHS), st.sampled_from(DTYPES), st.data())
def test_one_entry_that_differs_is_seen_wherever_it_stands(length, dtype, data):
    place = data.draw(st.integers(0, length - 1))
    tensor = torch.zeros(length, dtype=dtype)
    tensor[place] = -3.0
    narrow = np.dtype(str(dtype).removeprefix("torch.")).type
    assert statistics([tensor])[0, [0, 1, 3]].tolist() == [3.0, narrow(-3.0 / length), 3.0]
    assert of(tensor, "zero_fraction") == narrow((length - 1) / length)
    for value, name in ((math.nan, "nan"), (math.inf, "posinf"), (-math.inf, "neginf")):
        tensor[place] = value
        for only_norms in (False, True):
            row = Statistics([tensor], only_norms=only_norms)([tensor])[0]
            assert [row[STATISTICS.index(each)] for each in ("nan", "posinf", "neginf")] == [
                float(each == name) for each in ("nan", "posinf", "neginf")
            ]


@pytest.mark.parametrize("dtype", DTYPES)
def test_minus_zero_is_zero_and_the_smallest_number_is_not(dtype):
    smallest = 5e-324 if dtype is torch.float64 else 1e-45
    tensor = torch.tensor([0.0, -0.0, smallest, -smallest], dtype=dtype)
    assert of(tensor, "zero_fraction") == 0.5
    assert of(tensor, "max_abs") == abs(tensor[2].item()) > 0
    assert of(tensor, "norm") == pytest.approx(math.sqrt(2) * tensor[2].item(), rel=1e-6, abs=5e-324)


def test_squares_of_float32_neither_vanish_nor_overflow_so_nobody_looks_twice(monkeypatch):
    def never(*args: object) -> np.ndarray:
        raise AssertionError("looked at again")

    monkeypatch.setattr("gradviz.grad.statistics._carefully", never)
    for size in (1e-45, 1e-30, 1e30, 3.4e38):
        tensor = torch.tensor([size, -size])
        assert of(tensor, "norm") == pytest.approx(math.sqrt(2) * abs(tensor[0].item()), rel=1e-7)


@pytest.mark.parametrize("offset", [1, 2, 3, 5])
def test_entries_that_begin_anywhere_in_memory(offset):
    torch.manual_seed(0)
    whole = torch.randn(1000)
    part = whole[offset:]
    np.testing.assert_array_equal(statistics([part]), statistics([part.clone()]))


def test_what_is_stored_with_its_sign_turned_counts_as_it_reads():
    turned = torch.tensor([1.0 + 2.0j]).conj().imag
    assert turned.is_neg()
    assert turned.is_contiguous()
    assert statistics([turned])[0, :2].tolist() == [2.0, -2.0]
    measure = Statistics([torch.zeros(1)])
    assert measure([turned])[0, :2].tolist() == [2.0, -2.0]


def test_a_tensor_of_zeros_that_has_no_memory_is_zero():
    nowhere = torch._efficientzerotensor(4)
    for measure in (statistics, Statistics([torch.ones(4)])):
        assert measure([nowhere])[0, [0, 1, 3, 4]].tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize("length", [5, 5001])
def test_what_is_zero_is_decided_alike_where_subnormal_numbers_are_flushed(length):
    tensor = torch.full((length,), 1e-44)
    torch.set_flush_denormal(True)
    try:
        assert of(tensor, "zero_fraction") == 0
    finally:
        torch.set_flush_denormal(False)


def test_a_subclass_is_read_as_torch_shows_it():
    class Weights(torch.Tensor):
        pass

    tensor = torch.tensor([3.0, -4.0]).as_subclass(Weights)
    assert of(tensor, "norm") == 5.0


def test_other_sizes_than_were_taken_in_are_never_read_beyond_their_end():
    measure = Statistics([torch.zeros(100_000), torch.zeros(3)])
    tensors = [torch.ones(4), torch.full((9,), 2.0, dtype=torch.float64)]
    assert measure(tensors)[:, [0, 3]].tolist() == [[2.0, 1.0], [6.0, 2.0]]


MEASURED = [3.0, -4.0, 0.0, math.nan]


@pytest.mark.parametrize("damaged", ["*.nbi", "*.nbc"])
@pytest.mark.parametrize("content", [b"", b"garbage"])
def test_what_is_kept_on_disk_may_be_damaged_and_is_made_whole_again(tmp_path, monkeypatch, damaged, content):
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    assert doubting()(3) == 1
    (file,) = tmp_path.rglob(damaged)
    file.write_bytes(content)
    assert doubting()(3) == 1
    again = doubting()
    assert again(3) == 1
    assert again.func._call.stats.cache_hits


def test_without_the_compiler_the_numbers_are_the_same():
    read = f"from gradviz.grad.statistics import statistics; from torch import nan, tensor; t = tensor({MEASURED})"
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", f"{read}; print(statistics([t[:3], t]).tolist())"],
        env=os.environ | {"PYTHONPATH": str(Path(gradviz.__file__).parents[1]), "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    measured = statistics([torch.tensor(MEASURED[:3]), torch.tensor(MEASURED)])
    np.testing.assert_allclose(eval(done.stdout, {"nan": math.nan}), measured, rtol=1e-14)


def test_what_cannot_be_kept_on_disk_is_compiled_all_the_same(tmp_path, monkeypatch):
    nowhere = tmp_path / "file"
    nowhere.touch()
    monkeypatch.setattr("numba.config.CACHE_DIR", str(nowhere))
    monkeypatch.setattr("numba.core.caching.InTreeCacheLocator.from_function", lambda *_: None)
    monkeypatch.setattr("numba.core.caching.UserWideCacheLocator.from_function", lambda *_: None)
    assert doubting()(3) == 1


def test_a_disk_that_turns_full_costs_nothing_but_time(monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    kernel = doubting()
    monkeypatch.setattr("numba.core.caching.IndexDataCacheFile.save", full)
    assert kernel(3) == 1
    assert kernel(2) == 0


def test_what_cannot_be_compiled_is_said_once_and_leaves_everything_in_doubt():
    def measure(in_doubt):
        return in_doubt.no_such_thing

    kernel, in_doubt = kernels.Kernel(measure), np.zeros(2, np.bool_)
    with pytest.warns(RecordingWarning, match="could not be compiled"):
        assert kernel(in_doubt) == 2
    assert in_doubt.all()
    assert kernel(in_doubt) == 2


def doubting() -> partial[int]:
    def measure(in_doubt, value):
        in_doubt[0] = value > 2
        return int(in_doubt[0])

    return partial(kernels.Kernel(measure), np.zeros(1, np.bool_))


def test_the_same_numbers_come_every_time():
    torch.manual_seed(0)
    tensors = [torch.randn(length) for length in LENGTHS]
    first = statistics(tensors).copy()
    for _ in range(3):
        np.testing.assert_array_equal(statistics([tensor.clone() for tensor in tensors]), first)


def test_every_dtype_is_read_as_integers_of_its_width():
    for dtype, form in kernels.FORMS.items():
        assert torch.from_numpy(form.entries).dtype is dtype
        assert form.bits.itemsize == form.entries.itemsize
        assert form.unsigned == np.iinfo(form.bits.dtype).max
