"""Cells a second of `CellLoader` on a GPU, in turns with annbatch's loader and `preload_to_gpu`.

    python bench/run.py cells-device
    python bench/run.py cells-device -- --cores 4 --seconds 3 --data /dev/shm/cells
    python bench/run.py cells-device -- --device simt --cells 600 --stores 2 --genes 500 \\
        --elements 40 --batch 64 --window 16,4 --seconds 0.5

Stores as annbatch writes them, made by this script with headrace: sparse counts in shards,
Blosc(lz4, 3, shuffle), inner chunks of 64 cells, indices of 16 bits. The columns of a row are one
of 4,096 lists a store; a list comes back long after what LZ4 looks back at. With --data the stores
are kept there and used again. Batches of the device are compared with those of the host first, bit
for bit. Then each loader makes batches for --seconds, epoch after epoch, after two windows, later
one, that do not count; each batch is in the GPU's memory when it is counted. annbatch is given the
same runs by its RandomSampler, and leaves CSR of CuPy, over each pipeline that is there; it and
CuPy are no dependencies of headrace.
"""

import itertools
import os
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path

import harness
import numpy as np

POOL = 4096
PIPELINES = {
    "annbatch-default": "zarr.core.codec_pipeline.BatchedCodecPipeline",
    "annbatch-zarrs": "zarrs.ZarrsCodecPipeline",
    "annbatch-headrace": "headrace.zarr.CodecPipeline",
}


def pool_of_rows(rng, genes: int, elements: int):
    """Columns of some rows, by a skewed distribution of genes, and where each row begins."""
    chances = rng.gamma(0.3, size=genes)
    low, high = 0.0, 1e6
    for _ in range(60):  # a factor that gives the mean, where no chance is above 0.95
        middle = (low + high) / 2
        few = np.minimum(chances * middle, 0.95).sum() < elements
        low, high = (middle, high) if few else (low, middle)
    chances = np.minimum(chances * low, 0.95).astype("f4")
    columns, lengths = [], []
    for _ in range(POOL // 256):
        found = rng.random((256, genes), dtype="f4") < chances
        columns.append(np.nonzero(found)[1].astype("u2"))
        lengths.append(found.sum(axis=1))
    return np.concatenate(columns), np.append(0, np.concatenate(lengths).cumsum())


def write_store(path: Path, seed: int, cells: int, genes: int, elements: int) -> None:
    import headrace as hr

    rng = np.random.default_rng(seed)
    columns, starts = pool_of_rows(rng, genes, elements)
    rows = rng.integers(0, POOL, cells)
    lengths = (starts[1:] - starts[:-1])[rows]
    indptr = np.append(0, lengths.cumsum())
    nnz = int(indptr[-1])
    values = rng.geometric(0.6, 1 << 16).astype("f4")
    data, indices = np.empty(nnz, "f4"), np.empty(nnz, "u2")
    for begin in range(0, cells, 2048):
        block = slice(begin, min(begin + 2048, cells))
        own = slice(int(indptr[block.start]), int(indptr[block.stop]))
        moved = starts[rows[block]] - indptr[block]
        indices[own] = columns[np.repeat(moved, lengths[block]) + np.arange(own.start, own.stop)]
        data[own] = values[rng.integers(0, 1 << 16, own.stop - own.start, dtype="u2")]

    def encoded(node, kind, version, **attributes):
        node.attrs.update({"encoding-type": kind, "encoding-version": version, **attributes})
        return node

    root = encoded(hr.create_group(path), "anndata", "0.1.0")
    x = encoded(root.create_group("X"), "csr_matrix", "0.1.0", shape=[cells, genes])
    chunk = min(64 * elements, nnz)
    shard = max(chunk, min((1 << 30) // 6, nnz) // chunk * chunk)
    for name, array in (("data", data), ("indices", indices), ("indptr", indptr)):
        large = name != "indptr"
        made = x.create_array(
            name,
            shape=array.shape,
            dtype=array.dtype,
            chunks=(chunk if large else len(array),),
            shards=(shard,) if large else None,
            compressors=hr.codecs.Blosc(cname="lz4", clevel=3, shuffle="shuffle"),
        )
        made[:] = array
    for name, count in (("obs", cells), ("var", genes)):
        order = {"_index": "_index", "column-order": ["type"] if name == "obs" else []}
        frame = encoded(root.create_group(name), "dataframe", "0.2.0", **order)
        names = np.array([f"{name}{i}" for i in range(count)], np.dtypes.StringDType())
        index = frame.create_array("_index", shape=(count,), dtype="str", chunks=(count,))
        index[:] = names
        encoded(index, "string-array", "0.2.0")
        if name == "var":
            continue
        types = encoded(frame.create_group("type"), "categorical", "0.2.0", ordered=False)
        codes = types.create_array("codes", shape=(count,), dtype="i1", chunks=(count,))
        codes[:] = rng.integers(0, 50, count).astype("i1")
        labels = types.create_array("categories", shape=(50,), dtype="str", chunks=(50,))
        labels[:] = np.array([f"type{i}" for i in range(50)], np.dtypes.StringDType())
        encoded(codes, "array", "0.2.0")
        encoded(labels, "string-array", "0.2.0")


def made_stores(folder: Path, args) -> list[Path]:
    paths = [folder / f"{number}.zarr" for number in range(args.stores)]
    each = args.cells // args.stores
    work = [
        (path, seed, each, args.genes, args.elements)
        for seed, path in enumerate(paths)
        if not path.exists()
    ]
    if work:
        # Spawned: a fork would have this process's threads, and later its GPU.
        with ProcessPoolExecutor(len(work), get_context("spawn")) as pool:
            list(pool.map(write_store, *zip(*work, strict=True)))
    return paths


def host_parts(matrix) -> list[np.ndarray]:
    if hasattr(matrix, "to_numpy"):
        return [matrix.to_numpy()]
    if hasattr(matrix, "layout") and str(matrix.layout) == "torch.sparse_csr":
        return [
            part.cpu().numpy()
            for part in (matrix.values(), matrix.col_indices(), matrix.crow_indices())
        ]
    if hasattr(matrix, "indptr"):
        parts = (matrix.data, matrix.indices, matrix.indptr)
        return [part.get() if hasattr(part, "get") else part for part in parts]
    return [matrix]


def check(data, options: dict, device: str, how: dict, batches: int) -> None:
    """Batches of the device are those of the host, bit for bit."""
    from headrace.loader import CellLoader

    ours = CellLoader(data, device=device, **options, **how)
    theirs = CellLoader(data, device="cpu", **options, **how)
    for found, wanted in itertools.islice(zip(ours, theirs, strict=True), batches):
        for a, b in zip(host_parts(found["X"]), host_parts(wanted["X"]), strict=True):
            if a.tobytes() != b.tobytes():
                raise SystemExit(f"batches of {device} differ from the host's: {how}")


def annbatch_loader(paths, pipeline: str, args):
    import annbatch
    import anndata
    import zarr
    from annbatch.samplers import RandomSampler

    import_module(pipeline.rpartition(".")[0])  # which tells zarr of it
    rows, runs = args.window
    sampler = RandomSampler(
        chunk_size=rows,
        preload_nchunks=runs,
        batch_size=args.batch,
        rng=np.random.default_rng(1),
    )
    with zarr.config.set({"codec_pipeline.path": pipeline}):
        loader = annbatch.Loader(batch_sampler=sampler, preload_to_gpu=True, to=None)
        for path in paths:
            x = anndata.io.sparse_dataset(zarr.open_group(path, mode="r")["X"])
            loader.add_dataset(x)
    return loader


class Endless:
    """Batches of a loader, epoch after epoch."""

    def __init__(self, loader, pipeline: str | None, done) -> None:
        self._loader, self._pipeline, self._done = loader, pipeline, done
        self._batches = iter(())
        self._warm = False

    def cells_per_second(self, seconds: float, warm_up_cells: int) -> dict:
        if self._pipeline is not None:
            import zarr

            scope = zarr.config.set({"codec_pipeline.path": self._pipeline})
        else:
            scope = nullcontext()
        with scope:
            warm_up_cells = warm_up_cells // 2 if self._warm else warm_up_cells
            self._take(lambda cells, _: cells < warm_up_cells)
            self._warm = True
            cpu = time.process_time()
            cells, took = self._take(lambda _, took: took < seconds)
            cpu = time.process_time() - cpu
        return {"cells_per_second": cells / took, "cpu_us_a_cell": cpu / cells * 1e6}

    def _take(self, goes_on) -> tuple[int, float]:
        begin, cells = time.perf_counter(), 0
        while goes_on(cells, time.perf_counter() - begin):
            batch = next(self._batches, None)
            if batch is None:
                self._batches = iter(self._loader)
                batch = next(self._batches)
            cells += batch["X"].shape[0]
            del batch
        self._done()
        return cells, time.perf_counter() - begin


def main() -> None:
    args = harness.parser(
        __doc__,
        device="cuda:0",
        stores=4,
        cells=200_000,
        genes=20_000,
        elements=1460,
        batch=4096,
        window=(256, 64),
        seconds=3.0,
        runs=3,
        cores=0,
        check_batches=4,
        memory="4GiB",
        data=None,
    ).parse_args()
    if args.cores:  # before headrace counts them
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.cores])
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.data or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        paths = made_stores(folder, args)
        made_s = time.perf_counter() - begin

        import headrace as hr
        from headrace.loader import CellLoader, Transform

        data = hr.cells(paths, obs=["type"])
        options = {"batch_size": args.batch, "window": args.window, "memory_budget": args.memory}
        on_gpu = args.device.startswith("cuda")
        libraries = {
            name: find_spec(module) is not None
            for name, module in (("cupy", "cupyx"), ("torch", "torch"), ("annbatch", "annbatch"))
        }
        sparse = "torch_csr" if libraries["torch"] else "csr"
        scaled = Transform(total=1e4, log1p=True)
        genes = Transform(total=1e4, log1p=True, genes=np.arange(args.genes)[::-10].copy())
        ways = {
            "csr": {"output": sparse},
            "csr-normalized": {"output": sparse, "transforms": scaled},
            "dense": {"output": "dense"},
            "dense-normalized": {"output": "dense", "transforms": scaled},
            "dense-float16": {"output": "dense", "transforms": scaled, "dtype": "float16"},
            "csr-genes": {"output": sparse, "transforms": genes},
        }
        if libraries["cupy"] and on_gpu:
            ways["csr-cupy"] = {"output": "csr"}
        if args.check_batches:
            for name, how in ways.items():
                if name != "csr-cupy":  # the same memory as csr
                    check(data, options, args.device, how, args.check_batches)
        done = lambda: None  # noqa: E731
        if on_gpu and libraries["torch"]:
            import torch

            done = torch.cuda.synchronize
        loaders = {
            f"headrace-{name}": Endless(
                CellLoader(data, device=args.device, **options, **how), None, done
            )
            for name, how in ways.items()
        }
        if libraries["torch"]:
            loaders["headrace-host-csr"] = Endless(
                CellLoader(data, device="cpu", output=sparse, **options), None, done
            )
        left_out = {}
        if on_gpu and libraries["annbatch"] and libraries["cupy"]:
            for name, pipeline in PIPELINES.items():
                try:
                    loader = annbatch_loader(paths, pipeline, args)
                    next(iter(loader))
                    loaders[name] = Endless(loader, pipeline, done)
                except Exception as error:  # said in the result
                    left_out[name] = repr(error)
        else:
            left_out["annbatch"] = "not installed, or no GPU"
        warm_up = 2 * args.window[0] * args.window[1]

        def measured(name):
            return loaders[name].cells_per_second(args.seconds, warm_up)

        runs = harness.in_turns(
            {name: lambda name=name: measured(name) for name in loaders}, args.runs, warm_ups=0
        )
        report = {
            **harness.head(
                "cells-device", folder, "annbatch", "anndata", "zarr", "zarrs", "torch", "headrace"
            ),
            "device": args.device,
            "device_name": next(
                (d.get("name") for d in hr.doctor()["devices"] if d["device"] == args.device), None
            ),
            "cells": args.cells,
            "genes": args.genes,
            "elements_per_cell": args.elements,
            "batch_size": args.batch,
            "window": args.window,
            "stored_nbytes": sum(harness.nbytes_of(path) for path in paths),
            "made_s": round(made_s, 1),
            "checked_batches": args.check_batches,
            "seconds": args.seconds,
            "left_out": left_out,
            "cells_per_second": {
                name: {
                    "median": round(statistics.median(run["cells_per_second"] for run in own)),
                    "runs": [round(run["cells_per_second"]) for run in own],
                    "cpu_us_a_cell": round(
                        statistics.median(run["cpu_us_a_cell"] for run in own), 2
                    ),
                }
                for name, own in runs.items()
            },
        }
    for name, found in report["cells_per_second"].items():
        print(f"{name:22} {found['median']:>10,} cells/s {found['cpu_us_a_cell']:>8} us")
    print(left_out)
    harness.save(report, args.out)


if __name__ == "__main__":
    main()
