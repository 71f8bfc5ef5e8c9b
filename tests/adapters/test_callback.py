"""What holds for the callbacks of all libraries: their options, and what they are before and without a training."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys

import pytest

import gradviz as gv
from gradviz.adapters.callback import Options, Watching


def test_the_options_are_those_of_watch_but_for_the_scaler():
    parameters = inspect.signature(gv.watch).parameters.values()
    assert {p.name for p in parameters if p.kind is p.KEYWORD_ONLY} - {"scaler"} == set(Options.__annotations__)


def test_an_unknown_option_says_the_nearest():
    with pytest.raises(gv.errors.UnknownKeywordError, match="did you mean 'every'"):
        Watching(evry=2)


def test_there_is_no_history_before_the_training():
    with pytest.raises(gv.errors.HistoryError, match="before the training has begun"):
        _ = Watching().history


def test_a_callback_travels_to_the_processes_that_train():
    assert pickle.loads(pickle.dumps(Watching(every=2)))._options == {"every": 2}


def test_without_its_library_an_adapter_says_what_to_install():
    # Importing None raises ImportError: to this process nothing of this is installed.
    code = """if True:
        import importlib, sys
        sys.modules.update(dict.fromkeys(["lightning", "pytorch_lightning", "transformers"]))
        for adapter in ("lightning", "transformers"):
            try:
                importlib.import_module(f"gradviz.adapters.{adapter}")
            except ImportError as error:
                print(error)
    """
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    install = [line.partition("Install it: ")[2] for line in said.splitlines()]
    assert install == ["pip install lightning", "pip install 'transformers[torch]'"]
