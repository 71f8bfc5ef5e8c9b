"""What a `train_step` costs over the five lines of torch that it stands for.

    python -m tests.benchmarks.bench_step [--json FILE] [--threads N] [--models mlp deep]

`QUICK=1` takes a fifth of the rounds. `--threads 1` counts the CPU time of the one thread, which other processes touch
far less than the time on the clock. How the two ways are timed, and what the columns say, stands in
`tests.benchmarks.timing`.

Each way trains a copy of the model of its own: a step frees the gradients that the step before has left, and would pay
for those of the other way. On the other side stands the bare step with SGD and momentum, or what the operation names:
the same with Adam, ours with its options turned off, or torch's own tool for the matter. The last lines tell what kept
gradients hold, and what the tensors that are made in a step add up to at their most.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import gradviz as gv
from gradviz.step.train_step import TrainStep
from tests.benchmarks.models import Setting
from tests.benchmarks.timing import PAIRS, Result, at_least_four, compare, main

INIT_TARGET = {"mlp": 2.5, "transformer": 1.5, "deep": None}
KEPT_TARGET = 1.0

# Steps so small that thousands of them leave gradients of the size that they began with.
SGD = partial(torch.optim.SGD, lr=1e-4, momentum=0.9)
ADAM = partial(torch.optim.Adam, lr=1e-7)


def measure(setting: Setting, share: float) -> Iterator[Result]:
    """Every operation on one model."""
    ours, bare = partial(stepping, setting), partial(by_hand, setting)
    pairs = at_least_four(share * PAIRS[setting.name])

    def result(operation: str, mine: Callable[[], Any], theirs: Callable[[], Any], target: float | None) -> Result:
        return Result(setting.name, operation, target, **compare(mine, theirs, pairs))

    yield result("step", ours(), bare(), None)
    yield result("step, Adam", ours(ADAM), bare(ADAM), None)
    yield result("strict=False", ours(strict=False), bare(), None)
    yield result("strict / not strict", ours(), ours(strict=False), None)
    yield result("keep_gradients", ours(keep_gradients=True), bare(), None)
    yield result("keep_gradients / without", ours(keep_gradients=True), ours(), KEPT_TARGET)
    # What their memory alone costs: on an MLP a few per cent, as it isn't at hand for the step that follows.
    yield result("torch keeps / without", bare(keeps=True), bare(), None)
    for name, optimizer in (("SGD", SGD), ("Adam", ADAM)):
        # Of an optimizer that never steps: what it will keep is learned anew in each.
        init = partial(train_step(setting, optimizer, keep_gradients=True).init, setting.batch)
        yield result(f"init, {name}", init, bare(optimizer), INIT_TARGET[setting.name])
    yield result("static scale", ours(loss_scale="static"), bare(), None)
    yield result("dynamic scale", ours(loss_scale="dynamic"), bare(), None)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**15)
    yield result("dynamic / GradScaler", ours(loss_scale="dynamic"), bare(scaler=scaler), None)
    yield result("accumulate=2 / two halves", ours(accumulate=2), bare(accumulate=2), None)
    for name, limit in (("clip=1", 1.0), ("clip=1e-6", 1e-6)):  # the second makes each gradient smaller
        yield result(f"{name} / clip_grad_norm_", ours(clip=limit), bare(clip=limit), None)
    if setting.name == "mlp":
        policy = gv.Policy(compute=torch.bfloat16)
        yield result("bfloat16 / autocast", ours(policy=policy), bare(autocast=True), None)


def train_step(setting: Setting, optimizer: Callable[..., torch.optim.Optimizer], **options: Any) -> TrainStep:
    return gv.train_step(copy.deepcopy(setting.model), setting.criterion, optimizer, **options)


def stepping(
    setting: Setting, optimizer: Callable[..., torch.optim.Optimizer] = SGD, *, accumulate: int = 1, **options: Any
) -> Callable[[], None]:
    """One step of ours after another; the state before is freed within the step, as in a loop."""
    step = train_step(setting, optimizer, accumulate=accumulate, **options)
    given = setting.batch if accumulate == 1 else parts(setting, accumulate)
    state = step.init(given)

    def go_on() -> None:
        nonlocal state
        state = step(given, state)

    return go_on


def by_hand(
    setting: Setting,
    kind: Callable[..., torch.optim.Optimizer] = SGD,
    *,
    accumulate: int = 1,
    scaler: torch.amp.GradScaler | None = None,
    clip: float | None = None,
    autocast: bool = False,
    keeps: bool = False,
) -> Callable[[], None]:
    """The same in plain torch."""
    model, criterion, batches = copy.deepcopy(setting.model), setting.criterion, parts(setting, accumulate)
    parameters = list(model.parameters())
    optimizer = kind(parameters)
    kept: list[Tensor | None] = []

    def go_on() -> None:
        nonlocal kept
        optimizer.zero_grad()
        for inputs, targets in batches:
            with torch.autocast("cpu", torch.bfloat16) if autocast else contextlib.nullcontext():
                loss = criterion(model(inputs), targets)
            if accumulate > 1:
                loss = loss / accumulate
            (loss if scaler is None else scaler.scale(loss)).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(parameters, clip)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        if keeps:
            kept = [p.grad for p in parameters]

    return go_on


def parts(setting: Setting, count: int) -> list[tuple[Tensor, ...]]:
    """The batch as so many micro-batches."""
    return list(zip(*(values.chunk(count) for values in setting.batch), strict=True))


def measure_memory(setting: Setting) -> dict[str, int]:
    """Bytes that kept gradients hold, and that are alive at once in a step, with them and without."""
    batch, figures = setting.batch, {}
    for what, keeps in (("peak without kept gradients", False), ("peak with them", True)):
        step = train_step(setting, SGD, keep_gradients=keeps)
        state = step(batch, step.init(batch))
        step.model.zero_grad()
        state.pop("gradients", None)
        # Two steps: the gradients of the first are what the second finds, and frees or not.
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            for _ in range(2):
                state = step(batch, state)
        figures[what] = highest(profile)
        if keeps:
            figures["kept"] = sum(storage_of(state["gradients"].values()).values())
    figures["parameters"] = sum(storage_of(setting.model.parameters()).values())
    return figures


def storage_of(tensors: Iterable[Tensor | None]) -> dict[int, int]:
    """Bytes of what the tensors lie in, by its address: two in the same count once."""
    storages = [tensor.untyped_storage() for tensor in tensors if tensor is not None]
    return {storage.data_ptr(): storage.nbytes() for storage in storages}


def highest(profile: torch.profiler.profile) -> int:
    """The most that was allocated at once during a profile, in bytes over what was there before."""
    kineto: Any = profile.profiler
    events = [event for event in kineto.kineto_results.events() if event.name() == "[memory]"]
    alive = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        alive += event.nbytes()
        most = max(most, alive)
    return most


if __name__ == "__main__":
    main(__doc__, measure, measure_memory)
