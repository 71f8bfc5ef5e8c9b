"""A run as one file: what is in it, what is not, how large it is, and what is refused."""

from __future__ import annotations

import base64
import json
import re
import zlib

import numpy as np
import pytest
import torch

import gradviz as gv
from gradviz.errors import HistoryError
from gradviz.history.history import History
from gradviz.history.schema import OK, Parameter
from gradviz.widgets import live
from gradviz.widgets.frozen_mask import frozen_mask
from gradviz.widgets.page import page_of, save_html
from tests.widgets.histories import append, history_of
from tests.widgets.test_packed import decades, realistic

EVIL = "</script><img src=x onerror=document.title='run'>.weight"
ADDRESS = re.compile(r"https?://[^\s\"')]*")


def blobs_of(page: str) -> list[bytes]:
    texts = re.findall(r'<script type="text/plain" id="gv-blob-\d+">([^<]*)</script>', page)
    return [zlib.decompress(base64.b64decode(text)) for text in texts]


def parts_of(page: str) -> list[dict]:
    found = re.search(r'<script type="application/json" id="gv-parts">(.*?)</script>', page)
    assert found
    return json.loads(found[1])


def heatmap_of(page: str) -> dict:
    return next(part for part in parts_of(page) if "_choices" in part["traits"])


def long_run(values: np.ndarray) -> History:
    n, rows = values.shape
    history = History()
    history.declare([Parameter(name=f"layers.{i}.weight", shape=(64, 64), dtype="float32") for i in range(rows)])
    table, states = np.zeros((rows, 8)), np.full(rows, OK, np.uint8)
    for i in range(n):
        table[:, :5] = values[i][:, None]
        history.append(i, i // 1000, table.copy(), states, {"loss": 1.0 / (i + 1)})
    history.progress.status, history.progress.iteration = "completed", n
    return history


def test_a_page_has_every_picture_of_a_run_and_no_address():
    page = page_of(history_of("encoder.weight", "head.weight"))
    assert [part["label"] for part in parts_of(page)] == [
        "How the run stands",
        "Heatmap",
        "Frozen mask",
        "Dtypes",
        "Inspector",
    ]
    assert "gradviz " in page
    # The name of a kind of picture, of which nothing is ever asked.
    others = {"http://www.w3.org/2000/svg"}
    texts = [page, *(blob.decode("utf-8", "ignore") for blob in blobs_of(page))]
    assert {address for text in texts for address in ADDRESS.findall(text)} <= others


def test_a_name_ends_no_script_and_is_nowhere_markup():
    history = history_of(EVIL)
    history.progress.message = f"RuntimeError: {EVIL}"
    page = page_of(history)
    assert "<img" not in page
    assert parts_of(page)[0]["traits"]["_parameters"][0]["name"] == EVIL


def test_a_widget_is_saved_alone_and_a_comparison_as_the_heatmap_of_its_ratio():
    history = history_of("w")
    assert [part["label"] for part in parts_of(page_of(frozen_mask(history)))] == ["FrozenMask"]
    ratio = parts_of(page_of(gv.compare({"a": history, "b": history_of("w")})))
    assert [part["traits"]["_quantity"]["runs"] for part in ratio] == [["b", "a"]]


def test_no_widget_is_left_open_and_one_that_was_stays():
    history = history_of("w")
    before = dict(live._open)
    page_of(history)
    assert live._open == before
    mask = frozen_mask(history)
    page_of(history)
    assert frozen_mask(history) is mask


def test_statistics_are_all_that_there_are_or_those_that_are_wanted():
    history = history_of("w")
    everything = heatmap_of(page_of(history))["pictures"]
    assert {name.split()[0] for name in everything} == {"norm", "rms", "max_abs", "mean", "zero_fraction"}
    assert set(heatmap_of(page_of(history, statistics=("norm",)))["pictures"]) == {"norm backward"}
    with pytest.raises(HistoryError, match="'max_abs'"):
        page_of(history, statistics=("max_ab",))
    with pytest.raises(TypeError, match=r"statistics=\('norm',\)"):
        page_of(history, statistics="norm")


def test_captured_values_are_there_with_the_statistics_that_they_have():
    cell = torch.nn.Linear(2, 1)
    loop = gv.trainer(torch.nn.Sequential(cell), "mean_squared_error", "sgd", capture=gv.Capture("0"))
    loop.run([(torch.ones(3, 2), torch.zeros(3, 1))], display=None)
    heatmap, captured = (part for part in parts_of(page_of(loop)) if "_choices" in part["traits"])
    assert captured["label"] == "Activations"
    assert "rms backward" in heatmap["pictures"]
    assert set(captured["pictures"]) == {f"{name} backward" for name in ("norm", "max_abs", "mean", "zero_fraction")}


def test_a_short_run_is_exact():
    history = history_of("w")
    append(history)
    for part in parts_of(page_of(history)):
        assert not any(picture["quantity"]["rounded"] for picture in part["pictures"].values())


@pytest.mark.parametrize("noise", [realistic, decades])
def test_norms_take_three_megabytes_and_each_further_statistic_two_and_a_half(noise):
    history = long_run(noise(10_000, 200))
    norms = len(page_of(history, statistics=("norm",)))
    assert norms <= 3_000_000
    both = len(page_of(history, statistics=("norm", "max_abs")))
    assert both - norms <= 2_500_000


def test_a_file_is_replaced_only_on_demand_and_whole(tmp_path):
    path = tmp_path / "run.html"
    assert save_html(history_of("w"), path) == path
    with pytest.raises(HistoryError, match='if_exists="overwrite"'):
        save_html(history_of("w"), path)
    before = path.read_text()
    with pytest.raises(TypeError):
        save_html(3, path, if_exists="overwrite")
    assert path.read_text() == before
    save_html(history_of("other"), str(path), if_exists="overwrite")
    assert path.read_text() != before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("", "is a folder"),
        ("nowhere/run.html", "There is no folder"),
        (3, "path is that of a file"),
        ("a\0b", "names no file: embedded null byte"),
        ("a" * 300, "names no file: File name too long"),
    ],
)
def test_a_path_that_cannot_be_written_is_refused(tmp_path, path, said):
    with pytest.raises((HistoryError, TypeError), match=said):
        save_html(history_of("w"), tmp_path / path if isinstance(path, str) else path)


def test_a_name_may_be_as_long_as_that_of_any_file(tmp_path):
    assert save_html(history_of("w"), tmp_path / ("a" * 255)).exists()


def test_what_cannot_be_saved_and_misspelt_words_are_refused(tmp_path):
    with pytest.raises(TypeError, match=r"got the number 3|got 3|got an? int"):
        save_html(3, tmp_path / "run.html")
    with pytest.raises(TypeError, match=r"gv\.save_html\(gv\.History\.open\('runs/a'\), \"run\.html\"\)"):
        save_html("runs/a", tmp_path / "run.html")
    with pytest.raises(TypeError, match="a selection, and it shows whole histories"):
        save_html(history_of("w").select(iterations=0), tmp_path / "run.html")
    with pytest.raises(TypeError, match="statistics is a list of names"):
        save_html(history_of("w"), tmp_path / "run.html", statistics=3)
    with pytest.raises(TypeError, match="if_exists"):
        save_html(history_of("w"), tmp_path / "run.html", if_exist="overwrite")


def test_a_saved_run_says_what_it_is_called_and_when_it_was_recorded(tmp_path):
    history = History(save_to=tmp_path / "a<b")
    history.declare([Parameter(name="w", shape=(2, 3), dtype="float32")])
    append(history)
    history.flush()
    page = page_of(History.open(tmp_path / "a<b"))
    assert "<title>a&lt;b</title>" in page
    assert re.search(r"recorded \d{4}-\d\d-\d\d \d\d:\d\d UTC", page)
    history.end_run()


def test_an_inspector_that_keeps_its_answer_for_a_page_without_a_kernel_does_not_hinder():
    history = history_of("w")
    widget = gv.inspector(history)
    widget.publisher.show()
    assert widget._inspected
    for page in (page_of(history), page_of(widget)):
        assert not any("_inspected" in part["traits"] for part in parts_of(page))
