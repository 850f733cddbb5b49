"""AnnData's format in Zarr, as far as cells are read from it.

https://anndata.readthedocs.io/en/stable/fileformat-prose.html
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _core
from ..errors import CorruptError
from ..group import Group

Strings = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Matrix:
    """A matrix of one store: dense, or sparse where there are indices."""

    where: str  # for messages
    shape: tuple[int, int]
    data: _core.Array
    indices: _core.Array | None = None
    indptr: _core.Array | None = None


@dataclass(frozen=True)
class Column:
    """A column of one store: numbers, strings, or codes into categories."""

    values: np.ndarray[Any, Any]
    categories: np.ndarray[Any, Any] | None = None
    missing: np.ndarray[Any, Any] | None = None  # of numbers and strings


def encoding(node: _core.Array | Group) -> str:
    """The encoding-type; that of arrays without one by their elements."""
    found = node.attrs.get("encoding-type")
    if found is None and isinstance(node, _core.Array):
        return "array" if np.dtype(node.dtype).kind in "biufc" else "string-array"
    return str(found)


def name_of(node: _core.Array | Group) -> str:
    return f"{node.store.url}/{node.path}".rstrip("/")


def member(group: Group, path: str) -> _core.Array | Group:
    try:
        return group[path]
    except KeyError:
        raise KeyError(f"{name_of(group)} has no {path!r}") from None


def open_matrix(store: Group, path: str) -> Matrix:
    """The matrix at such a path as "X", "layers/counts" and "obsm/X_pca"."""
    node = member(store, path)
    where = name_of(node)
    kind = encoding(node)
    if isinstance(node, _core.Array):
        if kind != "array" or node.ndim != 2:
            raise ValueError(f"{where}: expected a matrix, got {kind} of shape {node.shape}")
        return Matrix(where, (node.shape[0], node.shape[1]), node)
    if kind == "csc_matrix":
        raise ValueError(
            f"{where} is a csc_matrix: its cells lie apart in the store, so that each batch would "
            "read all of it; write it as a csr_matrix (scipy.sparse.csr_matrix(x))"
        )
    if kind != "csr_matrix":
        raise ValueError(f"{where}: expected a csr_matrix or an array, got {kind}")
    data, indices, indptr = (_vector(node, name) for name in ("data", "indices", "indptr"))
    for array in (indices, indptr):
        if np.dtype(array.dtype).kind not in "iu":
            raise CorruptError(f"{name_of(array)}: expected integers, got {array.dtype}")
    shape = _shape(node, where)
    if indptr.shape[0] != shape[0] + 1:
        raise CorruptError(
            f"{name_of(indptr)}: {indptr.shape[0]} positions, where the {shape[0]} rows of the "
            f"matrix have {shape[0] + 1}"
        )
    if data.shape != indices.shape:
        raise CorruptError(
            f"{where}: {data.shape[0]} elements of data, {indices.shape[0]} of indices"
        )
    return Matrix(where, shape, data, indices, indptr)


def _vector(group: Group, name: str) -> _core.Array:
    found = member(group, name)
    if not isinstance(found, _core.Array) or found.ndim != 1:
        raise CorruptError(f"{name_of(found)}: expected an array of one dimension")
    return found


def _shape(node: Group, where: str) -> tuple[int, int]:
    shape: Any = node.attrs.get("shape")
    good = isinstance(shape, Sequence) and not isinstance(shape, str) and len(shape) == 2
    if not good or not all(type(extent) is int and 0 <= extent < 1 << 62 for extent in shape):
        raise CorruptError(f"{where}: expected a shape of two extents, got {shape!r}")
    return shape[0], shape[1]


def frame(store: Group, path: str) -> Group:
    """The group of a data frame: obs, var, raw/var."""
    found = member(store, path)
    if not isinstance(found, Group) or encoding(found) != "dataframe":
        raise ValueError(f"{name_of(found)}: expected a dataframe, got {encoding(found)}")
    return found


def column_names(frame: Group) -> list[str]:
    names: Any = frame.attrs.get("column-order")
    if isinstance(names, str):  # as references to HDF5 have a list of one
        names = [names]
    return [str(name) for name in names] if isinstance(names, list) else []


def index_key(frame: Group) -> str:
    """The name of the array that is a data frame's index; "_index" where that has no name."""
    return str(frame.attrs.get("_index", "_index"))


def index_of(frame: Group) -> Strings:
    """Names of the rows of a data frame."""
    column = read_column(frame, index_key(frame))
    values = column.values
    if column.missing is not None:
        raise ValueError(f"{name_of(frame)}: its index has missing names")
    if column.categories is not None:
        if (values < 0).any():
            raise ValueError(f"{name_of(frame)}: its index has missing names")
        values = column.categories[values]
    return values if values.dtype.kind in "TO" else values.astype(str)


def length_of(frame: Group) -> int:
    """Rows of a data frame, by its index, which is not read."""
    node = member(frame, index_key(frame))
    if isinstance(node, Group):
        node = member(node, "codes" if encoding(node) == "categorical" else "values")
    if not isinstance(node, _core.Array) or node.ndim != 1:
        raise CorruptError(f"{name_of(frame)}: its index is no array of one dimension")
    return int(node.shape[0])


def read_column(frame: Group, name: str) -> Column:
    """A column of a data frame, all of it."""
    node = member(frame, name)
    kind, where = encoding(node), name_of(node)
    if isinstance(node, _core.Array):
        if node.ndim != 1:
            raise CorruptError(f"{where}: expected one dimension, got shape {node.shape}")
        if _old_categories(name) in frame:
            return _codes_into(member(frame, _old_categories(name)), node.read(device="cpu"), where)
        if kind not in ("array", "string-array"):
            raise ValueError(f"{where}: a column of {kind} is not read")
        return Column(node.read(device="cpu"))
    if kind == "categorical":
        return _categorical(node, where)
    if kind in ("nullable-integer", "nullable-boolean", "nullable-string-array"):
        values, mask = (_vector(node, part).read(device="cpu") for part in ("values", "mask"))
        if mask.shape != values.shape or mask.dtype != bool:
            raise CorruptError(f"{where}: its mask is {mask.dtype} of shape {mask.shape}")
        if not mask.any():
            return Column(values)
        if values.dtype.kind not in "biuf":
            values = values.astype(object)
            values[mask] = None
            return Column(values)
        return Column(values, missing=mask)
    raise ValueError(f"{where}: a column of {kind} is not read")


def is_ordered(frame: Group, name: str) -> bool:
    """Whether a column's categories are said to be in an order that means something."""
    node = member(frame, name)
    if isinstance(node, _core.Array):
        if _old_categories(name) not in frame:
            return False
        node = member(frame, _old_categories(name))
    return bool(node.attrs.get("ordered"))


def _old_categories(name: str) -> str:
    """Where anndata had the categories of a column before 0.8, and on them `ordered`."""
    return f"__categories/{name}"


def _categorical(node: Group, where: str) -> Column:
    return _codes_into(member(node, "categories"), _vector(node, "codes").read(device="cpu"), where)


def _codes_into(node: _core.Array | Group, codes: np.ndarray[Any, Any], where: str) -> Column:
    """Codes of categories, which may have an encoding of their own."""
    if isinstance(node, Group):
        node = _vector(node, "values")
    if node.ndim != 1:
        raise CorruptError(f"{where}: categories of shape {node.shape}")
    categories = node.read(device="cpu")
    if codes.dtype.kind not in "iu":
        raise CorruptError(f"{where}: expected codes of integers, got {codes.dtype}")
    codes = codes.astype(np.int64) if codes.dtype.kind == "u" else codes
    wrong = np.flatnonzero((codes < -1) | (codes >= len(categories)))
    if wrong.size:
        raise CorruptError(
            f"{where} row {wrong[0]}: code {codes[wrong[0]]} of {len(categories)} categories"
        )
    return Column(codes, categories)
