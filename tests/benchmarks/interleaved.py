"""One process of `bench_loop`: loops that train one model in turn, and how long each takes for its steps.

    python -m tests.benchmarks.interleaved mlp ours --rounds 200 --json FILE

Each loop is what a person writes: it reads batches and trains. It runs as a greenlet, whose batches hand over to the
next loop, so that many whole loops advance step by step in one process. A step lasts from the moment that a loop is
given a batch to the moment that it asks for the next one. One after the other, the same loop differs from itself by a
tenth on a busy machine; in turns that are shuffled anew in every round, by a hundredth.

A turn is one step among loops that do all their work within it. Those that write files go on writing behind their step,
by a thread or a process of their own. There a turn is several steps, of which the first does not count, so that what a
loop writes is in its own time and in nobody else's; before the next turn it is waited for.

What a loop does in some of its steps only, as sending a picture ten times in a second, is colder among the steps of
others than it is in life, and takes more than twice as long. So such a loop goes on alone in the end: how much longer
its steps are that send is seen among its own.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from greenlet import getcurrent, greenlet
from torch import Tensor

from tests.benchmarks.models import Setting, deep, mlp, transformer, vanishing

MODELS = {"mlp": mlp, "transformer": transformer, "deep": deep, "vanishing": vanishing}
LEARNING_RATE = 1e-9  # so small that hundreds of steps leave gradients of the size that they began with

Batches = Iterator[tuple[Tensor, Tensor]]


class Stopwatch:
    """Seconds that pass only while it runs: the time of one loop among others."""

    def __init__(self) -> None:
        self._before = 0.0
        self._since: float | None = None

    def __call__(self) -> float:
        return self._before + (0.0 if self._since is None else time.perf_counter() - self._since)

    def start(self) -> None:
        self._since = time.perf_counter()

    def stop(self) -> float:
        """How long it ran since it was started."""
        assert self._since is not None
        ran = time.perf_counter() - self._since
        self._before, self._since = self._before + ran, None
        return ran


@dataclass
class Loop:
    """A loop that is compared."""

    name: str
    train: Callable[[Batches], object]
    recorded: Callable[[], int] = lambda: 0
    """How many tensors' gradients it has on record in the end."""
    records: int = 0
    """How many it should have of each step."""
    sent: Callable[[], int] | None = None
    """Counts what it does in some of its steps only."""
    settle: Callable[[], object] = lambda: None
    """Waits for what it does behind its steps."""
    told: Callable[[], dict[str, Any]] = dict
    """What else is worth knowing in the end."""
    watch: Stopwatch = field(default_factory=Stopwatch)


class Turns:
    """A loop that takes a step whenever it is told to."""

    def __init__(self, loop: Loop, batch: tuple[Tensor, Tensor]) -> None:
        self.loop, self.steps = loop, 0
        self._batch, self._is_over = batch, False
        self._greenlet = greenlet(lambda: loop.train(self._batches()))
        self._greenlet.switch()  # to where it asks for its first batch

    def step(self) -> tuple[float, int]:
        """Let it take one step: how many seconds that took, and how often it sent something."""
        count = self.loop.sent or (lambda: 0)
        before = count()
        self.loop.watch.start()
        self._greenlet.switch()
        took = self.loop.watch.stop()
        self.steps += 1
        return took, count() - before

    def finish(self) -> None:
        """Give it no batch any more, and see that it has on record what it should."""
        self._is_over = True
        self._greenlet.switch()
        self.loop.settle()
        wanted, found = self.steps * self.loop.records, self.loop.recorded()
        if found < wanted:
            raise RuntimeError(f"{self.loop.name} has {found} gradients on record where {wanted} were taken: void")

    def _batches(self) -> Batches:
        others = getcurrent().parent
        while True:
            others.switch()
            if self._is_over:
                return
            yield self._batch


def interleave(
    loops: list[Loop],
    batch: tuple[Tensor, Tensor],
    *,
    rounds: int,
    seconds: float,
    warm_up: int,
    turn: int,
    alone: int,
    seed: int,
) -> dict[str, Any]:
    """Let every loop have its turn in every round, in an order shuffled anew, until there is no time for one more.

    Returns
    -------
    dict
        ``steps_us``, the microseconds of each counted step by loop; ``sent``, how often it sent something in each, of
        those that send; ``alone``, both of the steps that these took alone; ``told``, what else loops tell.
    """
    shuffle = random.Random(seed).shuffle
    everyone = [Turns(loop, batch) for loop in loops]
    taken: dict[str, list[tuple[float, int]]] = {loop.name: [] for loop in loops}
    began = time.perf_counter()
    for number in range(-warm_up, rounds):
        if number == 0:
            gc.collect()
            began = time.perf_counter()
        elif number > 1 and (time.perf_counter() - began) * (number + 1) / number > seconds:
            break
        order = everyone[:]
        shuffle(order)
        for one in order:
            steps = [one.step() for _ in range(turn)]
            one.loop.settle()
            if number >= 0:
                taken[one.loop.name] += steps[turn > 1 :]
    lonely = {one.loop.name: [one.step() for _ in range(alone)] for one in everyone if one.loop.sent is not None}
    for one in reversed(everyone):  # the last that began has the handlers of signals
        one.finish()
    return {
        "steps_us": {name: microseconds(steps) for name, steps in taken.items()},
        "sent": {name: counts(taken[name]) for name in lonely},
        "alone": {name: {"steps_us": microseconds(steps), "sent": counts(steps)} for name, steps in lonely.items()},
        "told": {loop.name: told for loop in loops if (told := loop.told())},
    }


def microseconds(steps: list[tuple[float, int]]) -> list[float]:
    """How long each step took."""
    return [round(seconds * 1e6, 1) for seconds, _ in steps]


def counts(steps: list[tuple[float, int]]) -> list[int]:
    """How often each step sent something."""
    return [sent for _, sent in steps]


def gradient_of(setting: Setting) -> dict[str, float]:
    """How large the gradient is, and the share of its entries that are subnormal, which a processor is slow with."""
    loss = setting.loss(setting.model, *setting.batch)
    gradients = [g.double() for g in torch.autograd.grad(loss, list(setting.model.parameters()))]
    tiny = torch.finfo(torch.float32).tiny
    subnormal = sum(int(((g != 0) & (g.abs() < tiny)).sum()) for g in gradients)
    return {
        "norm": float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradients]))),
        "subnormal": subnormal / sum(g.numel() for g in gradients),
    }


def run(model: str, group: str, **schedule: Any) -> dict[str, Any]:
    """Interleave a group of loops, ``"ours"``, ``"watches"``, ``"captures"`` or ``"peers"``, on a model."""
    load = os.getloadavg()[0]
    setting = MODELS[model]()
    adam = torch.optim.Adam(setting.model.parameters(), lr=LEARNING_RATE)
    loops: list[Loop] = importlib.import_module(f"tests.benchmarks.{group}").loops(setting, adam)
    first = gradient_of(setting)
    measured = interleave(loops, setting.batch, **schedule)
    gradient = {"first": first, "last": gradient_of(setting)}
    if not 1e-3 < gradient["last"]["norm"] / first["norm"] < 1e3:
        raise RuntimeError(f"The gradient of {model} went from {first['norm']} to {gradient['last']['norm']}: void")
    return {"model": model, "group": group, **schedule, "load": load, "gradient": gradient, **measured}


def main() -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("group", choices=("ours", "watches", "captures", "peers"))
    parser.add_argument("--rounds", type=int, default=200, metavar="N", help="at most (200)")
    parser.add_argument("--seconds", type=float, default=60, metavar="S", help="for the rounds, at most (60)")
    parser.add_argument("--warm-up", type=int, default=10, metavar="N", help="rounds before those (10)")
    parser.add_argument("--turn", type=int, default=1, metavar="N", help="steps that a loop takes in a round (1)")
    parser.add_argument("--alone", type=int, default=0, metavar="N", help="steps alone of what sends (0)")
    parser.add_argument("--seed", type=int, default=0, help="of the order (0)")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="that torch uses (2)")
    parser.add_argument("--json", type=Path, required=True, metavar="FILE", help="where the times go")
    given = vars(parser.parse_args())
    file, threads = given.pop("json"), given.pop("threads")
    torch.set_num_threads(threads)
    file.write_text(json.dumps(run(**given)))


if __name__ == "__main__":
    main()
