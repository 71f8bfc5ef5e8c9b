"""The README's table of what tools show: gradviz's column here, the others where their environment is."""

from __future__ import annotations

import subprocess

import pytest

from tests.benchmarks.bench_loop import PEERS_PYTHON, ROOT
from tests.benchmarks.wrong_cases import BEGIN, CASES, END, README, Case, gradviz, rewritten, truth


def in_the_readme() -> list[str]:
    return README.read_text().partition(BEGIN)[2].partition(END)[0].splitlines()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_gradviz_shows_what_there_is_and_the_readme_says_so(case: Case) -> None:
    assert gradviz(case) == truth(case)
    (row,) = (row for row in in_the_readme() if row.startswith(f"| {case.what} |"))
    assert row.split(" | ")[1:3] == [truth(case), gradviz(case)]


def test_what_there_is_is_known() -> None:
    assert list(map(truth, CASES)) == ["1", "11", "12 numbers, 4 NaN", "16 NaN", "1"]


def test_only_what_stands_between_the_marks_is_rewritten() -> None:
    readme = f"before\n{BEGIN}old\n{END}\nafter\n"
    assert rewritten(readme, iter(["new", "rows"])) == f"before\n{BEGIN}new\nrows\n{END}\nafter\n"


def test_both_tools_say_what_the_readme_says_of_them() -> None:
    """Where `make bench` has not made the environment of the others, there is nobody to ask."""
    if PEERS_PYTHON.exists():
        command = [PEERS_PYTHON, "-m", "tests.benchmarks.wrong_cases"]
        said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
        assert said == in_the_readme()
