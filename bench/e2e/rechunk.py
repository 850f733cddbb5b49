"""Arrays into other chunks within a bound on memory: headrace, rechunker, Dask and zarr-python.

    python bench/run.py rechunk -- --data FOLDER --zarr2 PYTHON --rows recompress --out FILE

The source is a time series of maps, 4.2 MB a chunk, Zarr 2, zstd 3; every peer writes zstd 3 in the
format it writes by default. rechunker runs with zarr 2 only: --zarr2 is an interpreter that has
both. A run is a process of its own; peers take turns. Seconds are those of the copy without
imports, from a warm page cache and not synced; the peak is the process's above what it had before.
Rows of earlier runs stay in the result.

"one pass" is headrace with memory for the whole array, so that nothing is decoded or written twice:
what a bound on memory can reach at best.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import harness

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
    took = harness.took(lambda: PEERS[peer](source, target, chunks))
    facts = {
        "seconds": took.seconds,
        "cpu_seconds": took.cpu_s,
        "peak_mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
        "versions": harness.versions(*PACKAGES.get(peer, ())),
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
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env=harness.ENVIRONMENT
    )
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
    args = harness.parser(
        __doc__,
        rows=tuple(ROWS),
        peers=tuple(PEERS),
        data=Path(tempfile.gettempdir()) / "headrace-rechunk",
        steps=256,
        rounds=3,
        zarr2="",
    ).parse_args()
    args.data.mkdir(parents=True, exist_ok=True)
    source = args.data / f"maps-{args.steps}.zarr"
    make_source(source, args.steps)
    pythons = {peer: sys.executable for peer in args.peers} | {"rechunker": args.zarr2}
    report = {
        **harness.head("rechunk", args.data),
        "nbytes": args.steps * MAP[0] * MAP[1] * 4,
        "max_memory": MEMORY,
        "rounds": args.rounds,
        "rows": {},
    }
    if args.out and args.out.exists():
        report["rows"] = json.loads(args.out.read_text())["rows"]
    for row in args.rows:
        chunks = ROWS[row](args.steps)
        ways = {
            peer: partial(run, pythons[peer], peer, source, args.data, chunks)
            for peer in args.peers
            if pythons[peer]
        }
        runs = harness.in_turns(ways, args.rounds, warm_ups=0)
        report["rows"][row] = {peer: summary(found) for peer, found in runs.items()}
        print(row, report["rows"][row], flush=True)
        if args.out:
            harness.save(report, args.out)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(*sys.argv[2:5], tuple(json.loads(sys.argv[5])))
    else:
        main()
