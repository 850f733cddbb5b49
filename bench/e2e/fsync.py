"""What `fsync=` costs a store in a folder: "none", "metadata" (the default) and "all", in turns.

    python bench/run.py fsync -- --folder /disk/to/measure --out bench/results/fsync.json

Each round is in a new folder. What it left is written back before the next, so that nobody pays for
what another has left.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import harness
import headrace as hr
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


def _round(folder: Path, way: str, act: Callable[[hr.Store], None], count: int) -> float:
    shutil.rmtree(folder, ignore_errors=True)
    store = hr.open_store(folder, mode="w", storage_options={"fsync": way})
    hr.create_group(store)
    hr.create_array(store, "x", shape=DATA.size, dtype="f4", chunks=CHUNK, compressors=None)
    os.sync()
    return harness.seconds(lambda: act(store)) / count


def main() -> None:
    args = harness.parser(__doc__, folder=Path(tempfile.gettempdir()), runs=5).parse_args()
    folder = args.folder / "headrace-fsync"
    rows = []
    for name, row in ROWS.items():
        rounds = harness.in_turns(
            {way: partial(_round, folder, way, *row) for way in WAYS}, args.runs
        )
        ways = {way: harness.figures(each, "ms", 3) for way, each in rounds.items()}
        rows.append({"what": name, "ways": ways})
        print(name, {way: found["median_ms"] for way, found in ways.items()})
    shutil.rmtree(folder, ignore_errors=True)
    head = harness.head("fsync", args.folder)
    harness.save({**head, "settings": {"runs": args.runs}, "rows": rows}, args.out)


if __name__ == "__main__":
    main()
