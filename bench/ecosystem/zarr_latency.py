"""Reads through zarr-python from a store that takes its time to answer: requests and seconds.

    python bench/run.py zarr-latency -- --latency-ms 20 --rounds 5 --out FILE

The store is one in memory whose every answer comes late, as over a network; pipelines take turns.
A row does not depend on the machine where the latency outweighs what is decoded, as here.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import harness
import headrace
import headrace.zarr
import numpy as np
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import MemoryStore

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
        found: list[np.ndarray] = []
        SlowStore.requests = 0
        seconds = harness.seconds(lambda: found.append(array[selection]))
    np.testing.assert_array_equal(found[0], DATA[selection])
    return seconds, SlowStore.requests


def measure(options: dict[str, Any], selection: Any, rounds: int) -> dict[str, Any]:
    store = SlowStore()
    SlowStore.latency_s, latency_s = 0.0, SlowStore.latency_s
    zarr.create_array(store, data=DATA, **options)
    SlowStore.latency_s = latency_s
    ways = {name: partial(run, store, name, selection) for name in PIPELINES}
    return {
        name: {
            **harness.figures([seconds for seconds, _ in runs], "s", 6),
            "requests": runs[-1][1],
        }
        for name, runs in harness.in_turns(ways, rounds, warm_ups=0).items()
    }


def main() -> None:
    args = harness.parser(__doc__, rows=tuple(ROWS), latency_ms=20.0, rounds=5).parse_args()
    SlowStore.latency_s = args.latency_ms / 1000
    report = {
        **harness.head("zarr-latency", Path.cwd(), "headrace", "zarr"),
        "latency_ms": args.latency_ms,
        "rounds": args.rounds,
        "rows": {name: measure(*ROWS[name], args.rounds) for name in args.rows},
    }
    harness.save(report, args.out)


if __name__ == "__main__":
    main()
