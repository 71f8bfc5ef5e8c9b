"""The form of a checkpoint: its keys and the kinds of its values, written down in it, so that a change is seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from gradviz.errors import CheckpointError

FORM = "form"


def with_form(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """A checkpoint that knows its form."""
    return checkpoint | {FORM: form_of(checkpoint)}


def form_of(value: Any) -> Any:
    """What a plain value looks like: keys, kinds, and of tensors dtype and shape.

    Examples
    --------
    >>> import torch
    >>> form_of({"weight": torch.zeros(2, 3), "betas": (0.9, 0.999), "lr": None})
    {'weight': 'float32 (2, 3)', 'betas': ('tuple', 'float', 'float'), 'lr': 'NoneType'}
    """
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    if isinstance(value, dict):
        return {key: form_of(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value).__name__, *map(form_of, value)
    return type(value).__name__


def check_form(checkpoint: Mapping[str, Any], file: object) -> None:
    """Refuse what has lost a key, or has a value of another kind or shape than it was written with.

    Numbers may be other numbers, such as a learning rate that somebody has set, and keys that are new at the top are
    theirs who put them there.

    Raises
    ------
    CheckpointError
        Naming the file and the key.
    """
    form = checkpoint.get(FORM)
    if not isinstance(form, dict):
        raise CheckpointError(f"{file} is no whole checkpoint: it has no [{FORM!r}]. Resume from another file.")
    written = {key: value for key, value in checkpoint.items() if key in form}
    _compare(form, form_of(written), file, "")


def _compare(then: Any, now: Any, file: object, path: str) -> None:
    if then == now:
        return
    if isinstance(then, dict) and isinstance(now, dict):
        for key in (key for key in then if key not in now):
            raise CheckpointError(
                f"{file} is no whole checkpoint: it has no {path}[{key!r}]. Resume from another file."
            )
        for key in (key for key in now if key not in then):
            raise CheckpointError(f"{file} was changed: {path}[{key!r}] was not in it. Resume from another file.")
        for key, part in then.items():
            _compare(part, now[key], file, f"{path}[{key!r}]")
    elif isinstance(then, tuple) and isinstance(now, tuple) and then[0] == now[0] and len(then) == len(now):
        for place, (part, part_now) in enumerate(zip(then[1:], now[1:], strict=True)):
            _compare(part, part_now, file, f"{path}[{place}]")
    raise CheckpointError(
        f"{file} is no whole checkpoint: {path} is {_brief(now)}, and was {_brief(then)} when it was written. "
        "Resume from another file."
    )


def _brief(form: Any) -> str:
    if isinstance(form, dict):
        return f"a dict of {len(form)}"
    return f"a {form[0]} of {len(form) - 1}" if isinstance(form, tuple) else str(form)
