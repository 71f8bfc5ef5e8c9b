"""What Binder is told to install is what the project needs, in the versions that are tested."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]
ENVIRONMENT = yaml.safe_load((ROOT / "binder/environment.yml").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
POST_BUILD = ROOT / "binder/postBuild"
OF_CONDA = {"torch": "pytorch-cpu"}
"""What is called otherwise there; the package that takes no GPU along."""
OF_THE_BASE = {"jupyterlab"}
"""What the image has anyway."""


def _pins(file: str) -> dict[str, str]:
    lines = (ROOT / file).read_text().splitlines()
    return {name.lower().replace("_", "-"): version for name, _, version in (line.partition("==") for line in lines)}


PINS = _pins("constraints.txt")


def _needed() -> Iterator[Requirement]:
    """What gradviz, its tutorials and its build need."""
    project = PROJECT["project"]
    for line in [*project["dependencies"], *project["optional-dependencies"]["tutorials"]]:
        requirement = Requirement(line)
        if requirement.name != project["name"]:
            yield requirement
    for line in PROJECT["build-system"]["requires"]:
        yield Requirement(line)


NEEDED = {OF_CONDA.get(each.name, each.name): each for each in _needed() if each.name not in OF_THE_BASE}


def _entries() -> dict[str, str]:
    """Of the environment: the name and, as pip would write it, which versions; python apart."""
    found = {}
    for line in ENVIRONMENT["dependencies"]:
        name, _, version = line.partition("=")
        found[name] = f"=={version}" if version else ""
    return found


ENTRIES = _entries()


def test_it_has_what_the_project_needs_and_nothing_else() -> None:
    assert set(ENTRIES) - {"python"} == set(NEEDED)


@pytest.mark.parametrize("name", sorted(NEEDED))
def test_an_entry_allows_what_is_tested_and_so_does_the_project(name: str) -> None:
    requirement = NEEDED[name]
    tested = PINS[requirement.name.lower()]
    assert tested in SpecifierSet(ENTRIES[name])
    assert tested in requirement.specifier


def test_python_is_one_that_the_project_takes_and_tests() -> None:
    version = ENTRIES["python"].removeprefix("==")
    assert version in SpecifierSet(PROJECT["project"]["requires-python"])
    assert list(map(int, version.split("."))) == list(sys.version_info[:2])


def test_everything_comes_from_one_place() -> None:
    assert ENVIRONMENT["channels"] == ["conda-forge"]
    assert all(isinstance(each, str) for each in ENVIRONMENT["dependencies"]), "no pip in between"


def test_the_script_ends_at_the_first_failure_and_can_be_run() -> None:
    assert os.access(POST_BUILD, os.X_OK)
    assert re.search(r"^set -euo pipefail$", POST_BUILD.read_text(), re.MULTILINE)
    assert subprocess.run(["bash", "-n", POST_BUILD], check=False).returncode == 0


def test_repo2docker_makes_a_build_of_both() -> None:
    command = [sys.executable, "-m", "repo2docker", "--no-build", "--no-run", "--debug", str(ROOT)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr[-2000:]
    said = made.stdout + made.stderr
    assert '--file "binder/environment.yml"' in said
    assert "RUN ./binder/postBuild" in said
    assert f"Building conda environment for python={ENTRIES['python'].removeprefix('==')}" in said


def test_the_image_that_is_tested_here_has_the_versions_of_binder() -> None:
    python = ENTRIES["python"].removeprefix("==")
    lock = files("repo2docker") / f"buildpacks/conda/environment.py-{python}-linux-64.lock"
    locked = dict(re.findall(r"/([\w.-]+)-(\d[\w.]*)-[\w.]+\.conda", lock.read_text()))
    base = _pins("tests/binder/base.txt")
    ours = ("jupyterlab", "notebook", "ipywidgets", "ipykernel", "jupyter-server", "jupyter-client")
    theirs = {name.lower().replace("_", "-"): version for name, version in locked.items()}
    assert {name: base[name] for name in ours} == {name: theirs[name] for name in ours}
