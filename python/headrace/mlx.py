"""MLX: arrays read into memory of its own, which its CPU and GPU share.

MLX takes host memory of others only with a copy, so the array is made by MLX and filled in place.

>>> from headrace.mlx import read
>>> x = read(hr.open_array("era5.zarr/t2m"), np.s_[0:10])
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

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
    name = view.dtype.name
    dtype = getattr(mx, "bool_" if name == "bool" else name, None)
    if not isinstance(dtype, mx.Dtype):
        raise TypeError(f"MLX has no data type {view.dtype}")
    out = mx.zeros(view.shape, dtype)
    mx.eval(out)  # until then it has no memory
    view.array.to("cpu").read(view.selection, out=out)
    return out
