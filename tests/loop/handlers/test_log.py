"""A line of the user's own is printed when an event says so, and an error in it is raised."""

from __future__ import annotations

import io
import sys

import pytest
import torch
from torch import nn

import gradviz as gv
from gradviz.errors import EventError, HandlerWarning

DATA = [(torch.ones(1, 1), torch.ones(1, 1))]


def small_loop(**options) -> gv.Loop:
    return gv.trainer(nn.Linear(1, 1), "mean_squared_error", "sgd", record=None, **options)


def line(state) -> str:
    return f"{state.epoch}, {state.iteration}"


@pytest.mark.case("axon-L6")
def test_lines_are_printed_at_the_iterations_that_the_filter_names(capsys):
    small_loop().log(line, every=50, per="epoch").run(DATA * 120, epochs=2, display=None)
    assert capsys.readouterr().out.splitlines() == ["0, 0", "0, 50", "0, 100", "1, 120", "1, 170", "1, 220"]


def test_it_prints_to_what_sys_stdout_is_by_then_or_to_a_file(monkeypatch):
    loop, mine = small_loop().log(line), io.StringIO()
    loop.log(lambda state: "over", event=["completed", "halted"], file=mine)
    for _ in range(2):
        now = io.StringIO()
        monkeypatch.setattr(sys, "stdout", now)
        loop.run(DATA)
        assert len(now.getvalue().splitlines()) == 1
    assert mine.getvalue() == "over\nover\n"


def test_lines_are_in_a_file_as_soon_as_they_are_printed(tmp_path):
    read = []
    with open(tmp_path / "log.txt", "w") as file:
        loop = small_loop().log(line, file=file)
        loop.handle_event("iteration_completed", lambda state: read.append((tmp_path / "log.txt").read_text()))
        loop.run(DATA * 2)
    assert read == ["0, 0\n", "0, 0\n0, 1\n"]


def test_an_error_in_it_ends_the_run_and_is_named_like_any_handler_s():
    loop = small_loop().log(lambda state: state.metrics["los"])
    with pytest.raises(KeyError) as error:
        loop.run(DATA)
    assert error.value.__notes__[0].startswith("In the handler log(test_an_error_in_it")
    assert error.value.__notes__[0].endswith("for 'iteration_completed', at iteration 0.")
    assert loop.state.status == "failed"
    with pytest.warns(HandlerWarning, match="KeyError: 'los'"):
        assert small_loop(on_error="warn").log(lambda state: state.metrics["los"]).run(DATA * 2).iteration == 2


def test_a_line_is_a_string_and_a_message_a_function():
    with pytest.raises(EventError, match=r"returns the line to print, a string; it returned a float32"):
        small_loop().log(lambda state: state.metrics["loss"]).run(DATA)
    with pytest.raises(EventError, match=r"A message is a function of the state; got a str\. Write lambda state: f"):
        small_loop().log("loss {loss}")
    with pytest.raises(EventError, match=r"message is called with the state alone, .*; write message=lambda state"):
        small_loop().log(lambda: "line")
    with pytest.raises(EventError, match=r'file is an open file, such as open\("log.txt", "w"\); got a str'):
        small_loop().log(line, file="log.txt")


@pytest.mark.case("N07")
def test_a_cell_that_is_run_again_prints_once(capsys):
    loop = small_loop()
    for _ in range(3):
        exec("loop.log(lambda state: 'line')", {"__name__": "__main__", "loop": loop})
    loop.log(line)
    loop.run(DATA)
    assert capsys.readouterr().out.splitlines() == ["line", "0, 0"]


@pytest.mark.case("N07")
def test_a_cell_that_opens_its_file_and_is_run_again_writes_to_the_new_one(tmp_path, capsys):
    loop = small_loop().log(line)
    for _ in range(2):
        with open(tmp_path / "log.txt", "w") as file:
            loop.log(line, file=file).run(DATA)
    assert (tmp_path / "log.txt").read_text() == "1, 1\n"
    assert capsys.readouterr().out == "0, 0\n1, 1\n"
