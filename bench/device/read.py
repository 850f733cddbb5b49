"""Whole reads of Zarr arrays into GPU memory: headrace beside tensorstore, zarr-python and zarrs.

Needs torch with CUDA; peers that do not import are left out. Files are in memory or in the page
cache; one warm-up, then the median of three. Every result is compared with the data on the GPU.

A slow peer is timed less often: no run starts once --enough seconds are timed. --names are shell
patterns of rows.

Beside them the limit: encoded bytes can come no faster than pinned memory is copied to the device;
decoded bytes, `ratio` times that. `read_gb_s` is what Python's threads, one a core, read of the
files into pinned memory: no limit, where the files are many.
"""

import os
import shutil
import statistics
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path

import harness
import headrace as hr
import numpy as np
import torch

from device import field

NLAT, NLON = field.NLAT, field.NLON
LAYOUTS = {
    "4MiB": ((1, NLAT, NLON), None),
    "1MiB": ((1, 181, NLON), None),
    "4MiB-shards": ((1, NLAT, NLON), (16, NLAT, NLON)),
    "1MiB-shards": ((1, 181, NLON), (16, 724, NLON)),
}
CODECS = {
    "none": None,
    "zstd": hr.codecs.Zstd(level=3),
    "blosc": hr.codecs.Blosc(cname="lz4", clevel=5, shuffle="shuffle"),
    "gzip": hr.codecs.Gzip(level=5),
}
RUNS = 3


def read_headrace(path: Path):
    array = hr.open_array(path, device="cuda:0")
    return lambda out: array.read(out=out)


def by_host(shape, read_host):
    """A read to the host, then a copy from pinned memory."""
    host = torch.empty(tuple(shape), dtype=torch.float32, pin_memory=True)

    def read(out):
        host.numpy()[...] = read_host()
        out.copy_(host, non_blocking=True)

    return read


def read_tensorstore(path: Path):
    import tensorstore as ts

    array = ts.open(
        {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(path)}}, open=True
    ).result()
    return by_host(array.shape, lambda: array.read().result())


def read_zarr(path: Path):
    import cupy
    import zarr

    zarr.config.reset()
    zarr.config.enable_gpu()
    array = zarr.open_array(path, mode="r")

    def read(out):
        cupy.asarray(out)[...] = array[...]

    return read


def read_zarrs(path: Path):
    import zarr
    import zarrs  # noqa: F401

    zarr.config.reset()
    zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"})
    array = zarr.open_array(path, mode="r")
    return by_host(array.shape, lambda: array[...])


PEERS = {
    "headrace": read_headrace,
    "tensorstore": read_tensorstore,
    "zarrs": read_zarrs,
    "zarr-python-gpu": read_zarr,
}


def limit(path: Path, out, pinned) -> dict:
    """GB/s of encoded bytes: reading the files on all cores, and copying as many to the device."""
    piece = 4 << 20
    jobs, at = [], 0
    for file in path.rglob("c/**/*"):
        if file.is_file():
            size = file.stat().st_size
            jobs += [(file, start, at + start) for start in range(0, size, piece)]
            at += size
    view = memoryview(pinned.numpy())
    open_files = {file: os.open(file, os.O_RDONLY) for file, _, _ in jobs}
    ends = {file: os.fstat(fd).st_size for file, fd in open_files.items()}

    def read_one(job):
        file, start, to = job
        n = min(piece, ends[file] - start)
        os.preadv(open_files[file], [view[to : to + n]], start)

    device = out.view(-1).view(torch.uint8)

    def copy():
        n = min(at, device.numel())
        device[:n].copy_(pinned[:n], non_blocking=True)
        torch.cuda.synchronize()

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        reading = harness.median_seconds(lambda: list(pool.map(read_one, jobs)), RUNS)
    for fd in open_files.values():
        os.close(fd)
    return {
        "read_gb_s": round(at / reading / 1e9, 2),
        "copy_gb_s": round(min(at, device.numel()) / harness.median_seconds(copy, RUNS) / 1e9, 2),
    }


def measure(read, out, truth, enough: float) -> dict:
    def timed():
        read(out)
        torch.cuda.synchronize()

    rounds = []
    for run in range(RUNS + 1):
        if sum(took.seconds for took in rounds) > enough:
            break
        out.zero_()
        torch.cuda.synchronize()
        took = harness.took(timed)
        if run:
            rounds.append(took)
    seconds, cpu = zip(*rounds, strict=True)
    n = len(truth)
    same = all(torch.equal(out[i : i + n], truth[: len(out) - i]) for i in range(0, len(out), n))
    median = statistics.median(seconds)
    return {
        "gb_s": round(out.nbytes / median / 1e9, 2),
        "seconds": round(median, 4),
        "cores": round(statistics.median(cpu) / median, 1),
        "runs": len(seconds),
        "right": same,
    }


def main() -> None:
    args = harness.parser(
        __doc__, names=("*",), gib=4.0, folder=Path("/dev/shm/headrace-read"), enough=5.0
    ).parse_args()
    steps = int(args.gib * 2**30) // (NLAT * NLON * 4) // 16 * 16
    fields = np.stack(list(field.fields(16)))
    truth = torch.from_numpy(fields).cuda()
    out = torch.empty((steps, NLAT, NLON), dtype=torch.float32, device="cuda")
    pinned = torch.empty(out.nbytes + (64 << 20), dtype=torch.uint8, pin_memory=True)
    rows = []
    for layout, (chunks, shards) in LAYOUTS.items():
        for codec, compressor in CODECS.items():
            name = f"{layout}-{codec}"
            if not any(fnmatchcase(name, pattern) for pattern in args.names):
                continue
            path = args.folder / name
            array = hr.create_array(
                path,
                shape=tuple(out.shape),
                dtype="f4",
                chunks=chunks,
                shards=shards,
                compressors=compressor,
                overwrite=True,
            )
            for i in range(0, steps, 16):
                array[i : i + 16] = fields
            row = {"name": name, "ratio": round(out.nbytes / harness.nbytes_of(path), 2)}
            row["limit"] = limit(path, out, pinned)
            for peer, make in PEERS.items():
                try:
                    row[peer] = measure(make(path), out, truth, args.enough)
                except Exception as error:
                    row[peer] = {"error": f"{type(error).__name__}: {error}"[:300]}
            rows.append(row)
            print(row, flush=True)
            result = {"device": torch.cuda.get_device_name(), "nbytes": out.nbytes, "rows": rows}
            harness.save(result, args.out)
            shutil.rmtree(path)


if __name__ == "__main__":
    main()
