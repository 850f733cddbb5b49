"""`Cells`: the rows of several AnnData stores as one axis."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from .. import _check, _core
from .._open import open
from .._paths import expanded
from .._suggest import did_you_mean
from ..errors import CorruptError
from ..group import Group
from . import _anndata
from ._anndata import Column, Matrix
from ._columns import ObsColumn, join_columns

_NAMES_OF_A_BATCH = ("obs", "index")


class Cells:
    """Cells of one or several AnnData stores along one axis, made by `headrace.cells`.

    Cell i is a row of store s, where ``offsets[s] <= i < offsets[s + 1]``. It pickles where its
    stores do.

    Attributes
    ----------
    names
        Of the matrices: "X", or the keys of ``x``.
    obs
        `ObsColumn` by name, in memory.
    offsets
        ``(stores + 1,)`` int64: the first cell of each store, and all cells.
    """

    names: tuple[str, ...]
    obs: dict[str, ObsColumn]
    offsets: np.ndarray[Any, Any]

    def __init__(
        self,
        stores: Sequence[Group],
        paths: Mapping[str, str],
        obs: Iterable[str],
        join: str,
    ) -> None:
        self.names = tuple(paths)
        columns = list(obs)
        for name in columns:
            _check.text("obs", name)
        found = _for_each(stores, lambda store: _Store(store, paths, columns))
        lengths = [store.length for store in found]
        if sum(lengths) >= 1 << 62:
            raise CorruptError(f"stores: {sum(lengths)} cells, which is more than can be numbered")
        self.offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        self._matrices = {name: [store.matrices[name] for store in found] for name in paths}
        self._variables = {
            name: _Variables(self._matrices[name], [store.variables(path) for store in found], join)
            for name, path in paths.items()
        }
        self.obs = {
            name: join_columns(name, [store.columns[name] for store in found]) for name in columns
        }

    @property
    def n_obs(self) -> int:
        """Cells of all stores."""
        return int(self.offsets[-1])

    def __len__(self) -> int:
        return self.n_obs

    def n_vars(self, name: str | None = None) -> int:
        """Columns of a matrix (of the first) after the join."""
        return self._variables[self._known(name)].count

    def var_names(self, name: str | None = None) -> np.ndarray[Any, Any] | None:
        """Names of the columns of a matrix (of the first), None for those of obsm."""
        return self._variables[self._known(name)].names

    def matrices(self, name: str) -> list[Matrix]:
        """The matrix in each store."""
        return self._matrices[self._known(name)]

    def dtype(self, name: str) -> np.dtype[Any]:
        """Of the elements of a matrix in all stores, as NumPy joins types: of int64 and floats
        float64, which has no integers beyond 2^53."""
        return np.result_type(*(np.dtype(matrix.data.dtype) for matrix in self.matrices(name)))

    def column_maps(
        self, name: str, genes: Any = None
    ) -> tuple[int, list[np.ndarray[Any, Any] | None]]:
        """Columns of a batch, and for each store where its columns go: (-1: nowhere, None: there).

        ``genes``: names or numbers of the columns that are wanted, in their order; None for all.
        """
        return self._variables[self._known(name)].maps(genes)

    def _known(self, name: str | None) -> str:
        """The name of a matrix, the first where none is said."""
        if name is None:
            return self.names[0]
        if not isinstance(name, str):
            raise _check.wrong_type("name", "the name of a matrix", name)
        if name not in self._matrices:
            raise KeyError(f"no matrix {name!r}{did_you_mean(name, self.names, 'there are')}")
        return name

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}: {self.n_obs} x {self.n_vars(name)}" for name in self.names)
        return f"<headrace.Cells {sizes}, obs: {', '.join(self.obs) or 'none'}>"


class _Store:
    """What is read of one store, and checked against its other parts."""

    def __init__(self, store: Group, paths: Mapping[str, str], columns: Iterable[str]) -> None:
        frame = _anndata.frame(store, "obs")
        self.length = _anndata.length_of(frame)
        self.columns = {name: self._column(frame, name) for name in columns}
        self.matrices = {name: _anndata.open_matrix(store, path) for name, path in paths.items()}
        for matrix in self.matrices.values():
            if matrix.shape[0] != self.length:
                raise CorruptError(
                    f"{matrix.where}: {matrix.shape[0]} rows, and obs has {self.length}"
                )
        self._names = {
            path: _anndata.index_of(_anndata.frame(store, path))
            for path in {_frame_of(path) for path in paths.values()}
            if path is not None
        }

    def variables(self, path: str) -> np.ndarray[Any, Any] | None:
        """Names of the columns of the matrix at that path."""
        frame = _frame_of(path)
        return None if frame is None else self._names[frame]

    def _column(self, frame: Group, name: str) -> Column:
        if name not in frame:
            known = ", ".join(_anndata.column_names(frame))
            raise KeyError(f"{_anndata.name_of(frame)} has no column {name!r}, only {known}")
        column = _anndata.read_column(frame, name)
        if len(column.values) != self.length:
            raise CorruptError(
                f"{_anndata.name_of(frame)}/{name}: {len(column.values)} rows, the index has "
                f"{self.length}"
            )
        return column


def _frame_of(path: str) -> str | None:
    """The data frame of a matrix's columns; those of obsm have no names."""
    if path.partition("/")[0] == "obsm":
        return None
    return "raw/var" if path.startswith("raw/") else "var"


class _Variables:
    """The columns of a matrix in all stores, joined by name."""

    def __init__(
        self,
        matrices: Sequence[Matrix],
        names: Sequence[np.ndarray[Any, Any] | None],
        join: str,
    ) -> None:
        self._maps: list[np.ndarray[Any, Any] | None] = [None] * len(matrices)
        self.names: np.ndarray[Any, Any] | None = None
        self.count = matrices[0].shape[1]
        named = [own for own in names if own is not None]
        if not named:
            for matrix in matrices:
                if matrix.shape[1] != self.count:
                    raise ValueError(
                        f"{matrix.where}: {matrix.shape[1]} columns, {self.count} in another store"
                    )
            return
        for matrix, own in zip(matrices, named, strict=True):
            if matrix.shape[1] != len(own):
                raise CorruptError(
                    f"{matrix.where}: {matrix.shape[1]} columns, and var has {len(own)}"
                )
        self.names = named[0]
        if all(np.array_equal(own, named[0]) for own in named[1:]):
            return
        numbers = [_numbers(own, matrix.where) for own, matrix in zip(named, matrices, strict=True)]
        if join == "outer":
            joined = list(dict.fromkeys(name for own in numbers for name in own))
        else:
            joined = [name for name in numbers[0] if all(name in own for own in numbers[1:])]
        # Of strings of a fixed length another store may have longer ones.
        self.names = np.array(joined, named[0].dtype if named[0].dtype.kind in "TO" else str)
        self.count = len(joined)
        places = {name: place for place, name in enumerate(joined)}
        self._maps = [np.array([places.get(name, -1) for name in own], np.int32) for own in numbers]

    def maps(self, genes: Any) -> tuple[int, list[np.ndarray[Any, Any] | None]]:
        if genes is None:
            return self.count, self._maps
        chosen = self._chosen(genes)
        places = np.full(self.count + 1, -1, np.int32)  # the last: of columns that go nowhere
        places[chosen] = np.arange(len(chosen), dtype=np.int32)
        return len(chosen), [places[:-1] if own is None else places[own] for own in self._maps]

    def _chosen(self, genes: Any) -> np.ndarray[Any, Any]:
        wanted = "names or numbers of columns"
        if isinstance(genes, str) or not isinstance(genes, Iterable):
            raise _check.wrong_type("genes", wanted, genes)
        given = genes if isinstance(genes, np.ndarray) else np.array(list(genes))
        if given.size == 0:
            given = given.astype(np.int64)
        if given.ndim != 1 or given.dtype.kind not in "iubUTO":
            raise _check.wrong_type("genes", wanted, genes)
        if given.dtype == bool:
            if given.shape != (self.count,):
                raise ValueError(f"genes: a mask of {given.shape} for {self.count} columns")
            given = np.flatnonzero(given)
        if given.dtype.kind in "UTO":
            if self.names is None:
                raise ValueError("genes: the columns of obsm have numbers, no names")
            numbers = _numbers(self.names, "genes")
            names: list[Any] = given.tolist()
            if unknown := [name for name in names if name not in numbers]:
                raise ValueError(f"genes: no column is named {unknown[0]!r}")
            given = np.array([numbers[name] for name in names], np.int64)
        if given.size and not (given.min() >= 0 and given.max() < self.count):
            raise ValueError(f"genes: numbers of columns are 0 to {self.count - 1}")
        if len(np.unique(given)) != len(given):
            raise ValueError("genes: a column is named twice")
        return given.astype(np.int64)


def _numbers(names: np.ndarray[Any, Any], where: str) -> dict[str, int]:
    numbers = {name: number for number, name in enumerate(names.tolist())}
    if len(numbers) != len(names):
        seen: set[str] = set()
        twice = next(name for name in names.tolist() if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"{where}: two columns are named {twice!r}, and are joined by name")
    return numbers


_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_THREADS = 16  # each waits for a store most of its time


def _for_each(items: Sequence[_Item], function: Callable[[_Item], _Result]) -> list[_Result]:
    """The results of all items, at a time where there are several."""
    if len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(len(items), _THREADS)) as pool:
        return list(pool.map(function, items))


def cells(
    stores: Any,
    x: str | Mapping[str, str] = "X",
    *,
    obs: Iterable[str] = (),
    join: str = "inner",
) -> Cells:
    """The cells of AnnData stores as one data set, for `headrace.loader.CellLoader`.

    Metadata, names of variables and the columns of ``obs`` are read, no matrix.

    Parameters
    ----------
    stores
        A path or URL; a path with ``*``, ``?`` or ``[`` that is none itself, for all that match, in
        the order of their names; a `Group`; or a list of these. A store is AnnData in Zarr 2 or 3,
        sharded or not; of a collection of annbatch's all its data sets count.
    x
        Path of the matrix in each store: "X", "layers/counts", "obsm/X_pca", "raw/X"; or several
        by name, of which each batch has the same cells. A csr_matrix or a dense array.
    obs
        Names of columns of obs, which are read into memory: numbers, strings, categorical columns,
        and integers and booleans of which some are missing. Categories of all stores are joined.
    join
        How variables of stores that differ are joined, by name: "inner" keeps those that all
        stores have, in the order of the first; "outer" keeps all, those of the first before others,
        and what a store lacks is zero in its cells.

    Raises
    ------
    FileNotFoundError
        There is no such store.
    KeyError
        A store lacks the matrix or a column.
    ValueError
        A csc_matrix; what is no matrix; stores that do not fit together.
    headrace.CorruptError
        A store whose parts contradict each other.

    Examples
    --------
    >>> data = hr.cells("atlas/*.zarr", obs=["cell_type"])
    >>> data.n_obs, data.n_vars()
    (5481420, 62710)
    """
    _check.text("join", join, '"inner" or "outer"')
    if join not in ("inner", "outer"):
        raise ValueError(f'join: expected "inner" or "outer", got {join!r}')
    if isinstance(obs, str) or not isinstance(obs, Iterable):
        raise _check.wrong_type("obs", "names of columns", obs)
    paths = {"X": x} if isinstance(x, str) else x
    wanted = "the path of a matrix, or paths by name"
    if not isinstance(paths, Mapping) or not paths:
        raise _check.wrong_type("x", wanted, x)
    for name, path in paths.items():
        if not isinstance(name, str) or not isinstance(path, str):
            raise _check.wrong_type("x", wanted, x)
        if name in _NAMES_OF_A_BATCH:
            raise ValueError(f"x: a batch has {name!r} already")
    with _check.argument("stores", "store"):
        opened = _opened(stores)
    return Cells(opened, dict(paths), obs, join)


def _opened(given: Any) -> list[Group]:
    several = isinstance(given, Sequence) and not isinstance(given, str)
    each = _for_each(given if several else [given], _groups)
    found = [group for groups in each for group in groups]
    if not found:
        raise ValueError("stores: an empty list")
    return found


def _groups(given: Any) -> list[Group]:
    if isinstance(given, str | os.PathLike):
        path = os.fspath(given)
        is_pattern = isinstance(path, str) and any(mark in path for mark in "*?[")
        if is_pattern and "://" not in path and not os.path.lexists(expanded(path)):
            matching = sorted(glob.glob(expanded(path)))
            if not matching:
                raise FileNotFoundError(f"stores: nothing matches {path!r}")
            each = _for_each(matching, lambda one: _groups_of(_open(one)))
            return [group for groups in each for group in groups]
    return _groups_of(given if isinstance(given, Group) else _open(given))


def _open(given: Any) -> _core.Array | Group:
    """A store; or a file of HDF5, whose chunks are read where they are."""
    if isinstance(given, str | os.PathLike):
        path = os.fspath(given)
        if isinstance(path, str) and path.lower().endswith((".h5ad", ".h5")):
            from .._references import references

            return open(references(path, left_out="skip"))
    return open(given)


def _on_host(group: Group) -> Group:
    """Windows are read to the host, wherever its arrays go by themselves."""
    return Group(group._handle, "cpu", group._implementations, group._use_consolidated)


def _groups_of(node: _core.Array | Group) -> list[Group]:
    """The data sets of a collection, or the node itself."""
    if not isinstance(node, Group):
        raise ValueError(f"{_anndata.name_of(node)}: expected an AnnData store, got an array")
    node = _on_host(node)
    if "obs" in node:
        return [node]
    members = [(name, group) for name, group in node.groups() if "obs" in group]
    if not members:
        raise ValueError(f"{_anndata.name_of(node)}: expected an AnnData store, it has no obs")
    # dataset_10 comes after dataset_9.
    members.sort(key=lambda item: (len(item[0]), item[0]))
    return [group for _, group in members]
