"""What the annotations promise, held against mypy and pyright, each strict and run once over `good.py` and `bad.py`."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import gradviz

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SNIPPETS = [HERE / "good.py", HERE / "bad.py"]
PYRIGHT = ROOT / "js" / "node_modules" / ".bin" / "pyright"

Finding = tuple[str, int, str]
"""File, line and message."""


def mypy() -> Iterator[Finding]:
    # The configuration of `make check`, whose cache then holds torch.
    for line in output_of(sys.executable, "-m", "mypy", "--output=json", *map(str, SNIPPETS)).splitlines():
        found = json.loads(line)
        if found["severity"] == "error":
            yield Path(found["file"]).name, found["line"], found["message"]


def pyright() -> Iterator[Finding]:
    assert PYRIGHT.exists(), "There is no pyright: `make build` installs it."
    report = output_of(str(PYRIGHT), "--pythonpath", sys.executable, "--outputjson", *map(str, SNIPPETS))
    for found in json.loads(report)["generalDiagnostics"]:
        if found["severity"] != "information":
            yield Path(found["file"]).name, found["range"]["start"]["line"] + 1, found["message"]


def output_of(*command: str) -> str:
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # node may be there
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PATH": programs}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr  # 0: bad.py passed; above: the checker failed
    return done.stdout


@pytest.fixture(scope="module", params=[mypy, pyright], ids=["mypy", "pyright"])
def findings(request: pytest.FixtureRequest) -> dict[str, dict[int, list[str]]]:
    checker: Callable[[], Iterator[Finding]] = request.param
    found: dict[str, dict[int, list[str]]] = {file.name: defaultdict(list) for file in SNIPPETS}
    for file, line, message in checker():
        if file in found:  # gradviz itself is what `make check` looks at
            found[file][line].append(message)
    return found


def test_what_gradients_can_do_has_the_types_that_are_documented(findings: dict[str, dict[int, list[str]]]) -> None:
    assert not findings["good.py"]


def test_what_gradients_cannot_do_is_an_error_and_nothing_else_is(findings: dict[str, dict[int, list[str]]]) -> None:
    lines = (HERE / "bad.py").read_text().splitlines()
    marked = {number: line.strip() for number, line in enumerate(lines, 1) if line.endswith("# error")}
    found = findings["bad.py"]
    assert marked
    assert not [line for number, line in marked.items() if number not in found]
    assert not {number: messages for number, messages in found.items() if number not in marked}


def test_checkers_are_told_that_the_installed_package_has_types() -> None:
    assert Path(gradviz.__file__).with_name("py.typed").exists()
