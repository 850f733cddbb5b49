"""Open a data set with xarray and take a mean: engine "headrace" beside engine "zarr".

    python bench/run.py xarray-open -- --real auto
    python bench/run.py xarray-open-device

The data are those of bench/e2e/data.py (64 fields of 721 x 1440, 266 MB as float32) with
coordinates, consolidated metadata, in a warm page cache; with --real (auto, ferret
or iris) also the files of the demo
(Debian's ferret-datasets, or PyPI's iris-sample-data), which need netcdf4, as xarray stores them.
The engines take turns, a different one first each time; every run opens the store anew. A region
is a week of the made data, and a quarter of each real variable. With a device, engine "zarr" reads
to the host and copies the data to the device with CuPy, and both take the mean there.
"""

import statistics
import sys
from functools import partial
from pathlib import Path

import harness
import numpy as np
import xarray as xr

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "demo"))

import sources
from e2e import data

ENGINES = ("headrace", "zarr")
PACKING = {"dtype": "int16", "scale_factor": 0.002, "add_offset": 270.0, "_FillValue": -32768}
LAYOUTS = {
    "v3-zstd-4MiB": (3, {"chunks": (1, 721, 1440)}, "zstd"),
    "v3-zstd-shard": (3, {"chunks": (1, 181, 180), "shards": (8, 724, 1440)}, "zstd"),
    "v2-blosc-packed": (2, {"chunks": (8, 181, 360), **PACKING}, None),  # xarray's default codec
}


def write(ds, path, **options):
    unfinished = path.with_suffix(".partial")
    ds.to_zarr(unfinished, mode="w", **options)
    unfinished.rename(path)


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
        write(ds, path, zarr_format=zarr_format, encoding={"t2m": encoding})
    return stores


def prepare_real(folder, wanted):
    """The path of each real variable's store; made when missing."""
    folder.mkdir(parents=True, exist_ok=True)
    stores = {}
    source = sources.fetch(folder, wanted)
    for variable in source.variables:
        name = f"{Path(variable.file).stem}-{variable.name}"
        stores[name] = path = folder / f"xarray-{name}.zarr"
        if path.exists():
            continue
        with xr.open_dataset(source.folder / variable.file, decode_times=False) as file:
            # Climatologies have times in the year 0, which xarray does not decode.
            ds = file[[variable.name]].drop_vars("TIME", errors="ignore").drop_encoding()
            write(ds, path, zarr_format=3)
    return stores


def open_engine(path, engine, device):
    options = {"device": device} if engine == "headrace" else {}
    return xr.open_dataset(path, engine=engine, **options)


def mean(path, engine, device, select=lambda variable: variable):
    """The mean of the selection, computed where the data are."""
    with open_engine(path, engine, device) as ds:
        (name,) = ds.data_vars
        variable = select(ds[name])
        if engine == "zarr" and device != "cpu":
            import cupy

            variable = variable.copy(data=cupy.asarray(variable.data))
        return variable.mean(dtype="float64").data.item()


def region(variable):
    if variable.name == "t2m":
        return variable.sel(time=slice("2020-01-01", "2020-01-07"), lat=slice(60, 30))
    half = {d: slice(n // 4, n // 4 + n // 2) for d, n in list(variable.sizes.items())[-2:]}
    return variable.isel(half)


ACCESSES = {
    "open": lambda *where: open_engine(*where).close(),
    "mean": mean,
    "region": lambda *where: mean(*where, region),
}


def measure(path, device, runs):
    rows = {}
    for access, call in ACCESSES.items():
        results = {engine: call(str(path), engine, device) for engine in ENGINES}  # the warm-up
        if access != "open":
            assert np.isclose(*results.values(), rtol=1e-9, atol=0), (path, access, results)
        ways = {
            engine: partial(harness.took, partial(call, str(path), engine, device))
            for engine in ENGINES
        }
        rounds = harness.in_turns(ways, runs, warm_ups=0)
        middle = {e: statistics.median(took.seconds for took in rounds[e]) for e in ENGINES}
        rows[access] = {
            "speed_up": round(middle["zarr"] / middle["headrace"], 2),
            **{
                engine: {
                    **harness.figures([took.seconds for took in of_engine], "ms", 2),
                    "cpu_ms": round(statistics.median(t.cpu_s for t in of_engine) * 1e3, 2),
                }
                for engine, of_engine in rounds.items()
            },
        }
    return rows


def main():
    args = harness.parser(
        __doc__, data=data.default_folder(), steps=64, runs=7, device="cpu", real=""
    ).parse_args()
    stores = prepare(args.data, args.steps)
    if args.real:
        stores |= prepare_real(args.data / "real", args.real)
    report = {
        **harness.head("xarray-open", args.data, "xarray", "zarr", "numpy"),
        "device": args.device,
        "runs": args.runs,
        "rows": {name: measure(path, args.device, args.runs) for name, path in stores.items()},
    }
    harness.save(report, args.out)


if __name__ == "__main__":
    main()
