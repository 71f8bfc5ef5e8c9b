"""Outside a notebook nothing is shown, and a picture that fails never stops a run."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import gradviz as gv
from gradviz.errors import RecordingWarning
from gradviz.history.history import History
from gradviz.widgets import notebook
from gradviz.widgets.notebook import in_notebook, show_live

DATA = [(torch.ones(1, 1), torch.ones(1, 1))]


def test_a_script_and_a_plain_ipython_are_no_notebook(monkeypatch):
    assert not in_notebook()
    show_live(History())
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


def test_a_picture_that_fails_warns_and_the_run_goes_on(monkeypatch):
    def broken(history):
        raise FileNotFoundError("the widgets are not built")

    monkeypatch.setattr(notebook, "show_live", broken)
    with pytest.warns(RecordingWarning, match="the widgets are not built"):
        state = gv.trainer(nn.Linear(1, 1), "huber", "sgd").run(DATA)
    assert state.status == "completed"


def test_display_none_shows_nothing(monkeypatch):
    def never(history):
        raise AssertionError("shown")

    monkeypatch.setattr(notebook, "show_live", never)
    assert gv.trainer(nn.Linear(1, 1), "huber", "sgd").run(DATA, display=None).status == "completed"
