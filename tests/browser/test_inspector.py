"""The inspector in the mini page: what it shows, how it is moved, what it asks, and what it does without an answer."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

from gradviz.widgets.feed import ColumnFeed
from gradviz.widgets.inspection import inspect

from . import contrast
from .host import Host, OpenHost, encoded
from .inspections import EVIL, LOOKED, NAN_AT, Inspected, N, run
from .lab import Theme
from .test_axe import AXE, RUN

pytestmark = pytest.mark.browser


@pytest.fixture
def shown(host: OpenHost):
    def show(
        *, theme: Theme = "light", width: int | None = None, deaf: bool = False, history=None, **traits
    ) -> Inspected:
        page = host(theme=theme, width=width, widget="inspector")
        return Inspected(page, history or run(), deaf=deaf, **traits)

    return show


def section(widget: Locator, title: str) -> Locator:
    return widget.get_by_role("region", name=title)


def x_of(page: Host, iteration: float) -> tuple[float, float]:
    canvas = page.widget.locator("canvas.gv-norm")
    box = canvas.bounding_box()
    assert box is not None
    start, span = (float(canvas.get_attribute(f"data-{name}") or 0) for name in ("start", "span"))
    return box["x"] + box["width"] * (iteration + 0.5 - start) / span, box["y"] + 40


def test_it_tells_all_that_is_known_of_a_parameter_at_an_iteration(shown) -> None:
    widget = shown(iteration=1010).page.widget
    expect(widget.locator(".gv-inspected")).to_have_text(LOOKED)
    expect(widget).to_contain_text("64 × 64 · bfloat16, gradient float32")
    expect(section(widget, "stage")).to_contain_text("clipped")
    expect(section(widget, "stage")).to_contain_text("8.000e-4")
    expect(section(widget, "values")).to_contain_text("of iteration 1,000, the nearest recorded")
    expect(section(widget, "values").get_by_role("img")).to_have_attribute(
        "aria-label", _has("300 zeros", "60 +inf", "90 NaN")
    )
    expect(section(widget, "examples")).to_contain_text("img_0017, call 0")
    expect(section(widget, "examples")).to_contain_text("#3, call 1")


def _has(*words: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(word) for word in words))


def test_what_was_not_recorded_says_so_and_how_to_record_it(shown) -> None:
    shows = shown(history=run(stages=False, examples=False), parameter="embed.weight", iteration=100)
    widget = shows.page.widget
    expect(widget.locator(".gv-state")).to_have_text("frozen")
    stage = section(widget, "stage")
    expect(stage.locator("dd").first).to_have_text("frozen")
    expect(stage).to_contain_text('stages=("backward", "clipped", "update")')
    expect(section(widget, "examples")).to_contain_text('keep="example_norms"')
    expect(section(widget, "values")).to_contain_text("histograms_every=100")
    expect(widget.locator(".gv-key")).to_have_text(["frozen"])


@pytest.mark.parametrize(
    ("name", "iteration", "words", "key"),
    [
        (LOOKED, NAN_AT, "NaN in the gradient", "NaN"),
        ("encoder.1.mlp.0.bias", 750, "zero", "zero"),
        ("head.aux.weight", 7, "unused: no path from the loss", "unused"),
    ],
)
def test_where_there_is_no_number_words_and_marks_say_why(
    shown, name: str, iteration: int, words: str, key: str
) -> None:
    widget = shown(parameter=name, iteration=iteration).page.widget
    expect(widget.locator(".gv-state")).to_have_text(words)
    expect(widget.locator(".gv-key").filter(has_text=key)).to_have_count(1)


def test_keys_scrub_and_enter_stays(shown) -> None:
    shows = shown(iteration=1000)
    page = shows.page
    chart = page.widget.get_by_role("slider")
    chart.press("Home")
    expect(page.widget).to_contain_text("iteration")
    expect(chart).to_have_attribute("aria-valuenow", "0")
    chart.press("End")
    chart.press("Enter")
    page.page.wait_for_function(f"host.model.get('iteration') > {N - 5}")
    chart.press("Escape")
    page.widget.get_by_role("button", name="follow the newest").click()
    assert page.page.evaluate("host.model.get('iteration')") is None


def test_pointing_is_told_and_a_click_stays(shown) -> None:
    shows = shown()
    page = shows.page
    x, y = x_of(page, 500)
    page.page.mouse.move(x, y)
    expect(page.widget.locator(".gv-chart-line")).to_be_visible()
    expect(page.widget.locator(".gv-tooltip").first).to_be_attached()
    at = page.page.evaluate("globalThis[Symbol.for('gradviz.links')].get('run').cursor.iteration")
    assert abs(at - 500) < 4
    page.page.mouse.down()
    page.page.mouse.up()
    page.page.mouse.move(2, 2)
    assert abs(page.page.evaluate("host.model.get('iteration')") - 500) < 4
    expect(page.widget.locator(".gv-chart-line")).to_be_hidden()
    expect(page.widget.locator(".gv-chart-chosen")).to_be_visible()


def test_a_hand_that_scrubs_asks_a_few_times_a_second(shown) -> None:
    shows = shown()
    page = shows.page
    before = len(shows.asked)
    for i in range(60):
        page.page.mouse.move(*x_of(page, 100 + 10 * i))
    assert len(shows.asked) - before < 40
    ids = [question["id"] for question in shows.asked]
    assert len(set(ids)) == len(ids)


def test_without_an_answer_old_numbers_stay_grey_and_it_says_that_it_waits(shown) -> None:
    shows = shown(iteration=1010)
    page = shows.page
    expect(section(page.widget, "stage")).to_contain_text("8.000e-4")
    shows.deaf = True
    page.page.evaluate("host.set('iteration', 3)")
    expect(page.widget.get_by_text("waiting for the kernel")).to_be_visible()
    expect(page.widget.locator(".gv-asked")).to_have_class("gv-asked gv-old")
    expect(section(page.widget, "stage")).to_contain_text("8.000e-4")
    page.page.wait_for_function("host.sent.at(-1).iteration === 3")
    n = len(shows.asked)
    for iteration in range(4, 40):
        page.page.evaluate(f"host.set('iteration', {iteration})")
    assert len(shows.asked) == n


def test_another_is_found_by_words_of_its_name_and_names_are_no_markup(shown) -> None:
    shows = shown()
    page = shows.page
    find = page.widget.get_by_label("look into another")
    find.fill("aux")
    find.press("Enter")
    expect(page.widget.locator(".gv-inspected")).to_have_text("head.aux.weight")
    find.fill(EVIL)
    expect(page.widget.locator(".gv-inspected")).to_have_text(EVIL)
    assert page.page.title() != "run"
    assert page.page.evaluate("host.model.get('parameter')") == EVIL


def test_it_follows_what_is_pointed_at_and_clicked_in_the_heatmap(host: OpenHost) -> None:
    history = run(length=200)
    page = host(widget="heatmap")
    names = [each["name"] for each in history.described]
    page.start(names)
    page.beside("inspector", names, parameter="", iteration=None)
    told, buffers = ColumnFeed(history).message(fresh=True)
    page.deliver(told | {"seq": 1, "fresh": True}, buffers)
    inspector = page.page.locator(".gv-inspector")
    expect(inspector.locator(".gv-inspected")).to_have_text(names[0])
    page.page.locator("canvas.gv-heat[data-iterations='200']").wait_for()
    page.point_at("encoder.1.mlp.0.bias", 40)
    expect(inspector).to_contain_text("iteration 40")
    page.page.mouse.down()
    page.page.mouse.up()
    expect(inspector.locator(".gv-inspected")).to_have_text("encoder.1.mlp.0.bias")
    expect(page.widget.locator(".gv-focused")).to_have_attribute("data-parameter", "encoder.1.mlp.0.bias")
    asked = "host.models[1].sent.filter(({ kind }) => kind === 'inspect').length"
    assert page.page.evaluate(asked) == 1  # nobody answers here


def test_a_page_without_a_kernel_shows_what_was_kept(host: OpenHost) -> None:
    history = run(length=200)
    page = host(widget="inspector")
    told, buffers = ColumnFeed(history).kept() or ({}, [])
    message, parts = inspect(history, {"id": "", "of": "parameters", "name": LOOKED, "iteration": 120})
    kept = {"message": told | {"seq": 1, "fresh": True}, "buffers": buffers}
    page.start(
        [each["name"] for each in history.described],
        kept=kept,
        parameter=LOOKED,
        iteration=120,
        _inspected={"message": message, "buffers": [encoded(part) for part in parts]},
    )
    expect(section(page.widget, "stage")).to_contain_text("8.000e-4")
    expect(page.widget.get_by_text("waiting for the kernel")).to_be_hidden()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 480, 960])
def test_it_is_accessible_and_fits(shown, theme: Theme, width: int) -> None:
    shows = shown(theme=theme, width=width, iteration=1017)
    widget = shows.page.widget
    expect(section(widget, "stage")).to_contain_text("weight")
    assert widget.evaluate("root => root.scrollWidth <= root.clientWidth")
    shows.page.page.add_script_tag(path=AXE)
    assert shows.page.page.evaluate(RUN) == []
    contrast.assert_readable(widget)
