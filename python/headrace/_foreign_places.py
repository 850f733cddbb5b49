"""Where arrays of other libraries are read from, and what tells their elements from others'."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from . import _core
from ._paths import place_of, real_path

# How deep xarray wraps what it reads from.
_MOST_LAYERS = 16


def places_of(array: Any) -> list[str] | None:
    """Files and folders, by their real paths: [] of what is in memory, None if unknown."""
    for _ in range(_MOST_LAYERS):
        if isinstance(array, np.memmap):
            return [real_path(os.fspath(array.filename))] if array.filename else None
        if isinstance(array, np.ndarray | np.generic):
            return []
        if isinstance(array, _core.Array):
            place = place_of(array.store, array.path)
            return None if place is None else [place]
        if is_of_zarr(array):
            return _places_of_zarr(array.store_path)
        if _is_of("h5py", "Dataset", array):
            return [real_path(os.fsdecode(array.file.filename))]
        datastore = getattr(array, "datastore", None)  # of xarray's wrappers of files
        if isinstance(filename := getattr(datastore, "_filename", None), str):
            return [real_path(filename)] if "://" not in filename else []
        inner = getattr(array, "_data", None)
        if inner is None:
            inner = getattr(array, "array", None)
        if inner is None:
            inner = getattr(array, "_array", None)
        if inner is None:
            return None
        array = inner
    return None


# What it makes a name of, hashed. A name that a caller gave says nothing of the elements.
_MADE_BY_DASK = re.compile("-[0-9a-f]{32}$")
# Of elements in memory that are told by their values: what is hashed in a quarter of a second.
_MOST_HASHED_NBYTES = 256 << 20


def name_of(arrays: Mapping[str, Any]) -> str:
    """What tells the elements of these arrays from others', in another process too; "" if nothing.

    Arrays of Dask are told by their names, which it makes of what they are computed from, those of
    zarr-python by their folder, and those in memory by their values.
    """
    names = [f"{path}={_name_of(array)}" for path, array in arrays.items()]
    if any(name.endswith("=") for name in names):
        return ""
    return "arrays:" + hashlib.blake2b("\n".join(names).encode(), digest_size=16).hexdigest()


def _name_of(array: Any) -> str:
    array = getattr(array, "variable", array)  # of a DataArray
    if getattr(array, "_in_memory", False):  # xarray's
        array = np.asarray(array)
    inner = getattr(array, "_data", None)
    if _is_of("dask.array", "Array", inner):
        array = inner
    if _is_of("dask.array", "Array", array):
        return f"dask:{array.name}" if _MADE_BY_DASK.search(array.name) else ""
    if is_of_zarr(array):
        places = _places_of_zarr(array.store_path)
        return f"zarr:{places[0]}" if places else ""
    if type(array) is np.ndarray and array.nbytes <= _MOST_HASHED_NBYTES:
        return _hash_of(array)
    return ""


def _hash_of(array: np.ndarray[Any, Any]) -> str:
    values = np.ascontiguousarray(array)
    hashed = hashlib.blake2b(f"{values.dtype.str}{values.shape}".encode(), digest_size=16)
    if not values.dtype.hasobject:
        hashed.update(values.reshape(-1).view("u1").data if values.nbytes else b"")
    elif all(isinstance(value, str) for value in values.flat):
        hashed.update(repr(values.tolist()).encode())
    else:
        return ""
    return f"values:{hashed.hexdigest()}"


def is_of_zarr(array: Any) -> bool:
    return _is_of("zarr", "Array", array)


def _is_of(module: str, name: str, value: Any) -> bool:
    found = getattr(sys.modules.get(module), name, None)
    return found is not None and isinstance(value, found)


def _places_of_zarr(place: Any) -> list[str] | None:
    if _is_of("zarr.storage", "MemoryStore", place.store):
        return []
    if _is_of("zarr.storage", "LocalStore", place.store):
        return [real_path(os.fspath(place.store.root), place.path)]
    return None
