"""Loops in turn: each takes its own steps and has its own time, and one that recorded nothing has no figure."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
import torch

from tests.benchmarks.interleaved import Batches, Loop, Stopwatch, interleave

BATCH = (torch.zeros(1), torch.ones(1))


class Counting:
    """A loop that writes down when it took a step."""

    def __init__(self, name: str, diary: list[str], **options: object) -> None:
        self.taken = 0
        self.ended = False
        self.loop = Loop(name, self.train, **options)  # type: ignore[arg-type]
        self._diary = diary

    def train(self, batches: Batches) -> None:
        for batch in batches:
            assert batch is BATCH
            self.taken += 1
            self._diary.append(self.loop.name)
        self.ended = True


def take(*loops: Loop, rounds: int = 8, turn: int = 1, alone: int = 0, seconds: float = 60.0) -> dict:
    return interleave(list(loops), BATCH, rounds=rounds, seconds=seconds, warm_up=2, turn=turn, alone=alone, seed=0)


def test_all_take_a_step_in_every_round_in_an_order_that_changes() -> None:
    diary: list[str] = []
    loops = [Counting(name, diary) for name in "abc"]
    measured = take(*(one.loop for one in loops))
    rounds = [diary[at : at + 3] for at in range(0, len(diary), 3)]
    assert len(rounds) == 10
    assert all(sorted(order) == ["a", "b", "c"] for order in rounds)
    assert any(one != other for one, other in pairwise(rounds))
    assert all(one.ended for one in loops)
    assert {name: len(steps) for name, steps in measured["steps_us"].items()} == {"a": 8, "b": 8, "c": 8}


def test_the_first_step_of_a_longer_turn_does_not_count() -> None:
    waits: list[int] = []
    diary: list[str] = []
    one = Counting("a", diary, settle=lambda: waits.append(len(diary)))
    assert len(take(one.loop, rounds=3, turn=5)["steps_us"]["a"]) == 12
    assert waits == [5, 10, 15, 20, 25, 25]  # after each turn, and in the end


def test_rounds_end_when_there_is_no_time_for_one_more() -> None:
    def train(batches: Batches) -> None:
        for _ in batches:
            until = time.perf_counter() + 0.01
            while time.perf_counter() < until:
                pass

    assert 2 <= len(take(Loop("slow", train), rounds=1000, seconds=0.1)["steps_us"]["slow"]) <= 10


def test_what_sends_goes_on_alone_in_the_end() -> None:
    diary: list[str] = []
    sender = Counting("a", diary)
    sender.loop.sent = lambda: sender.taken // 2
    measured = take(sender.loop, Counting("b", diary).loop, rounds=4, alone=6)
    assert diary[-6:] == ["a"] * 6
    assert measured["sent"] == {"a": [0, 1, 0, 1]}
    assert measured["alone"]["a"]["sent"] == [0, 1, 0, 1, 0, 1]
    assert len(measured["alone"]["a"]["steps_us"]) == 6


def test_a_loop_that_did_not_record_is_void() -> None:
    forgetful = Counting("forgetful", [])
    forgetful.loop.records, forgetful.loop.recorded = 2, lambda: 2 * forgetful.taken - 1
    with pytest.raises(RuntimeError, match="forgetful has 19 gradients on record where 20 were taken"):
        take(forgetful.loop)


def test_an_error_in_a_loop_is_raised() -> None:
    def train(batches: Batches) -> None:
        next(batches)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        take(Loop("broken", train))


def test_a_stopwatch_stands_still_between_two_turns() -> None:
    watch = Stopwatch()
    watch.start()
    ran = watch.stop()
    assert watch() == watch() == ran > 0
    watch.start()
    assert watch() > ran
