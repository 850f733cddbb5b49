"""What a `Loader` may be given in place of a dict of arrays."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from .. import _check, _core
from .._check import described, wrong_type
from .._suggest import did_you_mean
from ..group import Group

_WANTED = (
    "headrace arrays by name, a group, a path, a data set of the engine 'headrace', or an array"
)


def named_arrays(given: Any, sample_dim: str | int) -> list[dict[str, _core.Array]]:
    """The arrays of each store, by name."""
    if isinstance(given, list | tuple):
        if not given:
            raise ValueError("arrays: an empty list")
        stores = [_of_store(one, sample_dim) for one in given]
    else:
        stores = [_of_store(given, sample_dim)]
    if isinstance(sample_dim, str):
        _check_dimension(sample_dim, [array for store in stores for array in store.values()])
    return stores


def _check_dimension(name: str, arrays: list[_core.Array]) -> None:
    known = {each for array in arrays for each in array.dimension_names or () if each}
    if name not in known:
        has = did_you_mean(name, sorted(known), "there are")
        raise ValueError(f'sample_dim "{name}": no variable has it{has}')


def names_stores(given: Any) -> bool:
    """Whether several stores were given, or a list of one."""
    return isinstance(given, list | tuple)


def _of_store(given: Any, sample_dim: str | int) -> dict[str, _core.Array]:
    if isinstance(given, str | os.PathLike):
        from .._open import open

        with _check.argument("arrays", "store"):
            given = open(given)
    if isinstance(given, _core.Array):
        return {_name_of(given): given}
    if isinstance(given, Group):
        return _data_arrays(given, sample_dim)
    if type(given).__module__.partition(".")[0] == "xarray" and hasattr(given, "data_vars"):
        return {str(name): _behind(name, given[name]) for name in given.data_vars}
    if not isinstance(given, Mapping):
        raise wrong_type("arrays", _WANTED, given)
    if not given:
        raise ValueError("arrays: an empty dict")
    arrays = {}
    for name, array in given.items():
        if not isinstance(name, str):
            raise TypeError(f"arrays: expected names, got {described(name)}")
        library = type(array).__module__.partition(".")[0]
        if library == "xarray":
            array = _behind(name, array)
        elif library == "zarr" or isinstance(array, str | os.PathLike):
            from .._open import open_array

            with _check.argument("arrays", "store"):
                array = open_array(array)
        if not isinstance(array, _core.Array):
            raise TypeError(
                f"arrays: expected a headrace array for {name!r}, got {described(array)}"
            )
        arrays[name] = array
    return arrays


def _name_of(array: _core.Array) -> str:
    """The last part of its path, or of its store's."""
    name = array.path.rpartition("/")[2]
    if not name and array.store._python_store is None:
        name = unquote(array.store.url).rpartition("/")[2].partition(".")[0]
    return name or "data"


def _data_arrays(group: Group, sample_dim: str | int) -> dict[str, _core.Array]:
    """Those of a group that are no coordinates of others and have the sample dimension."""
    members = dict(group.arrays())
    coordinates = {name for array in members.values() for name in _coordinates(array)}
    found = {
        name: array
        for name, array in members.items()
        if array.dimension_names != (name,)
        and name not in coordinates
        and (isinstance(sample_dim, int) or sample_dim in (array.dimension_names or ()))
    }
    if not found:
        having = ""
        if isinstance(sample_dim, str):
            known = {name for array in members.values() for name in array.dimension_names or ()}
            hint = did_you_mean(sample_dim, sorted(filter(None, known)), "there are")
            having = f" with a dimension {sample_dim!r}{hint}"
        raise ValueError(f"arrays: {group!r} has no array of data{having}")
    return found


def _coordinates(array: _core.Array) -> Iterable[str]:
    """Named by the CF attribute."""
    names = array.attrs.get("coordinates", "")
    return names.split() if isinstance(names, str) else ()


def _behind(name: Any, data_array: Any) -> _core.Array:
    """The array that a variable of xarray is read from, all of it and as it is stored."""
    from xarray.core import indexing

    from ..xarray import HeadraceArray

    data = getattr(data_array.variable, "_data", None)
    while isinstance(data, indexing.MemoryCachedArray | indexing.CopyOnWriteArray):
        data = data.array
    if isinstance(data, indexing.LazilyIndexedArray) and isinstance(data.array, HeadraceArray):
        array = data.array._array
        whole = all(
            isinstance(item, slice) and range(extent)[item] == range(extent)
            for item, extent in zip(data.key.tuple, array.shape, strict=True)
        )
        if whole and type(data.array) is HeadraceArray:
            return array
    raise TypeError(
        f"arrays: {name!r} is no whole array of a store as it is stored: xarray has selected from "
        "it, decoded or computed it; open it with xr.open_dataset(..., engine='headrace', "
        "mask_and_scale=False) and change nothing, or pass headrace.open(path)"
    )
