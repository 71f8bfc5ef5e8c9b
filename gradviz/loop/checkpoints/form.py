"""The form of a checkpoint: the keys that one has, and the kinds of their values."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Any

from torch import Tensor

from gradviz.errors import CheckpointError, described

_MAYBE_DICT = (dict, NoneType)

_FORM: dict[str, Any] = {
    "model": {},
    "optimizer": {"state": dict, "param_groups": list},
    "step": {
        "buffers": dict,
        "masters": dict,
        "optimizer_class": str,
        "optimized": list,
        "loss_scale": str,
        "trainable": dict,
        "statistics": dict,
        "eval": list,
        "mask": {"trained": dict, "still": list},
        "skips": {"in_a_row": int, "said": bool},
        "random_stream": _MAYBE_DICT,
    },
    "step_state": dict,
    "state": {
        "iteration": int,
        "epoch": int,
        "epoch_iteration": int,
        "metrics": dict,
        "times": dict,
        "event_counts": dict,
        "epoch_event_counts": dict,
    },
    "metrics": dict,
    "validation": _MAYBE_DICT,
    "handlers": dict,
    "random": {"random": {"torch": Tensor, "python": tuple, "numpy": (tuple, dict)}, "streams": dict},
    "epoch": _MAYBE_DICT,
}
"""What is never absent: a kind, several, or the keys of a dict."""

_MOMENT = _FORM["random"]
_OPTIONAL: dict[str, Any] = {
    "validation": {"results": dict, "streams": dict, "said": list},
    "epoch": {
        "before_data": _MOMENT,
        "before_batches": _MAYBE_DICT,
        "done": int,
        "seconds": (int, float),
        "control": (str, NoneType),
    },
}
"""The keys of what may be None, where it is not."""

_METRIC = {"accumulated_by": str, "dtype": str, "so_far": dict}


def check_form(checkpoint: Mapping[str, Any], file: object) -> None:
    """Refuse what has not the keys that a loop goes on from, or a value of another kind.

    Raises
    ------
    CheckpointError
        Naming the file and the key.
    """
    _check(checkpoint, _FORM, file, "")
    present = {key: form for key, form in _OPTIONAL.items() if checkpoint[key] is not None}
    _check(checkpoint, present, file, "")
    _check(checkpoint["metrics"], dict.fromkeys(checkpoint["metrics"], _METRIC), file, "['metrics']")


def _check(values: Mapping[Any, Any], form: Mapping[Any, Any], file: object, path: str) -> None:
    for key, wanted in form.items():
        where = f"{path}[{key!r}]"
        if key not in values:
            raise CheckpointError(f"{file} is no whole checkpoint: it has no {where}. Resume from another file.")
        kinds = dict if isinstance(wanted, dict) else wanted
        if not isinstance(values[key], kinds):
            names = " or ".join(kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
            raise CheckpointError(
                f"{file} is no whole checkpoint: {where} is {described(values[key])}, and {names} is wanted. Resume "
                "from another file."
            )
        if isinstance(wanted, dict):
            _check(values[key], wanted, file, where)
