"""zarr-python with each codec pipeline, interleaved: its own, zarrs and headrace.

    python bench/run.py zarr-pipeline -- --rows '4MiB-*' --rounds 5 --out FILE --add

The rows, the data and the calls are those of bench/e2e (see bench/README.md); all of them go
through zarr-python here, from a warm page cache, in one process. Pipelines take turns; the result
is the median. --rows are shell patterns; with --add the rows of an earlier run stay in the file.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import harness
import headrace.zarr  # noqa: F401
import numpy as np
import zarr
from e2e import data, rows
from e2e.worker import selection_of
from zarr.core import codec_pipeline

PIPELINES = {
    "default": "zarr.core.codec_pipeline.BatchedCodecPipeline",
    "fused": "zarr.core.codec_pipeline.FusedCodecPipeline",
    "zarrs": "zarrs.ZarrsCodecPipeline",
    "headrace": "headrace.zarr.CodecPipeline",
}


def available() -> dict[str, str]:
    found = dict(PIPELINES)
    if not hasattr(codec_pipeline, "FusedCodecPipeline"):
        del found["fused"]
    return found


def reader(path: Path, row: rows.Row) -> Callable[[], None]:
    array = zarr.open_array(path, mode="r")
    keys = [selection_of(selection) for selection in row.selections]

    def read() -> None:
        for key in keys:
            array[key]

    return read


def writer(folder: str, row: rows.Row, truth: np.ndarray) -> Callable[[], None]:
    path = tempfile.mkdtemp(dir=folder)
    array = data.create(path, data.spec(row.layout, row.codec, len(truth)))

    def write() -> None:
        array[...] = truth

    return write


def run(row: rows.Row, folder: Path, scratch: str, rounds: int, truth: np.ndarray) -> dict:
    calls = {}
    for name, path in available().items():
        with zarr.config.set({"codec_pipeline.path": path}):
            if row.access == "write":
                calls[name] = writer(scratch, row, truth)
            else:
                calls[name] = reader(folder / data.array_name(row.layout, row.codec), row)
    # The first call warms caches, and opens what is opened then.
    ways = {name: partial(harness.seconds, call) for name, call in calls.items()}
    seconds = harness.in_turns(ways, rounds)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    return {
        "calls": len(row.selections),
        "nbytes": rows.nbytes(row.selections),
        "median_seconds": {name: round(value, 7) for name, value in medians.items()},
        "spread": {
            name: round((max(times) - min(times)) / medians[name], 3)
            for name, times in seconds.items()
        },
        "headrace_over_zarrs": round(medians["zarrs"] / medians["headrace"], 2),
        "headrace_over_default": round(medians["default"] / medians["headrace"], 2),
    }


def main() -> None:
    parser = harness.parser(
        __doc__, rows=("*",), add=False, steps=64, rounds=5, data=data.default_folder()
    )
    args = parser.parse_args()
    # zarr-python has no argument for a result in place.
    chosen = [r for r in rows.select(args.rows, args.steps) if r.access != "out"]
    wanted = sorted({(row.layout, row.codec) for row in chosen})
    folder = data.prepare(args.data, args.steps, wanted)
    truth = np.load(folder / "truth.npy")
    results = json.loads(args.out.read_text())["rows"] if args.add else {}
    report = {
        **harness.head("zarr-pipeline", folder, "zarr", "zarrs", "numpy", "headrace"),
        "steps": args.steps,
        "rounds": args.rounds,
        "rows": results,
    }
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        for row in chosen:
            result = results[row.name] = run(row, folder, scratch, args.rounds, truth)
            medians = result["median_seconds"]
            times = "  ".join(f"{name} {value * 1e3:9.2f}" for name, value in medians.items())
            print(f"{row.name:22} {times}  x{result['headrace_over_zarrs']}", flush=True)
            if args.out:
                harness.save(report, args.out)


if __name__ == "__main__":
    main()
