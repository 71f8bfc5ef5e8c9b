"""The README's table: what was measured, and who is ahead."""

from __future__ import annotations

import json
from typing import Any

from tests.benchmarks import report
from tests.benchmarks.bench_loop import PEERS

CIRCUMSTANCES = {
    "date": "2026-11-29T20:00:00+00:00",
    "commit": "0123456789abcdef",
    "dirty": False,
    "processor": "A processor",
    "cores": 2,
    "threads": 2,
    "python": "3.11.7",
    "torch": "2.13.0",
    **dict.fromkeys(PEERS, "1.0"),
}


def measured(**ratios: float) -> dict[str, Any]:
    results = [{"model": "mlp", "loop": loop.replace("_", " "), "ratio": ratio} for loop, ratio in ratios.items()]
    return {**CIRCUMSTANCES, "results": results}


def test_the_readme_shows_the_results_that_are_kept() -> None:
    readme, kept = report.README.read_text(), json.loads(report.RESULTS.read_text())
    assert report.rewritten(readme, kept) == readme


def test_only_what_stands_between_the_marks_is_rewritten() -> None:
    readme = f"before\n{report.BEGIN}old\n{report.END}\nafter\n"
    new = report.rewritten(readme, measured(all=1.2))
    assert new.startswith(f"before\n{report.BEGIN}| | MLP |")
    assert new.endswith(f"{report.END}\nafter\n")
    assert "old" not in new


def test_figures_have_three_places_and_what_was_not_measured_none() -> None:
    rows = report.table(measured(all=1.1249)).splitlines()
    (ours,) = (row for row in rows if row.startswith('| gradviz, `record="all"`'))
    assert ours.split("|")[2:5] == [" 1.125 ", "  ", "  "]


def test_of_two_comparisons_of_the_bare_loop_with_itself_the_worse_is_shown() -> None:
    both = measured(bare_again=1.01)["results"] + measured(bare_again=0.98)["results"]
    for results in (both, both[::-1]):
        assert "| plain PyTorch, against itself | 0.980 |" in report.table({**CIRCUMSTANCES, "results": results})


def test_who_costs_less_is_named() -> None:
    text = report.table(measured(all=1.2, floor=1.05, TensorBoard_scalars=1.1, wandb_watch=2.0))
    assert (
        'Cheaper than `record="all"`: one `torch._foreach_norm`, one transfer (MLP); '
        "TensorBoard, `add_scalar` of each norm (MLP)." in text
    )
    assert "Cheaper" not in report.table(measured(all=1.2, floor=1.3))


def test_a_table_says_if_there_were_changes_that_are_not_committed() -> None:
    assert "at 0123456. All on: A processor" in report.circumstances(CIRCUMSTANCES)
    assert "at 0123456 with changes" in report.circumstances({**CIRCUMSTANCES, "dirty": True})
