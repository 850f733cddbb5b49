"""What the arguments of a `Loader` mean to the C++ part."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from .. import _core


def ranks(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Those of torchrun's environment where they are not given."""
    if world_size is None:
        world_size = int(os.environ.get("WORLD_SIZE", 1))
    if rank is None:
        rank = int(os.environ.get("RANK", 0))
    return rank, world_size


def _excluded_ranges(exclude: Any) -> list[tuple[int, int]]:
    """Half-open ranges of a mask, or of indices, slices, ranges and pairs (start, stop)."""
    if exclude is None:
        return []
    if isinstance(exclude, np.ndarray) and exclude.dtype == bool:
        edges = np.flatnonzero(np.diff(np.concatenate(([0], exclude.view("i1"), [0]))))
        return [(int(begin), int(end)) for begin, end in edges.reshape(-1, 2)]
    return [_range(item) for item in exclude]


def _range(item: Any) -> tuple[int, int]:
    if isinstance(item, slice | range):
        if item.step not in (None, 1) or item.start is None or item.stop is None:
            raise ValueError(f"exclude: expected a start, a stop and steps of 1, got {item!r}")
        return int(item.start), int(item.stop)
    if isinstance(item, tuple):
        begin, end = item
        return int(begin), int(end)
    return int(item), int(item) + 1


def sources(
    arrays: Mapping[str, _core.Array] | Sequence[Mapping[str, _core.Array]],
    dtype: Any,
    normalize: Any,
    fill_nan: Any,
    exclude: Any,
) -> list[dict[str, Any]]:
    """The variables of each store, in the order of the first one's, and what is left out of it."""
    if isinstance(arrays, Mapping):
        arrays, normalize, exclude = [arrays], [normalize], [exclude]
    elif not arrays:
        raise ValueError("arrays: an empty list")
    names = list(arrays[0])
    result = []
    for number, (own, statistics, excluded) in enumerate(
        zip(
            arrays,
            _by_source(normalize, len(arrays), "normalize"),
            _by_source(exclude, len(arrays), "exclude"),
            strict=True,
        )
    ):
        if set(own) != set(names):
            raise ValueError(f"arrays: {sorted(own)} in store {number}, {sorted(names)} in store 0")
        ordered = {name: own[name] for name in names}
        result.append(
            {
                "variables": _variables(ordered, dtype, statistics, fill_nan),
                "exclude": _excluded_ranges(excluded),
            }
        )
    return result


def _by_source(value: Any, count: int, option: str) -> Sequence[Any]:
    """One for each store; a dict is for all of them."""
    if value is None or isinstance(value, Mapping):
        return [value] * count
    if isinstance(value, np.ndarray) or len(value) != count:
        raise ValueError(f"{option}: expected a list with one for each of the {count} stores")
    return value


def _variables(
    arrays: Mapping[str, _core.Array],
    dtype: Any,
    normalize: Mapping[str, Any] | None,
    fill_nan: Any,
) -> list[dict[str, Any]]:
    """Each array with what is done to its elements."""
    dtypes = _by_name(arrays, dtype, "dtype")
    fills = _by_name(arrays, fill_nan, "fill_nan")
    statistics = _by_name(arrays, normalize or {}, "normalize")
    result = []
    for name, array in arrays.items():
        mean, std = statistics.get(name, ((), ()))
        result.append(
            {
                "name": name,
                "array": array,
                "dtype": dtypes.get(name),
                "mean": np.ravel(mean).astype(float).tolist(),
                "std": np.ravel(std).astype(float).tolist(),
                "fill_nan": fills.get(name),
            }
        )
    return result


def _by_name(arrays: Mapping[str, Any], value: Any, option: str) -> Mapping[str, Any]:
    """A value for all arrays, or those of some by name."""
    if not isinstance(value, Mapping):
        return dict.fromkeys(arrays, value)
    if unknown := sorted(set(value) - set(arrays)):
        raise ValueError(f"{option}: no array {unknown[0]!r}, only {', '.join(arrays)}")
    return value


def patches(patch: Mapping[Any, int] | None, halo: Any, padding: Any) -> list[dict[str, Any]]:
    """Size, halo and padding of each patched dimension."""
    sizes = dict(patch or {})
    halos = halo if isinstance(halo, Mapping) else dict.fromkeys(sizes, halo)
    paddings = padding if isinstance(padding, Mapping) else dict.fromkeys(sizes, padding)
    for option, given in (("halo", halos), ("padding", paddings)):
        if unknown := [dim for dim in given if dim not in sizes]:
            raise ValueError(f"{option}: {unknown[0]!r} has no patches")
    return [
        {
            "dimension": dim,
            "size": size,
            "halo": halos.get(dim, 0),
            "padding": paddings.get(dim, "zero"),
        }
        for dim, size in sizes.items()
    ]


def selections(
    select: Mapping[Any, Any] | None, variables: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Indices of each selected dimension."""
    result = []
    for dim, wanted in (select or {}).items():
        if not isinstance(wanted, slice):
            wanted = np.asarray(wanted)
            if wanted.size == 0:
                raise ValueError(f"select: no indices of {dim!r}")
        chosen = np.arange(_extent(variables, dim))[wanted]
        result.append({"dimension": dim, "indices": np.ravel(chosen).tolist()})
    return result


def _extent(variables: Sequence[Mapping[str, Any]], dim: str | int) -> int:
    for array in (variable["array"] for variable in variables):
        if isinstance(dim, int) and -array.ndim <= dim < array.ndim:
            return int(array.shape[dim])
        if dim in (array.dimension_names or ()):
            return int(array.shape[array.dimension_names.index(dim)])
    raise ValueError(f"select: no array has a dimension {dim!r}")


def stacks(stack: Mapping[str, Iterable[str]] | None) -> list[dict[str, Any]]:
    """Names of the variables of each tensor."""
    return [{"name": name, "variables": list(members)} for name, members in (stack or {}).items()]


def lead_times(lead_time: int | Sequence[int]) -> list[int]:
    """One or several."""
    return [int(lead) for lead in np.atleast_1d(np.asarray(lead_time, dtype="i8"))]
