"""Norms over time, as lines."""

from __future__ import annotations

import numpy as np
import pytest

import gradviz as gv
from gradviz.history.schema import FROZEN, OK
from tests.history.made import INF, LOOKS, NAN, NOTHING, history_of, norms, row


def lines(figure):
    return [trace for trace in figure.data if "lines" in trace.mode]


def strip(figure):
    return {trace.name: trace for trace in figure.data if trace.mode == "markers"}


def test_a_line_has_the_numbers_of_its_parameter_and_none_where_there_is_none():
    figure = norms([0.5, 2.0], [0.25, INF], [0.0, 4.0], names=["body", "head"]).figure("norms")
    body, head = lines(figure)
    np.testing.assert_array_equal(body.x, [0, 1, 2])
    np.testing.assert_array_equal(body.y, np.float32([0.5, 0.25, NAN]))
    np.testing.assert_array_equal(head.y, np.float32([2.0, NAN, 4.0]))
    assert figure.layout.yaxis2.type == "log"


def test_the_strip_has_a_row_for_each_reason_why_there_is_no_number():
    rows = strip(history_of(LOOKS, LOOKS).figure("norms"))
    assert list(rows) == ["frozen", "unused", "zero", "NaN", "+inf", "−inf", "not recorded"]
    assert list(rows["NaN"].x) == [0, 1]
    assert rows["NaN"].customdata[1] == "iteration 1<br>NaN: c"
    assert rows["frozen"].customdata[0] == "iteration 0<br>frozen: g"


def test_a_parameter_without_any_number_says_why_in_the_legend():
    history = history_of([(row(1.0), OK), (NOTHING, FROZEN)], [(row(1.0), OK), (NOTHING, FROZEN)])
    assert [line.name for line in lines(history.figure("norms"))] == ["a", "b (frozen)"]


def test_a_number_between_two_that_are_none_is_a_point():
    (line,) = lines(norms(*[[NAN if i % 7 else 1.0] for i in range(200)]).figure("norms"))
    assert line.mode == "lines+markers"
    (line,) = lines(norms(*[[1.0]] * 200).figure("norms"))
    assert line.mode == "lines"


def test_a_long_run_is_merged_and_says_so_and_no_bad_iteration_is_lost():
    history = norms(*[[NAN if i == 3000 else 1.0 + (i == 4000)] for i in range(5000)])
    figure = history.figure("norms")
    (line,) = lines(figure)
    assert len(line.x) <= 2000
    assert np.nanmax(line.y) == 2
    assert strip(figure)["NaN"].customdata[0] == "iterations 3,000–3,003<br>NaN: a"
    assert "up to 4 iterations (max)" in figure.layout.title.subtitle.text


def test_a_selection_shows_its_part():
    history = norms(*[[float(i + 1), 1.0] for i in range(20)])
    (line,) = lines(history.select(parameters="a", iterations=slice(10, 20), every=4).figure("norms"))
    np.testing.assert_array_equal(line.x, [10, 14, 18])
    np.testing.assert_array_equal(line.y, np.float32([11, 15, 19]))


def test_runs_have_a_colour_and_a_name_each():
    both = gv.compare({"one": norms([1.0, 2.0]), "two": norms([3.0, 4.0])})
    drawn = lines(both.figure("norms"))
    assert [float(line.y[0]) for line in drawn] == [1, 2, 3, 4]
    assert [line.name for line in drawn if line.showlegend] == ["one", "two"]
    assert len({line.line.color for line in drawn}) == 2
    assert drawn[3].meta == "two · b"


@pytest.mark.parametrize("norm", [1e-30, 1e30])
def test_what_is_far_away_is_still_a_number(norm):
    (line,) = lines(norms([norm]).figure("norms"))
    assert line.y[0] == pytest.approx(norm, rel=1e-6)


def test_an_axis_of_less_than_two_powers_of_ten_has_ticks_in_between():
    ticks = norms([0.15, 0.2], [0.47, 0.3], names=["body", "head"]).figure("norms").layout.yaxis
    inside = [text for value, text in zip(ticks.tickvals, ticks.ticktext, strict=True) if 0.15 <= value <= 0.47]
    assert inside == ["0.200", "0.300", "0.400"]
    assert norms([1e-3, 1.0], names=["body", "head"]).figure("norms").layout.yaxis.dtick == 1
