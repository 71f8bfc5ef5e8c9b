"""What of a step is saved, so that another one like it, in another process say, goes on from there to the bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from gradviz.errors import CheckpointError
from gradviz.grad.algebra import Grad
from gradviz.grad.leaves import leaves_of, walk
from gradviz.step.step_state import StepState
from gradviz.step.stillness import ask, asked, by_path, counted
from gradviz.step.tensors import drop_gradients, zeros

if TYPE_CHECKING:
    from gradviz.step.train_step import TrainStep

_HAS_NO_EXTRA = nn.Module.get_extra_state


def state_of(step: TrainStep) -> dict[str, Any]:
    """What `TrainStep.state_dict` gives; the tensors are live.

    Raises
    ------
    CheckpointError
        If parameters are spread over processes.
    """
    wrapper = leaves_of(step.model).wrapper
    if wrapper is not None and wrapper.startswith(("FSDP", "FullySharded")):
        raise CheckpointError(
            "FSDP spreads the parameters over processes, and a checkpoint is one file of one process. Save them by "
            "torch.distributed.checkpoint in a handler."
        )
    optimizer = step.optimizer
    names = {id(tensor): name for name, tensor in step.optimized_by_name().items()}
    return {
        "model": _model(step.model),
        "buffers": dict(_buffers(step.model, persistent=False)),
        "masters": step.masters.state_dict(),
        "optimizer": optimizer.state_dict(),
        "optimizer_class": _class(optimizer),
        "optimized": [[names.get(id(p), "") for p in group["params"]] for group in optimizer.param_groups],
        "loss_scale": _class(step.loss_scale),
        "trainable": {name: p.requires_grad for name, p in leaves_of(step.model).parameters.items()},
        "statistics": {path: asked(child) for path, child in by_path(step.model) if asked(child) is not None},
        "eval": _in_eval(step),
        "mask": step.mask.state_dict(),
        "skips": step.skips.state_dict(),
        "random_stream": None if step.stream is None else step.stream.state_dict(),
    }


def check(step: TrainStep, saved: Mapping[str, Any]) -> None:
    """Refuse what belongs to another step, before anything moves.

    Raises
    ------
    CheckpointError
    """
    ours = {name: tensor for name, tensor in _model(step.model).items() if isinstance(tensor, Tensor)}
    theirs = {name: tensor for name, tensor in saved["model"].items() if isinstance(tensor, Tensor)}
    slots = {path + name for path, child in walk(step.model) for name in child._buffers}
    _check_names("The checkpoint", "and the model does not", [name for name in theirs if name not in {*ours, *slots}])
    _check_names("The model", "and the checkpoint does not", [name for name in ours if name not in theirs])
    for name, p in leaves_of(step.model).parameters.items():
        if (theirs[name].shape, theirs[name].dtype) != (p.shape, p.dtype):
            hint = "" if theirs[name].shape != p.shape else " A Policy(params=...) converts them: give the same one."
            raise CheckpointError(
                f"{name!r} is {_looks(theirs[name])} in the checkpoint, and {_looks(p)} in the model. Build the model "
                f"as it was.{hint}"
            )
    late = [name for name, p in leaves_of(step.model).parameters.items() if saved["trainable"][name] > p.requires_grad]
    if late and leaves_of(step.model).wrapper == "DistributedDataParallel":
        raise CheckpointError(
            f"{late[0]!r} is trained in the checkpoint, and frozen here: DistributedDataParallel reduces only what was "
            "trainable when it was made. Unfreeze, wrap the model anew, and make a new trainer."
        )
    _check_optimizer(step, saved)
    if saved["loss_scale"] != _class(step.loss_scale):
        raise CheckpointError(
            f"The checkpoint was written under the loss scale {_brief(saved['loss_scale'])}, and this loop has "
            f"{_brief(_class(step.loss_scale))}. Give the trainer the same loss_scale=."
        )


def _check_names(who: str, but: str, names: Sequence[str]) -> None:
    if names:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        raise CheckpointError(f"{who} has {names[0]!r}{more}, {but}. Build the model as it was, and resume then.")


def _check_optimizer(step: TrainStep, saved: Mapping[str, Any]) -> None:
    ours, theirs = _class(step.optimizer), saved["optimizer_class"]
    if ours != theirs:
        raise CheckpointError(
            f"The checkpoint is of the optimizer {_brief(theirs)}, and this loop has {_brief(ours)}. Give the trainer "
            "the same one; or take the parameters alone: model.load_state_dict(torch.load(file)['model'])."
        )
    names = {id(tensor): name for name, tensor in step.optimized_by_name().items()}
    held = [{names.get(id(p), "") for p in group["params"]} for group in step.optimizer.param_groups]
    kept = [set(group) for group in saved["optimized"]]
    if len(held) != len(kept):
        raise CheckpointError(
            f"The optimizer has {len(held)} parameter groups, and {len(kept)} in the checkpoint. Make it as it was."
        )
    everywhere, everywhere_kept = set().union(*held), set().union(*kept)
    for place, (group, group_kept) in enumerate(zip(held, kept, strict=True)):
        # What was in no group and is unfrozen on the way joins the first.
        joined = set() if place else (group_kept - everywhere) | (group - everywhere_kept)
        for name in sorted((group ^ group_kept) - joined):
            where = "in the checkpoint only" if name in group_kept else "in this loop's optimizer only"
            raise CheckpointError(
                f"{name!r} is in parameter group {place} {where}. Make the optimizer with the groups that it had."
            )


def load(step: TrainStep, saved: Mapping[str, Any]) -> None:
    """Put a step where another one was; `check` comes first."""
    model, parameters = step.model, leaves_of(step.model).parameters
    step.mask.load_state_dict(saved["mask"])
    with torch.no_grad():
        for name, p in parameters.items():
            p.copy_(saved["model"][name])
        for path, child in walk(model):
            for name, buffer in list(child._buffers.items()):
                value = saved["model"].get(path + name, saved["buffers"].get(path + name))
                if value is not None:
                    child._buffers[name] = _written(value, buffer, like=next(iter(parameters.values())))
    for path, child in walk(model):
        extra = saved["model"].get(f"{path}_extra_state")
        if extra is not None and type(child).get_extra_state is not _HAS_NO_EXTRA:
            child.set_extra_state(extra)
    with counted(model):
        for name, p in parameters.items():
            p.requires_grad_(saved["trainable"][name])
        for path, child in by_path(model):
            ask(child, saved["statistics"].get(path))
            if path in saved["eval"] and model.training:
                child.training = False
    drop_gradients(step.masters.of_all(list(parameters.values())))
    drop_gradients(parameters.values())
    step.masters.load_state_dict(saved["masters"])
    _load_optimizer(step, saved)
    step.skips.load_state_dict(saved["skips"])
    if step.stream is not None and saved["random_stream"] is not None:
        step.stream.load_state_dict(saved["random_stream"])


def step_state(step: TrainStep, leaves: Mapping[str, Any], gradients: Mapping[str, Tensor] | None = None) -> StepState:
    """A step state of saved leaves, as a step leaves one behind: live where that is live.

    Parameters
    ----------
    step : TrainStep
    leaves : mapping
        All but the model's state, the optimizer's and the gradients.
    gradients : mapping of str to Tensor, optional
        By parameter, without those that were not reached; zeros by default, where gradients are kept.
    """
    live = {"model_state": step.model_state, "optimizer_state": step.optimizer_state}
    state = StepState({**{key: leaves[key] for key in ("i", "y_true", "y_pred", "loss")}, **live, **leaves})
    if step.keep_gradients:
        kind, parameters = leaves_of(step.model).trainable()
        optimized = step.masters.of_all(parameters)
        given = [
            zeros(p) if gradients is None else gradients[name].to(p.device) if name in gradients else None
            for name, p in zip(kind.names, optimized, strict=True)
        ]
        state["gradients"] = Grad._from(step.evaluate.in_optimizer(kind), optimized, given)
    return state


def _load_optimizer(step: TrainStep, saved: Mapping[str, Any]) -> None:
    tensors = step.optimized_by_name()
    for group, names in zip(step.optimizer.param_groups, saved["optimized"], strict=True):
        group["params"][:] = [tensors[name] for name in names]  # in place: LBFGS holds the list too
    step.optimizer.load_state_dict(saved["optimizer"])


def _written(value: Tensor, buffer: Tensor | None, *, like: Tensor) -> Tensor:
    if buffer is None or (buffer.shape, buffer.dtype) != (value.shape, value.dtype):
        return value.to(like.device if buffer is None else buffer.device)
    return buffer.copy_(value)


def _model(model: nn.Module) -> dict[str, Any]:
    """As ``model.state_dict()``, without the prefixes of torch's wrappers."""
    state: dict[str, Any] = {}
    persistent = dict(_buffers(model, persistent=True))
    for path, child in walk(model):
        state |= {path + name: p.detach() for name, p in child._parameters.items() if p is not None}
        state |= {path + name: persistent[path + name] for name in child._buffers if path + name in persistent}
        if type(child).get_extra_state is not _HAS_NO_EXTRA:
            state[f"{path}_extra_state"] = child.get_extra_state()
    return state


def _buffers(model: nn.Module, *, persistent: bool) -> Iterator[tuple[str, Tensor]]:
    for path, child in walk(model):
        for name, buffer in child._buffers.items():
            if buffer is not None and (name not in child._non_persistent_buffers_set) == persistent:
                yield path + name, buffer


def _in_eval(step: TrainStep) -> list[str]:
    """Paths of the parts that were put into eval mode, and not because they are frozen."""
    if step.mode is not None:
        kept = step.mode.kept()
    else:
        kept = [child for child in step.model.modules() if step.model.training and not child.training]
    return [path for path, child in by_path(step.model) if child in kept]


def _class(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _brief(name: str) -> str:
    return name.rpartition(".")[2].lstrip("_")


def _looks(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"
