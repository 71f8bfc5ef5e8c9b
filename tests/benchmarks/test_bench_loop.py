"""How figures are made of steps."""

from __future__ import annotations

from typing import Any

import pytest

from tests.benchmarks.bench_loop import Result, compare, typical


def process(**steps: list[float]) -> dict[str, Any]:
    return {"model": "mlp", "steps_us": {"bare": [100.0] * 5, "bare again": [100.0] * 5, **steps}, "sent": {}}


def test_a_figure_is_the_median_of_the_processes_ratios_of_medians() -> None:
    processes = [process(all=[110.0, 110.0, 900.0]), process(all=[130.0]), process(all=[120.0, 120.0, 0.0])]
    again, result = compare(processes)
    assert (again.loop, again.ratio, again.target) == ("bare again", 1.0, None)
    assert (result.ratio, result.ratios, result.target) == (1.2, [1.1, 1.3, 1.2], 1.12)


def test_what_sending_costs_is_added_although_few_steps_send() -> None:
    measured = process(live=[100.0] * 9 + [500.0])
    measured["sent"] = {"live": [0] * 9 + [1]}
    # Alone, every tenth step sends and takes 50 longer, and the one after it 10.
    measured["alone"] = {"live": {"steps_us": ([200.0] * 8 + [250.0, 210.0]) * 3, "sent": ([0] * 8 + [1, 0]) * 3}}
    assert typical(measured, "live") == pytest.approx(100 * (1 + 60 / 10 / 200))


def test_what_sending_costs_is_seen_among_others_where_no_loop_went_on_alone() -> None:
    measured = process(live=[200.0, 200.0, 250.0, 210.0, 200.0] * 2)
    measured["sent"] = {"live": [0, 0, 1, 0, 0] * 2}
    measured["alone"] = {"live": {"steps_us": [], "sent": []}}
    assert compare([measured])[-1].ratio == pytest.approx(2.12)


def test_where_every_step_sends_the_median_says_it_all() -> None:
    measured = process(live=[100.0, 110.0, 120.0])
    measured["sent"] = {"live": [1, 1, 1]}
    measured["alone"] = {"live": {"steps_us": [], "sent": []}}
    assert typical(measured, "live") == 110.0


def test_watching_may_cost_what_the_loop_that_records_the_same_costs_in_the_same_run() -> None:
    steps = {"beside norms": [105.0], "bare copy": [200.0], "watch norms": [212.0]}
    by_loop = {result.loop: result for result in compare([process(**steps)])}
    assert by_loop["watch norms"].target == by_loop["beside norms"].ratio == 1.05
    assert by_loop["watch norms"].ratio == 1.06
    assert by_loop["watch norms"].verdict == "over"


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ([1.12, 1.12, 1.12], ""),
        ([1.1201, 1.1201, 1.1201], "over"),
        ([1.10, 1.13, 1.14], "over, but not in every process"),
        ([1.155, 1.155, 1.155], "over"),
        ([1.157, 1.157, 1.157], "FAR OVER"),
    ],
)
def test_over_is_over_and_never_rounded_away(ratios: list[float], verdict: str) -> None:
    assert Result("mlp", "all", sorted(ratios)[1], ratios, 1.12, 1.0).verdict == verdict
