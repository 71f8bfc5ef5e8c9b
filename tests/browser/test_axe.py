"""What axe-core finds fault with: nothing serious."""

from __future__ import annotations

import numpy as np
import pytest

from . import masks, pixels
from .host import PROJECT, OpenHost
from .lab import Theme

pytestmark = pytest.mark.browser

AXE = PROJECT / "js/node_modules/axe-core/axe.min.js"
RUN = """async () => (await axe.run(".gv")).violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(" ")}`)"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nobody_is_kept_out(host: OpenHost, theme: Theme) -> None:
    page = host(theme=theme)
    page.start([f"encoder.{i}.{kind}" for i in range(3) for kind in ("weight", "bias")])
    norms = np.full((40, 7), 0.1, np.float32)
    flags = np.zeros(norms.shape, np.uint8)
    norms[20:, 1], flags[20:, 1] = np.nan, 1
    page.send(norms, flags, iterations=40, message="The loss is NaN.", status="failed")
    pixels.wait_painted(page.widget, 40)
    page.widget.get_by_text("Numbers as a table").click()
    page.point_at("encoder.0.weight", 5)
    page.page.add_script_tag(path=AXE)
    assert page.page.evaluate(RUN) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nobody_is_kept_out_of_the_mask(host: OpenHost, theme: Theme) -> None:
    page = host(theme=theme, widget="frozen_mask")
    masks.PARTLY.show(page)
    page.page.add_script_tag(path=AXE)
    assert page.page.evaluate(RUN) == []
    page.widget.locator("button.gv-act:visible").first.click()
    assert page.page.evaluate(RUN) == []
