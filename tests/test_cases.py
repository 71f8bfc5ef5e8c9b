"""Every settled case is tested, and every case that is tested is settled."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
SETTLED = TESTS / "data" / "settled_cases.txt"
MARK = re.compile(r"""mark\.case\(\s*["']([^"']+)["']""")


def test_the_marks_and_the_list_of_settled_cases_agree():
    marked = {case for file in TESTS.rglob("test_*.py") for case in MARK.findall(file.read_text())} - {"id"}
    assert sorted(marked) == SETTLED.read_text().split()
