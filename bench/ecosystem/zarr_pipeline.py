"""zarr-python with each codec pipeline, interleaved: its own, zarrs and headrace.

    python bench/ecosystem/zarr_pipeline.py [--steps 64] [--rounds 5] [--add] [ROW ...]

The rows, the data and the calls are those of bench/e2e (see bench/README.md); all of them go
through zarr-python here, from a warm page cache, in one process. A round times every pipeline once,
in an order that moves on; the result is the median, in
bench/results/zarr-pipeline-<version of zarr>.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))

import data
import headrace.zarr
import machine
import numpy as np
import rows
import zarr
from turns import in_turn
from zarr.core import codec_pipeline

RESULTS = Path(__file__).parents[1] / "results"
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


def key_of(selection: list) -> tuple:
    return tuple(slice(*item) if isinstance(item, list) else item for item in selection)


def reader(path: Path, row: rows.Row) -> Callable[[], None]:
    array = zarr.open_array(path, mode="r")
    keys = [key_of(selection) for selection in row.selections]

    def read() -> None:
        for key in keys:
            array[key]

    return read


def writer(folder: str, row: rows.Row, truth: np.ndarray) -> Callable[[], None]:
    outer, inner = data.LAYOUTS[row.layout]
    outer = (min(outer[0], len(truth)), *outer[1:])
    array = zarr.create_array(
        tempfile.mkdtemp(dir=folder),
        shape=truth.shape,
        dtype="float32",
        chunks=inner or outer,
        shards=outer if inner else None,
        compressors=data.codecs_of(row.codec),
    )

    def write() -> None:
        array[...] = truth

    return write


def measure(calls: dict[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    for call in calls.values():
        call()  # warms caches, and opens what is opened at the first call
    names = list(calls)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for r in range(rounds):
        for name in in_turn(names, r):
            started = time.perf_counter()
            calls[name]()
            seconds[name].append(time.perf_counter() - started)
    return seconds


def run(row: rows.Row, folder: Path, scratch: str, rounds: int, truth: np.ndarray) -> dict:
    calls = {}
    for name, path in available().items():
        with zarr.config.set({"codec_pipeline.path": path}):
            if row.access == "write":
                calls[name] = writer(scratch, row, truth)
            else:
                calls[name] = reader(folder / data.array_name(row.layout, row.codec), row)
    seconds = measure(calls, rounds)
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", default=["*"], help="shell patterns of row names")
    parser.add_argument("--add", action="store_true", help="keep the rows of an earlier run")
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", type=Path, default=data.default_folder())
    arguments = parser.parse_args()

    # zarr-python has no argument for a result in place.
    chosen = [r for r in rows.select(arguments.rows, arguments.steps) if r.access != "out"]
    wanted = sorted({(row.layout, row.codec) for row in chosen})
    folder = data.prepare(arguments.data, arguments.steps, wanted)
    truth = np.load(folder / "truth.npy")
    path = RESULTS / f"zarr-pipeline-{version('zarr')}.json"
    results = json.loads(path.read_text())["rows"] if arguments.add else {}
    report = {
        "machine": machine.describe(folder),
        "versions": {name: version(name) for name in ("zarr", "zarrs", "numpy")}
        | {"headrace": headrace.__version__},
        "steps": arguments.steps,
        "rounds": arguments.rounds,
        "rows": results,
    }
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(dir=folder))
        for row in chosen:
            result = results[row.name] = run(row, folder, scratch, arguments.rounds, truth)
            medians = result["median_seconds"]
            times = "  ".join(f"{name} {value * 1e3:9.2f}" for name, value in medians.items())
            print(f"{row.name:22} {times}  x{result['headrace_over_zarrs']}", flush=True)
            path.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
