"""The quick start of the README, run by the tests: write an array, read it back three ways."""

import headrace as hr
import numpy as np

hour, lat, lon = np.ogrid[0:48, -90:91, 0:360]
wind = (10 * np.cos(np.deg2rad(lat)) + np.sin(np.deg2rad(lon + 15 * hour))).astype("float32")

zstd = hr.codecs.Zstd(level=3)
a = hr.create_array(
    "wind.zarr",
    shape=wind.shape,
    dtype="float32",
    chunks=(1, 181, 360),
    compressors=zstd,
    overwrite=True,
)
a[:] = wind
a.attrs["units"] = "m/s"

a = hr.open("wind.zarr")
x = a[0:10, :, ::2]  # selections mean what they mean in NumPy
out = np.empty((181, 360), "float32")
a.read((24, ...), out=out)  # into memory that is already there, without a copy between
y = np.from_dlpack(a)  # torch, cupy and jax take it the same way

assert np.array_equal(x, wind[0:10, :, ::2])
assert np.array_equal(out, wind[24]) and np.array_equal(y, wind)
print(a.shape, a.dtype, a.chunks, a.attrs["units"])
