"""What a run leaves under its cell, in a real kernel without a browser: as nbconvert and papermill run notebooks."""

from __future__ import annotations

import itertools
import json
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import nbformat
import pytest
from nbclient import NotebookClient

from gradviz.history.history import History
from gradviz.widgets import notebook
from gradviz.widgets.frozen_mask import frozen_mask
from gradviz.widgets.heatmap import heatmap
from gradviz.widgets.notebook import FALLBACK_BYTES, code_for, in_notebook, prepare_colab, show_run
from tests.widgets.histories import history_of
from tests.widgets.test_packed import decades
from tests.widgets.test_page import long_run

VIEW = "application/vnd.jupyter.widget-view+json"
SETUP = """
import signal, torch, gradviz as gv
from torch import nn
from gradviz.widgets import static_view
from ipywidgets.widgets.widget import _instances

static_view.draw = globals().setdefault("whole_draw", static_view.draw)  # the notebook before may have spoilt it
data = [(torch.ones(4, 3), torch.ones(4, 1))] * 10

def make():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    return gv.trainer(model, "mean_squared_error", "adam").metric("mean_absolute_error")

def at(iteration, do):
    return lambda state: do() if state.iteration == iteration else None

def fail():
    raise OSError("the disk is full")

def ctrl_c():
    signal.raise_signal(signal.SIGINT)
"""


def client_of(*sources: str) -> NotebookClient:
    """What runs a notebook's cells one after the other, errors and all."""
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
    return NotebookClient(notebook, timeout=120, allow_errors=True)


@pytest.fixture(scope="module")
def executed() -> Iterator[Callable[..., nbformat.NotebookNode]]:
    """Runs a notebook in the kernel of the others, which has everything imported, with its widgets' state saved."""
    client = client_of()

    def execute(*sources: str) -> nbformat.NotebookNode:
        client.nb = client_of(SETUP, *sources).nb
        client.execute(cleanup_kc=False)
        assert not client.nb.cells[0].outputs
        return client.nb

    yield execute
    client.nb = client_of().nb
    client.execute(cleanup_kc=True)


def outputs(cell: nbformat.NotebookNode) -> list[str]:
    """What kinds of output a cell has, in order; what is printed is one, in however many pieces it was sent."""
    kinds = [
        "picture" if "<figure" in output.get("data", {}).get("text/html", "")
        else "widget" if VIEW in output.get("data", {})
        else output.get("ename") or output.get("name") or output.output_type
        for output in cell.outputs
    ]  # fmt: skip
    return [kind for kind, _ in itertools.groupby(kinds)]


def printed(cell: nbformat.NotebookNode) -> str:
    return "".join(output.text for output in cell.outputs if output.get("name") == "stdout")


def words(cell: nbformat.NotebookNode) -> list[str]:
    picture = next(output for output in cell.outputs if "<figure" in output.get("data", {}).get("text/html", ""))
    assert set(picture.data) == {"text/html", "text/plain"}
    return picture.data["text/plain"].splitlines()


def state(notebook: nbformat.NotebookNode) -> dict[str, dict]:
    """The widgets whose state is saved in the notebook and whose front end is there."""
    saved = notebook.metadata.get("widgets", {}).get("application/vnd.jupyter.widget-state+json", {"state": {}})
    return {name: model for name, model in saved["state"].items() if model["state"].get("_esm")}


@pytest.mark.case("W01")
def test_however_a_run_ends_its_picture_stays_and_its_error_stands_below(executed):
    notebook = executed(
        "loop = make(); loop.run(data, epochs=2);",
        "halted = make().handle_event('iteration_completed', at(12, lambda: 'halt_loop')); halted.run(data, epochs=2);",
        "failed = make().handle_event('iteration_completed', at(12, fail)); failed.run(data, epochs=2)",
        "stopped = make().handle_event('iteration_completed', at(12, ctrl_c)); stopped.run(data, epochs=2)",
        "def bad():\n    yield from data\n    fail()\nlast = make(); last.run(lambda epoch: bad())",
        "print(*(_.history.progress.status for _ in (loop, halted, failed, stopped, last)))",
    )
    _, completed, halted, failed, stopped, last, after = notebook.cells
    assert [outputs(cell) for cell in (completed, halted)] == [["picture"], ["picture"]]
    assert [outputs(cell) for cell in (failed, last)] == [["picture", "OSError"], ["picture", "OSError"]]
    assert outputs(stopped) == ["picture", "KeyboardInterrupt"]
    assert words(completed)[0].startswith("Completed · epoch 2 of 2 · iteration 20 of 20 · mean loss ")
    assert " · mean_absolute_error " in words(completed)[0]
    assert words(halted)[0].startswith("Halted · epoch 2 of 2 · iteration 13 of 20")
    assert words(failed)[:2] == [words(failed)[0], "OSError: the disk is full"]
    assert words(stopped)[0].startswith("Interrupted · epoch 2 of 2 · iteration 13 of 20")
    assert words(last)[0].startswith("Failed · epoch 1 of 1 · iteration 10")
    names = [words(cell)[-1].split(": ")[1] for cell in (completed, halted, failed, stopped, last)]
    assert names == [f"gv.dashboard({name})" for name in ("loop", "halted", "failed", "stopped", "last")]
    assert printed(after).split() == ["completed", "halted", "failed", "interrupted", "failed"]


@pytest.mark.case("N08")
def test_a_ctrl_c_while_the_picture_is_drawn_is_neither_lost_nor_does_it_leave_half_a_picture(executed):
    interrupting = """
draw = static_view.draw
def interrupted(*of):
    ctrl_c(); ctrl_c()
    return draw(*of)
static_view.draw = interrupted
"""
    notebook = executed(
        interrupting,
        "make().run(data)",
        "make().handle_event('iteration_completed', at(5, ctrl_c)).run(data)",
        "make().handle_event('iteration_completed', at(5, fail)).run(data)",
        "print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)",
    )
    _, _, completed, stopped, failed, after = notebook.cells
    for cell in (completed, stopped, failed):
        assert outputs(cell) == ["picture", "KeyboardInterrupt"]
    assert "the disk is full" in "".join(failed.outputs[1].traceback)
    assert [words(cell)[0].split()[0] for cell in (completed, stopped, failed)] == [
        "Completed",
        "Interrupted",
        "Failed",
    ]
    assert printed(after).strip() == "True"


def test_live_keeps_the_widget_none_shows_nothing_and_a_users_own_widget_stays(executed):
    notebook = executed(
        "live = make(); live.run(data, display='live');",
        "make().run(data, display=None);",
        "loop = make(); gv.heatmap(loop)",
        "loop.run(data);",
        "loop.run(data);",
        "print(gv.heatmap(loop).comm is not None, gv.heatmap(loop).publisher.sent.messages > 2)",
    )
    _, live, nothing, own, first, second, after = notebook.cells
    assert [outputs(cell) for cell in (live, nothing, own)] == [["widget"], [], ["widget"]]
    assert [words(cell)[0].split(" · ")[2] for cell in (first, second)] == ["iteration 10 of 10", "iteration 20 of 20"]
    assert printed(after).split() == ["True", "True"]
    kinds = len({model["state"]["_esm"] for model in state(notebook).values()})
    assert len(state(notebook)) == 2 * kinds  # the live one, and one with the user's own, which the runs shared


def test_a_picture_that_fails_is_said_once_and_leaves_the_live_one(executed):
    broken = "def draw(*of): raise MemoryError('no room')\nstatic_view.draw = draw"
    notebook = executed(broken, "loop = make(); loop.run(data, epochs=2).status")
    cell = notebook.cells[2]
    assert outputs(cell) == ["widget", "stderr", "execute_result"]
    assert cell.outputs[1].text.count("The run's picture cannot be drawn (MemoryError: no room)") == 1
    assert cell.outputs[2].data["text/plain"] == "'completed'"


BACKGROUND = """
import threading

class Held:
    def __init__(self):
        self.reached, self.go = threading.Event(), threading.Event()

    def __call__(self, state):
        if state.iteration == 12:
            self.reached.set()
            assert self.go.wait(60)

held = Held()
"""


@pytest.mark.case("W16")
def test_a_run_in_the_background_is_shown_under_its_own_cell_while_others_run(executed):
    notebook = executed(
        BACKGROUND,
        "mine = make().handle_event('iteration_started', held); mine.start(data, epochs=2);",
        "held.reached.wait(60); print(mine.state.status, len(mine.history.norms), mine.history.gradients.shape)",
        "print(gv.heatmap(mine).publisher.sent.messages > 0); held.go.set(); mine.wait()",
        "print(mine.state.status)",
    )
    _, _, own, reading, waiting, after = notebook.cells
    assert outputs(own) == ["picture"]
    assert words(own)[0].startswith("Completed · epoch 2 of 2 · iteration 20 of 20")
    assert words(own)[-1].endswith("gv.dashboard(mine)"), "The name is found from the thread too."
    assert printed(reading).split() == ["training", "12", "(48,", "15)"]
    assert outputs(waiting) == ["stdout", "execute_result"]
    assert printed(waiting).split() == ["True"]
    assert outputs(after) == ["stdout"]


def test_an_error_in_the_background_is_in_the_picture_and_raised_by_wait(executed):
    notebook = executed(
        "failed = make().handle_event('iteration_completed', at(12, fail)); failed.start(data, epochs=2);",
        "failed.wait()",
        "print(failed.wait().status)",
        "quiet = make().handle_event('iteration_completed', at(12, fail)).start(data, epochs=2, display=None)",
        "quiet.wait()",
    )
    _, failed, waiting, after, _, waiting_too = notebook.cells
    assert outputs(failed) == ["picture"]
    assert words(failed)[0].startswith("Failed · epoch 2 of 2 · iteration 13 of 20")
    assert words(failed)[1] == "OSError: the disk is full"
    assert outputs(waiting) == outputs(waiting_too)[-1:] == ["OSError"]
    assert printed(after).split() == ["failed"]


def test_a_stream_has_one_picture_for_all_its_epochs(executed):
    notebook = executed(
        "loop = make()\nfor state in loop.stream(data, epochs=3):\n    print(state.epoch)",
        "for state in loop.stream(data, epochs=3):\n    break",
        "for state in loop.stream(data, epochs=3):\n    fail()",
    )
    _, whole, left, failed = notebook.cells
    assert outputs(whole) == ["picture", "stdout"]
    assert printed(whole).split() == ["1", "2", "3"]
    assert words(whole)[0].startswith("Completed · epoch 3 of 3 · iteration 30 of 30")
    assert outputs(left) == ["picture"]
    assert words(left)[0].startswith("Halted · epoch 4 of 6 · iteration 40 of 60")
    assert outputs(failed) == ["picture", "OSError"]


@pytest.mark.case("W06")
def test_twenty_runs_leave_one_model_and_a_notebook_that_does_not_grow(executed):
    kinds = "new = [type(_instances[name]).__name__ for name in _instances.keys() - before]"
    count = f"{kinds}; print(new.count('Heatmap'), len(new))"
    runs = [*["loop = make(); loop.run(data);"] * 20, "pass", *["loop.run(data);"] * 20]
    notebook = executed("before = set(_instances)", *runs, count)
    models, registered = map(int, printed(notebook.cells[-1]).split())
    parts = len(state(notebook))
    assert (models, registered) == (1, 2 * (parts + 3))  # one of each kind and three boxes, with their layouts
    assert parts == len({model["state"]["_esm"] for model in state(notebook).values()})
    # The outputs of one cell are replaced by those of its next run. nbclient keeps what is left of all widgets there
    # were, which a page that saves them itself does not.
    live = len(json.dumps(state(notebook)))
    left = len(json.dumps(notebook.cells[2].outputs)) + len(json.dumps(notebook.metadata)) - live
    print(f"{live:,} bytes, and {left / 20:,.0f} for each run before")
    assert left < 200_000


def test_a_script_and_a_plain_ipython_are_no_notebook(monkeypatch):
    assert not in_notebook()
    assert show_run(History(), "auto") is None
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace()))
    assert not in_notebook()


def test_a_kernel_is_one_on_its_main_thread_only(monkeypatch):
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert in_notebook()
    answers = []
    thread = threading.Thread(target=lambda: answers.append(in_notebook()))
    thread.start()
    thread.join(10)
    assert answers == [False]


class Evil:
    """Whoever asks it for anything gets an error."""

    def __getattribute__(self, name):
        raise RuntimeError(name)


def test_the_code_is_in_the_names_that_the_user_has(monkeypatch):
    import gradviz

    names = {}
    shell = SimpleNamespace(kernel=object(), user_ns=names)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    history = History()
    assert code_for(history) == "gv.dashboard(loop)"
    names["loop"] = SimpleNamespace(history=History())  # another run's, as a function's own loop has no name here
    assert code_for(history) == "gv.dashboard(this_loop)"
    del names["loop"]
    names.update(evil=Evil(), _hidden=SimpleNamespace(history=history), gradviz=gradviz)
    assert code_for(history) == "gradviz.dashboard(loop)"
    names["rows"] = history
    assert code_for(history) == "gradviz.dashboard(rows)"
    names["training"] = SimpleNamespace(history=history)
    assert code_for(history) == "gradviz.dashboard(training)"


def test_beside_a_widget_stands_what_a_page_shows_that_cannot_show_it():
    data, _ = heatmap(history_of("a.weight"))._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert "<img" in data["text/html"]
    assert "gv.dashboard(" in data["text/plain"]
    mask, _ = frozen_mask(history_of("a.weight"))._repr_mimebundle_()
    assert "<figure" in mask["text/html"]
    assert "<img" not in mask["text/html"]
    nothing, _ = heatmap(History())._repr_mimebundle_()
    assert "text/html" not in nothing


def test_what_stands_beside_a_widget_is_small_whatever_the_run():
    data, _ = heatmap(long_run(decades(600, 200)))._repr_mimebundle_()
    assert len(data["text/html"]) + len(data["text/plain"]) <= FALLBACK_BYTES


@pytest.mark.parametrize("works", [True, False])
def test_in_colab_the_widget_manager_is_enabled_once_or_it_is_said_how(monkeypatch, capsys, works):
    calls = []

    def enable() -> None:
        calls.append(1)
        if not works:
            raise RuntimeError("no")

    output = SimpleNamespace(enable_custom_widget_manager=enable)
    monkeypatch.setitem(sys.modules, "google.colab", SimpleNamespace(output=output))
    monkeypatch.setattr(notebook, "_in_colab_told", False)
    for _ in range(2):
        prepare_colab()
    assert calls == [1]
    assert ("enable_custom_widget_manager()" in capsys.readouterr().out) == (not works)
