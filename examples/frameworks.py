"""One array, read by every framework that is installed, each to memory that it works on.

frameworks.py [STORE]: an array of an existing store, or one that is made for the purpose.
"""

import contextlib
import sys

import headrace as hr
import numpy as np


def example() -> hr.Array:
    array = hr.create_array(hr.memory_store(), shape=(365, 19, 36), dtype="float32")
    day, lat = np.ogrid[0:365, -90:91:10]
    array[:] = (15 + 10 * np.cos(day / 58) * np.cos(np.deg2rad(lat)))[..., None]
    return array


def with_numpy(a):
    return a[0:31].mean()


def with_torch(a):
    import torch

    out = torch.empty(31, *a.shape[1:])  # on any device: torch.empty(..., device="cuda")
    a.read(np.s_[0:31], out=out)
    return out.mean()


def with_jax(a):
    import jax
    from headrace.jax import read
    from jax.sharding import NamedSharding, PartitionSpec

    # Each device reads the latitudes that it is to hold.
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("lat",))
    return read(a, np.s_[0:31], sharding=NamedSharding(mesh, PartitionSpec(None, "lat"))).mean()


def with_mlx(a):
    from headrace.mlx import read

    return read(a, np.s_[0:31]).mean()


def with_cupy(a):
    import cupy

    return cupy.from_dlpack(a.to("cuda")[0:31]).mean()


def with_numba(a):
    import numba

    @numba.njit
    def mean(x):
        total = 0.0
        for value in x.flat:
            total += value
        return total / x.size

    return mean(a[0:31])


def with_tensorflow(a):
    import tensorflow as tf

    # DLPack: the array that is read becomes the tensor's memory.
    return tf.reduce_mean(tf.experimental.dlpack.from_dlpack(a.__dlpack__())[0:31])


FRAMEWORKS = [with_numpy, with_torch, with_jax, with_mlx, with_numba, with_tensorflow]
if any(d["device"] == "cuda:0" and d["available"] for d in hr.doctor()["devices"]):
    FRAMEWORKS.append(with_cupy)

array = hr.open_array(sys.argv[1]) if len(sys.argv) > 1 else example()
for read_and_average in FRAMEWORKS:
    with contextlib.suppress(ImportError):  # what is not installed is left out
        mean = float(read_and_average(array))
        print(f"{read_and_average.__name__.removeprefix('with_')}: mean of 31 days {mean:.2f}")
