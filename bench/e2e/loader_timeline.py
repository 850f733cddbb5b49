"""What a loader does while a network trains, of a trace of both.

    python examples/era5_unet.py era5.zarr --trace trace.json
    python bench/e2e/loader_timeline.py trace.json docs/loader-timeline.svg --seconds 26 30

The trace is one of headrace.trace around the training loop. A stage's bar is there while one thread
at least is in it; the network trains while its thread does not wait for a batch.
"""

import argparse
import json
from itertools import pairwise
from pathlib import Path

STAGES = {"fetch": "tab:blue", "decode": "tab:orange", "gather": "tab:purple", "wait": "tab:red"}


def union(spans: list[tuple[float, float]], gap: float = 0) -> list[tuple[float, float]]:
    """Spans (begin, end) that overlap or are no further apart than `gap`, as one."""
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1] + gap:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def timeline(trace: dict) -> dict[str, list[tuple[float, float]]]:
    """Spans (begin, end) of each stage and of training, in seconds from the first wait on."""
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    stages_of: dict[int, set[str]] = {}
    for event in events:
        stages_of.setdefault(event["tid"], set()).add(event["name"])
    (trainer,) = [t for t, stages in stages_of.items() if "wait" in stages and "plan" not in stages]
    spans: dict[str, list[tuple[float, float]]] = {stage: [] for stage in STAGES}
    for event in events:
        if event["name"] in spans and (event["name"] != "wait" or event["tid"] == trainer):
            begin = event["ts"] / 1e6
            spans[event["name"]].append((begin, begin + event["dur"] / 1e6))
    waits = sorted(spans["wait"])
    start = waits[0][0]
    trains = [(end, begin) for (_, end), (begin, _) in pairwise(waits)]
    return {
        stage: [(begin - start, end - start) for begin, end in union(of_stage)]
        for stage, of_stage in {**spans, "train": trains}.items()
    }


def plot(
    spans: dict[str, list[tuple[float, float]]], seconds: tuple[float, float], out: Path
) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 2.4), layout="constrained")
    colors = {**STAGES, "train": "tab:green"}
    for row, (stage, of_stage) in enumerate(reversed(spans.items())):
        seen = [span for span in of_stage if span[0] < seconds[1] and span[1] > seconds[0]]
        narrow = (seconds[1] - seconds[0]) / 2000
        bars = [(begin, end - begin) for begin, end in union(seen, narrow)]
        axes.broken_barh(bars, (row - 0.4, 0.8), color=colors[stage])
    axes.set_yticks(range(len(spans)), reversed(spans))
    axes.set(xlabel="s", xlim=seconds)
    figure.savefig(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, nargs=2, help="the first and the last; else all")
    args = parser.parse_args()
    spans = timeline(json.loads(args.trace.read_text()))
    last = max(end for of_stage in spans.values() for _, end in of_stage)
    waited = sum(end - begin for begin, end in spans["wait"])
    trained = sum(end - begin for begin, end in spans["train"])
    print(f"waited {waited:.3f} s, trained {trained:.3f} s")
    plot(spans, args.seconds or (0, last), args.out)


if __name__ == "__main__":
    main()
