"""Arrays of Arrow over memory that C++ has filled, without a copy where Arrow has the layout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ._arrow_device import DeviceArrowArray
from ._core import DeviceArray
from .errors import CorruptError

try:
    import pyarrow as pa
except ModuleNotFoundError as error:
    raise ImportError(
        f"to_arrow needs {error.name}, which is not installed (pip install 'headrace[arrow]')"
    ) from error

_UNITS = {"M": ("D", "s", "ms", "us", "ns"), "m": ("s", "ms", "us", "ns")}
_MAX_LIST = 2**31 - 1


def check(dtype: np.dtype[Any], device: str) -> None:
    """NotImplementedError where Arrow has no type for elements of `dtype`, or other elements."""
    if device != "cpu" and (dtype.isbuiltin == 2 or dtype.kind not in "iuf"):
        raise NotImplementedError(
            f'[to_arrow] elements of {dtype} are converted on the host (device="cpu"), not on '
            f"{device}: integers, floats and elements of variable length are not converted"
        )
    if dtype.names is not None:
        for name in dtype.names:
            check(dtype[name].base, device)
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


def fixed(array: np.ndarray[Any, Any] | DeviceArray) -> pa.Array | DeviceArrowArray:
    """What was read of elements of one length."""
    if isinstance(array, DeviceArray):
        flat = _made(pa.from_numpy_dtype(array.dtype), array.size, [None, array])
        return _nested(flat, array.shape)
    dtype = array.dtype
    # A field of a structure lies between others, in the byte order in which it is stored.
    if dtype.names is None:
        array = np.asarray(array, dtype.newbyteorder("="), order="C")
    return _nested(_flat(array.reshape(-1)), array.shape)


def ragged(
    kind: str,
    values: np.ndarray[Any, Any] | DeviceArray,
    offsets: np.ndarray[Any, Any] | DeviceArray,
    shape: tuple[int, ...],
) -> pa.Array | DeviceArrowArray:
    """What was read of elements of variable length; `kind`: "string", "bytes", ..."""
    count = len(offsets) - 1
    if kind == "array":
        items = fixed(values)
        return _nested(_made(pa.large_list(items.type), count, [None, offsets], [items]), shape)
    type_ = pa.large_binary() if kind == "bytes" else pa.large_string()
    if kind == "object":
        type_ = pa.json_(type_)
    return _nested(_made(type_, count, [None, offsets, values]), shape)


def _made(
    type_: pa.DataType, length: int, buffers: Sequence[Any], children: Sequence[Any] = ()
) -> pa.Array | DeviceArrowArray:
    """Of buffers and children that lie on one device, or on the host."""
    if any(isinstance(part, DeviceArray | DeviceArrowArray) for part in (*buffers, *children)):
        return DeviceArrowArray(type_, length, buffers, children)
    if isinstance(type_, pa.BaseExtensionType):
        storage = _made(type_.storage_type, length, buffers, children)
        return pa.ExtensionArray.from_storage(type_, storage)
    host = [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers]
    return pa.Array.from_buffers(type_, length, host, children=children or None)


def _flat(flat: np.ndarray[Any, Any]) -> pa.Array:
    dtype = flat.dtype
    if dtype.names is not None:
        fields = [fixed(flat[name]) for name in dtype.names]
        return pa.StructArray.from_arrays(fields, names=list(dtype.names))
    if dtype.kind == "V":
        return _made(pa.binary(dtype.itemsize), len(flat), [None, flat.view(np.uint8)])
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


def _nested(
    flat: pa.Array | DeviceArrowArray, shape: tuple[int, ...]
) -> pa.Array | DeviceArrowArray:
    """The dimensions behind the first as lists of one size; `flat` is in C order."""
    for axis in range(len(shape) - 1, 0, -1):
        if shape[axis] > _MAX_LIST:
            raise NotImplementedError(
                f"[to_arrow] a list of {shape[axis]} elements: Arrow's fixed_size_list has at most "
                f"{_MAX_LIST}; select less, or read_ragged() and reshape"
            )
        type_ = pa.list_(flat.type, shape[axis])
        flat = _made(type_, math.prod(shape[:axis]), [None], [flat])
    return flat
