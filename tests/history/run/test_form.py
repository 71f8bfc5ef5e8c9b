"""Formats that are known and those that are not."""

from __future__ import annotations

import pytest

from gradviz.errors import HistoryError
from gradviz.history.run.form import check_format, damaged


@pytest.mark.parametrize("found", [0, -1, "1", None, 1.0, True])
def test_what_is_no_format_is_not_called_a_newer_one(found):
    with pytest.raises(HistoryError, match="written by something else"):
        check_format(found, "run.json")


def test_a_damaged_file_is_named_with_the_way_out():
    error = damaged("runs/a", "gradients/x.parquet", "no footer.\n")
    assert str(error) == (
        "runs/a: gradients/x.parquet is damaged: no footer. Nothing was deleted; "
        "gv.History.open('runs/a', skip_damaged=True) reads the rest."
    )
