"""Columns of several stores as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._anndata import Column


@dataclass(frozen=True)
class ObsColumn:
    """A column of the cells of all stores.

    Attributes
    ----------
    values
        ``(n_obs,)``: numbers; strings; or of a categorical column codes, signed integers that count
        from 0 in ``categories``, -1 where a value is missing.
    categories
        ``(n_categories,)`` of a categorical column: those of the first store, then what others have
        beside them, in their order. None for others.
    missing
        ``(n_obs,)`` boolean, True where a number is missing; None where none is.
    """

    values: np.ndarray[Any, Any]
    categories: np.ndarray[Any, Any] | None = None
    missing: np.ndarray[Any, Any] | None = None

    def take(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The values at these rows: of numbers of which some are missing a masked array."""
        values = self.values[rows]
        return values if self.missing is None else np.ma.MaskedArray(values, self.missing[rows])


def join_columns(name: str, parts: Sequence[Column]) -> ObsColumn:
    """One column of those of the stores; ValueError where they do not fit together."""
    if any(part.categories is not None for part in parts):
        return _join_categories(name, [_categorized(name, part) for part in parts])
    kinds = {"text" if part.values.dtype.kind in "TOUS" else "number" for part in parts}
    if len(kinds) > 1:
        raise ValueError(f"obs: {name!r} has numbers in one store and strings in another")
    dtype = _common_type(name, parts)
    values = np.concatenate([part.values for part in parts], dtype=dtype, casting="unsafe")
    if not any(part.missing is not None for part in parts):
        return ObsColumn(values)
    missing = [
        np.zeros(len(part.values), bool) if part.missing is None else part.missing for part in parts
    ]
    return ObsColumn(values, missing=np.concatenate(missing))


def _common_type(name: str, parts: Sequence[Column]) -> np.dtype[Any] | None:
    """Of numbers of which none becomes another; None: NumPy's choice.

    That is float64 for int64 beside uint64 or floats, which has not all of their numbers.
    """
    types = {part.values.dtype for part in parts}
    if not any(dtype.kind in "iu" and dtype.itemsize == 8 for dtype in types):
        return None
    chosen = np.result_type(*types)
    if chosen.kind != "f":
        return None
    given = [
        part.values if part.missing is None else part.values[~part.missing]
        for part in parts
        if part.values.dtype.kind in "iu"
    ]
    least = min((int(values.min()) for values in given if values.size), default=0)
    most = max((int(values.max()) for values in given if values.size), default=0)
    if all(dtype.kind in "iub" for dtype in types):
        if most <= np.iinfo(np.int64).max:
            return np.dtype(np.int64)
        if least >= 0:
            return np.dtype(np.uint64)
    exact = 1 << np.finfo(chosen).nmant + 1
    if -exact <= least and most <= exact:
        return None
    raise ValueError(
        f"obs: {name!r} has {' and '.join(sorted(map(str, types)))} in different stores, and "
        f"whole numbers up to {max(most, -least)}, which are none of {chosen}"
    )


def _categorized(name: str, part: Column) -> Column:
    if part.categories is not None:
        return part
    if part.missing is not None or part.values.dtype.kind not in "TUSO":
        raise ValueError(
            f"obs: {name!r} is categorical in one store and has {part.values.dtype} in another"
        )
    missing = np.zeros(len(part.values), bool)
    if part.values.dtype.kind == "O":  # strings, and None where one is missing
        missing[:] = [value is None for value in part.values.tolist()]
    categories, known = np.unique(part.values[~missing], return_inverse=True)
    codes = np.full(len(part.values), -1)
    codes[~missing] = known
    return Column(codes, categories)


_NAN = float("nan")


def _join_categories(name: str, parts: Sequence[Column]) -> ObsColumn:
    numbers: dict[Any, int] = {}
    maps = []
    first: list[Any] | None = None
    are_bool: set[bool] = set()  # of which a dict takes True for 1
    for part in parts:
        assert part.categories is not None
        # One NaN for all: a dict finds it by identity.
        known = [_NAN if c != c else c for c in part.categories.tolist()]
        are_bool.update(isinstance(category, bool) for category in known)
        first = known if first is None else first
        maps.append([numbers.setdefault(category, len(numbers)) for category in known])
    if len({isinstance(category, str) for category in numbers}) > 1:
        raise ValueError(f"obs: {name!r} has categories of strings and of numbers")
    if len(are_bool) > 1:
        raise ValueError(f"obs: {name!r} has categories of truth values and of others")
    dtype = np.min_scalar_type(-max(len(numbers), 1))
    codes = [
        np.array([*own, -1], dtype)[part.values] for own, part in zip(maps, parts, strict=True)
    ]
    categories = list(numbers)
    if categories == first:  # a store may have one twice
        return ObsColumn(np.concatenate(codes), parts[0].categories)
    kept = np.array(categories, _type(parts))
    if any(a != b and a == a for a, b in zip(categories, kept.tolist(), strict=True)):
        raise ValueError(
            f"obs: {name!r} has categories of different stores that {kept.dtype} lacks"
        )
    return ObsColumn(np.concatenate(codes), kept)


def _type(parts: Sequence[Column]) -> Any:
    """Of the strings of the first store that has some; None for numbers."""
    types = [
        part.categories.dtype
        for part in parts
        if part.categories is not None and part.categories.size
    ]
    return types[0] if types and types[0].kind in "TO" else None
