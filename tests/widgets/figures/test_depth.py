"""The depth profile."""

from __future__ import annotations

import numpy as np
import pytest

import gradviz as gv
from gradviz.errors import HistoryError
from gradviz.history.schema import FROZEN, OK, UNUSED
from tests.history.made import INF, NAN, NOTHING, history_of, norms, row

NAMES = ["0.weight", "0.bias", "1.weight"]


def lines(figure):
    return [trace for trace in figure.data if "lines" in trace.mode]


def test_a_layer_has_the_root_mean_square_of_all_its_entries():
    history = norms([3.0, 4.0, 6.0], names=NAMES)  # of 6 entries each
    (line,) = lines(history.figure("depth"))
    assert list(line.x) == ["0", "1"]
    np.testing.assert_allclose(line.y, [5 / np.sqrt(12), 6 / np.sqrt(6)])


def test_it_shows_the_first_the_middle_and_the_last_iteration_or_those_that_are_asked_for():
    history = norms(*[[float(i + 1)] for i in range(11)])
    assert [line.name for line in lines(history.figure("depth"))] == ["iteration 0", "iteration 5", "iteration 10"]
    assert [line.name for line in lines(history.figure("depth", iterations=3))] == ["iteration 3"]
    assert [line.name for line in lines(history.figure("depth", iterations=[-1]))] == ["iteration 10"]


def test_of_an_iteration_without_numbers_the_nearest_is_named():
    history = norms(*[[float(i + 1)] for i in range(11)]).select(every=5)
    (line,) = lines(history.figure("depth", iterations=7))
    assert line.name == "iteration 5 (nearest to 7)"
    np.testing.assert_allclose(line.y, [6 / np.sqrt(6)])


@pytest.mark.parametrize(("norm", "word"), [(NAN, "NaN"), (INF, "+inf"), (0.0, "zero")])
def test_a_layer_that_has_none_stands_in_the_strip(norm, word):
    figure = norms([1.0, norm], names=["0.weight", "1.weight"]).figure("depth")
    (line,) = lines(figure)
    assert np.isnan(line.y[1])
    (sign,) = [trace for trace in figure.data if trace.mode == "markers"]
    assert (sign.name, list(sign.x)) == (word, ["1"])


def test_what_is_frozen_in_a_layer_does_not_count_into_it():
    history = history_of([(row(3.0), OK), (NOTHING, FROZEN), (NOTHING, UNUSED)], names=NAMES)
    figure = history.figure("depth")
    np.testing.assert_allclose(lines(figure)[0].y, [3 / np.sqrt(6), NAN])
    assert [trace.name for trace in figure.data if trace.mode == "markers"] == ["unused"]


def test_norms_near_the_end_of_float64_do_not_overflow():
    (line,) = lines(norms([3e300, 4e300], names=NAMES[:2]).figure("depth"))
    np.testing.assert_allclose(line.y, [5e300 / np.sqrt(12)])


def test_runs_are_told_apart_by_colour_and_iterations_by_dashes():
    both = gv.compare({"one": norms([1.0], [2.0]), "two": norms([3.0], [4.0])})
    assert [line.name for line in lines(both.figure("depth"))] == ["one · iteration 1", "two · iteration 1"]
    drawn = lines(both.figure("depth", iterations=[0, 1]))
    assert [line.line.dash for line in drawn] == ["solid", "dash"] * 2
    assert drawn[0].line.color == drawn[1].line.color != drawn[2].line.color


def test_without_shapes_there_is_none():
    history = gv.History.from_frame(norms([1.0]).gradients)
    with pytest.raises(HistoryError, match=r'how many \'a\' has.*figure\("norms"\)'):
        history.figure("depth")


def test_an_iteration_that_is_asked_for_twice_is_drawn_once_and_none_is_too_large():
    history = norms([1.0], [2.0], names=NAMES[:1])
    assert [line.name for line in lines(history.figure("depth", iterations=[0, 0, -2]))] == ["iteration 0"]
    (line,) = lines(history.figure("depth", iterations=10**30))
    assert line.name.startswith("iteration 1 (nearest to 1,000,")
    (line,) = lines(history.figure("depth", iterations=[-9]))
    assert line.name == "iteration 0 (nearest to -9)"
