"""The README's table, from the file that `make bench` writes: no number of it is typed.

    python -m tests.benchmarks.report [dist/bench.json]

keeps the results in ``tests/benchmarks/results.json``, without the time of every step, and puts their table into the
README. A test holds the two together.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tests.benchmarks.bench_loop import DEFAULT_FILE, PEERS, ROOT

README = ROOT / "README.md"
RESULTS = Path(__file__).with_name("results.json")
BEGIN, END = "<!-- benchmark: made by tests/benchmarks/report.py -->\n", "<!-- end of benchmark -->"

MODELS = {"mlp": "MLP", "transformer": "transformer", "deep": "200 layers"}
OURS = {
    "none": ("gradviz, `record=None`", "loss and metrics"),
    "norms": ('gradviz, `record="norms"`', "norm"),
    "all": ('gradviz, `record="all"`', "norm, mean, std, max_abs, share of zeros, counts of NaN and infinities"),
    "live": ("the same with its heatmap on show", "the same, and a picture, live"),
    "beside norms": ('gradviz beside watched loops, `record="norms"`', "norm"),
    "beside all": ('gradviz beside watched loops, `record="all"`', "all statistics"),
    "watch norms": ('a plain loop under `gv.watch(record="norms")`', "norm"),
    "watch all": ('a plain loop under `gv.watch(record="all")`', "all statistics"),
}
CAPTURES = {
    "capture modules": ("`gv.train_step(capture=gv.Capture(...))`, every leaf module by its path", "all statistics"),
    "capture sown": ("the same, of values that the forward pass sows", "all statistics"),
    "watch modules": ("a plain loop under `gv.watch(record=None, capture=...)`", "all statistics, in a history"),
    "tensor hooks": ("plain torch: a hook on every output tensor", "norm"),
    "full backward hooks": ("plain torch: `register_full_backward_hook`", "norm"),
}
"""Of the gradients of every leaf module's output."""
OTHERS = {
    "floor": ("one `torch._foreach_norm`, one transfer", "norm"),
    "TensorBoard scalars": ("TensorBoard, `add_scalar` of each norm", "norm, in a file"),
    "TensorBoard histograms": ("TensorBoard, `add_histogram`", "histogram, in a file"),
    "wandb.watch": ('`wandb.watch(log="gradients", log_freq=1)`, offline', "histogram of 64 bins, in a file"),
    "TorchLens watch": ("TorchLens `watch(every=1)`", "norm, mean, std, min, max, share of zeros, count"),
}
FIGURES = {
    "history": "1,000 parameters × 8 statistics, 100,000 iterations",
    "heatmap": "time of the page's main thread, in Chromium",
    "widgets": "time of the kernel",
}
LOOPS = {"bare again": ("plain PyTorch, against itself", "nothing"), **OURS, **OTHERS}


def table(report: dict[str, Any]) -> str:
    """The results in markdown, with what they were measured on."""
    ratio: dict[tuple[str, str], float] = {}
    for result in report["results"]:
        where = result["model"], result["loop"]
        # The bare loop is compared with itself among ours and among the others: the worse of both is shown.
        ratio[where] = max(result["ratio"], ratio.get(where, 1.0), key=lambda ratio: abs(ratio - 1))
    lines = [
        f"| | {' | '.join(MODELS.values())} | recorded |",
        "|---|" + "--:|" * len(MODELS) + "---|",
    ]
    for loop, (name, recorded) in LOOPS.items():
        cells = [f"{ratio[model, loop]:.3f}" if (model, loop) in ratio else "" for model in MODELS]
        if any(cells):
            lines.append(f"| {name} | {' | '.join(cells)} | {recorded} |")
    others = [*ahead(ratio), *captures(report)]
    for group in ("history", "widgets", "heatmap"):
        others += figures(report, group)
    return "\n".join([*lines, "", *others, circumstances(report), ""])


def captures(report: dict[str, Any]) -> list[str]:
    """What it costs to see gradients inside the model, if that was measured."""
    found = {(each["model"], each["loop"]): each for each in report["results"] if each["loop"] in CAPTURES}
    models = [model for model in MODELS if any(where[0] == model for where in found)]
    if not models:
        return []
    of_models = " | ".join(f"{MODELS[model]} | µs a point" for model in models)
    lines = [f"| gradients of every leaf module's output | {of_models} | recorded |"]
    lines.append("|---|" + "--:|--:|" * len(models) + "---|")
    for loop, (name, recorded) in CAPTURES.items():
        measured = [found.get((model, loop)) for model in models]
        cells = [" | " if each is None else f"{each['ratio']:.3f} | {each['point_us']:.1f}" for each in measured]
        lines.append(f"| {name} | {' | '.join(cells)} | {recorded} |")
    return [*lines, ""]


def figures(report: dict[str, Any], group: str) -> list[str]:
    """What the history can take, or what the heatmap costs, if that was measured."""
    measured = report.get(group)
    if measured is None:
        return []
    lines = [f"| the {group}: {FIGURES[group]} | asked | measured |", "|---|--:|--:|"]
    for each in measured["results"]:
        bound = "≥" if each["at_least"] else "≤"
        asked, found = (f"{each[key]:,.4g}" for key in ("asked", "measured"))
        lines.append(f"| {each['what']} | {bound} {asked} {each['unit']} | {found} {each['unit']} |")
    return [*lines, "", f"The {group}: {when(measured)}.", ""]


def when(measured: dict[str, Any]) -> str:
    """Date and commit."""
    changed = " with changes" if measured["dirty"] else ""
    return f"measured on {measured['date'][:10]} at {measured['commit'][:7]}{changed}"


def ahead(ratio: dict[tuple[str, str], float]) -> list[str]:
    """Who asks for less than gradviz with all statistics, and where."""
    cheaper = {}
    for loop, (name, _) in OTHERS.items():
        where = [MODELS[model] for model in MODELS if ratio.get((model, loop), 9.0) < ratio.get((model, "all"), 0.0)]
        if where:
            cheaper[name] = " and ".join(where) if len(where) < len(MODELS) else "all three"
    if not cheaper:
        return []
    return [f'Cheaper than `record="all"`: {"; ".join(f"{name} ({where})" for name, where in cheaper.items())}.', ""]


def circumstances(report: dict[str, Any]) -> str:
    """Machine, date and versions."""
    others = f", those of other tools {when(report['others'])}" if "others" in report else ""
    versions = ", ".join(f"{name} {report[name]}" for name in ("torch", *PEERS))
    return (
        f"The loops: {when(report)}{others}. All on: {report['processor']}, "
        f"{report['cores']} cores, torch with {report['threads']} threads, Python {report['python']}, {versions}."
    )


def rewritten(readme: str, report: dict[str, Any]) -> str:
    """The README with the table of a report between its marks."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table(report)}{END}{after}"


def main() -> None:
    """Keep the results of a file, and put them into the README."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?", default=DEFAULT_FILE, help="(%(default)s)")
    parser.add_argument("--only", choices=FIGURES, help="take its figures of this alone")
    arguments = parser.parse_args()
    report = json.loads(arguments.file.read_text())
    if report["quick"]:
        parser.error("these are the figures of QUICK=1, which nobody should read; run make bench")
    del report["processes"]
    if arguments.only:
        report = {**json.loads(RESULTS.read_text()), arguments.only: report[arguments.only]}
    RESULTS.write_text(json.dumps(report, indent=1) + "\n")
    README.write_text(rewritten(README.read_text(), report))


if __name__ == "__main__":
    main()
