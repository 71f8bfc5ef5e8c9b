"""Pages that are not JupyterLab's: VS Code, Colab and marimo are dark in their own ways, and give a widget less."""

from __future__ import annotations

import numpy as np
import pytest
from playwright.sync_api import Locator, expect

from gradviz.history.history import History
from gradviz.widgets.panel import PanelFeed

from . import contrast, inspections, masks, pixels, tables
from .host import Host, OpenHost
from .lab import Theme

pytestmark = pytest.mark.browser

FORMS = ("vscode", "colab", "marimo")
N = 40


def spoilt() -> History:
    """A run that went wrong, so that the panel has all of its parts to show."""
    history = inspections.run(length=N)
    table = np.full((len(inspections.NAMES), 8), np.nan)
    table[:, 5] = 1
    history.append(N, 0, table, np.zeros(len(table), np.uint8), {"loss": np.nan})
    history.progress.message = "the disk is full"
    return history


def show(page: Host, widget: str) -> Locator:
    """Draw the widget, and wait until it has."""
    if widget == "frozen_mask":
        masks.PARTLY.show(page)
    elif widget == "dtype_table":
        shown = tables.Shown(page, tables.healthy())
        expect(shown.widget.locator("tr[data-parameter]").first).to_be_visible()
    elif widget == "inspector":
        inspections.Inspected(page, inspections.run(length=N))
        expect(page.widget.locator(".gv-fact").first).to_be_visible()
    elif widget == "panel":
        page.start(inspections.NAMES)
        told, buffers = PanelFeed(spoilt()).message(fresh=True)
        page.deliver({**told, "seq": 1, "fresh": True}, buffers)
        expect(page.page.locator(".gv-verdict")).to_contain_text("went non-finite")
    else:
        page.start(["a.weight", "b.weight"])
        page.send(np.full((N, 3), 0.1), np.zeros((N, 3)), iterations=N)
        pixels.wait_painted(page.widget, N)
    return page.widget


@pytest.mark.parametrize("widget", ["heatmap", "frozen_mask", "dtype_table", "inspector", "panel"])
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("form", FORMS)
def test_each_widget_draws_in_the_page_s_own_colours(host: OpenHost, form: str, theme: Theme, widget: str) -> None:
    page = host(form=form, theme=theme, widget=widget)
    shown = show(page, widget)
    expect(shown).to_have_attribute("data-gv-theme", theme)
    contrast.assert_readable(shown)
    if widget == "panel":
        contrast.assert_readable(page.page.locator(".gv-verdict"))
    page.page.evaluate("host.close()")
    expect(page.page.locator(".gv")).to_have_count(0)
    page.traffic.assert_clean()


@pytest.mark.parametrize("form", FORMS)
def test_a_switch_of_the_theme_is_followed(host: OpenHost, form: str) -> None:
    page = host(form=form)
    shown = show(page, "heatmap")
    page.page.evaluate("host.theme('dark')")
    expect(shown).to_have_attribute("data-gv-theme", "dark")
    page.page.evaluate("host.theme('light')")
    expect(shown).to_have_attribute("data-gv-theme", "light")
