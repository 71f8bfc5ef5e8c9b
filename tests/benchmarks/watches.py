"""Watched loops beside gradviz's own. A watched one has a model of its own, so that nobody else pays for its hooks.

They are no part of `ours`: three models in turn push one another out of the caches, which the loops on one model would
pay for, and not in life.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

import gradviz as gv
from tests.benchmarks.interleaved import Loop
from tests.benchmarks.models import Setting
from tests.benchmarks.ours import bare, of_its_own, rows_of, tensors, trainer


def loops(setting: Setting, adam: torch.optim.Adam) -> list[Loop]:
    """Each kind of model has its own bare loop."""
    return [
        bare("bare", setting, adam),
        bare("bare again", setting, adam),
        trainer("beside norms", setting, adam, "norms"),
        trainer("beside all", setting, adam, "all"),
        bare("bare copy", *of_its_own(setting)),
        watched("watch norms", setting, "norms"),
        watched("watch all", setting, "all"),
    ]


def watched(name: str, setting: Setting, record: Any) -> Loop:
    """The bare loop, watched."""
    setting, adam = of_its_own(setting)
    watch = gv.watch(setting.model, adam, record=record)
    loop = bare(name, setting, adam)
    return replace(loop, recorded=lambda: rows_of(watch.history, record), records=tensors(setting.model))
