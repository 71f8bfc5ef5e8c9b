"""No widget outlives the test that opened it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gradviz.widgets import live


@pytest.fixture(autouse=True)
def _closes_what_it_opened() -> Iterator[None]:
    yield
    for widget in list(live._open.values()):
        widget.close()
