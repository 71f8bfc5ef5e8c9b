"""A stream of a step's own goes on by itself, and the caller's streams never notice."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from gradviz.step.random_stream import RandomStream


def stream(seed: int = 3) -> RandomStream:
    return RandomStream(nn.Linear(1, 1), seed)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**63 - 1), lengths=st.lists(st.integers(0, 20), min_size=1, max_size=5))
def test_it_is_the_seed_s_own_stream_however_it_is_cut(seed, lengths):
    own, drawn = stream(seed), []
    reference = torch.Generator().manual_seed(seed)
    for length in lengths:
        torch.rand(length)  # somebody else draws in between
        with own:
            drawn.append(torch.rand(length))
    assert all(torch.equal(one, torch.rand(len(one), generator=reference)) for one in drawn)


def test_the_caller_s_stream_goes_on_as_if_nothing_had_been_drawn():
    own = stream()
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    parts = []
    for _ in range(3):
        parts.append(torch.rand(1))
        with own:
            torch.rand(5)
            torch.manual_seed(0)
    assert torch.equal(torch.cat(parts), expected)


def test_after_an_error_inside_both_go_on():
    own, reference = stream(), torch.Generator().manual_seed(3)
    before = torch.get_rng_state()

    def fails() -> None:
        with own:
            assert torch.equal(torch.rand(2), torch.rand(2, generator=reference))
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fails()
    assert torch.equal(torch.get_rng_state(), before)
    with own:
        assert torch.equal(torch.rand(2), torch.rand(2, generator=reference))


def test_two_of_one_seed_are_alike_and_of_two_seeds_are_not():
    one, other, third = stream(), stream(), stream(4)
    drawn = []
    for own in (one, other, third):
        with own:
            drawn.append(torch.rand(4))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_dropout_inside_follows_it():
    masks = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        own = stream()
        with own:
            masks.append(nn.functional.dropout(torch.ones(50), 0.5))
    assert torch.equal(*masks)
    with own:
        assert not torch.equal(nn.functional.dropout(torch.ones(50), 0.5), masks[0])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_its_stream_is_kept_apart_too():
    own = RandomStream(nn.Linear(1, 1, device="cuda"), 3)
    before, drawn = torch.cuda.get_rng_state(), []
    for _ in range(2):
        with own:
            drawn.append(torch.rand(4, device="cuda"))
        assert torch.equal(torch.cuda.get_rng_state(), before)
    whole = torch.rand(4, device="cuda", generator=torch.Generator("cuda").manual_seed(3))
    assert torch.equal(drawn[0], whole)
    assert not torch.equal(drawn[1], whole)
