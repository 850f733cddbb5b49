"""One selection of the whole array, from the chunks that zarr-python has cut it into."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

# (byte getter, chunk's spec, selection in the chunk, selection in the result, is complete)
Batch = Sequence[tuple[Any, Any, Any, Any, bool]]


_BASIC = frozenset((slice, int))


class Plan(NamedTuple):
    kind: Literal["basic", "oindex", "vindex"]
    selection: tuple[Any, ...]
    shape: tuple[int, ...]  # of the result
    stops: tuple[int, ...]  # one past the last index in each dimension


class ChunkGrid:
    """Where the chunks (shards) of one array begin."""

    def __init__(self, metadata: Any) -> None:
        grid = metadata.chunk_grid if metadata.zarr_format == 3 else None
        # Of a rectilinear grid: one extent a dimension, or those of all its chunks.
        edges = getattr(grid, "chunk_shapes", None) or (0,) * len(metadata.shape)
        # Of each dimension the ends of its chunks; None where they are multiples of an extent.
        self._ends = [
            None if isinstance(extents, int) else list(itertools.accumulate(extents))
            for extents in edges
        ]

    def start(self, d: int, i: int, size: int) -> int:
        """Index of the first element of chunk `i`, which has the extent `size`.

        Raises
        ------
        LookupError
            There was no such chunk when the metadata were read.
        """
        ends = self._ends[d]
        return i * size if ends is None else ends[i] - size

    def end(self, d: int, extent: int, size: int) -> int:
        """Of the chunk in which the first `extent` elements end; LookupError as above."""
        ends = self._ends[d]
        if ends is None:
            return -(-extent // size) * size
        return ends[bisect.bisect_left(ends, extent)]

    def count(self, d: int, indices: range, size: int) -> int:
        """The chunks that a range of indices touches."""
        ends = self._ends[d]
        if ends is not None and indices.step > 1:
            return len(np.unique(np.searchsorted(ends, np.asarray(indices), side="right")))
        if ends is not None:
            first, last = (bisect.bisect_right(ends, index) for index in (indices[0], indices[-1]))
            return last - first + 1
        if indices.step > size:
            return len(indices)
        return indices[-1] // size - indices[0] // size + 1


class ChunkKeys:
    """The coordinates in the keys of one array's chunks.

    Raises
    ------
    NotImplementedError
        A key encoding other than "default" and "v2".
    """

    def __init__(self, metadata: Any) -> None:
        self.grid = ChunkGrid(metadata)
        self._ndim = len(metadata.shape)
        self._lead = 0  # characters before the coordinates
        if metadata.zarr_format == 2:
            self._separator = metadata.dimension_separator
        else:
            encoding = metadata.chunk_key_encoding
            if encoding.name not in ("default", "v2"):
                raise NotImplementedError(f"chunk keys {encoding.name!r}")
            self._separator = encoding.separator
            if encoding.name == "default":
                self._lead = 2 if self._ndim else 1

    def node_path(self, key: str) -> str:
        """The array's path, from the key of one of its chunks."""
        segments = self._ndim + self._lead // 2 if self._separator == "/" else 1
        return "/".join(key.split("/")[: -max(segments, 1)])

    def skipped(self, node_path: str) -> int:
        """How many characters of a key are not coordinates."""
        return len(node_path) + bool(node_path) + self._lead

    def coordinates(self, key: str, skipped: int) -> tuple[int, ...]:
        if not self._ndim:
            return ()
        return tuple(map(int, key[skipped:].split(self._separator)))


def plan_batch(
    batch: Batch, drop_axes: tuple[int, ...], keys: ChunkKeys, skipped: int
) -> Plan | None:
    """None: no selection of the array is the same as these of its chunks."""
    selections = batch[0][2]
    if not isinstance(selections, tuple):
        selections = (selections,)
    if not drop_axes and _BASIC.issuperset(map(type, selections)):
        return _box(batch, keys, skipped)
    if isinstance(batch[0][3], tuple):
        return _orthogonal(batch, drop_axes, keys, skipped)
    return _points(batch, drop_axes, keys, skipped)


def exact_shape(
    batch: Batch, shape: tuple[int, ...], keys: ChunkKeys, skipped: int
) -> tuple[int, ...]:
    """`shape`, of whole chunks, cut where a chunk is written whole that is not covered whole.

    The pipeline is not told when its array is resized; the chunks at its edge tell where it ends.
    """
    exact = list(shape)
    for getter, spec, selection, _, complete in batch:
        if not complete:
            continue
        coordinates = keys.coordinates(getter.path, skipped)
        for d, (item, size) in enumerate(zip(selection, spec.shape, strict=True)):
            extent = item.stop - item.start if isinstance(item, slice) else 1
            if extent < size:
                exact[d] = keys.grid.start(d, coordinates[d], size) + extent
    return tuple(exact)


def _box(batch: Batch, keys: ChunkKeys, skipped: int) -> Plan | None:
    """From the first and the last chunk: what lies between is the product of the dimensions."""
    getter, spec, first, out_first, _ = batch[0]
    from_chunk = to_chunk = keys.coordinates(getter.path, skipped)
    last_spec, last, out_last = spec, first, out_first
    if len(batch) > 1:
        getter, last_spec, last, out_last, _ = batch[-1]
        to_chunk = keys.coordinates(getter.path, skipped)
    selection: list[slice | int] = []
    shape: list[int] = []
    stops: list[int] = []
    nchunks = 1
    for d, (i, k, low, high) in enumerate(zip(from_chunk, to_chunk, first, last, strict=True)):
        size = spec.shape[d]
        from_index = keys.grid.start(d, i, size)
        if type(low) is int:
            if i != k or low != high:
                return None
            selection.append(from_index + low)
            stops.append(from_index + low + 1)
            continue
        start, step = from_index + low.start, low.step or 1
        stop = keys.grid.start(d, k, last_spec.shape[d]) + high.stop
        count = -((start - stop) // step)
        axis = len(shape)
        if out_first[axis].start != 0 or out_last[axis].stop != count:
            return None
        nchunks *= keys.grid.count(d, range(start, stop, step), size)
        selection.append(slice(start, stop, step))
        shape.append(count)
        stops.append(stop)
    if nchunks != len(batch):
        return None
    return Plan("basic", tuple(selection), tuple(shape), tuple(stops))


def _indices(selection: Any, size: int) -> np.ndarray[Any, Any]:
    """What one dimension of a selection picks from `size` elements, in their order."""
    if isinstance(selection, slice):
        return np.arange(*selection.indices(size))
    array = np.asarray(selection)
    return np.flatnonzero(array) if array.dtype == bool else array.ravel()


def _slice_of(indices: np.ndarray[Any, Any]) -> slice | None:
    """The slice that picks the same, when there is one."""
    if len(indices) < 2:
        return slice(int(indices[0]), int(indices[0]) + 1) if len(indices) else None
    step = int(indices[1]) - int(indices[0])
    if step < 1 or (np.diff(indices) != step).any():
        return None
    return slice(int(indices[0]), int(indices[-1]) + 1, step)


def _orthogonal(
    batch: Batch, drop_axes: tuple[int, ...], keys: ChunkKeys, skipped: int
) -> Plan | None:
    ndim = len(batch[0][1].shape)
    # Of each dimension: a chunk's extent, what is picked from it and where that goes, by the
    # chunk's coordinate.
    parts: list[dict[int, tuple[int, Any, Any]]] = [{} for _ in range(ndim)]
    axes = [d for d in range(ndim) if d not in drop_axes]
    if len(batch[0][3]) != len(axes):
        return None
    for getter, spec, selection, out_selection, _ in batch:
        coordinates = keys.coordinates(getter.path, skipped)
        for d in drop_axes:
            parts[d].setdefault(coordinates[d], (spec.shape[d], selection[d], None))
        for d, where in zip(axes, out_selection, strict=True):
            parts[d].setdefault(coordinates[d], (spec.shape[d], selection[d], where))
    if math.prod(map(len, parts)) != len(batch):
        return None

    selection_items: list[Any] = []
    shape: list[int] = []
    stops: list[int] = []
    for d in range(ndim):
        picked = {
            i: keys.grid.start(d, i, size) + _indices(part, size)
            for i, (size, part, _) in parts[d].items()
        }
        stops.append(max(int(indices.max()) for indices in picked.values()) + 1)
        if d in drop_axes:
            ((indices,),) = [picked.values()]
            selection_items.append(int(indices[0]))
            continue
        count = sum(map(len, picked.values()))
        whole = np.full(count, -1, np.intp)
        for i, (_, _, where) in parts[d].items():
            target = where if isinstance(where, slice) else np.asarray(where).ravel()
            whole[target] = picked[i]
        if (whole < 0).any():
            return None
        selection_items.append(_slice_of(whole) or whole)
        shape.append(count)
    basic = not any(isinstance(item, np.ndarray) for item in selection_items)
    kind: Literal["basic", "oindex"] = "basic" if basic else "oindex"
    return Plan(kind, tuple(selection_items), tuple(shape), tuple(stops))


def _points(batch: Batch, drop_axes: tuple[int, ...], keys: ChunkKeys, skipped: int) -> Plan | None:
    count = sum(np.size(selection[0]) for _, _, selection, _, _ in batch)
    points = [np.full(count, -1, np.intp) for _ in batch[0][1].shape]
    for getter, spec, selection, out_selection, _ in batch:
        coordinates = keys.coordinates(getter.path, skipped)
        for d, size in enumerate(spec.shape):
            start = keys.grid.start(d, coordinates[d], size)
            points[d][out_selection] = start + selection[d]
    if drop_axes or any((indices < 0).any() for indices in points):
        return None
    stops = tuple(int(indices.max()) + 1 for indices in points)
    return Plan("vindex", tuple(points), (count,), stops)
