"""Arrays into other chunks within a bound on memory: headrace, rechunker, Dask and zarr-python.

    python bench/e2e/rechunk.py --data FOLDER [--steps 256] [--rounds 3] [--zarr2 PYTHON]
                                [--out bench/results/rechunk.json] [ROW ...]

The source is a time series of maps, 4.2 MB a chunk, Zarr 2, zstd 3; every peer writes zstd 3 in the
format it writes by default. rechunker runs with zarr 2 only: --zarr2 is an interpreter that
has both. A run is a process of its own; peers take turns. Seconds are those of the copy without
imports, from a warm page cache and not synced; the peak is the process's above what it had before.

"one pass" is headrace with memory for the whole array, so that nothing is decoded or written twice:
what a bound on memory can reach at best.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from turns import in_turn

MAP = (721, 1440)
MEMORY = 128 << 20
# The chunks to go to, for a source of so many steps.
ROWS = {
    "maps to series": lambda steps: (steps, 30, 30),
    "recompress": lambda steps: (1, *MAP),
}


def run_headrace(source: str, target: str, chunks: tuple, memory: int = MEMORY) -> None:
    import headrace

    headrace.rechunk(source, target, chunks=chunks, max_memory=memory)


def run_one_pass(source: str, target: str, chunks: tuple) -> None:
    run_headrace(source, target, chunks, 8 << 30)


def run_rechunker(source: str, target: str, chunks: tuple) -> None:
    import numcodecs
    import rechunker
    import zarr

    # Of one task; Dask runs as many as there are cores.
    memory = MEMORY // len(os.sched_getaffinity(0))
    plan = rechunker.rechunk(
        zarr.open_array(source, mode="r"),
        chunks,
        memory,
        target,
        temp_store=target + ".temp",
        target_options={"compressor": numcodecs.Zstd(3)},
    )
    plan.execute()


def run_dask(source: str, target: str, chunks: tuple) -> None:
    import dask.array
    import zarr

    read = dask.array.from_zarr(source)
    made = create_with_zarr(zarr, target, read, chunks)
    read.rechunk(chunks).to_zarr(made)


def run_zarr(source: str, target: str, chunks: tuple) -> None:
    """Slabs of whole chunks of the destination, as large as the bound allows."""
    import zarr

    read = zarr.open_array(source, mode="r")
    made = create_with_zarr(zarr, target, read, chunks)
    slab_nbytes = read.dtype.itemsize * read.shape[2] * chunks[0] * chunks[1]
    rows = max(MEMORY // 2 // slab_nbytes, 1) * chunks[1]
    if rows >= read.shape[1]:
        steps = chunks[0] * max(MEMORY // 2 // (read[0].nbytes * chunks[0]), 1)
        for at in range(0, read.shape[0], steps):
            made[at : at + steps] = read[at : at + steps]
        return
    for at in range(0, read.shape[1], rows):
        made[:, at : at + rows] = read[:, at : at + rows]


def create_with_zarr(zarr, target: str, like, chunks: tuple):
    return zarr.create_array(
        target,
        shape=like.shape,
        dtype=like.dtype,
        chunks=chunks,
        compressors=zarr.codecs.ZstdCodec(level=3),
    )


PEERS: dict[str, Callable[[str, str, tuple], None]] = {
    "headrace": run_headrace,
    "rechunker": run_rechunker,
    "dask": run_dask,
    "zarr": run_zarr,
    "one pass": run_one_pass,
}
PACKAGES = {
    "rechunker": ["rechunker", "dask", "zarr"],
    "dask": ["dask", "zarr"],
    "zarr": ["zarr"],
}


def work(peer: str, source: str, target: str, chunks: tuple) -> None:
    """The process of one run: prints its facts."""
    __import__({"one pass": "headrace"}.get(peer, peer))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started, cpu = time.perf_counter(), time.process_time()
    PEERS[peer](source, target, chunks)
    facts = {
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - cpu,
        "peak_mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
        "versions": {name: version(name) for name in PACKAGES.get(peer, [])},
    }
    print(json.dumps(facts))


def make_source(path: Path, steps: int) -> None:
    if path.exists():
        return
    import headrace
    import numpy as np

    random = np.random.default_rng(0)
    base = random.normal(size=MAP).cumsum(0).round(1).astype("f4")
    array = headrace.create_array(
        path,
        shape=(steps, *MAP),
        dtype="f4",
        chunks=(1, *MAP),
        compressors=headrace.codecs.Zstd(level=3),
        zarr_format=2,
    )
    for t in range(steps):
        array[t] = base + np.float32(t)


def run(python: str, peer: str, source: Path, folder: Path, chunks: tuple) -> dict:
    target = folder / "target.zarr"
    command = [python, __file__, "--work", peer, str(source), str(target), json.dumps(chunks)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    for path in (target, Path(f"{target}.temp")):
        shutil.rmtree(path, ignore_errors=True)
    return json.loads(done.stdout)


def summary(runs: list[dict]) -> dict:
    seconds = [run["seconds"] for run in runs]
    return {
        "median_seconds": round(statistics.median(seconds), 2),
        "spread": round((max(seconds) - min(seconds)) / statistics.median(seconds), 3),
        "cpu_seconds": round(statistics.median(run["cpu_seconds"] for run in runs), 2),
        "peak_mib": round(max(run["peak_mib"] for run in runs)),
        "versions": runs[0]["versions"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", default=list(ROWS))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--zarr2", default="")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    import machine

    arguments.data.mkdir(parents=True, exist_ok=True)
    source = arguments.data / f"maps-{arguments.steps}.zarr"
    make_source(source, arguments.steps)
    pythons = {peer: sys.executable for peer in PEERS} | {"rechunker": arguments.zarr2}
    peers = [peer for peer in PEERS if pythons[peer]]
    report = {
        "machine": machine.describe(arguments.data),
        "commit": machine.commit(),
        "nbytes": arguments.steps * MAP[0] * MAP[1] * 4,
        "max_memory": MEMORY,
        "rounds": arguments.rounds,
        "rows": {},
    }
    if arguments.out and arguments.out.exists():
        report["rows"] = json.loads(arguments.out.read_text())["rows"]
    for row in arguments.rows:
        chunks = ROWS[row](arguments.steps)
        runs: dict[str, list[dict]] = {peer: [] for peer in peers}
        for r in range(arguments.rounds):
            for peer in in_turn(peers, r):
                runs[peer].append(run(pythons[peer], peer, source, arguments.data, chunks))
                print(row, peer, runs[peer][-1], flush=True)
        report["rows"][row] = {peer: summary(found) for peer, found in runs.items()}
        if arguments.out:
            arguments.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(*sys.argv[2:5], tuple(json.loads(sys.argv[5])))
    else:
        main()
