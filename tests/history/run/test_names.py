"""What files of a run are called."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradviz.errors import HistoryError
from gradviz.history.run.names import PartName, below, current


@pytest.mark.parametrize("name", ["run.json", "gradients/a-b.parquet", ".lock", "a/b/c", "...", "a..b"])
def test_a_name_below_the_folder_is_taken(name):
    assert below(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/etc/passwd",
        "..",
        "../a",
        "a/../../b",
        "a/.",
        "a//b",
        "a/",
        "C:\\a",
        "C:a",
        "a\\..\\b",
        "a\0b",
        "\\\\host\\a",
    ],
)
def test_a_name_that_leads_elsewhere_is_refused(name):
    with pytest.raises(HistoryError, match="no name of a file below"):
        below(name)


@given(
    series=st.text(st.characters(codec="ascii", categories=["L", "N"], include_characters="_-."), min_size=1),
    first=st.integers(0, 10**10),
    more=st.integers(0, 10**9),
    suffix=st.sampled_from([".parquet", ".safetensors"]),
)
def test_a_part_is_read_from_its_name(series, first, more, suffix):
    part = PartName(series, first, first + more, suffix)
    assert PartName.parse(str(part)) == part


@pytest.mark.parametrize(
    "name",
    [
        "notes.txt",
        "backward.parquet",
        "backward-1-2.parquet",
        "a-00000002-00000001.parquet",
        "-00000000-00000000.parquet",
    ],
)
def test_other_files_are_no_parts(name):
    assert PartName.parse(name) is None
    assert current([name]) == []


def test_parts_are_in_the_order_of_their_numbers_however_many_digits():
    parts = [PartName("a", n, n) for n in (7, 99_999_999, 100_000_000, 100_000_001)]
    assert current(sorted(map(str, reversed(parts)))) == parts


@given(st.data())
def test_each_flush_is_in_one_part_whatever_merges_left_behind(data):
    pieces, files = [(n, n) for n in range(data.draw(st.integers(1, 8)))], set()
    files.update(pieces)
    while len(pieces) > 1 and data.draw(st.booleans()):
        start = data.draw(st.integers(0, len(pieces) - 2))
        stop = data.draw(st.integers(start + 2, len(pieces)))
        merged = (pieces[start][0], pieces[stop - 1][1])
        gone = data.draw(st.sets(st.sampled_from(pieces[start:stop])))  # a kill may come at any of them
        files = (files - gone) | {merged}
        pieces[start:stop] = [merged]
    assert current(str(PartName("a", *file)) for file in files) == [PartName("a", *piece) for piece in pieces]


def test_series_do_not_cover_each_other():
    parts = [PartName("a", 0, 3), PartName("b", 1, 1), PartName("b-c", 2, 2)]
    assert current(map(str, parts)) == parts
