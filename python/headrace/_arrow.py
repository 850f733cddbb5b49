"""Arrays of Arrow over memory that C++ has filled, without a copy where Arrow has the layout."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .errors import CorruptError

try:
    import pyarrow as pa
except ModuleNotFoundError as error:
    raise ImportError(
        f"to_arrow needs {error.name}, which is not installed (pip install 'headrace[arrow]')"
    ) from error

_UNITS = {"M": ("D", "s", "ms", "us", "ns"), "m": ("s", "ms", "us", "ns")}
_MAX_LIST = 2**31 - 1


def check(dtype: np.dtype[Any]) -> None:
    """NotImplementedError where Arrow has no type for elements of `dtype`."""
    if dtype.names is not None:
        for name in dtype.names:
            check(dtype[name].base)
        return
    # 2: of another package, ml_dtypes.
    if dtype.isbuiltin == 2 or dtype.kind not in "?biufMmSUV":
        raise NotImplementedError(f"[to_arrow] Arrow has no type for elements of {dtype}")
    if dtype.kind in _UNITS:
        unit, count = np.datetime_data(dtype)
        if count != 1 or unit not in _UNITS[dtype.kind]:
            raise NotImplementedError(
                f"[to_arrow] Arrow has no type for elements of {dtype}: it counts time in "
                f"{', '.join(_UNITS[dtype.kind])}"
            )


def fixed(array: np.ndarray[Any, Any]) -> pa.Array:
    """What was read of elements of one length."""
    dtype = array.dtype
    # A field of a structure lies between others, in the byte order in which it is stored.
    if dtype.names is None:
        array = np.asarray(array, dtype.newbyteorder("="), order="C")
    return _nested(_flat(array.reshape(-1)), array.shape)


def ragged(
    kind: str,
    values: np.ndarray[Any, Any],
    offsets: np.ndarray[Any, Any],
    shape: tuple[int, ...],
) -> pa.Array:
    """What was read of elements of variable length; `kind`: "string", "bytes", ..."""
    if kind == "array":
        items = fixed(values)
        type_, buffers, children = pa.large_list(items.type), [], [items]
    else:
        type_ = pa.large_binary() if kind == "bytes" else pa.large_string()
        buffers, children = [pa.py_buffer(values)], []
    flat = pa.Array.from_buffers(
        type_, len(offsets) - 1, [None, pa.py_buffer(offsets), *buffers], children=children or None
    )
    if kind == "object":
        flat = pa.ExtensionArray.from_storage(pa.json_(pa.large_string()), flat)
    return _nested(flat, shape)


def _flat(flat: np.ndarray[Any, Any]) -> pa.Array:
    dtype = flat.dtype
    if dtype.names is not None:
        fields = [fixed(flat[name]) for name in dtype.names]
        return pa.StructArray.from_arrays(fields, names=list(dtype.names))
    if dtype.kind == "V":
        type_ = pa.binary(dtype.itemsize)
        return pa.Array.from_buffers(type_, len(flat), [None, pa.py_buffer(flat.view(np.uint8))])
    if dtype == "M8[D]":
        days = flat.view(np.int64)
        if np.any((days != days.astype(np.int32)) & ~np.isnat(flat)):  # pyarrow would wrap around
            raise ValueError("[to_arrow] days beyond what date32 of Arrow holds")
    if dtype.kind == "S":
        return pa.array(flat, pa.large_binary())
    if dtype.kind == "U":
        try:
            return pa.array(flat, pa.large_string())
        except UnicodeDecodeError as error:
            raise CorruptError(f"[to_arrow] elements of {dtype} are no Unicode: {error}") from error
    return pa.array(flat)


def _nested(flat: pa.Array, shape: tuple[int, ...]) -> pa.Array:
    """The dimensions behind the first as lists of one size; `flat` is in C order."""
    for axis in range(len(shape) - 1, 0, -1):
        if shape[axis] > _MAX_LIST:
            raise NotImplementedError(
                f"[to_arrow] a list of {shape[axis]} elements: Arrow's fixed_size_list has at most "
                f"{_MAX_LIST}; select less, or read_ragged() and reshape"
            )
        type_ = pa.list_(flat.type, shape[axis])
        flat = pa.Array.from_buffers(type_, math.prod(shape[:axis]), [None], children=[flat])
    return flat
