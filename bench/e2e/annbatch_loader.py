"""Cells a second of annbatch's loader over zarr-python's pipelines, in turns.

    python bench/run.py annbatch -- --cells 60000 --runs 5

Needs annbatch and anndata, which are no dependencies of headrace. Sparse counts in shards, as
annbatch writes them, made by this script in a temporary folder and read from a warm page cache. A
pipeline whose library is not there is left out. headrace runs with fallback="raise": what it would
leave to zarr-python ends the run.
"""

import tempfile
from importlib.util import find_spec
from pathlib import Path

import harness
import headrace
import headrace.zarr
import numpy as np
import zarr

PIPELINES = {
    "default": "zarr.core.codec_pipeline.BatchedCodecPipeline",
    "fused": "zarr.core.codec_pipeline.FusedCodecPipeline",
    "zarrs": "zarrs.ZarrsCodecPipeline",
    "headrace": "headrace.zarr.CodecPipeline",
}
GENES = 2000
DENSITY = 0.1


def available() -> dict[str, str]:
    missing = {"zarrs"} if find_spec("zarrs") is None else set()
    if not hasattr(zarr.core.codec_pipeline, "FusedCodecPipeline"):
        missing.add("fused")
    return {name: path for name, path in PIPELINES.items() if name not in missing}


def write(folder: Path, cells: int) -> None:
    import annbatch
    import anndata
    import scipy.sparse

    rng = np.random.default_rng(0)
    counts = scipy.sparse.random(cells, GENES, DENSITY, format="csr", dtype="f4", rng=rng)
    counts.data = rng.poisson(3, counts.nnz).astype("f4") + 1
    annbatch.write_sharded(zarr.open_group(folder, mode="w"), anndata.AnnData(X=counts))


def epoch(folder: Path, pipeline: str, cells: int, chunk: int) -> None:
    import annbatch
    import anndata

    with zarr.config.set({"codec_pipeline.path": pipeline}):
        group = zarr.open_group(folder, mode="r")
        loader = annbatch.Loader(
            batch_size=4096,
            chunk_size=chunk,
            preload_nchunks=4096 * 4 // chunk,
            shuffle=True,
            preload_to_gpu=False,
            to=None,
            rng=np.random.default_rng(1),
        )
        loader.add_dataset(anndata.io.sparse_dataset(group["X"]))
        seen = sum(batch["X"].shape[0] for batch in loader)
    assert seen == cells, (seen, cells)


def main() -> None:
    args = harness.parser(__doc__, cells=60000, chunk=256, runs=5).parse_args()
    with tempfile.TemporaryDirectory() as scratch, headrace.config.set(fallback="raise"):
        folder = Path(scratch) / "cells.zarr"
        write(folder, args.cells)
        ways = {
            name: lambda path=path: harness.seconds(
                lambda: epoch(folder, path, args.cells, args.chunk)
            )
            for name, path in available().items()
        }
        headrace.zarr.fallbacks(reset=True)
        seconds = harness.in_turns(ways, args.runs)
        report = {
            **harness.head(
                "annbatch", folder, "annbatch", "anndata", "zarr", "zarrs", "numpy", "headrace"
            ),
            "cells": args.cells,
            "genes": GENES,
            "density": DENSITY,
            "chunk_size": args.chunk,
            "stored_nbytes": harness.nbytes_of(folder),
            "runs": args.runs,
            "epoch": {name: harness.figures(times, "s", 3) for name, times in seconds.items()},
            "cells_per_second": {
                name: round(args.cells / np.median(times)) for name, times in seconds.items()
            },
            "fallbacks": headrace.zarr.fallbacks(),
        }
    print(report["cells_per_second"], report["fallbacks"])
    harness.save(report, args.out)


if __name__ == "__main__":
    main()
