"""Names, columns and attributes of a converted store, in the encodings of AnnData 0.12."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from .._cells import Cells, ObsColumn
from .._cells._anndata import (
    column_names,
    frame,
    index_key,
    index_of,
    is_ordered,
    read_column,
)
from .._open import open_group
from ..group import Group, create_group
from ._rows import Conversion, encoded

_CHUNK = 1 << 16
_UNNAMED = "_index"  # the name of an index that has none


def common_columns(groups: Sequence[Group]) -> list[str]:
    """Columns of obs that all stores have; says which are left out."""
    found = [column_names(frame(group, "obs")) for group in groups]
    kept = [name for name in found[0] if all(name in own for own in found)]
    left_out = sorted({name for own in found for name in own} - set(kept))
    if left_out:
        warnings.warn(f"cells: left out of obs: {', '.join(left_out)}", stacklevel=4)
    return kept


def names_of_cells(groups: Sequence[Group]) -> np.ndarray[Any, Any]:
    return _strings([index_of(frame(group, "obs")) for group in groups])


def _strings(parts: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    return np.concatenate([part.astype(np.dtypes.StringDType()) for part in parts])


def digest(data: Cells, names: np.ndarray[Any, Any]) -> str:
    """Of what is known of the cells without reading the elements of matrices."""
    found = blake2b(digest_size=16)
    _add(found, names)
    for name, column in data.obs.items():
        found.update(repr((name, str(column.values.dtype))).encode())
        _add(found, column.values)
        if column.missing is not None:
            _add(found, column.missing)
        found.update(
            b"" if column.categories is None else repr(column.categories.tolist()).encode()
        )
    for name in data.names:
        variables = data.var_names(name)
        if variables is not None:
            _add(found, variables)
        for matrix in data.matrices(name):
            described = (matrix.shape, str(np.dtype(matrix.data.dtype)), tuple(matrix.data.shape))
            found.update(repr(described).encode())
            if matrix.indptr is not None:
                found.update(np.ascontiguousarray(matrix.indptr.read(device="cpu")).tobytes())
    return found.hexdigest()


def _add(found: Any, values: np.ndarray[Any, Any]) -> None:
    if values.dtype.kind not in "TO":
        found.update(np.ascontiguousarray(values).tobytes())
        return
    for begin in range(0, len(values), _CHUNK):  # as objects they are many times as large
        found.update(repr(values[begin : begin + _CHUNK].tolist()).encode())


def write_frames(
    conversion: Conversion, groups: Sequence[Group], names: np.ndarray[Any, Any]
) -> None:
    """Writes obs, var and, at last, what makes it an AnnData store."""
    root = open_group(str(conversion.work / "store"), mode="r+")
    order, cells = conversion.order, conversion.cells
    columns = {name: _taken(column, order) for name, column in cells.obs.items()}
    ordered = {name for name in columns if _is_ordered(groups, "obs", name, cells.obs[name])}
    write_frame(root, "obs", names[order], columns, ordered, _index_name(groups, "obs"))
    variables = next(
        (own for own in (cells.var_names(name) for name in cells.names) if own is not None), None
    )
    of_var: dict[str, ObsColumn] = {}
    if variables is None:
        variables = index_of(frame(groups[0], "var"))
    own = [index_of(frame(group, "var")) for group in groups]
    first = frame(groups[0], "var")
    same = all(np.array_equal(np.sort(one), np.sort(own[0])) for one in own)
    if not (same and np.array_equal(variables, own[0])):
        if any(column_names(frame(group, "var")) for group in groups):
            warnings.warn("cells: left out of var: columns, of different variables", stacklevel=4)
    else:
        for name in column_names(first):
            try:
                read = read_column(first, name)
            except ValueError as error:
                warnings.warn(f"cells: left out of var: {error}", stacklevel=4)
                continue
            of_var[name] = ObsColumn(read.values, read.categories, read.missing)
    ordered = {
        name for name, column in of_var.items() if _is_ordered(groups[:1], "var", name, column)
    }
    write_frame(root, "var", variables, of_var, ordered, _index_name(groups, "var"))
    encoded(root, "anndata", "0.1.0")
    root.store.sync()


def _taken(column: ObsColumn, order: np.ndarray[Any, Any]) -> ObsColumn:
    missing = None if column.missing is None else column.missing[order]
    return ObsColumn(column.values[order], column.categories, missing)


def _is_ordered(groups: Sequence[Group], path: str, name: str, column: ObsColumn) -> bool:
    """Whether all stores have the categories in one order, and say that it means something."""
    if column.categories is None:
        return False
    if not all(is_ordered(frame(group, path), name) for group in groups):
        return False
    orders = [read_column(frame(group, path), name).categories for group in groups]
    lists = [[] if order is None else order.tolist() for order in orders]
    return all(one == lists[0] for one in lists)


def _index_name(groups: Sequence[Group], path: str) -> str:
    """That of the index of this frame in all stores; where they differ it has none, as pandas
    concatenates."""
    names = {index_key(frame(group, path)) for group in groups}
    name = names.pop()
    return name if not names and "/" not in name else _UNNAMED


def write_frame(
    root: Group,
    path: str,
    index: np.ndarray[Any, Any],
    columns: dict[str, ObsColumn],
    ordered: set[str],
    index_name: str,
) -> None:
    index = _strings([index])
    if index_name in columns and not _are_names(columns[index_name], index):
        index_name = _UNNAMED
    made = create_group(root, path, overwrite=True)
    encoded(made, "dataframe", "0.2.0", _index=index_name, **{"column-order": list(columns)})
    _put(made, index_name, index)
    for name, column in columns.items():
        if name != index_name:  # else one array is both, as anndata writes it
            _write_column(made, name, column, name in ordered)


def _are_names(column: ObsColumn, index: np.ndarray[Any, Any]) -> bool:
    text = column.categories is None and column.values.dtype.kind in "TU"
    return text and np.array_equal(column.values.astype(index.dtype), index)


def _write_column(group: Group, name: str, column: ObsColumn, ordered: bool) -> None:
    values = column.values
    if column.categories is not None:
        own = encoded(group.create_group(name), "categorical", "0.2.0", ordered=ordered)
        _put(own, "codes", values)
        _put(own, "categories", column.categories)
    elif column.missing is not None and values.dtype.kind == "f":
        _put(group, name, np.where(column.missing, np.nan, values).astype(values.dtype))
    elif column.missing is not None:
        kind = "boolean" if values.dtype == bool else "integer"
        own = encoded(group.create_group(name), f"nullable-{kind}", "0.1.0")
        _put(own, "values", values)
        _put(own, "mask", column.missing)
    elif values.dtype.kind == "O":
        missing = np.array([value is None for value in values.tolist()], bool)
        own = encoded(group.create_group(name), "nullable-string-array", "0.1.0")
        _put(own, "values", np.where(missing, "", values))
        _put(own, "mask", missing)
    else:
        _put(group, name, values)


def _put(group: Group, name: str, values: np.ndarray[Any, Any]) -> None:
    text = values.dtype.kind in "TOUS"
    if text:
        values = np.array([str(value) for value in values.tolist()], np.dtypes.StringDType())
    made = group.create_array(
        name,
        shape=values.shape,
        dtype="str" if text else values.dtype,
        chunks=max(1, min(len(values), _CHUNK)),
    )
    if len(values):
        made[:] = values
    encoded(made, "string-array" if text else "array", "0.2.0")
