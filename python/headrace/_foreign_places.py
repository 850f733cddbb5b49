"""Where arrays of other libraries are read from."""

from __future__ import annotations

import os
import sys
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
