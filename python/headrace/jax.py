"""JAX: arrays on a device or sharded over a mesh, each device's part read by itself.

Examples
--------
>>> from headrace.jax import read, write
>>> mesh = jax.make_mesh((4, 2), ("time", "lat"))
>>> x = read(hr.open_array("era5.zarr/t2m"), sharding=NamedSharding(mesh, P("time", "lat")))
"""

from __future__ import annotations

from typing import Any

import jax

from . import _core
from .lazy import LazyArray, view_of

__all__ = ["read", "write"]


def read(
    array: _core.Array | LazyArray,
    selection: Any = None,
    *,
    device: jax.Device | None = None,
    sharding: jax.sharding.Sharding | None = None,
) -> jax.Array:
    """Read an array, a view or a selection of either into a `jax.Array`.

    Memory of the host becomes JAX's without a copy where it is aligned to 64 bytes, as that of
    1 MiB and more is. Parts for CUDA devices are decoded there. All parts are read in one plan, and
    parts that several devices hold are read once for each kind of memory.

    Parameters
    ----------
    array
        An `Array`, or a view ``array.lazy[...]``.
    selection
        Integers, slices, ``...`` and None; the whole array when None.
    device
        Where the result is; JAX's default device when None.
    sharding
        How the result is spread: each device of this process reads only its own part. Not with
        `device`.

    Returns
    -------
    jax.Array
        As `jax.device_put` makes it: 64-bit types only with ``jax_enable_x64``.

    Raises
    ------
    TypeError
        JAX has no such data type (dates, strings, structures).
    ValueError
        `device` and `sharding` are given, or the sharding does not divide the shape.

    Examples
    --------
    >>> read(a, np.s_[0:10], device=jax.devices("gpu")[1])
    >>> read(a, sharding=NamedSharding(mesh, P(None, "lat")))
    """
    view = view_of(array, selection)
    if sharding is None:
        device = device or jax.config.jax_default_device or jax.local_devices()[0]
        return _read_parts(view, {device: ()})[device]
    if device is not None:
        raise ValueError("read: expected a device or a sharding, not both")
    indices = sharding.addressable_devices_indices_map(view.shape)
    parts = _read_parts(view, indices)
    return jax.make_array_from_single_device_arrays(view.shape, sharding, list(parts.values()))


def write(array: _core.Array, value: jax.Array) -> None:
    """Write a `jax.Array` to an array of its shape: each process what its devices hold, once.

    Processes that write at the same time must not share a chunk (or shard): create the array with
    ``chunks=value.sharding.shard_shape(value.shape)`` or with chunks that divide it.

    Examples
    --------
    >>> a = hr.create_array("x.zarr", shape=x.shape, dtype=x.dtype, chunks=(64, 64))
    >>> write(a, x)
    """
    if array.shape != value.shape:
        raise ValueError(f"write: expected shape {array.shape}, got {value.shape}")
    own = [shard for shard in value.addressable_shards if shard.replica_id == 0]
    futures = [array.write_async(shard.index, shard.data) for shard in own]
    for future in futures:
        future.result()


def _memory_of(device: jax.Device) -> str:
    """Where headrace reads to for that device."""
    return f"cuda:{device.local_hardware_id}" if device.platform in ("cuda", "gpu") else "cpu"


def _read_parts(
    view: LazyArray, indices: dict[jax.Device, tuple[slice, ...]]
) -> dict[jax.Device, jax.Array]:
    """By device, the part of the view that it is to hold."""
    wanted = {
        device: (_memory_of(device), tuple(slice(s.start, s.stop) for s in index))
        for device, index in indices.items()
    }
    distinct = {(memory, _hashable(index)): index for memory, index in wanted.values()}
    requests = [
        (view.array.to(memory), view[index].selection) for (memory, _), index in distinct.items()
    ]
    parts = dict(zip(distinct, _core.read_many(requests), strict=True))
    return {
        device: _adopt(parts[memory, _hashable(index)], device)
        for device, (memory, index) in wanted.items()
    }


def _hashable(index: tuple[slice, ...]) -> tuple[tuple[int | None, int | None], ...]:
    return tuple((part.start, part.stop) for part in index)


def _adopt(memory: Any, device: jax.Device) -> jax.Array:
    if isinstance(memory, _core.DeviceArray):
        memory = jax.dlpack.from_dlpack(memory)
    return jax.device_put(memory, device)
