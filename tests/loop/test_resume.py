"""A run goes on from a checkpoint to the bit: as if it had never been broken off."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.loop.scenes import EPOCHS, SCENES, assert_same, outcome, resumed, straight

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Each scene's straight run: its outcome, and its folder of checkpoints."""

    @cache
    def run(name):
        folder = tmp_path_factory.mktemp(name)
        return outcome(straight(SCENES[name], folder)), folder / "checkpoints"

    return run


def places(folder: Path) -> list[tuple[Path, int]]:
    """Checkpoints at the end of the third epoch, in its middle, and after the first iteration; and the epochs left."""
    end = max(folder.glob("checkpoint_2_*.pt"), key=lambda file: int(file.stem.rpartition("_")[2]))
    return [(end, EPOCHS - 3), (folder / "checkpoint_2_2.pt", EPOCHS - 2), (folder / "checkpoint_0_1.pt", EPOCHS)]


@pytest.mark.parametrize("place", range(3), ids=["at an epoch's end", "in its middle", "in the first epoch"])
@pytest.mark.parametrize("name", SCENES)
def test_six_epochs_are_three_and_three(runs, name, place):
    expected, folder = runs(name)
    file, epochs = places(folder)[place]
    assert_same(expected, outcome(resumed(SCENES[name], file, epochs)))
