"""Ray Data sets from Zarr arrays: a row for each index along one dimension.

Tasks read runs of whole shards (whole chunks where there are none), so that no two fetch the same
object.

Examples
--------
>>> ds = headrace.ray.read_zarr("era5.zarr", columns=["t2m", "u10"])
>>> ds.schema()
"""

from __future__ import annotations

import functools
import itertools
import math
import pickle
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import ray
from ray.data import DataContext, Dataset, Datasource
from ray.data.block import Block, BlockAccessor, BlockMetadata
from ray.data.datasource import ReadTask

from . import _core, config
from ._open import open
from ._paths import join
from ._stores import resolve_store
from .group import Group

__all__ = ["ZarrDatasource", "read_zarr"]


class _Column(NamedTuple):
    array: _core.Array
    axis: int  # of the samples

    @property
    def row_shape(self) -> tuple[int, ...]:
        shape = self.array.shape
        return shape[: self.axis] + shape[self.axis + 1 :]

    @property
    def row_nbytes(self) -> int:
        return math.prod(self.row_shape) * self.array.itemsize

    def selection(self, start: int, stop: int) -> tuple[slice, ...]:
        return (*(slice(None),) * self.axis, slice(start, stop))


Columns = dict[str, _Column]


def read_zarr(
    store: Any,
    path: str | None = None,
    *,
    columns: Sequence[str] | None = None,
    dim: str | int | None = None,
    storage_options: dict[str, Any] | None = None,
    **options: Any,
) -> Dataset:
    """A Ray data set of the arrays of a Zarr group, or of one array.

    Parameters
    ----------
    store, path, columns, dim, storage_options
        See `ZarrDatasource`.
    **options
        Of `ray.data.read_datasource`: ``override_num_blocks``, ``concurrency``, ``num_cpus``, ...

    Examples
    --------
    >>> ds = headrace.ray.read_zarr("era5.zarr", columns=["t2m"], dim="time")
    >>> for batch in ds.iter_torch_batches(batch_size=32):
    ...     train(batch["t2m"])
    """
    source = ZarrDatasource(store, path, columns=columns, dim=dim, storage_options=storage_options)
    return ray.data.read_datasource(source, **options)


class ZarrDatasource(Datasource):
    """Reads one or several Zarr arrays along a dimension that they share.

    Parameters
    ----------
    store
        What `headrace.open` takes, also an open `Group` or `Array`; something that another process
        can open, so no store in memory.
    path
        Within the store: of a group, whose arrays are the columns, or of one array.
    columns
        Names of the arrays to read; None: all of the group that have the dimension. The dimension's
        coordinate, the array of its name, is read along.
    dim
        The dimension of the samples: its name, or an axis of all arrays. None: the first of the
        largest array.
    storage_options
        Options of the store, see `headrace.open_store`.

    Raises
    ------
    KeyError
        There is no such array.
    ValueError
        An array does not have the dimension, or another extent along it.
    TypeError
        The store lives in this process only.

    Examples
    --------
    >>> ray.data.read_datasource(headrace.ray.ZarrDatasource("era5.zarr"), override_num_blocks=64)
    """

    def __init__(
        self,
        store: Any,
        path: str | None = None,
        *,
        columns: Sequence[str] | None = None,
        dim: str | int | None = None,
        storage_options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        arrays, coordinates = _arrays(store, path, columns, storage_options)
        self._columns = _columns(arrays, coordinates, columns is not None, dim)
        for column in self._columns.values():
            pickle.dumps(column.array)  # TypeError for what no other process can open
        self._largest = max(self._columns.values(), key=lambda column: column.row_nbytes)
        self._rows = self._largest.array.shape[self._largest.axis]
        self._row_nbytes = sum(column.row_nbytes for column in self._columns.values())

    def estimate_inmemory_data_size(self) -> int:
        """Bytes of all columns, decoded."""
        return self._rows * self._row_nbytes

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: DataContext | None = None,
    ) -> list[ReadTask]:
        """At most `parallelism` tasks of about as many rows each, of whole shards or chunks.

        A task gives blocks of as many shards as fit ``target_max_block_size`` of the context.
        """
        largest = self._largest
        ends = [*itertools.accumulate(largest.array.write_chunk_sizes[largest.axis])]
        context = data_context or DataContext.get_current()
        target = max((context.target_max_block_size or 2**27) // max(self._row_nbytes, 1), 1)
        schema = _schema(self._columns)
        tasks = []
        for start, run in _runs(ends, parallelism):
            rows = run[-1] - start
            if per_task_row_limit is not None:
                rows = min(rows, per_task_row_limit)
            edges = [start, *_merged(run, start, start + rows, target)]
            metadata = BlockMetadata(
                num_rows=rows, size_bytes=rows * self._row_nbytes, input_files=None, exec_stats=None
            )
            read = functools.partial(_read, self._columns, edges)
            tasks.append(ReadTask(read, metadata, schema, per_task_row_limit))
        return tasks


# From a store to columns.


def _arrays(
    store: Any,
    path: str | None,
    columns: Sequence[str] | None,
    storage_options: dict[str, Any] | None,
) -> tuple[dict[str, _core.Array], dict[str, _core.Array]]:
    """The arrays to choose from, and those that may be coordinates."""
    node = store
    if not isinstance(store, _core.Array):
        handle, base = resolve_store(store, "r", storage_options)
        node = open(handle, join(base, path), device="cpu")
    if isinstance(node, _core.Array):
        if columns is not None:
            raise ValueError("columns: the path is that of one array")
        parent, _, name = node.path.rpartition("/")
        return {name or "data": node.to("cpu")}, _siblings(node, parent) if name else {}
    members = dict(node.arrays())
    missing = [name for name in columns or () if name not in members]
    if missing:
        raise KeyError(f"columns: no arrays {', '.join(missing)} in /{node.path}")
    return {name: members[name] for name in (members if columns is None else columns)}, members


def _siblings(array: _core.Array, parent: str) -> dict[str, _core.Array]:
    try:
        group = open(array.store, parent, device="cpu")
    except FileNotFoundError:
        return {}
    return dict(group.arrays()) if isinstance(group, Group) else {}


def _columns(
    arrays: dict[str, _core.Array],
    coordinates: dict[str, _core.Array],
    are_chosen: bool,
    dim: str | int | None,
) -> Columns:
    with_axes = {name: array for name, array in arrays.items() if array.ndim > 0 or are_chosen}
    if not with_axes:
        raise ValueError("no array with a dimension to read along")
    largest = max(with_axes.values(), key=lambda array: array.nbytes)
    axis = _axis_of(largest, 0 if dim is None else dim)
    if axis is None:
        raise ValueError(f"dim: {largest.path} has no dimension {dim!r}")
    name_of_dim = (largest.dimension_names or (None,) * largest.ndim)[axis]
    wanted = axis if name_of_dim is None or isinstance(dim, int) else name_of_dim
    rows = largest.shape[axis]
    if name_of_dim in coordinates and name_of_dim not in with_axes:
        with_axes[name_of_dim] = coordinates[name_of_dim]
    columns: Columns = {}
    for name, array in with_axes.items():
        found = _axis_of(array, wanted)
        if found is not None and array.shape[found] == rows:
            columns[name] = _Column(array, found)
        elif are_chosen and name in arrays:
            raise ValueError(f"{name}: no dimension {wanted!r} of extent {rows}: {array.shape}")
    return columns


def _axis_of(array: _core.Array, dim: str | int) -> int | None:
    if isinstance(dim, str):
        names = array.dimension_names or ()
        return names.index(dim) if dim in names else None
    axis = dim + array.ndim if dim < 0 else dim
    return axis if 0 <= axis < array.ndim else None


# Tasks and blocks.


def _runs(ends: list[int], count: int) -> Iterator[tuple[int, list[int]]]:
    """`ends` in at most `count` runs of about as many rows, each with where it starts."""
    count = max(min(count, len(ends)), 1)
    start, first = 0, 0
    for i in range(count):
        goal = ends[-1] * (i + 1) / count if ends else 0
        last = first
        # As near to its share as whole units go, and a unit for each run that follows.
        while last + 1 < len(ends) - (count - 1 - i) and ends[last] < goal:
            last += 1
        run = ends[first : last + 1]
        if run:
            yield start, run
            start, first = run[-1], last + 1


def _merged(ends: Iterable[int], start: int, stop: int, target: int) -> Iterator[int]:
    """Ends of blocks between `start` and `stop`: units, joined up to `target` rows."""
    previous = start
    for end in ends:
        if end - start > target and previous > start:
            yield previous
            start = previous
        previous = min(end, stop)
        if end >= stop:
            break
    yield previous


def _read(columns: Columns, edges: list[int]) -> Iterator[Block]:
    with config.set({"threads": _threads()}):
        for start, stop in itertools.pairwise(edges):
            requests = [(c.array, c.selection(start, stop), None) for c in columns.values()]
            yield _block(columns, _core.read_many(requests))


def _threads() -> int:
    """As many as Ray gives the task processors; 0, headrace's choice, outside of a task."""
    context = ray.get_runtime_context()
    if not ray.is_initialized() or context.get_task_id() is None:
        return 0
    return max(int(context.get_assigned_resources().get("CPU", 1)), 1)


def _block(columns: Columns, values: Iterable[np.ndarray[Any, Any]]) -> Block:
    batch = {}
    for (name, column), value in zip(columns.items(), values, strict=True):
        rows_first = np.moveaxis(value, column.axis, 0)
        # Arrow takes NumPy's strings as objects only.
        batch[name] = rows_first.astype(object) if value.dtype.kind == "T" else rows_first
    return BlockAccessor.batch_to_block(batch)


def _schema(columns: Columns) -> Any:
    """That of a row: Ray makes no tensors of none."""
    rows = [
        np.moveaxis(np.zeros((1, *column.row_shape), column.array.dtype), 0, column.axis)
        for column in columns.values()
    ]
    return _block(columns, rows).schema


def __dir__() -> list[str]:
    return __all__
