"""Throughput by chunking, of a result of loader.py."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def series(report: dict, codec: str) -> dict[str, list[tuple[int, float]]]:
    """(steps a chunk, samples/s) by peer; those that ran."""
    result: dict[str, list[tuple[int, float]]] = {}
    for row in report["rows"]:
        for peer, figures in row["peers"].items():
            if row["codec"] == codec and "samples_s" in figures:
                result.setdefault(peer, []).append((row["chunk_steps"], figures["samples_s"]))
    return {peer: sorted(points) for peer, points in result.items()}


def draw(report: dict, out: Path) -> None:
    plt.rcParams["svg.hashsalt"] = "headrace"  # the same file from the same results
    codecs = sorted({row["codec"] for row in report["rows"]})
    figure, panels = plt.subplots(
        1, len(codecs), sharey=True, squeeze=False, figsize=(9, 4), layout="constrained"
    )
    for codec, axes in zip(codecs, panels[0], strict=True):
        for peer, points in series(report, codec).items():
            color, line = ("black", "-") if peer == "headrace" else (None, "--")
            axes.plot(*zip(*points, strict=True), line, marker="o", color=color, label=peer)
        axes.set(title=codec, xlabel="samples a chunk", xscale="log", yscale="log")
        axes.set_xticks(sorted({row["chunk_steps"] for row in report["rows"]}))
        axes.xaxis.set_major_formatter("{x:.0f}")
        axes.minorticks_off()
    panels[0][0].set_ylabel("samples/s")
    handles, labels = panels[0][-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", fontsize="small")
    figure.savefig(out, metadata={"Date": None} if out.suffix == ".svg" else None)
