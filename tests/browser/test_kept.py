"""A page without a kernel shows the picture that was kept."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gradviz.history.history import History
from gradviz.widgets.colours import VIRIDIS
from gradviz.widgets.feed import ColumnFeed
from gradviz.widgets.publish import Publisher

from . import colours, pixels
from .host import OpenHost

pytestmark = pytest.mark.browser


def test_the_kept_picture_is_shown_and_the_kernel_is_asked_for_all_of_it(host: OpenHost) -> None:
    norms = np.exp(np.random.default_rng(1).normal(-3, 1, (30, 2)))
    history = History()
    history.declare([{"name": name, "shape": (2,), "dtype": "float32"} for name in ("a.weight", "b.weight")])
    for i, row in enumerate(norms):
        history.progress.iteration = i + 1
        history.append(i, 0, np.tile(row[:, None], 8) * [1, 1, 1, 1, 1, 0, 0, 0], np.zeros(2, np.uint8), {"loss": 1.0})
    history.progress.status = "completed"
    kept: list[dict[str, object]] = []
    publisher = Publisher(
        history,
        ColumnFeed(history),
        lambda *_: None,
        lambda message, buffers: kept.append({"message": message, "buffers": buffers}),
    )
    publisher.show()
    page = host()
    page.start(["a.weight", "b.weight"], kept=kept[-1])
    pixels.wait_painted(page.widget, 30)
    frame = pd.DataFrame(norms.astype(np.float32), columns=["a.weight", "b.weight"])
    cells = [(name, i) for name in frame for i in range(30)]
    colours.assert_cells(pixels.grab(page.widget), frame, VIRIDIS, cells)
    assert "Completed" in page.widget.inner_text()
    assert page.page.evaluate("host.sent[0]") == {"kind": "hello", "have": 0}
    page.traffic.assert_clean()
