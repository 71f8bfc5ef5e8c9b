"""Runs that are broken off and go on: each scene builds the same loop and the same data anew, also in a new process."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, Dataset, RandomSampler, TensorDataset

import gradviz as gv

EPOCHS = 6
Scene = Callable[[], tuple[gv.Loop, Any]]


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))


def examples(n: int = 50) -> TensorDataset:
    torch.manual_seed(1)
    return TensorDataset(torch.randn(n, 4), torch.randint(0, 3, (n,)))


def loader(n: int = 50, **options: Any) -> DataLoader:
    return DataLoader(examples(n), **({"shuffle": True, "batch_size": 16} | options))  # ragged: 16, 16, 16, 2


def seeded(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Augmented(Dataset):
    """Noise from every stream there is, one of its own among them."""

    def __init__(self) -> None:
        self._examples = examples()
        self._own = np.random.default_rng(5)

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, place: int) -> Any:
        x, y = self._examples[place]
        return x + random.random() + np.random.rand() + self._own.random() + torch.rand(1), y


def shuffled() -> tuple[gv.Loop, Any]:
    return gv.trainer(net(), "cross_entropy", "adam").metric("accuracy"), loader()


def own_generator() -> tuple[gv.Loop, Any]:
    return gv.trainer(net(), "cross_entropy", "adam"), loader(generator=seeded())


def workers() -> tuple[gv.Loop, Any]:
    return gv.trainer(net(), "cross_entropy", "adam"), loader(num_workers=2)


def workers_and_generator() -> tuple[gv.Loop, Any]:
    return gv.trainer(net(), "cross_entropy", "adam"), loader(num_workers=2, generator=seeded())


def persistent_workers() -> tuple[gv.Loop, Any]:
    return gv.trainer(net(), "cross_entropy", "adam"), loader(num_workers=2, persistent_workers=True)


def with_replacement() -> tuple[gv.Loop, Any]:
    sampler = RandomSampler(examples(), replacement=True, generator=seeded())
    return gv.trainer(net(), "cross_entropy", "adam"), loader(shuffle=False, sampler=sampler)


def augmented() -> tuple[gv.Loop, Any]:
    return gv.trainer(net(), "cross_entropy", "adam"), DataLoader(Augmented(), batch_size=16, shuffle=True)


def function_of_the_epoch() -> tuple[gv.Loop, Any]:
    inputs, targets = examples().tensors
    generator = seeded()

    def batches(epoch: int) -> list[Any]:
        order = torch.randperm(len(inputs), generator=generator)
        parts = [(inputs[part], targets[part]) for part in order.split(16)]
        random.shuffle(parts)
        return parts

    return gv.trainer(net(), "cross_entropy", "adam"), batches


def loader_for_each_epoch() -> tuple[gv.Loop, Any]:
    return gv.trainer(net(), "cross_entropy", "adam"), lambda epoch: loader(generator=seeded(epoch))


def momentum() -> tuple[gv.Loop, Any]:
    sgd = partial(torch.optim.SGD, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01)
    return gv.trainer(net(), "cross_entropy", sgd, clip=1.0), loader()


def bfloat16() -> tuple[gv.Loop, Any]:
    scale = gv.LossScale.dynamic(2.0**10, period=3)
    policy = gv.Policy(params="bfloat16", compute="bfloat16", output="float32")
    return gv.trainer(net(), "cross_entropy", "adam", policy=policy, loss_scale=scale), loader()


def float16() -> tuple[gv.Loop, Any]:
    scale = gv.LossScale.dynamic(2.0**17, period=4)  # overflows at first: some steps are skipped
    policy = gv.Policy(compute="float16", output="float16")
    return gv.trainer(net(), "mean_squared_error", "adam", policy=policy, loss_scale=scale), Regression()


class Regression:
    def __iter__(self) -> Any:
        for x, y in loader():
            yield x, 3.0 * nn.functional.one_hot(y, 3).float()


def accumulated() -> tuple[gv.Loop, Any]:
    return gv.trainer(net(), "cross_entropy", "adam", accumulate=2, loss_scale="static"), loader(75)  # 5: 2, 2, 1


def frozen() -> tuple[gv.Loop, Any]:
    model = net()
    gv.ModelState(model).freeze("0", "1.running_mean", "1.running_var")

    def change(state: gv.loop.events.State) -> None:
        if state.epoch == 1:
            gv.ModelState(model).freeze("4.bias")
        if state.epoch == 2:  # seen by the step after the checkpoint only
            gv.ModelState(model).unfreeze("0.bias")
        if state.epoch == 4:
            gv.ModelState(model).unfreeze("0", "4.bias")

    sgd = partial(torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=0.01)
    return gv.trainer(model, "cross_entropy", sgd).handle_event("epoch_completed", change), loader()


def own_stream() -> tuple[gv.Loop, Any]:
    return gv.trainer(net(), "cross_entropy", "adam", seed=11), loader()


def kept_gradients() -> tuple[gv.Loop, Any]:
    loop = gv.trainer(net(), "cross_entropy", "adam", keep_gradients=True, record="norms")
    return loop.metric(gv.norm, "norm", "running_sum", fields=["gradients"]), loader()


def with_handlers() -> tuple[gv.Loop, Any]:
    """Handlers that draw random numbers, everywhere, and one that keeps something in the state."""

    def draw(state: gv.loop.events.State) -> None:
        torch.rand(3), random.random(), np.random.rand()

    def keep(state: gv.loop.events.State) -> None:
        least = min(state.metrics["loss"], state.step_state.get("least", np.float32(9)))
        state.step_state |= {"least": least, "note": f"epoch {state.epoch}", "nest": [{"at": (state.iteration,)}]}

    def seed(state: gv.loop.events.State) -> None:
        torch.manual_seed(17)

    loop = gv.trainer(net(), "cross_entropy", "adam").handle_event("all", draw)
    return loop.handle_event("started", seed).handle_event("iteration_completed", keep, every=3), loader()


def lbfgs() -> tuple[gv.Loop, Any]:
    optimizer = partial(torch.optim.LBFGS, lr=0.1, max_iter=3, history_size=4)
    return gv.trainer(net(), "cross_entropy", optimizer), loader()


def objective() -> tuple[gv.Loop, Any]:
    def penalized(forward: Any, model_state: Any, inputs: Any, targets: Any) -> Any:
        output = forward(model_state, inputs)
        penalty = model_state["4.weight"].square().sum()
        return nn.functional.cross_entropy(output.prediction, targets) + 1e-2 * penalty, output

    return gv.trainer(net(), penalized, "rmsprop"), loader()


def validated() -> tuple[gv.Loop, Any]:
    """A held-out set in an order of its own, within epochs too, by which handlers go that remember."""
    loop = gv.trainer(net(), "cross_entropy", partial(torch.optim.SGD, lr=0.5, momentum=0.9)).metric("accuracy")
    loop = loop.validate(loader(20, generator=seeded(4)), event=["iteration_completed", "epoch_completed"], every=3)
    loop = loop.reduce_lr_on_plateau("validation_loss", patience=0, factor=0.7)
    loop = loop.lr_schedule(partial(torch.optim.lr_scheduler.StepLR, step_size=2, gamma=0.9))
    return loop.early_stop("validation_accuracy", mode="max", patience=9), loader()


SCENES: dict[str, Scene] = {
    scene.__name__: scene
    for scene in (
        shuffled,
        own_generator,
        workers,
        workers_and_generator,
        persistent_workers,
        with_replacement,
        augmented,
        function_of_the_epoch,
        loader_for_each_epoch,
        momentum,
        bfloat16,
        float16,
        accumulated,
        frozen,
        own_stream,
        kept_gradients,
        with_handlers,
        lbfgs,
        objective,
        validated,
    )
}

CHECKPOINTED = {"event": ["iteration_completed", "epoch_completed"], "keep": None}
"""After every iteration; the last of an epoch is replaced by the one of the epoch's end."""


def straight(scene: Scene, folder: Path) -> gv.Loop:
    """All epochs in one go, with a checkpoint everywhere."""
    loop, data = scene()
    torch.manual_seed(7)
    random.seed(7)
    np.random.seed(7)
    loop.checkpoint(folder, **CHECKPOINTED).run(data, epochs=EPOCHS)
    return loop


def resumed(scene: Scene, file: Path, epochs: int) -> gv.Loop:
    """The same loop, built anew and put where the checkpoint was written."""
    loop, data = scene()
    torch.manual_seed(99)
    random.seed(99)
    np.random.seed(99)
    loop.resume(file).run(data, epochs=epochs)
    return loop


def outcome(loop: gv.Loop) -> dict[str, Any]:
    """All that may differ between two runs, but for the time they took."""
    state, history = loop.state, loop.history
    counts = {name: count for name, count in state.event_counts.items() if name not in ("started", "completed")}
    extra = {key: value for key, value in state.step_state.items() if key not in ("model_state", "optimizer_state")}
    return {
        "step": dict(leaves(loop._step.state_dict())),
        "step_state": dict(leaves({key: dict(v) if key == "gradients" else v for key, v in extra.items()})),
        "loop": (state.iteration, state.epoch, state.epoch_iteration, counts, list(state.times)),
        "metrics": state.metrics,
        "frames": {
            "norms": history.norms,
            "states": history.wide("state"),
            "metrics": history.metrics,
            "epochs": history.epochs,
            "events": history.events.set_index("iteration"),
        },
    }


def leaves(tree: Any) -> Any:
    for path, leaf in pytree.tree_flatten_with_path(tree)[0]:
        yield pytree.keystr(path), leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    """To the bit; of the history, what the second one recorded."""
    assert one["loop"] == other["loop"]
    for part in ("step", "step_state", "metrics"):
        assert set(one[part]) == set(other[part])  # an optimizer that is loaded has its states in another order
        for name, value in one[part].items():
            assert_equal(value, other[part][name], name)
    for name, frame in other["frames"].items():
        first = one["loop"][1] if not len(other["frames"]["epochs"]) else other["frames"]["epochs"].index[0]
        start = first if name == "epochs" else other["frames"]["norms"].index[0]
        part = one["frames"][name]
        pd.testing.assert_frame_equal(part[part.index >= start], frame, check_exact=True, obj=name)


def assert_equal(one: Any, other: Any, name: str) -> None:
    if isinstance(one, torch.Tensor):
        assert (one.dtype, one.shape) == (other.dtype, other.shape), name
        assert torch.equal(one.nan_to_num(1.25), other.nan_to_num(1.25)), name
    else:
        assert type(one) is type(other), name
        assert one == other or one != one, name


# In a new process ---------------------------------------------------------------------------------------------------


def outcomes(asked: list[tuple[str, Path, int]]) -> list[dict[str, Any]]:
    """What comes of scenes that are resumed, each from a file for some epochs."""
    return [outcome(resumed(SCENES[name], file, epochs)) for name, file, epochs in asked]


def with_frozen_parts() -> tuple[gv.Loop, nn.Sequential, list[Any]]:
    """A loop of momentum and weight decay, its model, and one batch."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    sgd = partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.1)
    data = [(torch.arange(8.0).reshape(4, 2), torch.ones(4, 1))]
    return gv.trainer(model, "mean_squared_error", sgd), model, data


def resumed_frozen_parts(file: Path) -> dict[str, Any]:
    """How these stand as they come out of a checkpoint, and after one more iteration."""
    loop, model, data = with_frozen_parts()
    return trained_on(loop.resume(file), model, data)


def trained_on(loop: gv.Loop, model: nn.Module, data: list[Any]) -> dict[str, Any]:
    """What is trained and its moments now, and the model before and after one more iteration."""
    found = {
        "trained": [name for name, p in model.named_parameters() if p.requires_grad],
        "moments": dict(leaves({name: dict(of) for name, of in loop.state.step_state.optimizer_state.items()})),
        "before": dict(leaves(dict(model.state_dict()))),
    }
    loop.run(data)
    return found | {"after": dict(leaves(dict(model.state_dict())))}


def write_until_killed(folder: Path, said: Any) -> None:
    """Write checkpoints all the time, and say after each iteration, through a pipe, that it is over."""
    loop = gv.trainer(nn.Linear(500, 500), "mean_squared_error", "adam", record=None, if_exists="overwrite")
    loop.checkpoint(folder, event="iteration_completed", best="loss", keep=2)
    loop.handle_event("iteration_completed", lambda state: said.send(state.iteration))
    loop.run([(torch.ones(1, 500), torch.ones(1, 500))] * 10_000, display=None)
