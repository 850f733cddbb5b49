"""Cells a second from data that is several times larger than memory, each loader by itself.

    mkdir /sys/fs/cgroup/memory/small
    echo 2G > /sys/fs/cgroup/memory/small/memory.limit_in_bytes
    CGROUP=/sys/fs/cgroup/memory/small DATA=/data python bench/run.py cells-larger

The store of the benchmark `cells` is copied until its bytes are --times the memory that the group
has (memory.max, or memory.limit_in_bytes of the first version of cgroups). Each loader runs in a
process of its own in the group, page cache counted, in turns; what the system keeps of the files is
dropped before. The first --batches batches count, from the first wait on: windows are drawn from
all of the data, so that they stand for an epoch. `longest_wait_s` is the longest time for a batch,
`failed` the signal or exit status of a process that did not get there. `read_nbytes` is what the
disk read for it, others' reads included.
"""

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

import harness
from ecosystem import cells

WAYS = (*cells.PIPELINES, "headrace", "headrace-own")


def limit_of(cgroup: Path) -> int:
    for name in ("memory.max", "memory.limit_in_bytes"):
        if (cgroup / name).exists():
            return int((cgroup / name).read_text())
    raise SystemExit(f"{cgroup} is no group of the memory controller")


def copies(folder: Path, first: Path, nbytes: int) -> list[Path]:
    """Copies of a store that have so many bytes together; what is there stays."""
    made = []
    for number in range(-(-nbytes // harness.nbytes_of(first))):
        copy = folder / f"copy-{number:03}.zarr"
        if not copy.exists():
            part = copy.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            shutil.copytree(first, part)
            part.rename(copy)
        made.append(copy)
    return made


def loader_of(way: str, folders: list[Path]):
    import headrace
    from headrace.loader import CellLoader

    if way in cells.PIPELINES:
        return cells.annbatch_loader(folders, cells.PIPELINES[way])
    data = headrace.cells(folders)
    if way == "headrace":
        return CellLoader(data, sampler=cells.sampler())
    return CellLoader(data, batch_size=cells.BATCH, window=cells.WINDOW, drop_last=False)


def child(way: str, batches: int, folders: list[Path]) -> dict:
    import headrace
    import zarr

    path = cells.PIPELINES.get(way)
    with (
        headrace.config.set(fallback="raise"),
        zarr.config.set({"codec_pipeline.path": path} if path else {}),
    ):
        loader = loader_of(way, folders)
        count, waits = 0, []
        cpu, start = time.process_time(), time.perf_counter()
        for batch in islice(loader, batches):
            count += batch["X"].shape[0]
            waits.append(time.perf_counter())
        took = waits[-1] - start
    return {
        "cells": count,
        "seconds": took,
        "cpu_s": time.process_time() - cpu,
        "longest_wait_s": max(b - a for a, b in zip([start, *waits], waits, strict=False)),
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    }


def run(way: str, cgroup: Path, batches: int, folders: list[Path]) -> dict:
    harness.drop_pages(path for folder in folders for path in folder.rglob("*") if path.is_file())
    before = harness.bytes_read(folders[0])
    done = subprocess.run(
        [
            sys.executable,
            __file__,
            "--child",
            way,
            "--batches",
            str(batches),
            "--data",
            folders[0].parent,
        ],
        env=harness.ENVIRONMENT,
        preexec_fn=lambda: (cgroup / "cgroup.procs").write_text(str(os.getpid())),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        return {"failed": done.returncode}
    return {**json.loads(done.stdout), "read_nbytes": harness.bytes_read(folders[0]) - before}


def summary(runs: list[dict]) -> dict:
    failed = [found["failed"] for found in runs if "failed" in found]
    if failed:
        return {"failed": failed}
    rates = [found["cells"] / found["seconds"] for found in runs]
    return {
        "cells_per_second": round(statistics.median(rates)),
        "min": round(min(rates)),
        "max": round(max(rates)),
        "cpu_us_a_cell": round(statistics.median(1e6 * f["cpu_s"] / f["cells"] for f in runs), 1),
        "read_bytes_a_cell": round(statistics.median(f["read_nbytes"] / f["cells"] for f in runs)),
        "longest_wait_s": round(max(found["longest_wait_s"] for found in runs), 3),
        "peak_rss_mib": max(found["peak_rss_mib"] for found in runs),
    }


def main() -> None:
    args = harness.parser(
        __doc__, data=None, cgroup=None, times=5.0, batches=64, runs=3, cells=65536, child=""
    ).parse_args()
    if args.child:
        folders = sorted(args.data.glob("copy-*.zarr"))
        print(json.dumps(child(args.child, args.batches, folders)))
        return
    limit = limit_of(args.cgroup)
    args.data.mkdir(parents=True, exist_ok=True)
    first = args.data / "cells.zarr"
    if not first.exists():
        cells.write(first, args.cells, 1460)
    folders = copies(args.data, first, round(args.times * limit))
    os.sync()  # dirty pages cannot be dropped
    ways = {
        way: lambda way=way: run(way, args.cgroup, args.batches, folders)
        for way in WAYS
        if way not in cells.PIPELINES or way in cells.available()
    }
    runs = harness.in_turns(ways, args.runs, warm_ups=0)
    report = {
        **harness.head(
            "cells-larger", args.data, "annbatch", "anndata", "zarr", "zarrs", "headrace"
        ),
        "memory_mib": limit >> 20,
        "stored_nbytes": sum(map(harness.nbytes_of, folders)),
        "copies": len(folders),
        "cells": len(folders) * args.cells,
        "batch_size": cells.BATCH,
        "window": cells.WINDOW,
        "batches": args.batches,
        "runs": args.runs,
        "loaders": {way: summary(found) for way, found in runs.items()},
    }
    print(json.dumps(report["loaders"], indent=1))
    harness.save(report, args.out)


if __name__ == "__main__":
    main()
