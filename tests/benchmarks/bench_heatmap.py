"""What the heatmap costs the page it is on, in a real Chromium, beside plotly's; and what its updates weigh.

    make bench                                   as a part of it
    python -m tests.benchmarks.bench_heatmap     alone, about a minute; --json FILE

Milliseconds are those that the page's main thread works, at scripts, style and painting alike, as Chromium itself
counts them, for one act: neither the wait for the next frame counts nor what else the machine does. plotly's heatmap is
the one that FigureWidget puts on the page; it knows no append, so it is given all of its numbers again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib.resources import files
from statistics import median
from typing import Any

import numpy as np
from playwright.sync_api import CDPSession, Page, sync_playwright

from gradviz.history.history import History
from gradviz.history.overview import CAPACITY
from gradviz.history.schema import OK, STATISTICS
from gradviz.widgets.feed import LIVE_BYTES, WHOLE_BYTES, ColumnFeed
from gradviz.widgets.publish import MIN_INTERVAL_S, Publisher
from tests.benchmarks.bench_history import Result, tell
from tests.browser import chromium
from tests.browser.conftest import FLAGS
from tests.browser.host import Host

PARAMETERS, COLUMNS, APPENDED = 1_000, CAPACITY, 100
SMALL = 200, 2_000
"""Parameters and iterations that plotly's heatmap is compared at."""
ROUNDS = 40

# A message as Python sends it, made in the page: numbers over many magnitudes, some zeros, hardly a NaN.
_MAKE = """(() => {
  let seq = 0, end = 0, state = 1;
  const draw = () => (state = (state * 1103515245 + 12345) & 0x7fffffff) / 0x7fffffff;
  window.message = (count, rows, planned, each = 1) => {
    const cells = count * rows;
    const bytes = new ArrayBuffer(16 + 8 * count + 5 * cells);
    new Uint32Array(bytes, 0, 4).set([count, rows, 0, 1]);
    const start = new Uint32Array(bytes, 16, count), stop = new Uint32Array(bytes, 16 + 4 * count, count);
    const max = new Float32Array(bytes, 16 + 8 * count, cells);
    const flags = new Uint8Array(bytes, 16 + 8 * count + 4 * cells, cells);
    for (let c = 0; c < count; c++) { start[c] = end; stop[c] = end += each; }
    for (let i = 0; i < cells; i++) {
      const u = draw();
      max[i] = u < 0.02 ? 0 : u > 0.9999 ? NaN : 10 ** (-6 + 5 * draw());
      flags[i] = u < 0.02 ? 8 : u > 0.9999 ? 1 : 0;
    }
    const where = {epoch: 0, epochs: 1, iteration: end, iterations: planned, left_s: null};
    const run = {status: "training", ...where, metric_names: ["loss"], message: null};
    const content = {kind: "columns", seq: ++seq, fresh: seq === 1, level: 0, stages: ["backward"], run};
    const epochs = Uint32Array.from(seq === 1 ? [0] : []); // all of it is one epoch
    return [content, [bytes, Float64Array.of(0.5, 0.5).buffer, epochs.buffer]];
  };
  window.give = ([content, buffers]) => host.model.emit("msg:custom", content, buffers);
  window.frames = async (n) => { for (let i = 0; i < n; i++) await new Promise(requestAnimationFrame); };
})()"""


class Clock:
    """Milliseconds of a page's main thread."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._session: CDPSession = page.context.new_cdp_session(page)
        self._session.send("Performance.enable", {"timeDomain": "threadTicks"})
        self._idle = median(self._took("0") for _ in range(15))

    def ms(self, act: str, prepare: str = "0") -> float:
        """What `act` costs, and the frames that it brings about."""
        self._page.evaluate(prepare)
        self._page.evaluate("frames(2)")
        return max(self._took(act) - self._idle, 0.0)

    def _took(self, act: str) -> float:
        before = self._busy()
        # The first frame paints, and is over when the second one begins.
        self._page.evaluate(f"async () => {{ {act}; await frames(3); }}")
        return self._busy() - before

    def _busy(self) -> float:
        told = self._session.send("Performance.getMetrics")["metrics"]
        return 1000 * next(each["value"] for each in told if each["name"] == "TaskDuration")


def names(n: int) -> list[str]:
    """Modules of ten parameters."""
    return [f"encoder.layers.{i // 10}.{i % 10}.weight" for i in range(n)]


def p95(values: list[float]) -> float:
    """The value that one in twenty exceeds."""
    return float(np.percentile(values, 95))


def twice(what: str, times: list[float], middle: float, high: float) -> list[Result]:
    """A median and a 95th percentile."""
    return [
        Result(f"{what}, median", middle, median(times), "ms"),
        Result(f"{what}, 95th percentile", high, p95(times), "ms"),
    ]


def large(page: Page) -> Iterator[Result]:
    """A large picture that is looked at, and goes on."""
    host = Host(page)
    page.evaluate(_MAKE)
    host.start(names(PARAMETERS))
    rows, planned = PARAMETERS + 1, 8 * COLUMNS
    size = f"{PARAMETERS:,} × {COLUMNS:,}"
    for _ in range(COLUMNS // 256):
        page.evaluate(f"give(message(256, {rows}, {planned}))")
    clock = Clock(page)
    press = (
        "document.querySelector('.gv-region').dispatchEvent(new KeyboardEvent('keydown', {key: '%s', bubbles: true}))"
    )
    click = "document.querySelector('[data-icon=%s]').click()"
    keys = ["+", "+", "+", "-", "-", "0", "t", "0"]
    yield from twice(f"zoom, {size}", [clock.ms(press % key) for key in keys * (ROUNDS // 8)], 16, 33)
    orders = ["norm", "change", "declaration"]
    yield from twice(f"sort, {size}", [clock.ms(click % order) for order in orders * (ROUNDS // 3)], 16, 33)
    ends = [
        "(() => { const end = document.querySelector('.gv-end'); "
        f"end.value = '1e-{power}'; end.dispatchEvent(new Event('change')); }})()"
        for power in (5, 7, 4, 6)
    ]
    yield from twice(f"another range of colours, {size}", [clock.ms(end) for end in ends * (ROUNDS // 4)], 16, 33)
    prepare = f"window.next = message({APPENDED}, {rows}, {planned})"
    appends = [clock.ms("give(next)", prepare) for _ in range(ROUNDS)]
    yield from twice(f"append {APPENDED} columns, {size}", appends, 8, 8)


def first_paint(page: Page) -> Iterator[Result]:
    """A run that is over is shown."""
    Host(page)
    page.evaluate(_MAKE)
    columns = WHOLE_BYTES // (9 * (PARAMETERS + 1))
    about = {"parameters": [{"name": name, "dtype": "float32", "shape": [64, 32]} for name in names(PARAMETERS)]}
    page.evaluate("about => { window.about = about; }", about)
    page.evaluate(f"window.next = message({columns}, {PARAMETERS + 1}, {columns})")
    took = Clock(page).ms("await host.start(about); give(next)")
    yield Result(f"first paint of a run that is over, {PARAMETERS:,} parameters", 300, took, "ms")


def beside_plotly(open_page: Callable[[], Page]) -> Iterator[Result]:
    """The same picture by both, and one update of it."""
    rows, columns = SMALL
    page = open_page()
    host = Host(page)
    page.evaluate(_MAKE)
    host.start(names(rows))
    page.evaluate(f"give(message({columns}, {rows + 1}, {2 * columns}))")
    clock = Clock(page)
    ours = [clock.ms("give(next)", f"window.next = message(5, {rows + 1}, {2 * columns})") for _ in range(ROUNDS)]
    page = open_page()
    page.goto("about:blank")
    page.evaluate(
        "window.frames = async (n) => { for (let i = 0; i < n; i++) await new Promise(requestAnimationFrame); }"
    )
    page.add_script_tag(content=files("plotly").joinpath("package_data", "plotly.min.js").read_text(encoding="utf-8"))
    page.evaluate(
        f"""async () => {{
          document.body.innerHTML = '<div id="plot" style="width:900px;height:600px"></div>';
          const row = () => Array.from({{length: {columns}}}, () => -6 + 5 * Math.random());
          window.z = Array.from({{length: {rows}}}, row);
          await Plotly.newPlot("plot", [{{type: "heatmap", z, colorscale: "Viridis"}}]);
        }}"""
    )
    clock = Clock(page)
    theirs = [
        clock.ms(
            "await Plotly.restyle('plot', {z: [z]})",
            "z.forEach(row => { row.splice(0, 5); row.push(-1, -2, -3, -4, -5); })",
        )
        for _ in range(max(ROUNDS // 8, 3))
    ]
    size = f"{rows:,} × {columns:,}"
    yield Result(f"five iterations more, {size}", 8, median(ours), "ms")
    yield Result(
        f"the same, times faster than plotly ({median(theirs):,.0f} ms)", 10, median(theirs) / median(ours), "x", True
    )


def wire() -> Iterator[Result]:
    """Bytes a second of ten updates, at fifty iterations a second and at any rate."""
    rows = SMALL[0]
    for rate, asked in ((50, 100), (5_000, 400)):
        history, seconds = History(memory_limit="4GB"), 10
        history.declare([{"name": name, "shape": (64, 32), "dtype": "float32"} for name in names(rows)])
        sent: list[int] = []

        def send(content: dict[str, Any], buffers: list[bytes], sent: list[int] = sent) -> None:
            sent.append(len(json.dumps(content)) + sum(map(len, buffers)))

        publisher = Publisher(history, ColumnFeed(history), send)
        publisher.show()
        table, states = (
            np.abs(np.random.default_rng(0).normal(size=(rows, len(STATISTICS)))),
            np.full(rows, OK, np.uint8),
        )
        for update in range(int(seconds / MIN_INTERVAL_S)):
            for _ in range(int(rate * MIN_INTERVAL_S)):
                history.append(len(history), 0, table, states, {"loss": 1.0})
            publisher._next_s = 0.0  # as if a tenth of a second had passed
            publisher.on_append(final=False)
            assert len(sent) >= update
        publisher.close()
        what = f"ten updates a second of {rows} parameters, at {rate:,} iterations a second"
        yield Result(what, asked, sum(sent[1:]) / seconds / 1000, "kB/s")
    whole = rows * SMALL[1]
    said = len(json.dumps({"z": np.round(np.random.default_rng(0).normal(-3, 1, whole), 6).tolist()}))
    yield Result(f"an update, times smaller than plotly's ({said / 1e6:,.1f} MB)", 100, said / LIVE_BYTES, "x", True)


def measure() -> Iterator[Result]:
    """All figures, each page fresh."""
    yield from wire()
    executable = chromium.find()
    if executable is None:
        raise SystemExit(f"There is no Chromium to measure in: {chromium.APT}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)

        def open_page() -> Page:
            return browser.new_context(viewport={"width": 1000, "height": 800}).new_page()

        yield from first_paint(open_page())
        yield from large(open_page())
        yield from beside_plotly(open_page)
        browser.close()


if __name__ == "__main__":
    tell(__doc__, measure)
