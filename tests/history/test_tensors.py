"""Tensors that were kept whole come back, from memory and from disk, by name, iteration, call and example."""

from __future__ import annotations

import numpy as np
import pytest

from gradviz.history.history import History


def recorded(n: int, **options: object) -> History:
    history = History(**options)  # type: ignore[arg-type]
    history.declare([{"name": "w", "shape": (2,), "dtype": "bfloat16"}])
    for i in range(n):
        history.append(i, 0, np.ones((1, 8)), np.zeros(1, np.uint8), {"loss": 1.0})
        for call in range(2):
            history.keep_tensor("layers.0", i, np.full((3, 2), 10 * i + call, np.float32), call=call, dtype="bfloat16")
        history.keep_tensor("head", i, np.array(float(i)), example=i)
    return history


def told(tensors: list) -> list[tuple[int, int, int | None, float]]:
    return [(t.kept.iteration, t.kept.call, t.kept.example, float(t.array.flat[0])) for t in tensors]


@pytest.mark.parametrize("saved", [False, True])
def test_they_are_found_by_what_they_are(saved, tmp_path):
    history = recorded(3, save_to=tmp_path / "a") if saved else recorded(3)
    if saved:
        history.end_run()
        history = History.open(tmp_path / "a")
    assert told(history.tensors("layers.0")) == [(i, call, None, 10 * i + call) for i in range(3) for call in range(2)]
    assert told(history.tensors("layers.0", iteration=1)) == [(1, 0, None, 10), (1, 1, None, 11)]
    assert told(history.tensors("layers.0", iteration=1, call=1)) == [(1, 1, None, 11)]
    assert told(history.tensors("head", example=2)) == [(2, 0, 2, 2.0)]
    assert history.tensors("nobody") == []
    assert told(history.select(iterations=slice(2, None)).tensors("layers.0", call=0)) == [(2, 0, None, 20)]
    (kept, array) = history.tensors("layers.0", iteration=0, call=0)[0]
    assert (kept.dtype, array.dtype, array.shape) == ("bfloat16", np.float32, (3, 2))


@pytest.mark.parametrize("saved", [False, True])
def test_of_a_whole_batch_one_example_can_be_asked_for(saved, tmp_path):
    history = History(save_to=tmp_path / "a") if saved else History()
    batch = np.arange(12.0).reshape(2, 3, 2)
    for i in range(2):
        history.append(i, 0, np.empty((0, 8)), np.empty(0, np.uint8), {"loss": 1.0})
        history.keep_tensor("rows", i, batch + 100 * i, batch_dim=1)
        history.keep_tensor("unknown", i, batch)
    if saved:
        history.end_run()
        history = History.open(tmp_path / "a")
    (kept, array) = history.tensors("rows", iteration=1, example=2)[0]
    assert kept.example == 2
    assert array.tolist() == (batch[:, 2] + 100).tolist()
    assert history.tensors("rows", example=3) == []  # the batch had three
    assert history.tensors("unknown", example=1) == []
    assert history.tensors("rows", iteration=0)[0].array.shape == (2, 3, 2)


def test_what_is_kept_is_a_copy():
    history, array = recorded(1), np.zeros(3)
    history.keep_tensor("mine", 0, array)
    array += 1
    assert history.tensors("mine")[0].array.tolist() == [0, 0, 0]


def test_after_a_resume_the_latest_attempt_counts(tmp_path):
    recorded(4, save_to=tmp_path / "a").end_run()
    again = History(save_to=tmp_path / "a", if_exists="resume")
    again.begin_attempt(2, 0)
    again.append(2, 0, np.ones((1, 8)), np.zeros(1, np.uint8), {"loss": 1.0})
    again.keep_tensor("head", 2, np.array(-2.0))
    again.end_run()
    for history in (again, History.open(tmp_path / "a")):
        assert [float(tensor.array) for tensor in history.tensors("head")] == [0.0, 1.0, -2.0]
        every = history.select(attempts="all").tensors("head")
        assert [(t.kept.attempt, float(t.array)) for t in every] == [(0, 0), (0, 1), (0, 2), (0, 3), (1, -2)]


def test_those_that_do_not_fit_in_memory_are_read_from_disk(tmp_path):
    history = History(save_to=tmp_path / "a", memory_limit=1_000_000)
    for i in range(40):
        history.append(i, 0, np.empty((0, 8)), np.empty(0, np.uint8), {"loss": 1.0})
        history.keep_tensor("large", i, np.full(25_000, float(i), np.float32))
        assert history._store.nbytes <= 1_100_000
    assert [t.array[-1] for t in history.tensors("large")] == list(range(40))
