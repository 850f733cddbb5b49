"""Open a data set with xarray and take a mean: engine "headrace" beside engine "zarr".

    python bench/ecosystem/xarray_open.py --json bench/results/xarray-open.json
    python bench/ecosystem/xarray_open.py --device cuda:0 --json bench/results/xarray-open-cuda.json

The data are those of bench/e2e/data.py (64 fields of 721 x 1440, 266 MB as float32) with
coordinates, consolidated metadata, in a warm page cache. The engines take turns, a different one
first each time; every run opens the store anew. With a device, engine "zarr" reads to the host and
copies the data to the device with CuPy, and both take the mean there.
"""

import argparse
import json
import statistics
import sys
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import xarray as xr

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "e2e"))

import data
import machine

ENGINES = ("headrace", "zarr")
PACKING = {"dtype": "int16", "scale_factor": 0.002, "add_offset": 270.0, "_FillValue": -32768}
LAYOUTS = {
    "v3-zstd-4MiB": (3, {"chunks": (1, 721, 1440)}, "zstd"),
    "v3-zstd-shard": (3, {"chunks": (1, 181, 180), "shards": (8, 724, 1440)}, "zstd"),
    "v2-blosc-packed": (2, {"chunks": (8, 181, 360), **PACKING}, None),  # xarray's default codec
}


def prepare(folder, steps):
    """The path of each layout's store; made when missing."""
    folder = data.prepare(folder, steps, [])
    stores = {}
    for name, (zarr_format, encoding, codec) in LAYOUTS.items():
        stores[name] = path = folder / f"xarray-{name}.zarr"
        if path.exists():
            continue
        truth = np.load(folder / "truth.npy", mmap_mode="r")
        time = np.datetime64("2020-01-01", "ns") + np.arange(steps) * np.timedelta64(6, "h")
        ds = xr.Dataset(
            {"t2m": (("time", "lat", "lon"), truth, {"units": "K"})},
            coords={
                "time": time,
                "lat": np.linspace(90, -90, data.NLAT),
                "lon": np.arange(data.NLON) * 0.25,
            },
        )
        if codec:
            encoding = {**encoding, "compressors": [data.codecs_of(codec)]}
        partial = path.with_suffix(".partial")
        ds.to_zarr(partial, mode="w", zarr_format=zarr_format, encoding={"t2m": encoding})
        partial.rename(path)
    return stores


def open_engine(path, engine, device):
    options = {"device": device} if engine == "headrace" else {}
    return xr.open_dataset(path, engine=engine, **options)


def mean(path, engine, device, select=lambda t2m: t2m):
    """The mean of the selection, computed where the data are."""
    with open_engine(path, engine, device) as ds:
        t2m = select(ds.t2m)
        if engine == "zarr" and device != "cpu":
            import cupy

            t2m = t2m.copy(data=cupy.asarray(t2m.data))
        return t2m.mean(dtype="float64").data.item()


def first_week(t2m):
    return t2m.sel(time=slice("2020-01-01", "2020-01-07"), lat=slice(60, 30))


ACCESSES = {
    "open": lambda *where: open_engine(*where).close(),
    "mean": mean,
    "region": lambda *where: mean(*where, first_week),
}


def measure(path, device, runs):
    rows = {}
    for access, call in ACCESSES.items():
        results = {engine: call(str(path), engine, device) for engine in ENGINES}  # the warm-up
        if access != "open":
            assert np.isclose(*results.values(), rtol=1e-9, atol=0), (path, access, results)
        seconds = {engine: [] for engine in ENGINES}
        for number in range(runs):
            for engine in ENGINES[:: 1 if number % 2 else -1]:
                begin = time.perf_counter()
                call(str(path), engine, device)
                seconds[engine].append(time.perf_counter() - begin)
        middle = {engine: statistics.median(s) for engine, s in seconds.items()}
        rows[access] = {
            "speed_up": round(middle["zarr"] / middle["headrace"], 2),
            **{
                engine: {
                    "median_ms": round(middle[engine] * 1e3, 2),
                    "min_ms": round(min(s) * 1e3, 2),
                    "max_ms": round(max(s) * 1e3, 2),
                }
                for engine, s in seconds.items()
            },
        }
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=data.default_folder())
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    stores = prepare(arguments.data, arguments.steps)
    report = {
        "command": " ".join(["python", "bench/ecosystem/xarray_open.py", *sys.argv[1:]]),
        "time": machine.now(),
        "commit": machine.commit(),
        "machine": machine.describe(arguments.data),
        "versions": {name: version(name) for name in ("xarray", "zarr", "numpy")},
        "device": arguments.device,
        "runs": arguments.runs,
        "rows": {
            name: measure(path, arguments.device, arguments.runs) for name, path in stores.items()
        },
    }
    text = json.dumps(report, indent=1)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
