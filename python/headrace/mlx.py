"""MLX: arrays read into memory of its own, which its CPU and GPU share.

MLX takes host memory of others only with a copy, so the array is made by MLX and filled in place.

Examples
--------
>>> from headrace.mlx import read
>>> x = read(hr.open_array("era5.zarr/t2m"), np.s_[0:10])
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

from . import _core
from .lazy import LazyArray, view_of

__all__ = ["read"]


def read(array: _core.Array | LazyArray, selection: Any = None) -> mx.array:
    """Read an array, a view or a selection of either into an `mlx.core.array`.

    Parameters
    ----------
    array
        An `Array`, or a view ``array.lazy[...]``.
    selection
        Integers, slices, ``...`` and None; the whole array when None.

    Raises
    ------
    TypeError
        MLX has no such data type.

    Examples
    --------
    >>> read(a, np.s_[0:10]).mean(axis=0)
    """
    view = view_of(array, selection)
    out = empty(view.shape, view.dtype)
    view.array.to("cpu").read(view.selection, out=out)
    return out


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> mx.array:
    """An array to be filled in place."""
    out = mx.zeros(shape, mlx_dtype(dtype))
    mx.eval(out)  # until then it has no memory
    return out


def mlx_dtype(dtype: np.dtype[Any]) -> mx.Dtype:
    """`TypeError` where MLX has no such data type."""
    found = getattr(mx, "bool_" if dtype.name == "bool" else dtype.name, None)
    if not isinstance(found, mx.Dtype):
        raise TypeError(f"MLX has no data type {dtype}")
    return found
