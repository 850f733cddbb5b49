"""Cells a second of `CellLoader`, and of annbatch's loader over zarr-python's pipelines, in turns.

    python bench/run.py cells -- --cells 65536 --runs 5

Needs annbatch and anndata, which are no dependencies of headrace. Sparse counts of many genes in
shards, as annbatch writes them, made by this script and read from a warm page cache. All are given
the same sampler, annbatch's RandomSampler, so that they read the same runs and make the same
batches; each loader lives through all epochs, of which the first does not count. "headrace-own" is
CellLoader's own order of windows of the same size. A pipeline whose library is not there is left
out. headrace's runs with fallback="raise": what it would leave to zarr-python ends the run.

With --torch-python, a Python that has what cells_peers.py needs, scDataset and anndata's AnnLoader
take their turns in processes of it. They read the same matrix from an uncompressed .h5ad file, as
they are used: scDataset blocks and windows of the same size, AnnLoader cells one by one.
"""

import json
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

import harness
import headrace
import headrace.zarr
import numpy as np
import zarr
from headrace.loader import CellLoader, Transform

PIPELINES = {
    "annbatch-default": "zarr.core.codec_pipeline.BatchedCodecPipeline",
    "annbatch-fused": "zarr.core.codec_pipeline.FusedCodecPipeline",
    "annbatch-zarrs": "zarrs.ZarrsCodecPipeline",
    "annbatch-headrace": "headrace.zarr.CodecPipeline",
}
PEERS = ("scdataset", "annloader")
GENES = 62710  # of Tahoe-100M
BATCH, WINDOW = 4096, (256, 64)


def available() -> dict[str, str]:
    missing = {"annbatch-zarrs"} if find_spec("zarrs") is None else set()
    if not hasattr(zarr.core.codec_pipeline, "FusedCodecPipeline"):
        missing.add("annbatch-fused")
    return {name: path for name, path in PIPELINES.items() if name not in missing}


def counts(cells: int, elements: int):
    """Genes by a skewed distribution, `elements` of a cell in the mean, and small counts."""
    import scipy.sparse

    rng = np.random.default_rng(0)
    chances = rng.gamma(0.3, size=GENES)
    low, high = 0.0, 1e6
    for _ in range(60):  # a factor that gives the mean, where no chance is above 0.95
        middle = (low + high) / 2
        low, high = (
            (middle, high)
            if np.minimum(chances * middle, 0.95).sum() < elements
            else (
                low,
                middle,
            )
        )
    chances = np.minimum(chances * low, 0.95).astype("f4")
    parts = []
    for begin in range(0, cells, 256):
        rows = min(256, cells - begin)
        found = rng.random((rows, GENES), dtype="f4") < chances
        parts.append(scipy.sparse.csr_matrix(found, dtype="f4"))
    matrix = scipy.sparse.vstack(parts, format="csr")
    matrix.data[:] = rng.geometric(0.6, matrix.nnz)
    return matrix


def write(folder: Path, cells: int, elements: int) -> None:
    import annbatch
    import anndata

    made = anndata.AnnData(X=counts(cells, elements))
    made.write_h5ad(file_of(folder))
    annbatch.write_sharded(zarr.open_group(folder, mode="w", zarr_format=3), made)


def file_of(folder: Path) -> Path:
    return folder.with_suffix(".h5ad")


class Peer:
    """A loader in a process of another Python."""

    def __init__(self, python: Path, name: str, path: Path) -> None:
        self._process = subprocess.Popen(
            [python, Path(__file__).with_name("cells_peers.py"), name, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.versions = self._answer()

    def epoch(self) -> dict:
        print(file=self._process.stdin, flush=True)
        return self._answer()

    def close(self) -> None:
        self._process.communicate()

    def _answer(self) -> dict:
        return json.loads(self._process.stdout.readline())


def sampler():
    from annbatch.samplers import RandomSampler

    rows, runs = WINDOW
    return RandomSampler(
        chunk_size=rows, preload_nchunks=runs, batch_size=BATCH, rng=np.random.default_rng(1)
    )


def annbatch_loader(folders: list[Path], pipeline: str):
    import annbatch
    import anndata

    with zarr.config.set({"codec_pipeline.path": pipeline}):
        loader = annbatch.Loader(batch_sampler=sampler(), preload_to_gpu=False, to=None)
        for folder in folders:
            loader.add_dataset(anndata.io.sparse_dataset(zarr.open_group(folder, mode="r")["X"]))
    return loader


def epoch(loader, pipeline: str | None) -> int:
    with zarr.config.set({"codec_pipeline.path": pipeline} if pipeline else {}):
        return sum(batch["X"].shape[0] for batch in loader)


def main() -> None:
    args = harness.parser(
        __doc__, cells=65536, elements=1460, runs=5, data=None, torch_python=None
    ).parse_args()
    with tempfile.TemporaryDirectory() as scratch, headrace.config.set(fallback="raise"):
        folder = (args.data or Path(scratch)) / "cells.zarr"
        if not folder.exists():
            write(folder, args.cells, args.elements)
        data = headrace.cells(folder)
        own = {"batch_size": BATCH, "window": WINDOW, "drop_last": False}
        normalized = Transform(total=1e4, log1p=True)
        pipelines = available()
        loaders = {
            **{name: annbatch_loader([folder], path) for name, path in pipelines.items()},
            "headrace": CellLoader(data, sampler=sampler()),
            "headrace-own": CellLoader(data, **own),
            "headrace-normalized": CellLoader(data, transforms=normalized, **own),
        }

        peers = (
            {name: Peer(args.torch_python, name, file_of(folder)) for name in PEERS}
            if args.torch_python
            else {}
        )

        def measured(name):
            if name in peers:
                found = peers[name].epoch()
                assert found["cells"] == args.cells, found
                return harness.Took(found["seconds"], found["cpu_s"])
            cells = []
            took = harness.took(lambda: cells.append(epoch(loaders[name], pipelines.get(name))))
            assert cells == [args.cells], cells
            return took

        ways = {name: lambda name=name: measured(name) for name in [*loaders, *peers]}
        headrace.zarr.fallbacks(reset=True)
        runs = harness.in_turns(ways, args.runs)
        for peer in peers.values():
            peer.close()
        report = {
            **harness.head(
                "cells", folder, "annbatch", "anndata", "zarr", "zarrs", "numpy", "headrace"
            ),
            **({"peers": {name: peer.versions for name, peer in peers.items()}} if peers else {}),
            "cells": args.cells,
            "genes": GENES,
            "elements_per_cell": args.elements,
            "batch_size": BATCH,
            "window": WINDOW,
            "stored_nbytes": harness.nbytes_of(folder),
            "runs": args.runs,
            "epochs": {
                name: {
                    **harness.figures([took.seconds for took in own_runs], "s", 3),
                    "cpu_s": round(float(np.median([took.cpu_s for took in own_runs])), 3),
                }
                for name, own_runs in runs.items()
            },
            "cells_per_second": {
                name: round(args.cells / np.median([took.seconds for took in own_runs]))
                for name, own_runs in runs.items()
            },
            "fallbacks": headrace.zarr.fallbacks(),
        }
    print(report["cells_per_second"], report["fallbacks"])
    harness.save(report, args.out)


if __name__ == "__main__":
    main()
