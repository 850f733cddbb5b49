"""The quick start of the README, run by the tests: write an array, read it back three ways."""

import tempfile
from pathlib import Path

import headrace as hr
import numpy as np

path = Path(tempfile.mkdtemp()) / "wind.zarr"
hours, lat, lon = np.ogrid[0:48, -90:91, 0:360]
wind = (10 * np.cos(np.deg2rad(lat)) + np.sin(np.deg2rad(lon + 15 * hours))).astype("float32")

a = hr.create_array(path, shape=wind.shape, dtype=wind.dtype, chunks=(1, 181, 360),
                    compressors=hr.codecs.Zstd(level=3), dimension_names=["hour", "lat", "lon"])  # fmt: skip
a[:] = wind
a.attrs["units"] = "m/s"

a = hr.open(path)  # device="cuda:0" reads into the memory of a GPU instead
print(a.shape, a.dtype, a.chunks, a.attrs["units"])
assert np.array_equal(a[0:10, :, ::2], wind[0:10, :, ::2])  # a slice, as NumPy would give it

out = np.empty((181, 360), "float32")
a.read((24, ...), out=out)  # into memory that is already there
assert np.array_equal(out, wind[24])

assert np.array_equal(np.from_dlpack(a), wind)  # torch, cupy and jax do the same
print("all equal")
