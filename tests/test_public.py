"""The public names: all there, loaded at first use."""

from __future__ import annotations

import subprocess
import sys

import pytest

import gradviz as gv


def test_every_public_name_is_there():
    for name in gv.__all__:
        assert getattr(gv, name) is not None
        assert name in dir(gv)


def test_nothing_else_is_listed():
    assert sorted(dir(gv)) == sorted(gv.__all__)


def test_an_unknown_name_says_the_nearest():
    with pytest.raises(AttributeError, match="did you mean 'heatmap'"):
        _ = gv.heatmapp


def test_importing_and_training_load_neither_plotly_nor_the_widgets():
    code = (
        "import sys, gradviz as gv\n"
        "assert not {'torch', 'pandas', 'plotly', 'pyarrow', 'anywidget'} & set(sys.modules)\n"
        "from torch import nn\n"
        "import torch\n"
        "gv.trainer(nn.Linear(1, 1), 'huber', 'sgd').run([(torch.ones(1, 1), torch.ones(1, 1))])\n"
        "assert not {'plotly', 'anywidget', 'ipywidgets', 'gradviz.adapters'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
