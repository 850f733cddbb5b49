"""What elements of an HDF5 data set hold that were never written."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np

from ._reference_model import NotRepresentable

# Of netCDF, for variables without a fill value of their own.
_DEFAULTS = {
    "S1": b"", "i1": -127, "u1": 255, "i2": -32767, "u2": 65535, "i4": -2147483647,
    "u4": 4294967295, "i8": -9223372036854775806, "u8": 18446744073709551614,
    "f4": 9.969209968386869e36, "f8": 9.969209968386869e36,
}  # fmt: skip


def fill_value_of(node: h5py.Dataset, dtype: np.dtype[Any]) -> Any:
    plist = node.id.get_create_plist()
    if plist.fill_value_defined() == h5py.h5d.FILL_VALUE_UNDEFINED:
        return None
    if node.dtype.subdtype is not None:
        if plist.fill_value_defined() == h5py.h5d.FILL_VALUE_USER_DEFINED:
            raise NotRepresentable("a fill value of arrays as elements")
        return None
    value = np.zeros((), dtype.newbyteorder("=") if dtype.kind in "biufc" else dtype)
    plist.get_fill_value(value)
    return value[()]


def fill_value_behind(node: h5py.Dataset) -> Any:
    """What netCDF has behind the end of a variable without a fill value that reaches less far than
    its dimension; None where it is what the file says."""
    plist = node.id.get_create_plist()
    if plist.fill_value_defined() == h5py.h5d.FILL_VALUE_USER_DEFINED:
        return None
    if h5py.check_enum_dtype(node.dtype) is not None:
        return None
    found = _DEFAULTS.get(node.dtype.str.lstrip("<>|=")) if node.dtype.names is None else None
    return None if found is None else np.asarray(found, node.dtype)[()]


def zeros_are_filled_in(node: h5py.Dataset) -> bool:
    return bool(node.id.get_create_plist().get_fill_time() != h5py.h5d.FILL_TIME_NEVER)


def filled_edge(node: h5py.Dataset, info: Any, value: Any) -> bytes:
    """The elements of a chunk, with `value` behind the end."""
    whole = np.full(node.chunks, value, node.dtype)
    here = tuple(
        slice(offset, min(offset + chunk, extent))
        for offset, chunk, extent in zip(info.chunk_offset, node.chunks, node.shape, strict=True)
    )
    elements = node[here]
    whole[tuple(map(slice, elements.shape))] = elements
    return whole.tobytes()
