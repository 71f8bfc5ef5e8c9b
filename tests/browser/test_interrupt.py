"""Ctrl-C and a page reload in the middle of training, in a real kernel: nothing that was recorded is lost."""

from __future__ import annotations

from typing import Literal

import pytest

from gradviz.widgets.colours import VIRIDIS

from . import colours, pixels, static
from .conftest import OpenNotebook
from .deadline import PATIENCE_S, until
from .lab import NEWEST, OLDER
from .notebook import Notebook

pytestmark = pytest.mark.browser

# A model that takes its time, so that there is a middle of the run to act in. Its `long_call` takes `long_s`
# seconds, and says that it has begun by a file.
SETUP = """
import pathlib, time, torch, gradviz as gv
torch.manual_seed(0)

class Slow(torch.nn.Linear):
    calls = finished = 0
    long_call, long_s, sign = None, 0.0, None
    def forward(self, x):
        self.calls += 1
        if self.calls == self.long_call:
            pathlib.Path(self.sign).touch()
            time.sleep(self.long_s)
        time.sleep(0.02)
        self.finished += 1
        return super().forward(x)

model = torch.nn.Sequential(Slow(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
data = [(torch.randn(32, 8), torch.randint(4, (32,))) for _ in range(100)]
optimizer = torch.optim.Adam(model.parameters())
loop = gv.trainer(model, "cross_entropy", optimizer)
"""
TRAIN, OTHER, AGAIN, ANEW = 1, 2, 3, 4
CELLS = [
    SETUP,
    "loop.run(data, epochs=100);",
    "print('alive', len(data))",
    "loop.run(data, epochs=1);",
    "gv.heatmap(loop)",
]

# How many hooks are left on the modules and parameters of the model.
HOOKS = """sum(len(getattr(owner, name) or ())
    for owner in [*model.modules(), *model.parameters()]
    for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks",
                 "_post_accumulate_grad_hooks") if hasattr(owner, name))"""
STEPS_TAKEN = "[int(state['step']) for state in optimizer.state.values()]"


@pytest.mark.case("N04")
def test_after_an_interrupt_the_kernel_lives_and_the_run_can_go_on(notebook: OpenNotebook) -> None:
    page = _in_a_long_step(notebook, long_s=2.0, sign="first")
    page.interrupt("toolbar")
    page.wait_done(TRAIN)
    assert page.evaluate("model[0].finished == model[0].calls"), "The step was cut off in its middle."
    assert "KeyboardInterrupt" in page.output_text(TRAIN)
    assert "SystemExit" not in page.output_text(TRAIN)
    page.run(OTHER)
    page.wait_done(OTHER)
    assert page.output_text(OTHER).strip() == "alive 100"

    kept = page.evaluate("len(loop.history.norms)")
    assert kept >= 20
    assert set(page.evaluate(STEPS_TAKEN)) == {kept}, "Not every step that was taken was recorded."
    assert page.evaluate("loop.state.status") == "interrupted"
    assert page.evaluate(HOOKS) == 0
    _assert_leaves_the_history(page, TRAIN, kept, "Interrupted")

    page.run(AGAIN)
    page.wait_done(AGAIN)
    assert page.evaluate("len(loop.history.norms)") == kept + 100
    _assert_leaves_the_history(page, AGAIN, kept + 100, "Completed")
    _assert_leaves_the_history(page, TRAIN, kept, "Interrupted")
    page.run(ANEW)
    page.wait_done(ANEW)
    _assert_shows_the_history(page, ANEW, kept + 100, "completed")
    page.traffic.assert_clean()


@pytest.mark.case("N08")
def test_a_second_interrupt_stops_at_once(notebook: OpenNotebook) -> None:
    page = _in_a_long_step(notebook, long_s=10 * PATIENCE_S, sign="second")
    page.interrupt("server")
    page.interrupt("server")
    page.wait_done(TRAIN)
    assert page.evaluate("model[0].calls - model[0].finished") == 1
    assert "KeyboardInterrupt" in page.output_text(TRAIN)
    page.run(OTHER)
    page.wait_done(OTHER)
    assert page.output_text(OTHER).strip() == "alive 100"

    kept = page.evaluate("len(loop.history.norms)")
    assert set(page.evaluate(STEPS_TAKEN)) == {kept}
    assert page.evaluate(HOOKS) == 0
    _assert_leaves_the_history(page, TRAIN, kept, "Interrupted")

    page.run(AGAIN)
    page.wait_done(AGAIN)
    assert page.evaluate("len(loop.history.norms)") == kept + 100


@pytest.mark.case("N06")
@pytest.mark.parametrize(("leave", "kernel"), [("reload", NEWEST), ("close", NEWEST), ("reload", OLDER)])
def test_a_page_that_was_away_shows_all_the_steps(
    notebook: OpenNotebook, leave: Literal["reload", "close"], kernel: str
) -> None:
    cells = [*CELLS]
    cells[TRAIN] = "loop.run(data, epochs=3);"
    page = _training(notebook, cells, kernel)
    if leave == "reload":
        page.reload(busy=True)
        page.wait_idle()
    else:
        page.save()
        page.page.goto("about:blank")
        page.wait_idle()
        page.open()
    assert page.evaluate("len(loop.history.norms)") == 300
    _assert_shows_the_history(page, TRAIN, 300, "completed")
    page.run(ANEW)
    page.wait_done(ANEW)
    _assert_shows_the_history(page, ANEW, 300, "completed")
    page.reload()
    _assert_shows_the_history(page, TRAIN, 300, "completed")
    _assert_shows_the_history(page, ANEW, 300, "completed")
    page.traffic.assert_clean()


def _training(notebook: OpenNotebook, cells: list[str], kernel: str = NEWEST) -> Notebook:
    """A page that is in the middle of the training cell."""
    page = notebook(cells, kernel=kernel)
    page.run(0)
    page.wait_done(0)
    page.run(TRAIN)
    pixels.wait_painted(page.widget(TRAIN), 20)
    assert page.prompt(TRAIN) == "[*]"
    return page


def _in_a_long_step(notebook: OpenNotebook, *, long_s: float, sign: str) -> Notebook:
    """A page whose training cell is in the middle of a step that takes `long_s` seconds."""
    long = f"model[0].long_call, model[0].long_s, model[0].sign = 60, {long_s}, {sign!r}"
    page = _training(notebook, [SETUP + long, *CELLS[1:]])
    until((page.file.parent / sign).exists, "the long step has begun")
    return page


def _assert_shows_the_history(page: Notebook, cell: int, iterations: int, status: str) -> None:
    widget = page.widget(cell)
    pixels.wait_painted(widget, iterations)
    picture = until(lambda: _with_status(pixels.grab(widget), status), f"the heatmap says {status!r}")
    assert picture.iterations == iterations
    norms = page.frame("loop.history.norms")
    everywhere = [(parameter, iteration) for parameter in picture.rows for iteration in range(iterations)]
    assert set(picture.rows) == set(norms.columns)
    colours.assert_cells(picture, norms, VIRIDIS, everywhere)


def _assert_leaves_the_history(page: Notebook, cell: int, iterations: int, status: str) -> None:
    """The still picture of a run that is over, in the place of the live one."""
    figure = page.figure(cell)
    norms = page.frame("loop.history.norms").iloc[:iterations]
    assert len(norms) == iterations
    static.assert_shows(figure, norms)
    static.assert_words(figure, status, f"iteration {iterations} of")
    assert page.cell(cell).locator(".gv-heatmap").count() == 0


def _with_status(picture: pixels.Picture, status: str) -> pixels.Picture | None:
    return picture if status in picture.status.lower() else None
