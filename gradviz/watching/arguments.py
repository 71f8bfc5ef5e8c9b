"""What `watch` is given, checked before anything is hooked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import nn
from torch.optim import Optimizer

from gradviz.errors import ModelError, OptimizerError, RecordingWarning, described, warn
from gradviz.step.optimizers import held_by
from gradviz.watching.models import Models


def as_models(model: Any) -> dict[str, nn.Module]:
    """By what the user calls them; one alone is called nothing."""
    models = dict(model) if isinstance(model, Mapping) else {"": model}
    for name, each in models.items():
        if not isinstance(each, nn.Module):
            came = "an optimizer" if isinstance(each, Optimizer) else described(each)
            raise ModelError(
                f"watch takes the model and its optimizer: gv.watch(model, optimizer); the model was {came}. Several "
                'go by name: gv.watch({"G": g, "D": d}, [opt_g, opt_d]).'
            )
        if not isinstance(name, str) or (isinstance(model, Mapping) and not name):
            raise ModelError(f'A model goes by a name, as in gv.watch({{"G": g}}, optimizer); got {name!r}.')
    if not models:
        raise ModelError("There is no model to watch: gv.watch(model, optimizer).")
    return models


def as_optimizers(optimizer: Any) -> list[Optimizer]:
    """Those that step, each once."""
    given = [optimizer] if isinstance(optimizer, Optimizer) else optimizer
    if isinstance(given, str | nn.Module | Mapping) or not isinstance(given, Iterable):
        raise OptimizerError(
            f"watch takes the optimizer that steps, or a list of them: gv.watch(model, optimizer); got "
            f"{described(optimizer)}."
        )
    optimizers = []
    for each in given:
        if not isinstance(each, Optimizer):
            raise OptimizerError(
                f"watch takes optimizers that step, a torch.optim.Optimizer each; got {described(each)}."
            )
        optimizers.append(inner(each))
    if not optimizers:
        raise OptimizerError("There is no optimizer to watch: gv.watch(model, optimizer).")
    if len({id(each) for each in optimizers}) < len(optimizers):
        raise OptimizerError("The same optimizer is there twice; name each once.")
    return optimizers


def inner(optimizer: Optimizer) -> Optimizer:
    """The one inside, where a library has wrapped it, whatever it calls it there: that one steps."""
    inside = [each for each in vars(optimizer).values() if isinstance(each, Optimizer) and each is not optimizer]
    return inner(inside[0]) if len(inside) == 1 else optimizer


def check_scaler(scaler: Any) -> None:
    """Refuse what does not do what a GradScaler does."""
    needed = ("is_enabled", "get_scale", "unscale_", "step", "update")
    if scaler is not None and not all(hasattr(scaler, name) for name in needed):
        raise TypeError(f"scaler is a torch.amp.GradScaler; got {described(scaler)}.")


def names_of(models: Mapping[str, nn.Module], optimizers: Sequence[Optimizer]) -> list[str] | None:
    """What the optimizers are called: as the model that each alone moves, and nothing else; or by their places."""
    if len(optimizers) < 2:
        return None
    own = {name: {id(p) for p in model.parameters()} for name, model in models.items()}
    moved = [[name for name, ids in own.items() if not ids.isdisjoint(map(id, held_by(each)))] for each in optimizers]
    alone = [names[0] for names in moved if len(names) == 1]
    is_clear = "" not in models and len(set(alone)) == len(optimizers)
    return alone if is_clear else [str(place) for place in range(len(optimizers))]


def check_held(followed: Models, optimizers: Sequence[Optimizer], names: Sequence[str] | None) -> None:
    """Refuse an optimizer that holds nothing of the models, and tell of one that holds something else beside."""
    known = {id(p) for p in followed.parameters().values()}
    for place, optimizer in enumerate(optimizers):
        held = held_by(optimizer)
        others = sum(id(p) not in known for p in held)
        kind, which = type(optimizer).__name__, "" if names is None else f" (number {place})"
        if held and others == len(held):
            raise OptimizerError(
                f"The {kind}{which} holds no parameter of the model, so there would be nothing to see. Give the model "
                "that it trains; several go by name: gv.watch({'G': g, 'D': d}, [opt_g, opt_d])."
            )
        if others:
            warn(
                f"The {kind}{which} holds {others} of {len(held)} parameters that belong to no model watched, and they "
                "are not recorded. Give that as well: gv.watch({'model': model, 'loss': loss}, optimizer).",
                RecordingWarning,
            )
