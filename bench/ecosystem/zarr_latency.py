"""Reads through zarr-python from a store that takes its time to answer: requests and seconds.

    python bench/ecosystem/zarr_latency.py [--latency-ms 20] [--rounds 5] [--json FILE]

The store is one in memory whose every answer comes late, as over a network. Each round times each
pipeline once, in an order that moves on; the result is the median, in
bench/results/zarr-latency-<version of zarr>.json. A row does not depend on the machine where the
latency outweighs what is decoded, as here.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))

import headrace
import headrace.zarr
import machine
import numpy as np
import zarr
from turns import in_turn
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import MemoryStore

RESULTS = Path(__file__).parents[1] / "results"
PIPELINES = {
    "default": ("zarr.core.codec_pipeline.BatchedCodecPipeline", 0),
    "headrace": ("headrace.zarr.CodecPipeline", 0),
    "headrace, 32 threads": ("headrace.zarr.CodecPipeline", 32),
}
DATA = np.random.default_rng(0).integers(0, 256, (64, 512, 512), "u1")  # zstd gains nothing
ONE_SHARD = {"chunks": (1, 128, 128), "shards": (64, 512, 512)}
FOUR_SHARDS = {"chunks": (1, 128, 128), "shards": (16, 512, 512)}
ROWS: dict[str, tuple[dict[str, Any], Any]] = {
    "one inner chunk": (ONE_SHARD, np.s_[5, :128, :128]),
    "8 inner chunks far apart in one shard": (ONE_SHARD, np.s_[::8, 100, 100]),
    "one step of one shard": (ONE_SHARD, np.s_[5]),
    "a point through 4 shards": (FOUR_SHARDS, np.s_[:, 100, 100]),
    "all of 4 shards": (FOUR_SHARDS, np.s_[:]),
    "64 chunks": ({"chunks": (1, 512, 512)}, np.s_[:]),
}


class SlowStore(MemoryStore):
    """Counts its requests, each of which takes `latency_s`."""

    latency_s = 0.0
    requests = 0

    async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
        SlowStore.requests += 1
        await asyncio.sleep(SlowStore.latency_s)
        return await super().get(key, prototype or default_buffer_prototype(), byte_range)

    async def getsize(self, key: str) -> int:
        SlowStore.requests += 1
        await asyncio.sleep(SlowStore.latency_s)
        return len(self._store_dict[key])


def run(store: SlowStore, pipeline: str, selection: Any) -> tuple[float, int]:
    path, threads = PIPELINES[pipeline]
    with (
        zarr.config.set({"codec_pipeline.path": path}),
        headrace.config.set({"threads": threads}),
    ):
        array = zarr.open_array(store, mode="r")
        SlowStore.requests = 0
        start = time.perf_counter()
        found = array[selection]
        seconds = time.perf_counter() - start
    np.testing.assert_array_equal(found, DATA[selection])
    return seconds, SlowStore.requests


def measure(options: dict[str, Any], selection: Any, rounds: int) -> dict[str, Any]:
    store = SlowStore()
    SlowStore.latency_s, latency_s = 0.0, SlowStore.latency_s
    zarr.create_array(store, data=DATA, **options)
    SlowStore.latency_s = latency_s
    names = list(PIPELINES)
    timed: dict[str, list[tuple[float, int]]] = {name: [] for name in names}
    for i in range(rounds):
        for name in in_turn(names, i):
            timed[name].append(run(store, name, selection))
    return {
        name: {
            "median_s": statistics.median(seconds for seconds, _ in runs),
            "min_s": min(seconds for seconds, _ in runs),
            "max_s": max(seconds for seconds, _ in runs),
            "requests": runs[-1][1],
        }
        for name, runs in timed.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--latency-ms", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    SlowStore.latency_s = arguments.latency_ms / 1000
    report = {
        "command": "python bench/ecosystem/zarr_latency.py",
        "machine": machine.describe(Path.cwd()),
        "versions": {name: version(name) for name in ("headrace", "zarr")},
        "latency_ms": arguments.latency_ms,
        "rounds": arguments.rounds,
        "rows": {name: measure(*row, arguments.rounds) for name, row in ROWS.items()},
    }
    text = json.dumps(report, indent=1)
    path = arguments.json or RESULTS / f"zarr-latency-{version('zarr')}.json"
    path.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
