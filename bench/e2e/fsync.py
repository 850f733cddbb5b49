"""What `fsync=` costs a store in a folder: "none", "metadata" (the default) and "all", in turns.

    python bench/e2e/fsync.py --folder /disk/to/measure --out bench/results/fsync.json

Each round is in a new folder. What it left is written back before the next, so that nobody pays for
what another has left.
"""

import argparse
import os
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import headrace as hr
import machine
import numpy as np

WAYS = ("none", "metadata", "all")
ARRAYS = 100
CHUNKS = 100
CHUNK = 1 << 18  # elements of 4 bytes


def _create(store: hr.Store) -> None:
    for number in range(ARRAYS):
        hr.create_array(store, f"a{number}", shape=10, dtype="f4")


def _attributes(store: hr.Store) -> None:
    array = hr.open_array(store, "x", mode="r+")
    for number in range(ARRAYS):
        array.attrs["number"] = number


def _chunks(store: hr.Store) -> None:
    hr.open_array(store, "x", mode="r+")[:] = DATA


DATA = np.arange(CHUNKS * CHUNK, dtype="f4")
# What it does, and how often in a round.
ROWS: dict[str, tuple[Callable[[hr.Store], None], int]] = {
    "create an array": (_create, ARRAYS),
    "set an attribute": (_attributes, ARRAYS),
    "write a chunk of 1 MiB": (_chunks, CHUNKS),
}


def _round(folder: Path, way: str, act: Callable[[hr.Store], None]) -> float:
    shutil.rmtree(folder, ignore_errors=True)
    store = hr.open_store(folder, mode="w", storage_options={"fsync": way})
    hr.create_group(store)
    hr.create_array(store, "x", shape=DATA.size, dtype="f4", chunks=CHUNK, compressors=None)
    os.sync()
    start = time.perf_counter()
    act(store)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    folder = options.folder / "headrace-fsync"
    rows = []
    for name, (act, count) in ROWS.items():
        rounds: dict[str, list[float]] = {way: [] for way in WAYS}
        for run in range(options.runs + 1):
            for way in WAYS:
                seconds = _round(folder, way, act)
                if run > 0:  # the first warms up
                    rounds[way].append(1e3 * seconds / count)
        ways = {
            way: {
                "median_ms": round(statistics.median(each), 3),
                "min_ms": round(min(each), 3),
                "max_ms": round(max(each), 3),
            }
            for way, each in rounds.items()
        }
        rows.append({"what": name, "ways": ways})
        print(name, {way: figures["median_ms"] for way, figures in ways.items()})
    shutil.rmtree(folder, ignore_errors=True)
    report = {
        **machine.head("fsync", options.folder),
        "settings": {"runs": options.runs},
        "rows": rows,
    }
    machine.save(report, options.out)


if __name__ == "__main__":
    main()
