"""Loaders of cells that want PyTorch, in a Python of their own: cells_peers.py NAME FILE.

Of each line on standard input the answer is one epoch as JSON: its cells, seconds and CPU seconds.
The first line of output says the versions. Needs anndata before 0.13, torch, and scDataset for
"scdataset"; neither headrace nor annbatch.
"""

from __future__ import annotations

import json
import platform
import sys
import time
import warnings
from importlib.metadata import version

BATCH, ROWS, RUNS = 4096, 256, 64  # as those of cells.py
NEEDS = {"scdataset": ("scDataset",), "annloader": ()}


def scdataset(cells):
    """Blocks of a window are fetched together, and shuffled into batches."""
    from scdataset import BlockShuffling, scDataset

    return scDataset(
        cells,
        BlockShuffling(block_size=ROWS),
        batch_size=BATCH,
        fetch_factor=ROWS * RUNS // BATCH,
        fetch_callback=lambda data, rows: data[rows].X,
    )


def annloader(cells):
    from anndata.experimental import AnnLoader

    return AnnLoader(cells, batch_size=BATCH, shuffle=True, use_default_converter=False)


def epoch(loader) -> dict[str, float]:
    cpu, start = time.process_time(), time.perf_counter()
    cells = sum(getattr(batch, "X", batch).shape[0] for batch in loader)
    return {
        "cells": cells,
        "seconds": time.perf_counter() - start,
        "cpu_s": time.process_time() - cpu,
    }


def main(name: str, path: str) -> None:
    warnings.simplefilter("ignore")
    import anndata

    loader = {"scdataset": scdataset, "annloader": annloader}[name](
        anndata.read_h5ad(path, backed="r")
    )
    found = {package: version(package) for package in ("anndata", "torch", *NEEDS[name])}
    print(json.dumps({**found, "python": platform.python_version()}), flush=True)
    for _ in sys.stdin:
        print(json.dumps(epoch(loader)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
