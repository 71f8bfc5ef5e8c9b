"""A write is noticed wherever it goes through, and the memory is not held for it."""

from __future__ import annotations

import weakref

import pytest
import torch

from gradviz.grad.capture.writes import Writes


@pytest.mark.parametrize(
    ("write", "happened"),
    [
        (lambda t: t.add_(1), True),
        (lambda t: t.view(-1).zero_(), True),
        (lambda t: t.detach().mul_(2), True),
        (lambda t: t[0].fill_(3), True),
        (lambda t: t + 1, False),
        (lambda t: t.clone().add_(1), False),
        (lambda t: t.sum().item(), False),
    ],
)
def test_writes_are_noticed_and_reads_are_not(write, happened):
    tensor = torch.ones(2, 2)
    writes = Writes(tensor)
    write(tensor)
    assert writes.happened() is happened


def test_what_was_written_before_does_not_count():
    tensor = torch.ones(2).add_(1)
    assert not Writes(tensor).happened()


def test_it_holds_neither_the_tensor_nor_its_entries():
    tensor = torch.ones(2, 2)
    gone = weakref.ref(tensor)
    writes = Writes(tensor)
    assert writes._alias.untyped_storage().nbytes() == 0
    assert torch.equal(tensor, torch.ones(2, 2))
    del tensor
    assert gone() is None
    assert not writes.happened()
