"""What is said by the names of dimensions: selections, extents of chunks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import _check
from ._suggest import did_you_mean

Names = Sequence[str | None] | None


def axes_of(where: str, given: Mapping[Any, Any], names: Names, ndim: int) -> dict[int, Any]:
    """The values of `given` by the number of their dimension.

    Raises
    ------
    ValueError
        A dimension that there is not, or twice: by its name and by its number.
    TypeError
        What is neither a name nor a number.
    """
    known = [name for name in names or () if name]
    axes: dict[int, Any] = {}
    for key, value in given.items():
        if isinstance(key, str):
            if key not in known:
                has = did_you_mean(key, known, "there are") if known else "; they have no names"
                raise ValueError(f"{where}: no dimension {key!r}{has}")
            if known.count(key) > 1:
                raise ValueError(f"{where}: {key!r} is the name of several dimensions")
            axis = list(names or ()).index(key)
        else:
            _check.integer(where, key, "names or numbers of dimensions")
            if not -ndim <= key < ndim:
                raise ValueError(f"{where}: no dimension {key}: there are {ndim}")
            axis = key % ndim
        if axis in axes:
            raise ValueError(f"{where}: dimension {axis} is given twice")
        axes[axis] = value
    return axes


def selection(given: Mapping[Any, Any], names: Names, ndim: int) -> tuple[Any, ...]:
    """``{"time": slice(0, 10)}`` as a key with an item for each dimension."""
    axes = axes_of("selection", given, names, ndim)
    return tuple(axes.get(axis, slice(None)) for axis in range(ndim))


def points(given: Mapping[Any, Any], names: Names, ndim: int) -> tuple[Any, ...]:
    """The same for `vindex`, whose points have an index along every dimension."""
    axes = axes_of("selection", given, names, ndim)
    labels = [axis if name is None else name for axis, name in enumerate(names or range(ndim))]
    missing = ", ".join(repr(labels[axis]) for axis in range(ndim) if axis not in axes)
    if missing:
        raise IndexError(f"vindex wants an index for every dimension: there is none for {missing}")
    return tuple(axes[axis] for axis in range(ndim))


def axis(given: str, names: Names, ndim: int) -> int:
    """The number of the dimension that is called so."""
    return next(iter(axes_of("axis", {given: None}, names, ndim)))
