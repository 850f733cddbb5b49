"""Open a Zarr store with xarray and headrace; with a GPU and CuPy, straight into its memory.

    python examples/xarray_open.py [STORE] [--device cuda:0]

Without a store a small one is made first.
"""

import argparse
import tempfile

import numpy as np
import xarray as xr


def make(path):
    """Ten days of a field, packed into 16 bits as archives do."""
    time = np.datetime64("2020-01-01", "ns") + np.arange(40) * np.timedelta64(6, "h")
    lat, lon = np.linspace(90, -90, 91), np.arange(0.0, 360, 2)
    field = 288 + 30 * np.cos(np.deg2rad(lat))[:, None] + np.sin(np.deg2rad(lon))
    ds = xr.Dataset(
        {"t2m": (("time", "lat", "lon"), field + np.arange(40)[:, None, None], {"units": "K"})},
        coords={"time": time, "lat": lat, "lon": lon},
    )
    packing = {"dtype": "int16", "scale_factor": 0.01, "add_offset": 300.0, "_FillValue": -32768}
    ds.to_zarr(path, encoding={"t2m": {"chunks": (4, 91, 180), **packing}}, zarr_format=2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store", nargs="?")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = arguments.store or f"{folder}/example.zarr"
        if arguments.store is None:
            make(store)
        with xr.open_dataset(store, engine="headrace", device=arguments.device) as ds:
            for name, variable in ds.data_vars.items():
                mean = variable.mean()  # read and reduced where the data are
                place = type(mean.data).__module__
                print(f"{name}: {dict(variable.sizes)}, mean {mean.data.item():.2f}, by {place}")


if __name__ == "__main__":
    main()
