"""New arrays by what they hold, as NumPy and zarr-python make them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _check, _core
from ._create import create_array

Shape = int | Sequence[int]


def _place(store: Any, path: Any) -> Any:
    _check.path("path", path)
    return _core.memory_store() if store is None else store


def zeros(
    shape: Shape,
    dtype: Any = "float64",
    *,
    store: Any = None,
    path: str | None = None,
    **create: Any,
) -> _core.Array:
    """A new array of zeros. Nothing but metadata is stored.

    Parameters
    ----------
    shape, dtype
        As of `numpy.zeros`.
    store, path
        Where it lies, as of `create_array`; a new store in memory when None.
    **create
        Other arguments of `create_array`.

    Raises
    ------
    TypeError, ValueError
        What `create_array` raises, for example where something is there already.

    Examples
    --------
    >>> hr.zeros((1000, 1000), "float32", chunks=(100, 1000))
    """
    return full(shape, 0, dtype, store=store, path=path, **create)


def ones(
    shape: Shape,
    dtype: Any = "float64",
    *,
    store: Any = None,
    path: str | None = None,
    **create: Any,
) -> _core.Array:
    """A new array of ones: its fill value, so that nothing but metadata is stored.

    Parameters, and what is raised, are those of `zeros`.

    Examples
    --------
    >>> hr.ones((2, 2), "int8")[...].tolist()
    [[1, 1], [1, 1]]
    """
    return full(shape, 1, dtype, store=store, path=path, **create)


def empty(
    shape: Shape,
    dtype: Any = "float64",
    *,
    store: Any = None,
    path: str | None = None,
    **create: Any,
) -> _core.Array:
    """A new array of which nothing is stored: it reads as the fill value of its type, zeros.

    Parameters, and what is raised, are those of `zeros`.

    Examples
    --------
    >>> out = hr.empty((1000, 1000), "float32", store="out.zarr", chunks=(100, 1000))
    >>> out[:100] = 1
    """
    return create_array(_place(store, path), path, shape=shape, dtype=dtype, **create)


def full(
    shape: Shape,
    fill_value: Any,
    dtype: Any = None,
    *,
    store: Any = None,
    path: str | None = None,
    **create: Any,
) -> _core.Array:
    """A new array of one value, its fill value: nothing but metadata is stored.

    Parameters
    ----------
    shape, dtype
        As of `numpy.full`; the type of the value when None.
    fill_value
        What it holds.
    store, path, **create
        As of `zeros`.

    Raises
    ------
    TypeError
        The value is no scalar; and as of `zeros`.
    ValueError
        The type cannot hold the value; and as of `zeros`.

    Examples
    --------
    >>> hr.full((100,), float("nan"), store="gaps.zarr")[:3]
    array([nan, nan, nan])
    """
    import numpy as np

    if dtype is None:
        value = np.asarray(fill_value)
        if value.ndim or value.dtype == object:
            raise _check.wrong_type("fill_value", "a scalar", fill_value)
        dtype = str if value.dtype.kind == "U" else value.dtype
    return create_array(
        _place(store, path), path, shape=shape, dtype=dtype, fill_value=fill_value, **create
    )


def array(
    data: Any, *, dtype: Any = None, store: Any = None, path: str | None = None, **create: Any
) -> _core.Array:
    """A new array with the elements, shape and type of `data`, as of ``create_array(data=)``.

    Parameters
    ----------
    data
        What `numpy.asarray` takes, or an array of a device by DLPack.
    dtype
        That of the data when None.
    store, path, **create
        As of `zeros`.

    Raises
    ------
    TypeError
        Objects that are neither all str nor all bytes; and as of `zeros`.
    ValueError
        As of `zeros`.

    Examples
    --------
    >>> hr.array([[1, 2], [3, 4]], store="small.zarr")[0]
    array([1, 2])
    """
    if data is None:
        raise _check.wrong_type("data", "an array", data)
    return create_array(_place(store, path), path, data=data, dtype=dtype, **create)
