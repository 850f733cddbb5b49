"""Charts of docs/performance.md, made from bench/results: bars, as SVG within the page.

A chart is narrow enough for a phone, its words are text, and its colours are the page's, light or
dark. Each says what file it is made from, and of which machine and day.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "bench" / "results"

WIDTH, NAMES, VALUES = 440, 132, 58  # of the drawing, its names on the left, numbers on the right
ROW, BAR, GROUP = 19, 12, 24  # from a bar to the next, a bar, the heading of a group
NAMED = {
    "zarr": "zarr-python",
    "zarrs": "zarr-python, zarrs",
    "default": "zarr-python",
    "fused": "zarr-python, fused",
    "zarr-python-gpu": "zarr-python, GPU",
    "zarr_obstore": "zarr, obstore",
    "zarr_fsspec": "zarr, fsspec",
    "headrace_cached": "headrace, cached",
    "dataloader-zarr": "DataLoader, zarr",
    "dataloader-zarrs": "DataLoader, zarrs",
    "dataloader-zarr-0": "DataLoader, zarr",
    "dataloader-zarr-2": "the same, 2 workers",
    "annbatch-default": "annbatch, zarr",
    "annbatch-fused": "annbatch, fused",
    "annbatch-zarrs": "annbatch, zarrs",
    "annbatch-headrace": "annbatch, headrace",
    "headrace": "headrace",
}


@dataclass
class Chart:
    title: str
    unit: str  # and which end is good
    groups: list[tuple[str, list[tuple[str, float]]]]
    files: list[str]


def _load(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / name).read_text(encoding="utf-8"))
    return found


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def drawing(chart: Chart) -> str:
    """The SVG: bars of all groups on one scale from zero."""
    most = max(value for _, bars in chart.groups for _, value in bars)
    room = WIDTH - NAMES - VALUES
    y, parts = 0.0, []
    for heading, bars in chart.groups:
        if heading:
            y += GROUP
            parts.append(f'<text class="group" x="0" y="{y - 8:g}">{html.escape(heading)}</text>')
        for name, value in bars:
            length = max(1.5, room * value / most)
            ours = " ours" if name.startswith("headrace") else ""
            shown = html.escape(NAMED.get(name, name))
            middle = y + ROW / 2 + 4
            parts.append(
                f'<text class="name{ours}" x="{NAMES - 8}" y="{middle:g}">{shown}</text>'
                f'<rect class="bar{ours}" x="{NAMES}" y="{y + (ROW - BAR) / 2:g}" '
                f'width="{length:.1f}" height="{BAR}" rx="2"/>'
                f'<text class="value{ours}" x="{NAMES + length + 5:.1f}" y="{middle:g}">'
                f"{_number(value)}</text>"
            )
            y += ROW
    label = html.escape(f"{chart.title}, {chart.unit}", quote=True)
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {y + 2:g}" role="img" aria-label="{label}">'
        f"{''.join(parts)}</svg>"
    )


def _source(names: list[str]) -> str:
    said = []
    for name in names:
        report = _load(name)
        machine = report.get("machine", {})
        of = [report.get("device", ""), machine.get("cpu", "").replace("(R)", "")]
        if machine:
            of.append(f"{machine['cores']} cores")
        of.append(str(report.get("date", ""))[:10])
        known = ", ".join(part for part in of if part)
        said.append(f"<code>bench/results/{name}</code>{': ' * bool(known)}{known}")
    return "; ".join(said)


def figure(chart: Chart) -> str:
    """What stands in the page, on lines that Markdown leaves alone."""
    return (
        f'<figure class="chart"><p class="title">{html.escape(chart.title)}</p>'
        f'<p class="unit">{html.escape(chart.unit)}</p>{drawing(chart)}'
        f"<figcaption>{_source(chart.files)}</figcaption></figure>"
    )


# What is drawn.


def _cpu(access: str, title: str) -> Chart:
    report = _load("e2e-cpu.json")
    groups = []
    for layout, said in (("4MiB", "chunks of 4 MiB"), ("128KiB", "128 KiB"), ("shard", "shards")):
        for codec in ("zstd", "blosc"):
            row = next(
                row
                for row in report["rows"]
                if (row["layout"], row["codec"], row["access"]) == (layout, codec, access)
            )
            bars = [
                (peer, row["peers"][peer]["mb_s"] / 1e3)
                for peer in ("headrace", "tensorstore", "zarrs", "zarr")
                if "mb_s" in row["peers"].get(peer, {})
            ]
            groups.append((f"{said}, {codec}", bars))
    return Chart(title, "GB/s decoded; longer is better", groups, ["e2e-cpu.json"])


def _gpu_read() -> Chart:
    groups = []
    for row in _load("device-read.json")["rows"]:
        if row["name"] in ("4MiB-none", "4MiB-zstd", "4MiB-blosc", "4MiB-shards-zstd", "1MiB-zstd"):
            peers = ("headrace", "tensorstore", "zarrs", "zarr-python-gpu")
            bars = [(peer, row[peer]["gb_s"]) for peer in peers if row.get(peer, {}).get("right")]
            groups.append((row["name"].replace("-", ", ").replace("MiB", " MiB"), bars))
    title = "A whole array into a GPU's memory"
    return Chart(title, "GB/s, decoded; longer is better", groups, ["device-read.json"])


def _gpu_decode() -> Chart:
    def rates(name: str) -> dict[tuple[str, str], float]:
        return {
            (row["codec"], row["data"]): row["gigabytes_per_second"]
            for row in _load(name)["rows"]
            if (row["chunks"], row["chunk_nbytes"]) == (512, 4 << 20)
        }

    own, other = rates("device-decode.json"), rates("device-nvcomp.json")
    groups = []
    for codec, data in (
        ("zstd-3", "packed"), ("zstd-3", "shuffled"), ("lz4", "packed"), ("blosc-lz4", "packed"),
        ("blosc-zstd", "packed"), ("zlib-6", "packed"), ("snappy", "packed"),
    ):  # fmt: skip
        bars = [("headrace", own[codec, data])]
        if (codec, data) in other:
            bars.append(("nvCOMP", other[codec, data]))
        groups.append((f"{codec}, {data}", bars))
    return Chart(
        "Decoders alone, 512 chunks of 4 MiB in GPU memory",
        "GB/s decoded; longer is better",
        groups,
        ["device-decode.json", "device-nvcomp.json"],
    )


def _loader_gpu() -> Chart:
    report = _load("loader-cuda.json")
    groups = []
    for steps in (8, 1):
        rows = [
            row
            for row in report["rows"]
            if (row["chunk_steps"], row["codec"], row["way"]) == (steps, "blosc", "fast")
        ]
        rows.sort(key=lambda row: -row["gb_per_s_per_gpu"])
        heading = f"{steps} samples a chunk" if steps > 1 else "1 sample a chunk"
        groups.append((heading, [(row["peer"], row["gb_per_s_per_gpu"]) for row in rows]))
    return Chart(
        "Shuffled, normalised bfloat16 batches in GPU memory",
        "GB/s a GPU with four cores; longer is better",
        groups,
        ["loader-cuda.json"],
    )


def _loader_cpu() -> Chart:
    groups = []
    for row in _load("loader-cpu.json")["rows"]:
        if row["codec"] == "zstd" and row["chunk_steps"] in (1, 8):
            peers = [peer for peer in row["peers"] if peer not in ("headrace-lean",)]
            bars = [(peer, row["peers"][peer]["samples_s"]) for peer in peers]
            bars.sort(key=lambda bar: -bar[1])
            heading = "8 samples a chunk" if row["chunk_steps"] == 8 else "1 sample a chunk"
            groups.append((f"{heading}, zstd", bars))
    title = "Shuffled batches on the host"
    return Chart(title, "samples a second; longer is better", groups, ["loader-cpu.json"])


def _network() -> Chart:
    groups = []
    for row in _load("network.json")["rows"]:
        place = (row["layout"], row["read"], row["delay_ms"])
        if place in (
            ("chunks", "whole", 20), ("chunks", "point series", 20), ("shards", "one step", 20),
            ("shards", "whole", 20), ("small-objects", "whole", 20),
        ):  # fmt: skip
            peers = ("headrace", "headrace_cached", "tensorstore", "zarr_obstore", "zarr_fsspec")
            bars = [(peer, row["peers"][peer]["median_s"]) for peer in peers]
            groups.append((f"{row['layout']}, {row['read']}", bars))
    return Chart(
        "From a web server that answers after 20 ms",
        "seconds; shorter is better",
        groups,
        ["network.json"],
    )


def _rechunk() -> Chart:
    groups = []
    for name, peers in _load("rechunk.json")["rows"].items():
        bars = [(p, peers[p]["median_seconds"]) for p in peers if p != "one pass"]
        groups.append((name, bars))
    return Chart(
        "0.5 GB into other chunks, in 128 MiB of memory",
        "seconds; shorter is better",
        groups,
        ["rechunk.json"],
    )


def _zarr() -> Chart:
    rows = _load("zarr-pipeline-3.4.2.json")["rows"]
    groups = []
    for name in ("4MiB-zstd-whole", "4MiB-blosc-whole", "128KiB-zstd-whole", "4MiB-zstd-box"):
        row = rows[name]
        rate = row["nbytes"] / 1e9
        bars = [(p, rate / seconds) for p, seconds in row["median_seconds"].items()]
        groups.append((name.replace("-", ", "), sorted(bars, key=lambda bar: -bar[1])))
    return Chart(
        "Codec pipelines inside of zarr-python 3.4.2",
        "GB/s; longer is better",
        groups,
        ["zarr-pipeline-3.4.2.json"],
    )


def _cells() -> Chart:
    rates = _load("cells-cpu.json")["cells_per_second"]
    annbatch = [f"annbatch-{pipeline}" for pipeline in ("headrace", "zarrs", "fused", "default")]
    bars = [(peer, float(rates[peer])) for peer in ("headrace", *annbatch)]
    title = "Cells of AnnData stores, shuffled"
    return Chart(title, "cells a second; longer is better", [("", bars)], ["cells-cpu.json"])


def _cell(value: float, digits: int = 3) -> str:
    return f"{float(f'{value:.{digits}g}'):g}"


def _codecs_table() -> str:
    """What each codec costs: chunks of 4 MiB of the benchmark's field."""
    report, device = _load("e2e-cpu.json"), _load("device-read.json")
    ratios = {a["codec"]: a["ratio"] for a in report["arrays"] if a["layout"] == "4MiB"}
    on_gpu = {row["name"].removeprefix("4MiB-"): row["headrace"]["gb_s"] for row in device["rows"]}
    named = {
        "none": "none", "blosc": "Blosc: shuffle, LZ4, clevel 5", "zstd": "zstd, level 3",
        "gzip": "gzip, level 5",
    }  # fmt: skip
    lines = [
        "| codec | smaller by | read, GB/s | one chunk, ms | write, GB/s | to a GPU, GB/s |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for codec, name in named.items():
        rows = {
            row["access"]: row["peers"]["headrace"]
            for row in report["rows"]
            if (row["layout"], row["codec"]) == ("4MiB", codec)
        }
        cells = [
            ratios[codec], rows["whole"]["mb_s"] / 1e3, rows["chunk"]["us_per_call"] / 1e3,
            rows["write"]["mb_s"] / 1e3, on_gpu[codec],
        ]  # fmt: skip
        lines.append(f"| {name} | " + " | ".join(_cell(value, 2) for value in cells) + " |")
    files = ["e2e-cpu.json", "device-read.json"]
    return "\n".join(lines) + f'\n\n<p class="source">{_source(files)}</p>'


def _layouts_table() -> str:
    """What each size of chunks costs: zstd, by what is read."""
    report = _load("e2e-cpu.json")
    named = {
        "4MiB": "a map a chunk, 4 MiB", "128KiB": "1/16 map a chunk, 128 KiB",
        "shard": "the same in shards of 8 maps",
    }  # fmt: skip
    accesses = {"whole": "all", "step": "a map", "chunk": "a chunk", "series": "a point, all times",
                "box": "a box"}  # fmt: skip
    lines = ["| chunks | " + " | ".join(f"{name}, ms" for name in accesses.values()) + " |",
             "|---|" + "---:|" * len(accesses)]  # fmt: skip
    for layout, name in named.items():
        rows = {
            row["access"]: row["peers"]["headrace"]["us_per_call"] / 1e3
            for row in report["rows"]
            if (row["layout"], row["codec"]) == (layout, "zstd")
        }
        cells = " | ".join(_cell(rows[access], 2) for access in accesses)
        lines.append(f"| {name} | {cells} |")
    return "\n".join(lines) + f'\n\n<p class="source">{_source(["e2e-cpu.json"])}</p>'


TABLES: dict[str, Callable[[], str]] = {"codecs": _codecs_table, "layouts": _layouts_table}


def _brief(chart: Chart, *headings: str) -> Chart:
    """With these groups alone, for the landing page."""
    groups = [group for group in chart.groups if group[0] in headings]
    return Chart(chart.title, chart.unit, groups, chart.files)


CHARTS: dict[str, Callable[[], Chart]] = {
    "read-cpu-brief": lambda: _brief(
        _cpu("whole", "A whole array into NumPy"), "chunks of 4 MiB, zstd", "chunks of 4 MiB, blosc"
    ),
    "gpu-read-brief": lambda: _brief(_gpu_read(), "4 MiB, zstd", "4 MiB, blosc"),
    "loader-gpu-brief": lambda: _brief(_loader_gpu(), "8 samples a chunk"),
    "read-cpu": lambda: _cpu("whole", "A whole array into NumPy"),
    "series-cpu": lambda: _cpu("box", "A box out of the middle"),
    "gpu-read": _gpu_read,
    "gpu-decode": _gpu_decode,
    "loader-gpu": _loader_gpu,
    "loader-cpu": _loader_cpu,
    "network": _network,
    "rechunk": _rechunk,
    "zarr": _zarr,
    "cells": _cells,
}


def made(name: str) -> str:
    """The table or chart of that name."""
    if name in TABLES:
        return TABLES[name]()
    if name not in CHARTS:
        raise ValueError(f"no {name!r}; there are {', '.join([*TABLES, *CHARTS])}")
    return figure(CHARTS[name]())
