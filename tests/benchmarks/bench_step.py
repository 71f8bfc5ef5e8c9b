"""What a `train_step` costs over the five lines of torch that it stands for.

    python -m tests.benchmarks.bench_step [--json FILE] [--threads N] [--models mlp deep]

`QUICK=1` takes a fifth of the rounds. `--threads 1` counts the CPU time of the one thread, which other processes touch
far less than the time on the clock. How the two ways are timed, and what the columns say, stands in
`tests.benchmarks.timing`.

Both ways train the same model by the same optimizer, so that they read the same memory. On the other side stands the
bare step with SGD and momentum, or what the operation names: the same with Adam, with its options turned off, or with
torch's own tool for the matter. The last lines tell what kept gradients hold, and what the tensors of a step add up to
at their most, everything of the model's and optimizer's own left out.
"""

from __future__ import annotations

import gc
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
    model, batch, criterion = setting.model, setting.batch, setting.criterion
    sgd, adam = SGD(model.parameters()), ADAM(model.parameters())
    halves = list(zip(*(part.chunk(2) for part in batch), strict=True))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**15)

    def ours(optimizer: torch.optim.Optimizer = sgd, given: Any = batch, **options: Any) -> Callable[[], None]:
        return stepping(gv.train_step(model, criterion, optimizer, **options), given)

    def bare(optimizer: torch.optim.Optimizer = sgd) -> None:
        optimizer.zero_grad()
        loss_of(*batch).backward()
        optimizer.step()

    def loss_of(inputs: Tensor, targets: Tensor) -> Tensor:
        return criterion(model(inputs), targets)

    def scaled() -> None:
        sgd.zero_grad()
        scaler.scale(loss_of(*batch)).backward()
        scaler.step(sgd)
        scaler.update()

    def in_halves() -> None:
        sgd.zero_grad()
        for half in halves:
            (loss_of(*half) / 2).backward()
        sgd.step()

    def clipped(limit: float) -> None:
        sgd.zero_grad()
        loss_of(*batch).backward()
        nn.utils.clip_grad_norm_(model.parameters(), limit)
        sgd.step()

    def autocast() -> None:
        sgd.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(*batch)
        loss.backward()
        sgd.step()

    pairs = at_least_four(share * PAIRS[setting.name])

    def result(operation: str, mine: Callable[[], Any], theirs: Callable[[], Any], target: float | None) -> Result:
        return Result(setting.name, operation, target, **compare(mine, theirs, pairs))

    yield result("step", ours(), bare, None)
    yield result("step, Adam", ours(adam), partial(bare, adam), None)
    yield result("strict=False", ours(strict=False), bare, None)
    yield result("strict / not strict", ours(), ours(strict=False), None)
    yield result("keep_gradients", ours(keep_gradients=True), bare, None)
    yield result("keep_gradients / without", ours(keep_gradients=True), ours(), KEPT_TARGET)
    # Optimizers that never step: what they will keep is learned anew in each init.
    for name, fresh, optimizer in (("SGD", SGD, sgd), ("Adam", ADAM, adam)):
        step = gv.train_step(model, criterion, fresh(model.parameters()), keep_gradients=True)
        yield result(f"init, {name}", partial(step.init, batch), partial(bare, optimizer), INIT_TARGET[setting.name])
    yield result("static scale", ours(loss_scale="static"), bare, None)
    yield result("dynamic scale", ours(loss_scale="dynamic"), bare, None)
    yield result("dynamic / GradScaler", ours(loss_scale="dynamic"), scaled, None)
    yield result("accumulate=2 / two halves", ours(given=halves, accumulate=2), in_halves, None)
    for name, limit in (("clip=1", 1.0), ("clip=1e-6", 1e-6)):  # the second makes each gradient smaller
        yield result(f"{name} / clip_grad_norm_", ours(clip=limit), partial(clipped, limit), None)
    if setting.name == "mlp":
        policy = gv.Policy(compute=torch.bfloat16)
        yield result("bfloat16 / autocast", ours(policy=policy), autocast, None)


def stepping(step: TrainStep, batch: Any) -> Callable[[], None]:
    """One step after another; the state before is freed within the step, as in a loop."""
    state = step.init(batch)

    def go_on() -> None:
        nonlocal state
        state = step(batch, state)

    return go_on


def measure_memory(setting: Setting) -> dict[str, int]:
    """Bytes that kept gradients hold, and that are alive at once in a step, with them and without."""
    model, batch, criterion = setting.model, setting.batch, setting.criterion
    figures = {}
    for what, keeps in (("peak without kept gradients", False), ("peak with them", True)):
        step = gv.train_step(model, criterion, SGD(model.parameters()), keep_gradients=keeps)
        state = step.init(batch)
        state = step(batch, state)
        model.zero_grad()
        state.pop("gradients", None)
        # Two steps: the gradients of the first are what the second finds, and frees or not.
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            for _ in range(2):
                state = step(batch, state)
        figures[what] = highest(profile)
        if keeps:
            figures["kept"] = sum(storage_of(state["gradients"].values()).values())
        model.zero_grad()
        del state
        gc.collect()
    figures["parameters"] = sum(storage_of(model.parameters()).values())
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
