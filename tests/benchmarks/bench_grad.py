"""What `value_and_grad` and the algebra cost over the torch calls they stand on.

    python -m tests.benchmarks.bench_grad [--json FILE] [--threads N] [--models mlp deep]

`QUICK=1` takes a fifth of the rounds. `--threads 1` counts the CPU time of the one thread, which other processes touch
far less than the time on the clock: two threads on a busy machine mostly wait for each other. How the two ways are
timed, and what the columns say, stands in `tests.benchmarks.timing`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import gradviz as gv
from tests.benchmarks.models import Setting
from tests.benchmarks.timing import PAIRS, Result, at_least_four, compare, main

ALGEBRA_PAIRS = {"mlp": 1000, "transformer": 40, "deep": 1000}
GRADIENT_TARGET = {"mlp": 1.03, "transformer": 1.03, "deep": 1.10}
SUM_TARGET, NORM_TARGET = 1.2, 1.5


def measure(setting: Setting, share: float) -> Iterator[Result]:
    """Every operation on one model."""
    model, batch, loss = setting.model, setting.batch, setting.loss
    parameters = list(model.parameters())

    def by_hand() -> tuple[Tensor, tuple[Tensor, ...]]:
        value = loss(model, *batch)
        return value.detach(), torch.autograd.grad(value, parameters, allow_unused=True)

    def ours() -> Any:
        return gv.value_and_grad(loss, model, *batch)

    (_, g), (_, h) = ours(), ours()
    g_leaves, h_leaves = list(g.values()), list(h.values())
    steps, operations = (at_least_four(share * table[setting.name]) for table in (PAIRS, ALGEBRA_PAIRS))
    for name, target, pairs, mine, theirs in (
        ("value_and_grad", GRADIENT_TARGET[setting.name], steps, ours, by_hand),
        ("g + h", SUM_TARGET, operations, lambda: g + h, lambda: torch._foreach_add(g_leaves, h_leaves)),
        ("2 * g", SUM_TARGET, operations, lambda: 2 * g, lambda: torch._foreach_mul(g_leaves, 2.0)),
        ("norm(g)", NORM_TARGET, operations, lambda: gv.norm(g), lambda: torch._foreach_norm(g_leaves)),
    ):
        yield Result(setting.name, name, target, **compare(mine, theirs, pairs))


if __name__ == "__main__":
    main(__doc__, measure)
