"""A picture of a result file of e2e/run.py: every library a dot, an access a panel."""

from pathlib import Path

import matplotlib
import matplotlib.ticker

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from e2e import results
from e2e.table import ACCESS_NAMES, IN_TIME

COLOURS = {
    "headrace": "#d1495b",
    "tensorstore": "#30638e",
    "zarrs": "#66a182",
    "zarr": "#b8b8b8",
}
NAMES = {"zarr": "zarr-python", "zarrs": "zarr-python + zarrs"}


def draw(report: dict, path: Path, wanted: list[str]) -> None:
    plt.rcParams["svg.hashsalt"] = "headrace"  # the same file from the same results
    accesses = [a for a in wanted if any(r["access"] == a for r in report["rows"])]
    arrays = list(dict.fromkeys((r["layout"], r["codec"]) for r in report["rows"]))
    peers = [p for p in COLOURS if any(p in r["peers"] for r in report["rows"])]
    by_key = {(r["layout"], r["codec"], r["access"]): r for r in report["rows"]}
    limits = {(x.layout, x.codec, x.access): x.limit_mb_s for x in results.lines(report)}

    columns = min(4, len(accesses))
    rows = -(-len(accesses) // columns)
    figure, axes = plt.subplots(
        rows,
        columns,
        figsize=(3.2 * columns + 1.2, (0.24 * len(arrays) + 0.9) * rows + 0.5),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for axis, access in zip(axes.flat, accesses, strict=False):
        # Logarithmic, hence dots: a bar would have no foot to stand on.
        unit = "calls_s" if access in IN_TIME else "mb_s"
        for peer in reversed(peers):
            at = {}
            for y, array in enumerate(arrays):
                row = by_key.get((*array, access))
                if row and "error" not in row["peers"].get(peer, {"error"}):
                    at[y] = _value(row["peers"][peer], unit)
            axis.plot(
                list(at.values()),
                list(at),
                "o",
                ms=8 if peer == results.SUBJECT else 6,
                color=COLOURS[peer],
                label=NAMES.get(peer, peer),
                zorder=3 if peer == results.SUBJECT else 2,
            )
        for y, array in enumerate(arrays):
            if (bound := limits.get((*array, access))) and unit == "mb_s":
                axis.plot([bound, bound], [y - 0.32, y + 0.32], color="black", lw=1.4)
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter(matplotlib.ticker.EngFormatter(sep=""))
        axis.xaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
        title = ACCESS_NAMES[access].replace("`", "")
        axis.set_title(f"{title}, {'calls/s' if unit == 'calls_s' else 'MB/s'}", fontsize=10)
        axis.set_yticks(range(len(arrays)), [", ".join(a) for a in arrays], fontsize=8)
        axis.set_ylim(len(arrays) - 0.5, -0.5)
        axis.tick_params(axis="x", labelsize=8)
        axis.tick_params(axis="y", length=0)
        axis.grid(lw=0.4, alpha=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right", "left"]].set_visible(False)
    for axis in axes.flat[len(accesses) :]:
        axis.set_visible(False)
    handles, names = axes[0, 0].get_legend_handles_labels()
    handles = [*reversed(handles), plt.Line2D([], [], color="black", lw=1.4)]
    names = [*reversed(names), "limit: the codec's own library, or pread"]
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False)
    figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)


def _value(figures: dict, unit: str) -> float:
    return 1e6 / figures["us_per_call"] if unit == "calls_s" else figures["mb_s"]
