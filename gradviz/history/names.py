"""The same parameter under the names that wrappers give it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

_HIDDEN = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
"""What torch.compile, FSDP and activation checkpointing call the module inside: nobody else does."""

_PARALLEL = _HIDDEN | {"module"}
"""And what DataParallel and DistributedDataParallel call it: others may too."""


def unwrapped(names: Sequence[Sequence[str]]) -> list[dict[str, str]]:
    """What each run calls a parameter, and the name that is common to all runs, in the run's own order.

    Prefixes of wrappers are removed wherever they stand, but not where two names of one run would become one.

    Examples
    --------
    >>> unwrapped([["head.weight"], ["module._orig_mod.head.weight"]])
    [{'head.weight': 'head.weight'}, {'module._orig_mod.head.weight': 'head.weight'}]
    >>> unwrapped([["module.weight", "weight"], ["weight"]])
    [{'module.weight': 'module.weight', 'weight': 'weight'}, {'weight': 'weight'}]
    """
    found: list[dict[str, str]] = [{} for _ in names]
    left = [list(run) for run in names]
    for name_of in (lambda name: _without(name, _PARALLEL), lambda name: _without(name, _HIDDEN), str):
        clashing = _clashing(left, name_of)
        for run, own in zip(found, left, strict=True):
            run |= {name: name_of(name) for name in own if name_of(name) not in clashing}
        left = [[name for name in own if name_of(name) in clashing] for own in left]
    return [{name: run[name] for name in own} for run, own in zip(found, names, strict=True)]


def _clashing(names: Sequence[Sequence[str]], name_of: Callable[[str], str]) -> set[str]:
    """What several names of one run would be called."""
    return {name for own in names for name, n in Counter(map(name_of, own)).items() if n > 1}


def _without(name: str, wrappers: frozenset[str]) -> str:
    *path, last = name.split(".")
    return ".".join([*(part for part in path if part not in wrappers), last])
