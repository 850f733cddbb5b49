"""Batches of cells as JAX's arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import _core


def room_for(nnz: int) -> int:
    """Elements that a sparse batch is made of: one of few numbers, so that `jit` compiles seldom.

    Rounded up by 6 % at most.
    """
    step = 1 << max(nnz.bit_length() - 5, 10)
    return -(-nnz // step) * step


def array(values: Any) -> Any:
    """Memory of the host or of a device, without a copy where JAX takes it as it is."""
    import jax

    if isinstance(values, _core.DeviceArray):
        return jax.dlpack.from_dlpack(values)
    return jax.numpy.asarray(values)


def bcoo(data: Any, columns: Any, offsets: np.ndarray[Any, Any], shape: tuple[int, int]) -> Any:
    """A BCOO matrix of `room_for(nnz)` elements, of which those behind nnz are JAX's padding."""
    from jax.experimental import sparse

    if offsets[-1] > np.iinfo(np.int32).max:
        raise ValueError(f"output: JAX's indices are int32, and a batch has {offsets[-1]} elements")
    indptr: Any = offsets.astype(np.int32)
    if isinstance(data, _core.DeviceArray):
        indptr = _core.to_device(indptr, data.device)
    parts = _coordinates()(array(data), array(columns), array(indptr), shape[1])
    return sparse.BCOO(parts, shape=shape)


@functools.cache
def _coordinates() -> Callable[..., Any]:
    import jax
    from jax import numpy as jnp

    def coordinates(data: Any, columns: Any, indptr: Any, width: int) -> Any:
        at = jnp.arange(data.shape[0], dtype=jnp.int32)
        good = at < indptr[-1]
        # What is behind the last row gets the number of rows, which is none.
        rows = jnp.cumsum(jnp.zeros_like(at).at[indptr].add(1)) - 1
        indices = jnp.stack([rows, jnp.where(good, columns, width)], axis=1)
        return jnp.where(good, data, jnp.zeros((), data.dtype)), indices

    return jax.jit(coordinates, static_argnums=3)
