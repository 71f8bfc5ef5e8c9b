"""Tensors are kept while there is room; what makes way is said, and never read wrong."""

from __future__ import annotations

import gc
import warnings
from pathlib import Path

import pytest
import torch

from gradviz.errors import CaptureError, CaptureWarning
from gradviz.grad.capture.shelf import Shelf, Slot

TENSORS = [torch.arange(4.0) + place for place in range(4)]
TWO = 2 * 4 * 4
"""Bytes of two of them."""


def filled(store: str, limit: int = TWO, said: set[str] | None = None) -> list[Slot]:
    shelf = Shelf(limit, store, set() if said is None else said)
    return [shelf.put(tensor) for tensor in TENSORS]


@pytest.mark.parametrize("store", ["device", "host"])
def test_the_oldest_are_dropped_and_say_what_to_write(store):
    with pytest.warns(CaptureWarning, match="more than memory_limit=32 bytes, so the oldest were dropped.*Said once"):
        slots = filled(store)
    for slot in slots[:2]:
        with pytest.raises(CaptureError, match='memory_limit="2GB", or store="disk"'):
            slot.get()
    assert [slot.get().tolist() for slot in slots[2:]] == [tensor.tolist() for tensor in TENSORS[2:]]


def test_it_is_said_once_for_all_shelves_of_one_owner():
    said: set[str] = set()
    with pytest.warns(CaptureWarning):
        filled("device", said=said)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dropped = filled("device", said=said)[0]
    with pytest.raises(CaptureError, match="were dropped"):
        dropped.get()


def test_on_disk_they_are_read_back_as_long_as_anybody_holds_them():
    slots = filled("disk")
    gc.collect()
    assert [slot.get().tolist() for slot in slots] == [tensor.tolist() for tensor in TENSORS]
    assert [slot._tensor is None for slot in slots] == [True, True, False, False]


def test_files_go_with_the_last_slot(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    slots = filled("disk")
    (folder,) = tmp_path.iterdir()
    assert len(list(folder.iterdir())) == 2
    slots.pop(0)
    assert folder.exists()
    slots.pop(0)
    assert list(Path(tmp_path).iterdir()) == []


def test_a_tensor_that_takes_more_than_all_the_room_makes_way_at_once():
    with pytest.warns(CaptureWarning):
        (slot, *_) = filled("device", limit=8)
    with pytest.raises(CaptureError):
        slot.get()
    assert filled("disk", limit=8)[-1].get().tolist() == TENSORS[-1].tolist()


def test_what_is_put_there_is_a_copy_and_what_is_ours_already_is_not_copied_again():
    shelf = Shelf(1000, "device", set())
    tensor = torch.ones(2)
    slot, kept = shelf.put(tensor), shelf.keep(tensor)
    tensor.zero_()
    assert slot.get().tolist() == [1, 1]
    assert kept.get() is tensor


@pytest.mark.parametrize("limit", [8, 1000], ids=["on disk", "in memory"])
def test_what_is_divided_and_added_to_is_so_wherever_it_is(limit):
    slot = Shelf(limit, "disk", set()).put(torch.tensor([2.0, 4.0, 6.0]))
    slot.divide(2)
    slot.add(torch.tensor([1.0, 1.0, 1.0]))
    slot.divide(2)
    assert slot.get().tolist() == [1.0, 1.5, 2.0]


def test_what_was_dropped_stays_dropped_whatever_is_added():
    with pytest.warns(CaptureWarning):
        slot = filled("device", limit=8)[0]
    slot.divide(2)
    slot.add(torch.ones(4))
    with pytest.raises(CaptureError):
        slot.get()


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(3, 2).t(),
        torch.ones(1).expand(5),
        torch.ones(2, dtype=torch.complex64),
        torch.ones(0),
        torch.ones(()),
    ],
    ids=["transposed", "expanded", "complex", "empty", "scalar"],
)
def test_every_layout_comes_back_from_disk_as_it_was(tensor):
    slots = [Shelf(0, "disk", set()).put(tensor)]
    assert torch.equal(slots[0].get(), tensor)
