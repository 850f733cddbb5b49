"""AnnData objects in memory as stores that `convert` reads, without a copy of their matrices."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from .. import _check
from .._cells import ObsColumn
from ..group import Group, create_group
from ._frames import write_frame
from ._rows import encoded

_CHUNK_NBYTES = 16 << 20
_PARTS = ("X", "layers", "obsm", "obs", "var", "n_obs", "n_vars")


class InMemory:
    """AnnData objects, each as a group of a store whose chunks are views of its arrays."""

    def __init__(self, given: Any, obs: Iterable[str] | None) -> None:
        several = list(given) if isinstance(given, Sequence) else [given]
        if not several:
            raise ValueError("adata: an empty list")
        for adata in several:
            if not all(hasattr(type(adata), part) for part in _PARTS):
                raise _check.wrong_type("adata", "an AnnData or a list of them", adata)
        self._columns = None if obs is None else set(obs)
        self._arrays: list[dict[str, list[np.ndarray[Any, Any]]]] = []
        self.groups = [self._group(adata) for adata in several]

    def digest(self, paths: Iterable[str]) -> str:
        """Of the values of these matrices."""
        found = blake2b(digest_size=16)
        for path in paths:
            for own in self._arrays:
                for array in own[path]:
                    found.update(array.reshape(-1).view(np.uint8).data)
        return found.hexdigest()

    def _group(self, adata: Any) -> Group:
        if getattr(adata, "isbacked", False):
            raise ValueError("adata: it is backed by a file: headrace.cells.convert takes the file")
        try:
            from zarr.storage import MemoryStore
        except ModuleNotFoundError as error:
            raise NotImplementedError(
                "adata: AnnData in memory is read through zarr-python (pip install "
                "'headrace[zarr]')"
            ) from error
        chunks: dict[str, Any] = {}
        root = create_group(MemoryStore(chunks))
        self._arrays.append({})
        if adata.X is not None:
            self._matrix(root, chunks, "X", adata.X)
        for folder in ("layers", "obsm"):
            root.create_group(folder)
            for name, matrix in getattr(adata, folder).items():
                if name is None:  # X once more, in layers of anndata 0.13
                    continue
                self._matrix(root, chunks, f"{folder}/{_named(folder, name)}", matrix)
        self._frame(root, "obs", adata.obs, self._columns)
        self._frame(root, "var", adata.var, None)
        for name in ("uns", "obsp", "varm", "varp", "raw"):  # for what is told of what is left out
            held = getattr(adata, name, None)
            if held is not None and (not isinstance(held, Mapping) or len(held)):
                root.create_group(name).create_group("held")
        return root

    def _matrix(self, root: Group, chunks: dict[str, Any], path: str, given: Any) -> None:
        form = getattr(given, "format", None)
        if form == "csc" and hasattr(given, "tocsr"):
            given, form = given.tocsr(), "csr"
        if form == "csr" and given.data.dtype.kind in "biufc":
            shape = [int(extent) for extent in given.shape]
            encoded(root.create_group(path), "csr_matrix", "0.1.0", shape=shape)
            # Arrays of SciPy's may have room behind the last element.
            parts = {
                "data": _plain(given.data[: given.nnz]),
                "indices": _plain(given.indices[: given.nnz]),
                "indptr": _plain(given.indptr),
            }
            for name, values in parts.items():
                _put(root, chunks, f"{path}/{name}", values)
            self._arrays[-1][path] = list(parts.values())
        elif isinstance(given, np.ndarray) and given.ndim == 2 and given.dtype.kind in "biufc":
            values = _plain(given)
            encoded(_put(root, chunks, path, values), "array", "0.2.0")
            self._arrays[-1][path] = [values]
        else:  # of a kind that is not read
            kind, dtype = type(given).__name__, getattr(given, "dtype", None)
            if dtype is not None and np.dtype(dtype).kind not in "biufc":
                kind += f" of {dtype}"
            encoded(root.create_group(path), kind, "0.1.0")

    def _frame(self, root: Group, name: str, given: Any, wanted: set[str] | None) -> None:
        columns: dict[str, ObsColumn] = {}
        ordered = set()
        names = list(given.columns)
        for key in dict.fromkeys(names):
            if wanted is not None and key not in wanted:
                continue
            try:
                if names.count(key) > 1:
                    raise ValueError(f"{name}: {key!r} is the name of {names.count(key)} columns")
                columns[_named(name, key)] = _column(given[key], f"{name}: {key!r}")
            except ValueError as error:
                if name == "obs":
                    raise
                warnings.warn(f"cells: left out of {error}", stacklevel=5)
                continue
            if getattr(given[key].dtype, "ordered", False):
                ordered.add(key)
        index = np.array([str(one) for one in given.index], np.dtypes.StringDType())
        write_frame(root, name, index, columns, ordered, _index_name(name, given.index.name))


def _named(where: str, name: Any) -> str:
    """What a name in a store can be."""
    if not isinstance(name, str) or not name or "/" in name or name == "_index":
        raise ValueError(f"{where}: {name!r} is no name that AnnData's format has")
    return name


def _index_name(where: str, name: Any) -> str:
    if name is None or name == "_index":
        return "_index"
    try:
        return _named(where, name)
    except ValueError as error:
        warnings.warn(f"cells: left out: the name of an index: {error}", stacklevel=6)
        return "_index"


def _plain(values: Any) -> np.ndarray[Any, Any]:
    """In one piece, in the machine's byte order."""
    values = np.asarray(values)
    return np.ascontiguousarray(values, values.dtype.newbyteorder("="))


def _put(root: Group, chunks: dict[str, Any], path: str, values: np.ndarray[Any, Any]) -> Any:
    """An array whose chunks are its memory; the last one is a copy where it is not full."""
    from zarr.core.buffer.cpu import Buffer

    length, *others = values.shape
    row = values.itemsize * int(np.prod(others, dtype=np.int64))
    rows = max(1, min(length, _CHUNK_NBYTES // max(row, 1)))
    made = root.create_array(
        path,
        shape=values.shape,
        dtype=values.dtype,
        chunks=(rows, *(max(1, extent) for extent in others)),
        compressors=None,
        fill_value=0,
    )
    if not row:
        return made
    for number, begin in enumerate(range(0, length, rows)):
        part = values[begin : begin + rows]
        if len(part) < rows:
            part = np.concatenate([part, np.zeros((rows - len(part), *others), part.dtype)])
        key = "/".join([path, "c", str(number), *("0" for _ in others)])
        chunks[key] = Buffer.from_array_like(part.reshape(-1).view(np.uint8))
    return made


def _column(series: Any, where: str) -> ObsColumn:
    """A column of pandas."""
    dtype, missing = series.dtype, series.isna().to_numpy()
    if hasattr(dtype, "categories"):
        categories = series.cat.categories
        if categories.dtype.kind in "biuf":
            return ObsColumn(series.cat.codes.to_numpy(), categories.to_numpy())
        return ObsColumn(series.cat.codes.to_numpy(), _strings(categories.tolist(), where))
    if isinstance(dtype, np.dtype) and dtype.kind in "biuf":
        return ObsColumn(_plain(series.to_numpy()))
    numbers = getattr(dtype, "numpy_dtype", None)  # of those that have a mask
    if isinstance(numbers, np.dtype) and numbers.kind in "biuf":
        zero = numbers.type(0)
        values = series.to_numpy(dtype=numbers, na_value=zero)
        return ObsColumn(values, missing=missing if missing.any() else None)
    values = series.to_numpy(dtype=object)
    known = _strings(values[~missing].tolist(), where)
    if not missing.any():
        return ObsColumn(known)
    kept = np.full(len(values), None, object)
    kept[~missing] = known.tolist()
    return ObsColumn(kept)


def _strings(values: list[Any], where: str) -> np.ndarray[Any, Any]:
    wrong = next((value for value in values if not isinstance(value, str)), None)
    if wrong is not None:
        raise ValueError(
            f"{where} has values of {type(wrong).__name__}, which are not written: expected "
            "numbers, booleans, strings or categories of these"
        )
    return np.array(values, np.dtypes.StringDType())
