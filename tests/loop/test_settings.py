"""What torch keeps for each thread goes along into another."""

from __future__ import annotations

import contextlib
from threading import Thread

import pytest
import torch

from gradviz.loop.settings import ThreadSettings


def seen() -> dict[str, object]:
    return {
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "autocast dtype": torch.get_autocast_dtype("cpu"),
        "cache": torch.is_autocast_cache_enabled(),
        "device": torch.get_default_device(),
        "dtype": torch.get_default_dtype(),
        "threads": torch.get_num_threads(),
    }


@pytest.mark.parametrize(
    "around",
    [
        contextlib.nullcontext,
        torch.no_grad,
        torch.inference_mode,
        lambda: torch.autocast("cpu", dtype=torch.float16, cache_enabled=False),
        lambda: torch.device("meta"),
    ],
)
def test_a_thread_has_the_settings_of_the_one_that_started_it(around):
    found = []

    def look():
        with settings.in_force():
            found.append(seen())

    torch.set_default_dtype(torch.float64)
    try:
        with around():
            here, settings = seen(), ThreadSettings()
            thread = Thread(target=look)
            thread.start()
            thread.join(10)
    finally:
        torch.set_default_dtype(torch.float32)
    before = "autocast dtype" if not here["autocast"] else None  # a dtype counts only where it is in force
    assert {name: value for name, value in found[0].items() if name != before} == {
        name: value for name, value in here.items() if name != before
    }
