"""How far a run is, on a terminal as a bar and in a log file as lines; and nothing where nobody asked."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import re
import signal
import struct
import sys
import termios
import time

import pytest
import torch
from torch import nn

import gradviz as gv
from gradviz.errors import RecordingWarning
from gradviz.history.history import History
from gradviz.loop.handlers.progress import ProgressLines

DATA = [(torch.ones(1, 1), torch.tensor([[1.0]]))] * 10


def make(log: int = 4) -> gv.Loop:
    torch.manual_seed(0)
    return gv.trainer(nn.Linear(1, 1), "mean_squared_error", "sgd", log=log).metric(lambda p, t: 0.5, "half")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        """What was on show, refresh by refresh; one that was only wiped is none."""
        return [line.strip() for line in self.getvalue().replace("\n", "\r").split("\r") if line.strip()]


def into(file: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Let stderr be this file, in the test itself: pytest has a stderr of its own for each of its phases."""
    monkeypatch.setattr(sys, "stderr", file)
    return file


def test_a_log_file_has_a_line_every_so_many_iterations_and_a_last_one(monkeypatch):
    log_file = into(io.StringIO(), monkeypatch)
    make().run(DATA, epochs=2)
    lines = log_file.getvalue().splitlines()
    assert [line.split(", ")[1] for line in lines[:-1]] == [f"iteration {n}/20" for n in (4, 8, 12, 16, 20)]
    assert re.match(r"epoch 1/2, iteration 4/20, \d+ s left, mean loss 0\.\d+, half", lines[0])
    assert lines[0].endswith(", half 0.500")
    assert lines[-1].startswith("completed, epoch 2/2, iteration 20/20, mean loss ")


def test_a_log_file_says_what_a_validation_found_at_the_end_of_the_epoch(monkeypatch):
    log_file = into(io.StringIO(), monkeypatch)
    make(log=8).validate(DATA[:1]).run(DATA, epochs=2)
    lines = log_file.getvalue().splitlines()
    assert [line.rpartition("iteration ")[2].split("/")[0] for line in lines] == ["8", "10", "16", "20", "20"]
    assert ["validation_half 0.500" in line for line in lines] == [False, True, False, True, True]
    assert lines[1].startswith("epoch 1/2, iteration 10/20, ")


def test_a_later_run_goes_on_counting(monkeypatch):
    log_file = into(io.StringIO(), monkeypatch)
    loop = make(log=8)
    loop.run(DATA)
    loop.run(iter(DATA))
    lines = log_file.getvalue().splitlines()
    assert [line.rpartition("iteration ")[2].split(",")[0] for line in lines] == ["8/10", "10/10", "16", "20"]
    assert lines[2].startswith("epoch 2/2")


def test_a_terminal_has_one_bar_refreshed_every_so_many_iterations_and_after_each_epoch(monkeypatch):
    terminal = into(Terminal(), monkeypatch)
    make().validate(DATA[:1]).run(DATA, epochs=2)
    lines = terminal.lines()
    counts = [int(found[1]) for line in lines if (found := re.search(r"\| *(\d+)/20 ", line))]
    assert len(counts) == len(lines)
    assert list(dict.fromkeys(counts)) == [0, 4, 8, 10, 12, 16, 20]
    assert lines[0].startswith("epoch 1/2:   0%|")
    assert lines[3].startswith("epoch 1/2:  50%|")
    assert lines[-1].startswith("epoch 2/2, completed: 100%|")
    assert terminal.getvalue().count("\n") == 1
    assert terminal.getvalue().endswith("\n")


def last_line(columns: int, monkeypatch, epochs: int = 1, data=DATA, metrics: int = 1) -> str:
    """Of a run that was validated, on a terminal of that many columns."""
    terminal = into(Terminal(), monkeypatch)
    monkeypatch.setenv("COLUMNS", str(columns))
    loop = make(log=3)
    for n in range(metrics):
        loop.metric(lambda p, t, n=n: n / 7, f"metric_{n}")
    loop.validate(DATA[:1]).run(data, epochs=epochs)
    assert all(len(line) < columns for line in terminal.lines())
    return terminal.lines()[-1]


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("columns", [30, 40, 60, 80, 100, 120, 160, 300])
def test_no_number_is_cut_however_narrow_the_terminal_is(monkeypatch, columns, is_open):
    line = last_line(columns, monkeypatch, data=iter(DATA) if is_open else DATA, metrics=4)
    items = [item for item in re.split(r", |\[|\]", line) if re.search(r"[a-z_]\d? [\d.]+$", item)]
    for item in items:
        assert re.fullmatch(
            r"epoch 1/1|((mean )?loss|val(idation)?_loss) \d\.\d{3}|(val_|validation_)?(half|metric_\d) \d(\.\d{3})?",
            item,
        ), line
    assert ("10/10" if not is_open else "10") in line
    everything = columns == 300
    assert line.endswith("]") or columns <= 40
    assert ("…" not in line) == everything or columns <= 40
    assert ("validation_metric_3 0.429" in line) == everything
    if columns >= 80:
        assert re.search("loss [0-9.]+, val(idation)?_loss [0-9.]+", line)


def test_the_last_results_of_a_validation_stay_on_show(monkeypatch):
    terminal = into(Terminal(), monkeypatch)
    make().validate(DATA[:1]).run(DATA, epochs=2)
    is_there = ["val_loss" in line for line in terminal.lines()]
    assert is_there == sorted(is_there)
    assert sum(is_there) > len(is_there) / 2


def test_a_later_run_has_a_bar_of_its_own_which_begins_empty(monkeypatch):
    terminal = into(Terminal(), monkeypatch)
    loop = make()
    loop.run(DATA)
    before = len(terminal.lines())
    loop.run(DATA, epochs=2)
    lines = terminal.lines()[before:]
    assert re.match(r"epoch 2/3:   0%\| +\| 0/20 ", lines[0])
    assert re.match(r"epoch 3/3, completed: 100%\|#+\| 20/20 ", lines[-1])


def test_what_a_handler_prints_has_a_line_of_its_own(monkeypatch):
    terminal, out = into(Terminal(), monkeypatch), Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    loop = make(log=1)

    def say(state):
        print("at", end=" ")
        print(state.iteration)
        print(f"warned at {state.iteration}\nof something", file=sys.stderr)
        sys.stdout.write("begun " if state.iteration == 5 else "")

    loop.handle_event("iteration_completed", say, every=5).run(DATA)
    assert sys.stderr is sys.stdout is terminal
    wiped = [line.rpartition("\r")[2] for line in terminal.getvalue().split("\n")]
    said = [line for line in wiped if line.startswith(("at", "warned", "of"))]
    assert said == ["at 0", "warned at 0", "of something", "at 5", "warned at 5", "of something"]
    assert terminal.getvalue().endswith("\nbegun ")
    monkeypatch.setattr(sys, "stdout", out)
    inner = make(log=1).handle_event("iteration_completed", lambda state: print("inside"), once=1)
    loop.handle_event("epoch_completed", lambda state: inner.run(DATA[:2]) and None)
    loop.run(DATA[:3])
    assert (sys.stderr, sys.stdout) == (terminal, out)
    assert "inside\n" in out.getvalue()


def test_what_moves_the_cursor_by_itself_is_passed_on_as_it_comes(monkeypatch):
    terminal = into(Terminal(), monkeypatch)
    loop = make(log=1).handle_event("epoch_completed", lambda state: sys.stderr.write("\rtheir bar") and None)
    loop.run(DATA)
    assert "their bar" in terminal.getvalue()


@pytest.mark.parametrize(
    ("handler", "error", "status"),
    [
        (lambda state: signal.raise_signal(signal.SIGINT), KeyboardInterrupt, "interrupted"),
        (lambda state: 1 / 0, ZeroDivisionError, "failed"),
        (lambda state: "halt_loop", None, "halted"),
    ],
)
def test_however_a_run_ends_the_bar_ends_its_line(monkeypatch, handler, error, status):
    terminal = into(Terminal(), monkeypatch)
    loop = make().handle_event("iteration_completed", handler, once=6)
    with pytest.raises(error) if error else contextlib.nullcontext():
        loop.run(DATA)
    assert f", {status}: " in terminal.lines()[-1]
    assert "| 6/10 " in terminal.lines()[-1]
    assert terminal.getvalue().endswith("\n")


def test_a_pause_is_said(monkeypatch):
    terminal = into(Terminal(), monkeypatch)
    loop = make()
    loop.start(DATA, epochs=10**9).pause().unpause().stop().wait()
    assert any(", paused: " in line for line in terminal.lines())
    assert ", halted: " in terminal.lines()[-1]


def test_a_line_of_log_has_a_line_of_its_own(monkeypatch):
    terminal = into(Terminal(), monkeypatch)
    monkeypatch.setattr(sys, "stdout", terminal)
    make(log=1).log(lambda state: f"at {state.iteration}", every=5).run(DATA)
    wiped = [line.rpartition("\r")[2] for line in terminal.getvalue().split("\n")]
    assert [line for line in wiped if line.startswith("at ")] == ["at 0", "at 5"]


@pytest.mark.parametrize("where", [io.StringIO, Terminal])
def test_nothing_is_said_with_log_0_or_without_a_display(monkeypatch, where):
    file = where()
    monkeypatch.setattr(sys, "stderr", file)
    make(log=0).run(DATA)
    make().run(DATA, display=None)
    assert file.getvalue() == ""
    monkeypatch.setattr(sys, "stderr", None)
    assert make().run(DATA).status == "completed"


@pytest.mark.parametrize("log", [-1, 2.5, None, True])
def test_log_is_a_count(log):
    with pytest.raises(ValueError, match="log is a whole number from 0 on"):
        make(log=log)


def test_a_terminal_that_is_gone_is_said_once_and_training_goes_on(monkeypatch):
    class Gone(Terminal):
        def write(self, text: str) -> int:
            if self.tell() > 200:
                raise BrokenPipeError("gone")
            return super().write(text)

    monkeypatch.setattr(sys, "stderr", Gone())
    with pytest.warns(RecordingWarning, match="BrokenPipeError: gone") as said:
        assert make(log=1).run(DATA, epochs=5).status == "completed"
    assert len(said) == 1


def test_it_costs_nearly_nothing_between_two_refreshes():
    history = History()
    lines = ProgressLines(history, 10**9, io.StringIO())
    began = time.perf_counter()
    for iteration in range(20_000):
        history.progress.iteration = iteration + 1
        history.notify()
    cost = (time.perf_counter() - began) / 20_000
    lines.close()
    print(f"{cost * 1e6:.2f} µs")
    assert cost < 5e-6


SCRIPT = """
import torch, gradviz as gv
data = [(torch.ones(1, 1), torch.tensor([[1.0]]))] * 10
for _ in range(2):
    gv.trainer(torch.nn.Linear(1, 1), "mean_squared_error", "sgd", log=5).run(data)
    input("over")
"""


def test_a_real_terminal_shows_the_bar(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    process, terminal = pty.fork()
    if not process:
        os.execv(sys.executable, [sys.executable, "-c", SCRIPT])
    for columns, at_most in ((100, 100), (0, 80)):  # of no size where nobody has said one
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        if not columns:
            os.write(terminal, b"\n")  # the next one
        shown = b""
        while not shown.endswith(b"over"):
            shown += os.read(terminal, 4096)
        last = shown.decode().removesuffix("over").rstrip().rpartition("\r")[2]
        assert last.startswith("epoch 1/1, completed: 100%|")
        assert "| 10/10 " in last
        assert len(last) <= at_most
    os.write(terminal, b"\n")
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
