"""The direction of the arrows between the rooms of the house, as the contracts in pyproject.toml have it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINTER = Path(sys.executable).with_name("lint-imports")


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    # The linter looks for the package in the current folder first, so a copy wins over the editable install.
    return subprocess.run([LINTER, "--no-cache"], cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "gradviz", tmp_path / "gradviz", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_every_arrow_points_the_right_way() -> None:
    linted = lint_imports(ROOT)
    assert linted.returncode == 0, linted.stdout + linted.stderr


@pytest.mark.parametrize(
    ("module", "line", "arrow"),
    [
        ("history/history.py", "import torch", "gradviz.history.history -> torch"),
        ("widgets/wire.py", "from torch import Tensor", "gradviz.widgets.wire -> torch"),
        ("widgets/heatmap.py", "import gradviz.recorder", "gradviz.widgets.heatmap -> gradviz.recorder"),
        ("history/frames.py", "def f(): import gradviz.grad", "gradviz.history.frames -> gradviz.grad"),
        ("grad/statistics.py", "from gradviz import step", "gradviz.grad.statistics -> gradviz.step"),
        ("step/train_step.py", "import gradviz.history", "gradviz.step.train_step -> gradviz.history"),
        ("step/losses.py", "import pandas", "gradviz.step.losses -> pandas"),
        ("recorder/recorder.py", "from gradviz import loop", "gradviz.recorder.recorder -> gradviz.loop"),
        ("errors.py", "import gradviz.grad", "gradviz.errors -> gradviz.grad"),
    ],
)
def test_an_arrow_the_wrong_way_is_named(copy: Path, module: str, line: str, arrow: str) -> None:
    with (copy / "gradviz" / module).open("a") as file:
        file.write(f"\n{line}\n")
    linted = lint_imports(copy)
    assert linted.returncode == 1, linted.stdout + linted.stderr
    assert arrow in linted.stdout


def test_a_recorded_run_opens_without_torch() -> None:
    # Importing None raises ImportError: to these modules torch is not installed.
    without = "import sys; sys.modules['torch'] = None; "
    subprocess.run([sys.executable, "-c", without + "import gradviz.history.history"], check=True)
    subprocess.run([sys.executable, "-c", without + "import gradviz.widgets.heatmap"], check=True)
    subprocess.run([sys.executable, "-c", without + "import gradviz.widgets.frozen_mask"], check=True)
