"""Pages that are not JupyterLab's: VS Code, Colab and marimo are dark in their own ways, and give a widget less."""

from __future__ import annotations

import numpy as np
import pytest
from playwright.sync_api import Locator, expect

from . import contrast, masks, pixels, tables
from .host import Host, OpenHost
from .lab import Theme

pytestmark = pytest.mark.browser

FORMS = ("vscode", "colab", "marimo")
N = 40


def show(page: Host, widget: str) -> Locator:
    """Draw the widget, and wait until it has."""
    if widget == "frozen_mask":
        masks.PARTLY.show(page)
    elif widget == "dtype_table":
        shown = tables.Shown(page, tables.healthy())
        expect(shown.widget.locator("tr[data-parameter]").first).to_be_visible()
    else:
        page.start(["a.weight", "b.weight"])
        page.send(np.full((N, 3), 0.1), np.zeros((N, 3)), iterations=N)
        pixels.wait_painted(page.widget, N)
    return page.widget


@pytest.mark.parametrize("widget", ["heatmap", "frozen_mask", "dtype_table"])
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("form", FORMS)
def test_each_widget_draws_in_the_page_s_own_colours(host: OpenHost, form: str, theme: Theme, widget: str) -> None:
    page = host(form=form, theme=theme, widget=widget)
    shown = show(page, widget)
    expect(shown).to_have_attribute("data-gv-theme", theme)
    contrast.assert_readable(shown)
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
