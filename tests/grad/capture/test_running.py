"""Running moments are those of all examples together, whichever way they came in."""

from __future__ import annotations

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from gradviz.grad.capture.running import Running


@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.integers(0, 1), st.integers(0, 2**16))
def test_moments_of_many_batches_are_those_of_one(lengths, batch_dim, seed):
    generator = torch.Generator().manual_seed(seed)
    batches = [torch.randn(n, 3, generator=generator).movedim(0, batch_dim) for n in lengths]
    running = Running.of(batches[0], batch_dim)
    for batch in batches[1:]:
        running = running.merged(Running.of(batch, batch_dim))
    together = torch.cat(batches, batch_dim).double().movedim(batch_dim, 0)
    assert (running.count, running.left_out) == (sum(lengths), 0)
    if running.count:
        torch.testing.assert_close(running.mean, together.mean(0), rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(running.second_moment, together.square().mean(0), rtol=1e-12, atol=1e-14)
    else:
        assert running.mean.isnan().all()


def test_examples_that_are_not_finite_are_left_out_and_counted():
    running = Running.of(torch.tensor([[1.0, 2.0], [math.nan, 0.0], [3.0, math.inf], [5.0, 6.0]]), 0)
    assert running.mean.tolist() == [3, 4]
    assert (running.count, running.left_out) == (2, 2)
    again = running.merged(Running.of(torch.tensor([[math.nan, 1.0]]), 0))
    assert (again.mean.tolist(), again.count, again.left_out) == ([3, 4], 2, 3)


def test_a_batch_of_another_shape_is_left_out():
    running = Running.of(torch.ones(2, 3), 0).merged(Running.of(torch.ones(4, 5), 0))
    assert (running.mean.shape, running.count, running.left_out) == ((3,), 2, 4)


def test_a_mean_of_many_steps_does_not_drift():
    running = Running.of(torch.full((1, 1), 0.1), 0)
    for _ in range(2000):
        running = running.merged(Running.of(torch.full((1, 1), 0.1), 0))
    assert running.mean.item() == torch.tensor(0.1).double().item()


def test_small_numbers_do_not_vanish():
    running = Running.of(torch.full((2, 1), 1e-30), 0)
    assert running.second_moment.item() > 0
    assert math.isclose(running.second_moment.item(), 1e-60, rel_tol=1e-6)


def test_complex_gradients_have_a_complex_mean_and_a_real_second_moment():
    running = Running.of(torch.tensor([[3 + 4j], [1 - 4j]]), 0)
    assert running.mean.item() == 2
    assert running.second_moment.item() == (25 + 17) / 2
    assert running.mean.dtype is torch.complex128
    assert running.second_moment.dtype is torch.float64


def test_a_scalar_counts_as_one_example():
    running = Running.of(torch.tensor(3.0), 0)
    assert (running.mean.item(), running.count) == (3, 1)


def test_a_loss_scale_is_divided_out_of_both_moments():
    running = Running.of(torch.full((2, 1), 8.0), 0).scaled(1 / 4)
    assert (running.mean.item(), running.second_moment.item()) == (2, 4)
