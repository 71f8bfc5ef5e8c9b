"""Ways to see the gradient of every leaf module's output, each on a model of its own: what others do to it is not felt.

By gradviz: values that the model's own code sows, and modules that a pattern names, in a plain loop and in its own. By
torch alone, the norm of each only: a hook on every output tensor, and a full backward hook on every module, which is
not to be had where anything works in place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

import gradviz as gv
from tests.benchmarks.interleaved import Batches, Loop
from tests.benchmarks.models import Setting
from tests.benchmarks.ours import bare, of_its_own


def loops(setting: Setting, adam: torch.optim.Adam) -> list[Loop]:
    """All of the group, of which the bare one is first."""
    return [
        bare("bare", *of_its_own(setting)),
        bare("bare again", *of_its_own(setting)),
        captured("capture modules", setting),
        captured("capture sown", setting, sows=True),
        watched("watch modules", setting),
        hooked("tensor hooks", setting, on_tensors),
        hooked("full backward hooks", setting, on_modules),
    ]


def leaves(model: nn.Module) -> dict[str, nn.Module]:
    """The modules that have none inside."""
    return {name: module for name, module in model.named_modules() if not list(module.children())}


def captured(name: str, setting: Setting, *, sows: bool = False) -> Loop:
    """A training step with capture, and nothing else recorded; what was captured is in its state."""
    setting, adam = of_its_own(setting)
    own = leaves(setting.model)
    if sows:
        for path, module in own.items():
            module.forward = functools.partial(sown, module.forward, path)  # type: ignore[method-assign]
    capture = gv.Capture() if sows else gv.Capture(*own)
    step = gv.train_step(setting.model, setting.criterion, adam, capture=capture)
    found: list[int] = []

    def train(batches: Batches) -> None:
        state = step.init(setting.batch)
        with step.training():
            for batch in batches:
                state = step(batch, state)
                found.append(len(state["captured"]))

    return Loop(name, train, recorded=lambda: sum(found), records=len(own), told=lambda: {"points": len(own)})


def sown(forward: Callable[..., Tensor], name: str, *args: Any) -> Tensor:
    """What a person writes into a forward pass."""
    return gv.sow(forward(*args), name)


def watched(name: str, setting: Setting) -> Loop:
    """The bare loop under a watch that writes down what it captures."""
    setting, adam = of_its_own(setting)
    own = leaves(setting.model)
    watch = gv.watch(setting.model, adam, record=None, capture=gv.Capture(*own))
    return replace(
        bare(name, setting, adam),
        recorded=lambda: int(watch.history.activations["norm"].notna().sum()),
        records=len(own),
        told=lambda: {"points": len(own)},
    )


Norms = list[Tensor]


def hooked(name: str, setting: Setting, hook: Callable[[Iterable[nn.Module], Norms], None]) -> Loop:
    """The bare loop with hooks that take norms, in one transfer a step."""
    setting, adam = of_its_own(setting)
    own = leaves(setting.model)
    norms: Norms = []
    hook(own.values(), norms)
    kept: list[list[float]] = []

    def train(batches: Batches) -> None:
        for inputs, targets in batches:
            adam.zero_grad()
            setting.criterion(setting.model(inputs), targets).backward()
            kept.append(torch.stack(norms).tolist())
            norms.clear()
            adam.step()

    return Loop(name, train, recorded=lambda: sum(map(len, kept)), records=len(own), told=lambda: {"points": len(own)})


def on_tensors(modules: Iterable[nn.Module], norms: Norms) -> None:
    """A forward hook on each module, and one on the tensor that it returns."""

    def arrives(gradient: Tensor) -> None:
        norms.append(torch.linalg.vector_norm(gradient))

    def returns(module: nn.Module, args: Any, output: Tensor) -> None:
        output.register_hook(arrives)

    for module in modules:
        module.register_forward_hook(returns)


def on_modules(modules: Iterable[nn.Module], norms: Norms) -> None:
    """Torch's full backward hooks."""

    def arrives(module: nn.Module, of_inputs: Any, of_outputs: tuple[Tensor, ...]) -> None:
        norms.append(torch.linalg.vector_norm(of_outputs[0]))

    for module in modules:
        module.register_full_backward_hook(arrives)
