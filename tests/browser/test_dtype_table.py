"""The table of dtypes in a browser: it shows what torch says, sorts, finds, and can be read by everybody."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from playwright.sync_api import expect

import gradviz as gv
from gradviz.history.history import History
from gradviz.recorder.entries import Entries

from . import contrast
from .conftest import OpenNotebook
from .host import OpenHost
from .notebook import PATIENCE_S, Notebook
from .tables import EVIL, Net, Shown, data, healthy, mixed, own_loop, vanishing
from .test_axe import AXE, RUN

pytestmark = pytest.mark.browser


@pytest.fixture
def shown(host: OpenHost) -> Callable[..., Shown]:
    def show(history: History, **options) -> Shown:
        return Shown(host(widget="dtype_table", **options), history)

    return show


@pytest.mark.case("C30")
def test_a_float16_policy_shows_masters_frozen_rows_and_the_loss_scale(shown) -> None:
    history = mixed()
    table = shown(history)
    weight = "encoder.1.0.weight"
    said = [table.cell(weight, column) for column in ("parameter", "master", "gradient", "state")]
    assert said == ["float16", "float32", "float32", "float32"]
    assert table.cell("head.weight", "parameter") == "float32"
    assert table.cell("head.weight", "master") == "–"
    assert table.cell("encoder.0.0.weight", "gradient") == "frozen"
    assert table.cell(EVIL, "gradient") == "unused"
    assert table.cell(weight, "shape") == "32 × 32"
    assert table.cell(weight, "size") == "1,024"
    assert table.notes(weight) == []
    metrics = history.metrics
    skipped = int(metrics["skipped"].sum())
    assert skipped > 0
    summary = table.widget.locator(".gv-summary")
    expect(summary).to_contain_text("all dtypes go together · all on cpu")
    expect(summary).to_contain_text(f"{skipped} steps skipped")
    spoken = table.widget.locator(".gv-scale").get_attribute("aria-label") or ""
    assert f"{skipped} steps skipped" in spoken
    assert "between" in spoken
    table.page.traffic.assert_clean()


def test_shares_are_those_of_the_history_and_of_torch_s_casts(shown) -> None:
    history = vanishing()
    table = shown(history)
    name = "encoder.0.0.weight"
    newest = history.precision.query("parameter == @name").groupby("dtype", observed=True).last()
    for word, dtype in [("float16", "float16"), ("float8 e4m3", "float8_e4m3fn"), ("bfloat16", "bfloat16")]:
        table.widget.get_by_role("button", name=word, exact=True).click()
        table.settle()
        row = newest.loc[dtype]
        for column in ("underflow", "subnormal", "overflow"):
            share = 100 * row[column] / (row["entries"] - row["zero"])
            said = table.cell(name, column)
            if share in (0, 100):
                assert said == f"{share:.0f} %"
            elif said.startswith("<"):
                assert share < 0.1
            else:
                assert abs(float(said.strip("> %")) - share) <= 0.55
    table.widget.get_by_role("button", name="float8 e4m3", exact=True).click()
    table.settle()
    cell = table.widget.locator("tr[data-parameter='encoder.0.0.weight'] > [data-column=underflow]")
    assert cell.get_attribute("data-look") == "bad"
    assert "1,024 entries would be zero" in (cell.get_attribute("title") or "")


def test_what_does_not_go_together_and_what_changed_is_flagged(shown) -> None:
    table = shown(own_loop())
    assert table.notes("encoder.0.0.weight") == ["no float32 copy: small updates are lost"]
    assert table.cell("encoder.0.0.weight", "master") == "none"
    notes = table.notes("head.weight")
    assert "parameter was bfloat16 before iteration 3" in notes
    assert "gradient was bfloat16 before iteration 3" in notes
    assert table.cell("head.weight", "gradient") == "float32"
    flagged = table.widget.get_by_role("button", name="flagged")
    flagged.click()
    expect(flagged).to_have_attribute("aria-pressed", "true")
    assert EVIL not in table.rows()
    assert "8 rows flagged" in table.widget.locator(".gv-summary").inner_text()


def test_a_dtype_that_changes_while_it_is_looked_at_is_flagged_then(shown) -> None:
    history = healthy()
    table = shown(history)
    assert table.notes("head.weight") == []
    columns = {"iteration": [40], "parameter": ["head.weight"], "of": ["gradient"], "dtype": ["float16"]}
    history.add_rows("dtypes", columns | {"device": ["cpu"]})
    table.send()
    assert table.cell("head.weight", "gradient") == "float16"
    assert table.notes("head.weight") == [
        "gradient is float16, the parameter float32",
        "gradient was float32 before iteration 40",
    ]


def test_rows_are_found_and_stand_by_any_column(shown) -> None:
    table = shown(healthy())
    declared = table.rows()
    search = table.widget.get_by_role("searchbox")
    search.fill("HEAD weight")
    assert table.rows() == ["head.weight"]
    search.fill("nothing like it")
    expect(table.widget.locator(".gv-nothing")).to_have_text("no parameter has such a name")
    search.fill("")
    head = table.widget.locator("th[data-column=size]")
    table.sort("size")
    expect(head).to_have_attribute("aria-sort", "descending")
    assert table.rows()[0].endswith("weight")
    assert table.rows()[-1] == EVIL
    table.sort("size")
    expect(head).to_have_attribute("aria-sort", "ascending")
    assert table.rows()[0] == EVIL
    table.sort("size")
    expect(head).to_have_attribute("aria-sort", "none")
    assert table.rows() == declared
    table.sort("name")
    assert table.rows() == sorted(declared)


def test_new_numbers_do_not_move_sorted_rows(shown) -> None:
    history = healthy()
    table = shown(history)
    table.sort("underflow")
    before = table.rows()
    for name, rows in Entries.of("backward", {before[-2]: torch.full((4,), 1e-12)}).rows(40).items():
        history.add_rows(name, rows)
    table.send()
    assert table.cell(before[-2], "underflow") == "100 %"
    assert table.rows() == before


def test_a_name_is_text_whatever_it_says(shown) -> None:
    table = shown(healthy())
    alerts: list[str] = []
    table.page.page.on("dialog", lambda dialog: (alerts.append(dialog.message), dialog.dismiss()))
    assert EVIL in table.rows()
    assert table.widget.locator(".gv-parameter", has_text=EVIL).inner_text() == EVIL
    assert table.widget.locator("img").count() == 0
    assert not alerts


def test_before_anything_is_recorded_it_says_so(shown) -> None:
    table = shown(History())
    expect(table.widget.locator(".gv-nothing")).to_contain_text("nothing is recorded yet")
    expect(table.widget.locator(".gv-scale-box")).to_be_hidden()


@pytest.mark.case("W19")
def test_while_no_gradient_is_recorded_it_says_how_often_one_will_be(shown) -> None:
    torch.manual_seed(0)
    loop = gv.trainer(Net(), "cross_entropy", "adam", every=100)
    loop.history.begin_attempt(3, 0)  # as a run that goes on in a history of its own
    loop._training.iterations_run = 3
    tables = []

    def look(state) -> None:
        tables.append(shown(loop.history))
        expect(tables[0].widget).to_contain_text("no record yet: every 100 iterations, now at 5")

    loop.handle_event("iteration_completed", look, once=2)
    loop.run(data(4), display=None)
    tables[0].send(fresh=True)  # the last one is recorded
    expect(tables[0].widget).to_contain_text("after iteration 6")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [300, 480, 1280])
@pytest.mark.parametrize("scene", [healthy, mixed, vanishing, own_loop])
def test_it_can_be_read_in_any_width_and_theme(shown, theme, width, scene) -> None:
    table = shown(scene(), theme=theme, width=width)
    contrast.assert_readable(table.widget)
    sizes = table.widget.evaluate(
        "root => [...root.querySelectorAll('*')].filter(each => each.checkVisibility() && "
        "[...each.childNodes].some(node => node.nodeType === 3 && node.data.trim()))"
        ".map(each => parseFloat(getComputedStyle(each).fontSize))"
    )
    assert min(sizes) >= 11
    box = table.widget.evaluate("root => [root.scrollWidth - root.clientWidth, root.clientWidth]")
    assert box[0] <= 0
    inner = table.widget.evaluate(
        "root => { const box = root.querySelector('.gv-table-box'); return box.scrollWidth - box.clientWidth; }"
    )
    if width != 1280:
        assert inner <= 0, "Every cell can be seen without scrolling sideways."
    path = Path(Notebook.screenshot_path(f"dtypes-{scene.__name__}-{theme}-{width}"))
    table.widget.screenshot(path=path)


def test_keys_reach_everything_and_a_screen_reader_hears_a_table(shown) -> None:
    table = shown(mixed(), width=480)
    page = table.page.page
    tree = table.widget.aria_snapshot()
    assert 'table "dtypes of the parameters"' in tree
    assert 'columnheader "dtype"' in tree
    assert 'rowheader "encoder.1.0.weight"' in tree
    assert "magnitudes from 2 to the" in tree
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.type") == "search"
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(table.widget.get_by_role("button", name="flagged")).to_have_attribute("aria-pressed", "true")
    expect(table.widget.locator(".gv-nothing")).to_have_text("no row is flagged")
    page.keyboard.press("Enter")
    sort = table.widget.locator("th[data-column=underflow] > button")
    sort.focus()
    page.keyboard.press("Enter")
    expect(table.widget.locator("th[data-column=underflow]")).to_have_attribute("aria-sort", "descending")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [480, 1280])
def test_nobody_is_kept_out(shown, theme, width) -> None:
    table = shown(own_loop(), theme=theme, width=width)
    table.page.page.add_script_tag(path=AXE)
    assert table.page.page.evaluate(RUN) == []


def test_nothing_moves_while_numbers_change(shown) -> None:
    history = healthy()
    table = shown(history, width=1280)
    script = "root => [...root.querySelectorAll('thead th')].map(each => each.getBoundingClientRect().x)"
    before = table.widget.evaluate(script)
    grown = {name: torch.full((4,), 1e-9 if i % 2 else 1e6) for i, name in enumerate(table.rows()[:4])}
    for name, rows in Entries.of("backward", grown).rows(40).items():
        history.add_rows(name, rows)
    table.send()
    assert table.widget.evaluate(script) == before


CELLS = [
    """
import gradviz as gv, torch, time
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
loop = gv.trainer(model, "cross_entropy", "adam", policy=gv.Policy(params="float16", compute="float16"),
                  loss_scale="dynamic", histograms_every=1)
batches = [(torch.randn(8, 4), torch.randint(2, (8,))) for _ in range(20)]
def wait(state):
    time.sleep(0.02)
    return "halt_loop" if __import__("os").path.exists("enough") else None
loop.handle_event("iteration_completed", wait)
gv.dtype_table(loop)
""",
    "loop.run(batches, epochs=10**6, display=None);",
]


def test_while_a_cell_blocks_the_kernel_it_follows_and_can_be_used(notebook: OpenNotebook) -> None:
    lab = notebook(CELLS)
    lab.run(0)
    lab.wait_done(0)
    widget = lab.cell(0).locator(".gv-dtypes").first
    expect(widget.locator(".gv-nothing")).to_contain_text("nothing is recorded yet", timeout=PATIENCE_S * 1000)
    lab.run(1)
    lab.wait_busy(1)
    row = widget.locator("tr[data-parameter='0.weight']")
    expect(row.locator("[data-column=master]")).to_have_text("float32", timeout=PATIENCE_S * 1000)
    expect(row.locator("[data-column=parameter]")).to_have_text("float16")
    widget.get_by_role("searchbox").fill("bias")
    expect(widget.locator("tr[data-parameter]")).to_have_count(2)
    widget.get_by_role("button", name="float8 e5m2").click()
    widget.locator("th[data-column=name] > button").click()
    widget.locator("th[data-column=name] > button").click()
    expect(widget.locator("tr[data-parameter]").first).to_have_attribute("data-parameter", "2.bias")
    first = widget.locator(".gv-title").inner_text()
    expect(widget.locator(".gv-title")).not_to_have_text(first, timeout=PATIENCE_S * 1000)
    lab.save()
    lab.page.reload()
    (lab.lab.root / "enough").touch()  # the page is ready when the kernel has answered it, which is after the cell
    lab.wait_ready()
    widget = lab.cell(0).locator(".gv-dtypes").first
    end = lab.evaluate("int(loop.history.iterations[-1])")
    expect(widget.locator(".gv-title")).to_contain_text(f"after iteration {end:,}", timeout=PATIENCE_S * 1000)
    expect(widget.locator("tr[data-parameter]")).to_have_count(4)
    lab.traffic.assert_clean()
