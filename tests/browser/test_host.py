"""What the heatmap shows for every kind of cell: by pixel, in words, and to somebody who sees no colours."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import expect

from gradviz.history.quantity import ratio_of
from gradviz.widgets.colours import BLUE_ORANGE, VIRIDIS

from . import colours, contrast, looks, pixels
from .host import Host, OpenHost
from .lab import Theme

pytestmark = pytest.mark.browser

FLAGS = {"value": 0, "nan": 1, "posinf": 2, "neginf": 4, "zero": 8, "unused": 16, "frozen": 32}
HALF, WHOLE = 40, 80  # the marks fill the second half of the picture
EVIL = "<img src=x onerror=document.title='run'>.weight"
# Share of a row's pixels that must differ in brightness between two looks; two of one brightness differ
# nowhere. The closest are the dots of "unused" and a norm as bright as the ground they are on: 2.4 %.
DIFFERENT = 0.01


def show_all_looks(page: Host) -> None:
    """A row for each look: half a run of ordinary norms, then the look."""
    names = [*FLAGS, EVIL]
    page.start(names)
    norms = np.full((WHOLE, len(names) + 1), 0.05, dtype=np.float32)
    flags = np.zeros_like(norms, dtype=np.uint8)
    for row, (look, flag) in enumerate(FLAGS.items()):
        flags[HALF:, row] = flag
        norms[HALF:, row] = {"value": 0.05, "zero": 0.0}.get(look, np.nan)
    page.send(norms, flags, iterations=WHOLE)
    pixels.wait_painted(page.widget, WHOLE)


@pytest.mark.case("W05")
@pytest.mark.parametrize("scale", [1, 2])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_each_kind_of_cell_looks_different_without_its_colour(host: OpenHost, theme: Theme, scale: float) -> None:
    page = host(theme=theme, scale=scale)
    show_all_looks(page)
    rows = {look: looks.row(page.widget, look, 0.55, 0.95) for look in FLAGS}
    alike = {
        (one, other): looks.difference(rows[one], rows[other])
        for one, other in itertools.combinations(FLAGS, 2)
        if looks.difference(rows[one], rows[other]) < DIFFERENT
    }
    assert not alike, f"looks that differ in less than {DIFFERENT:.0%} of their pixels: {alike}"
    picture = pixels.grab(page.widget)
    assert len({picture.rows[look][picture.x_of(60)].tobytes() for look in ("value", "nan", "zero")}) == 3
    page.traffic.assert_clean()
    assert not page.traffic.warnings


@pytest.mark.parametrize("widget", ["heatmap", "frozen_mask"])
def test_while_there_is_no_gradient_it_says_why(host: OpenHost, widget: str) -> None:
    page = host(widget=widget)
    page.start(["a.weight", "b.weight"])
    said, beside = page.widget.locator(".gv-empty > span"), {"changes": [], "barred": ""}
    for iteration in (5, 6):
        nothing = f"no record yet: every 100 iterations, now at {iteration}"
        page.send([[np.nan, np.nan, 0.5]], [[128, 128, 0]], beside=beside, nothing=nothing)
        expect(said).to_have_text(nothing)
    page.send([[0.05, 0.05, 0.5]], [[0, 0, 0]], beside=beside)
    expect(said).to_be_hidden()
    page.traffic.assert_clean()


def test_a_run_without_a_loss_has_no_lane_for_it_until_there_is_one(host: OpenHost) -> None:
    page = host()
    page.start(["w"])
    lane, label = page.widget.locator(".gv-loss-lane"), page.widget.locator(".gv-loss-label")
    expect(lane).to_be_visible()  # nearly every run has one: nothing moves when it comes
    page.send([[0.05, np.nan]] * 20, [[0, 128]] * 20, iterations=40)
    pixels.wait_painted(page.widget, 20)
    expect(lane).to_be_hidden()
    expect(label).to_be_hidden()
    page.send([[0.05, 0.5]] * 20, [[0, 0]] * 20, iterations=40)
    pixels.wait_painted(page.widget, 40)
    expect(lane).to_be_visible()
    assert label.inner_text().split() == ["loss", "0.500"]
    page.traffic.assert_clean()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_single_bad_iteration_in_100_000_stays_visible(host: OpenHost, theme: Theme) -> None:
    page = host(theme=theme)
    names = ["healthy", "nan", "posinf", "neginf"]
    page.start(names)
    bad = 77_777
    for first in range(0, 100_000, 10_000):
        norms = np.full((10_000, len(names) + 1), 0.05, dtype=np.float32)
        flags = np.zeros_like(norms, dtype=np.uint8)
        if first <= bad < first + 10_000:
            norms[bad - first, 1:4] = np.nan
            flags[bad - first, 1:4] = [FLAGS[name] for name in names[1:]]
        page.send(norms, flags, iterations=100_000)
    pixels.wait_painted(page.widget, 100_000)
    around = {name: looks.row(page.widget, name, bad / 1e5 - 0.01, bad / 1e5 + 0.01) for name in names}
    for one, other in itertools.combinations(names, 2):
        assert looks.difference(around[one], around[other]) > DIFFERENT, (one, other)
    elsewhere = {name: looks.row(page.widget, name, 0.2, 0.7) for name in names}
    assert all(looks.difference(elsewhere["healthy"], row) == 0 for row in elsewhere.values())


def test_values_have_their_colours_at_any_width_and_scale(host: OpenHost) -> None:
    draw = np.random.default_rng(0)
    norms = np.exp(draw.normal(-4, 4, size=(700, 5))).astype(np.float32)
    names = ["a.weight", "a.bias", "b.weight", "b.bias"]
    frame = pd.DataFrame(norms[:, :4], columns=names)
    for scale, width in [(1, None), (2, None), (1.5, 700), (1, 340)]:
        page = host(width=width, scale=scale)
        page.start(names)
        page.send(norms, np.zeros_like(norms))
        pixels.wait_painted(page.widget, 700)
        picture = pixels.grab(page.widget)
        assert picture.span == 1024, "The axis of a run of unknown length ends at a power of two."
        colours.assert_domain(picture, frame)
        everywhere = [(parameter, iteration) for parameter in picture.rows for iteration in range(700)]
        colours.assert_cells(picture, frame, VIRIDIS, everywhere)


WORDS = {
    "value": r"norm 0\.0?50*\b|norm 5(\.0+)?e-0?2",
    "nan": "NaN",
    "posinf": r"\+inf",
    "neginf": "[-−]inf",
    "zero": "zero|norm 0",
    "unused": "unused",
    "frozen": "frozen",
}


@pytest.mark.parametrize("look", FLAGS)
def test_a_tooltip_says_what_a_cell_is(host: OpenHost, look: str) -> None:
    page = host()
    show_all_looks(page)
    text = page.point_at(look, 60)
    assert look in text
    assert "60" in text
    assert re.search(WORDS[look], text), text


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_ratio_is_drawn_around_1_and_called_what_it_is(host: OpenHost, theme: Theme) -> None:
    page = host(theme=theme, width=340)
    names = ["larger", "smaller", "same", "frozen"]
    page.start(names, ratio_of("b", "a"))
    ratios = np.tile(np.float32([8, 1 / 8, 1, np.nan, np.nan]), (16, 1))
    ratios[8:, 0] = 1 / 4
    flags = np.zeros_like(ratios, dtype=np.uint8)
    flags[:, 3] = FLAGS["frozen"]
    page.send(ratios, flags, iterations=16, status="completed", metric_names=[])
    pixels.wait_painted(page.widget, 16)
    picture = pixels.grab(page.widget)
    assert (picture.lo, picture.hi) == (-3, 3)
    for name, place in {"larger": 255, "smaller": 0, "same": 128}.items():
        assert picture.rgb(name, picture.x_of(3)) == colours.entry(BLUE_ORANGE, place), name
    ground = {"light": (255, 255, 255), "dark": (17, 17, 17)}[theme]
    assert contrast.ratio(picture.rgb("same", picture.x_of(3)), ground) > 1.5
    assert "ratio 0.1250 (a is 8.00 times b)" in page.point_at("smaller", 3)
    assert "frozen in a or b" in page.point_at("frozen", 3)
    text = page.widget.inner_text()
    for said in ("b ÷ a", "16 iterations", "gradient norm, b ÷ a", "in a or b:"):
        assert said in text, said
    assert page.widget.get_by_label("lowest colour").input_value() == "1/8"
    for unsaid in ("loss", "epoch 1", "Completed"):
        assert unsaid not in text, unsaid
    assert (
        page.widget.get_by_role("application")
        .get_attribute("aria-label")
        .startswith("ratios of gradient norms (b ÷ a)")
    )
    assert (
        page.widget.locator(".gv-heat")
        .get_attribute("aria-label")
        .endswith("from 1/8 to 8. Seen at some time in a or b: frozen in 1.")
    )
    contrast.assert_readable(page.widget)
    page.traffic.assert_clean()


@pytest.mark.case("W13")
@pytest.mark.parametrize("width", [None, 340])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_all_text_can_be_read_also_when_the_theme_changes(host: OpenHost, theme: Theme, width: int | None) -> None:
    page = host(theme=theme, width=width)
    show_all_looks(page)
    page.point_at("nan", 60)
    contrast.assert_readable(page.widget)
    other = "dark" if theme == "light" else "light"
    page.page.evaluate("name => host.theme(name)", other)
    expect(page.widget).to_have_attribute("data-gv-theme", other)
    contrast.assert_readable(page.widget)


@pytest.mark.case("W11")
@pytest.mark.parametrize("width", [300, 1200])
def test_it_fits_where_it_is_put_and_asks_nobody_for_anything(host: OpenHost, width: int) -> None:
    page = host(width=width)
    page.page.set_viewport_size({"width": 1300, "height": 800})
    show_all_looks(page)
    output = page.page.locator(".output")
    assert output.evaluate("output => output.scrollWidth <= output.clientWidth")
    box = page.widget.bounding_box()
    assert box is not None
    assert box["width"] == width
    page.traffic.assert_clean()


@pytest.mark.case("W18")
def test_what_is_not_finite_leaves_the_colours_of_the_earlier_iterations_alone(host: OpenHost) -> None:
    page = host()
    names = ["a.weight", "b.weight"]
    page.start(names)
    norms = np.clip(np.exp(np.random.default_rng(3).normal(-3, 1, (80, 3))), 0.01, 0.5).astype(np.float32)
    flags = np.zeros(norms.shape, np.uint8)
    norms[50:, 0], flags[50:, 0] = np.nan, 1
    flags[60, 1] = 2
    norms[60, 1] = np.nan
    page.send(norms[:50], flags[:50], iterations=80)
    pixels.wait_painted(page.widget, 50)
    before = pixels.grab(page.widget)
    page.send(norms[50:], flags[50:], iterations=80)
    pixels.wait_painted(page.widget, 80)
    after = pixels.grab(page.widget)
    assert (after.lo, after.hi) == (before.lo, before.hi)
    frame = pd.DataFrame(norms[:, :2], columns=names)
    colours.assert_cells(after, frame, VIRIDIS, [(name, i) for name in names for i in range(49)])
    assert "NaN in the gradient" in page.point_at("a.weight", 55)
    assert "+inf in the gradient" in page.point_at("b.weight", 60)


def test_a_name_that_looks_like_html_stays_text(host: OpenHost) -> None:
    page = host()
    show_all_looks(page)
    assert EVIL in page.point_at(EVIL, 60)
    assert page.widget.locator("img").count() == 0
    assert page.page.title() != "run"
    page.traffic.assert_clean()


def test_a_view_that_is_gone_says_so(host: OpenHost) -> None:
    page = host()
    show_all_looks(page)
    page.page.evaluate("() => { window.second = host.view(); }")
    page.page.wait_for_function("host.sent.length === 3")  # it says hello once it has room
    page.page.evaluate("second.close()")
    assert [said["kind"] for said in page.page.evaluate("host.sent")] == ["hello", "hello", "hello", "bye"]
    page.page.evaluate("host.close()")
    assert page.page.evaluate("host.sent.filter(said => said.kind === 'bye').length") == 2
