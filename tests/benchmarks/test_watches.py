"""The loops of gradviz that are compared record what they should, and a watched one is the bare one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.benchmarks.interleaved import LEARNING_RATE, interleave
from tests.benchmarks.models import mlp
from tests.benchmarks.ours import bare
from tests.benchmarks.watches import watched


@pytest.mark.parametrize("record", ["norms", "all"])
def test_a_watched_loop_trains_a_model_of_its_own_as_the_bare_one(record: Any) -> None:
    setting = mlp()
    adam = torch.optim.Adam(setting.model.parameters(), lr=LEARNING_RATE)
    loops = [bare("bare", setting, adam), watched("watch", setting, record)]
    measured = interleave(loops, setting.batch, rounds=3, seconds=60, warm_up=1, turn=1, alone=0, seed=0)
    assert {name: len(steps) for name, steps in measured["steps_us"].items()} == {"bare": 3, "watch": 3}
    assert not any(p._post_accumulate_grad_hooks for p in setting.model.parameters())
