"""What all figures of a run have in common."""

from __future__ import annotations

import subprocess
import sys

import plotly.graph_objects as go
import pytest

import gradviz as gv
from gradviz.errors import HistoryError, UnknownKeywordError
from gradviz.history.history import History
from tests.history.made import LOOKS, history_of, norms

KINDS = ("norms", "heatmap", "depth")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_a_plotly_figure_with_the_colours_of_its_theme(kind, theme):
    figure = history_of(LOOKS, LOOKS).figure(kind, theme=theme)
    assert isinstance(figure, go.Figure)
    paper = {"light": "rgb(255,255,255)", "dark": "rgb(17,17,17)"}[theme]
    assert figure.layout.template.layout.paper_bgcolor == paper
    assert figure.to_json()


def test_a_wrong_kind_theme_stage_or_keyword_names_the_nearest():
    history = norms([1.0])
    with pytest.raises(HistoryError, match="No figure is called 'norm': did you mean 'norms'"):
        history.figure("norm")
    with pytest.raises(HistoryError, match="No theme is called 'drak': did you mean 'dark'"):
        history.figure("norms", theme="drak")
    with pytest.raises(HistoryError, match="No stage is called 'cliped': did you mean 'clipped'"):
        history.figure("norms", stage="cliped")
    with pytest.raises(UnknownKeywordError, match="did you mean 'iterations'"):
        history.figure("depth", iteration=3)
    with pytest.raises(HistoryError, match="did you mean 'heatmap'"):
        gv.compare({"a": history, "b": norms([2.0])}).figure("heat_map")


def test_iterations_are_for_figures_of_a_few_of_them():
    history = norms([1.0], [2.0])
    with pytest.raises(HistoryError, match=r"select\(iterations=slice\(0, 100\)\)\.figure\(\"norms\"\)"):
        history.figure("norms", iterations=[1])
    with pytest.raises(HistoryError, match="a number or a list of numbers"):
        history.figure("depth", iterations=slice(0, 2))


def test_a_figure_of_nothing_is_refused():
    with pytest.raises(HistoryError, match="of 0 iterations none was recorded"):
        History().figure("norms")
    with pytest.raises(HistoryError, match=r"at the stage 'weight'.*stages=\[\"backward\", \"update\"\]"):
        norms([1.0]).figure("norms", stage="weight")
    with pytest.raises(HistoryError, match='attempts="latest"'):
        norms([1.0]).select(attempts="all").figure("norms")
    for nothing in ({"iterations": slice(7, 9)}, {"parameters": []}):
        with pytest.raises(HistoryError, match=r"the selection has \d iterations of \d parameters"):
            norms([1.0]).select(**nothing).figure("norms")


def test_a_ratio_keeps_its_meaning_in_figures_of_a_part():
    ratios = gv.compare({"a": norms([1.0], [2.0]), "b": norms([2.0], [2.0])}).ratios()
    for view in (ratios, ratios.select(iterations=slice(0, 1))):
        assert view.figure("heatmap").layout.title.text == "Ratios of gradient norms (b ÷ a) by parameter and iteration"
        with pytest.raises(HistoryError, match="A ratio of gradients has no root mean square"):
            view.figure("depth")


def test_names_are_text_and_never_tags():
    figure = norms([1.0], names=["<b>x</b>.weight"]).figure("norms")
    assert figure.data[0].name == "&lt;b&gt;x&lt;/b&gt;.weight"
    assert figure.data[0].meta not in figure.data[0].hovertemplate


def test_plotly_is_imported_when_a_figure_is_asked_for_and_not_before():
    code = (
        "import sys, gradviz as gv, pandas as pd\n"
        "history = gv.History.from_frame(pd.DataFrame({'w': [1.0]}))\n"
        "assert history.norms.shape == (1, 1) and gv.compare and 'plotly' not in sys.modules\n"
        "history.figure('norms')\n"
        "assert 'plotly' in sys.modules and not {'torch', 'anywidget'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
