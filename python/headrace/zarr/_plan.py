"""Selections of the whole array, from the chunks that zarr-python has cut them into.

1. A batch is cut into stretches of one kind: boxes (slices and integers), products of indices, and
   lists of points.
2. Chunks that go on where the one before ended, in the array and in the result, become one box
   again: a selection of zarr-python is one box, and one of several runs joined, such as annbatch
   makes, a box a run.
3. What a stretch puts where is read in the order of the batch: where places overlap, the last wins.
"""

from __future__ import annotations

import bisect
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from ._fallbacks import Unserved

# (byte getter, chunk's spec, selection in the chunk, selection in the result, is complete)
Batch = Sequence[tuple[Any, Any, Any, Any, bool]]
_Kind: TypeAlias = Literal["basic", "oindex", "vindex"]
_Shape: TypeAlias = tuple[int, ...]
_Indices: TypeAlias = np.ndarray[Any, Any]

_BASIC = frozenset((slice, int))


class Part(NamedTuple):
    """A selection of the array, and where its result goes; None: it is all of the result."""

    kind: _Kind
    selection: tuple[Any, ...]
    place: tuple[slice, ...] | None


class Plan(NamedTuple):
    # One after the other; the places of those in one list do not overlap.
    steps: list[list[Part]]
    stops: _Shape  # one past the last index in each dimension

    @property
    def only(self) -> Part | None:
        """What is all of the plan, and of the result."""
        part = self.steps[0][0]
        return part if len(self.steps) == len(self.steps[0]) == 1 and part.place is None else None

    @property
    def is_basic(self) -> bool:
        return all(part.kind == "basic" for step in self.steps for part in step)


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

    def is_regular(self, d: int) -> bool:
        return self._ends[d] is None

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


class ChunkKeys:
    """The coordinates in the keys of one array's chunks.

    Raises
    ------
    NotImplementedError
        A key encoding other than "default" and "v2".
    """

    def __init__(self, metadata: Any) -> None:
        self.grid = ChunkGrid(metadata)
        self.ndim = len(metadata.shape)
        self._lead = 0  # characters before the coordinates
        if metadata.zarr_format == 2:
            self.separator = metadata.dimension_separator
        else:
            encoding = metadata.chunk_key_encoding
            if encoding.name not in ("default", "v2"):
                raise NotImplementedError(f"chunk keys {encoding.name!r}")
            self.separator = encoding.separator
            if encoding.name == "default":
                self._lead = 2 if self.ndim else 1

    def node_path(self, key: str) -> str:
        """The array's path, from the key of one of its chunks."""
        segments = self.ndim + self._lead // 2 if self.separator == "/" else 1
        return "/".join(key.split("/")[: -max(segments, 1)])

    def skipped(self, node_path: str) -> int:
        """How many characters of a key are not coordinates."""
        return len(node_path) + bool(node_path) + self._lead

    def coordinates(self, key: str, skipped: int) -> _Shape:
        if not self.ndim:
            return ()
        return tuple(map(int, key[skipped:].split(self.separator)))


class _Item(NamedTuple):
    """One chunk of a batch."""

    at: _Shape  # the chunk's coordinates
    starts: _Shape  # index of its first element
    sizes: _Shape  # its extents
    selection: tuple[Any, ...]
    place: Any


class _Span(NamedTuple):
    """One dimension of a box; without a place it is dropped."""

    start: int
    nsteps: int
    step: int
    place: int | None


# A span for each dimension.
_Box: TypeAlias = tuple[_Span, ...]


def plan_batch(
    batch: Batch, drop_axes: _Shape, keys: ChunkKeys, skipped: int, shape: _Shape
) -> Plan:
    """What a batch says of a result, or of values to be written, of this shape.

    Raises
    ------
    Unserved
        No selections of the array are the same as these of its chunks.
    LookupError
        There was no such chunk when the metadata were read.
    """
    stops = [0] * keys.ndim
    box = None if drop_axes else _grid_box(batch, keys, skipped, shape)
    if box is not None:
        return Plan(list(_steps([box], shape, stops)), tuple(stops))
    stretches = itertools.groupby(
        _items(batch, keys, skipped), lambda item: _stretch_kind(item, drop_axes)
    )
    steps: list[list[Part]] = []
    for planned, items in stretches:
        steps.extend(planned(list(items), drop_axes, shape, stops))
    if not steps:
        raise Unserved("a batch that selects nothing")
    return Plan(steps, tuple(stops))


def exact_shape(batch: Batch, shape: _Shape, keys: ChunkKeys, skipped: int) -> _Shape:
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


def _items(batch: Batch, keys: ChunkKeys, skipped: int) -> Iterator[_Item]:
    first = batch[0][0]
    node = first.path[:skipped]
    for getter, spec, selection, place, _ in batch:
        if getter.store is not first.store or not getter.path.startswith(node):
            raise Unserved("a batch of several arrays")
        try:
            at = keys.coordinates(getter.path, skipped)
        except ValueError as error:
            raise Unserved("a key that is no chunk's", getter.path) from error
        sizes = spec.shape
        if not isinstance(selection, tuple):
            selection = (selection,)
        if not len(selection) == len(at) == len(sizes):
            raise Unserved("selections of other dimensions than the array's")
        starts = tuple(keys.grid.start(d, i, sizes[d]) for d, i in enumerate(at))
        yield _Item(at, starts, sizes, selection, place)


_Planned: TypeAlias = Callable[[list[_Item], _Shape, _Shape, list[int]], Iterator[list[Part]]]


def _stretch_kind(item: _Item, drop_axes: _Shape) -> _Planned:
    if not drop_axes and _BASIC.issuperset(map(type, item.selection)):
        return _boxes
    return _products if isinstance(item.place, tuple) else _points


def _whole(place: tuple[slice, ...], shape: _Shape) -> tuple[slice, ...] | None:
    """None where that is all."""
    covers = all((p.start, p.stop) == (0, n) for p, n in zip(place, shape, strict=True))
    return None if covers else place


# Boxes.


def _boxes(
    items: list[_Item], drop_axes: _Shape, shape: _Shape, stops: list[int]
) -> Iterator[list[Part]]:
    boxes = [box for item in items if (box := _box(item, shape)) is not None]
    # The last dimension changes first, as in the order of zarr-python's indexers.
    for d in reversed(range(len(items[0].at))):
        boxes = _joined(boxes, d)
    yield from _steps(boxes, shape, stops)


def _grid_box(batch: Batch, keys: ChunkKeys, skipped: int, shape: _Shape) -> _Box | None:
    """The one box of a batch that has all chunks of a box of the grid, in their order.

    That is nearly every batch, and a look at each chunk by itself would cost more than all else:
    the chunks at the corners of the box are looked at, those along its edges follow from them, and
    the rest are compared with their product. Of slices with a step, and of rectilinear grids, it is
    left to the general way.
    None: it is something else, or may be.
    """
    getter, spec, selection, place, _ = batch[0]
    ndim = keys.ndim
    if not ndim or type(selection) is not tuple or type(place) is not tuple:
        return None
    if not len(selection) == len(spec.shape) == ndim or not _BASIC.issuperset(map(type, selection)):
        return None
    try:
        low = keys.coordinates(getter.path, skipped)
        high = keys.coordinates(batch[-1][0].path, skipped)
    except ValueError:
        return None
    if not len(low) == len(high) == ndim or not all(map(operator.le, low, high)):
        return None
    counts = [b - a + 1 for a, b in zip(low, high, strict=True)]
    if math.prod(counts) != len(batch):
        return None
    path = getter.path[:skipped]
    coordinates = itertools.product(
        *([str(i) for i in range(a, b + 1)] for a, b in zip(low, high, strict=True))
    )
    expected = map(path.__add__, map(keys.separator.join, coordinates))
    if not all(map(operator.eq, expected, [item[0].path for item in batch])):
        return None
    if any(item[0].store is not getter.store or item[1].shape != spec.shape for item in batch):
        return None
    edges = []
    stride = len(batch)
    for n in counts:
        stride //= n
        edges.append(batch[: n * stride : stride])
    picks = itertools.product(*([item[2][d] for item in edge] for d, edge in enumerate(edges)))
    if not all(map(operator.eq, picks, [item[2] for item in batch])):
        return None
    sliced = [d for d, item in enumerate(selection) if type(item) is slice]
    if len(place) != len(sliced):
        return None
    places = itertools.product(
        *([item[3][axis] for item in edges[d]] for axis, d in enumerate(sliced))
    )
    if not all(map(operator.eq, places, [item[3] for item in batch])):
        return None

    def box_of(item: Any) -> _Box | None:
        (chunk,) = _items([item], keys, skipped)
        return _box(chunk, shape)

    first = box_of(batch[0])
    if first is None:
        return None
    spans = list(first)
    for d, edge in enumerate(edges):
        if len(edge) == 1:
            continue
        last = box_of(edge[-1])
        axis = sliced.index(d) if d in sliced else None
        if last is None or axis is None:
            return None
        span = _edge(spans[d], last[d], edge[1:-1], d, axis, spec.shape[d], keys.grid)
        if span is None:
            return None
        spans[d] = span
    return tuple(spans)


def _edge(
    first: _Span, last: _Span, between: Batch, d: int, axis: int, size: int, grid: ChunkGrid
) -> _Span | None:
    """Along one dimension all from the first chunk to the last; None: perhaps not."""
    assert first.place is not None and last.place is not None
    n = len(between)
    end = first.place + first.nsteps  # where the next one's place begins
    places = map(slice, range(end, last.place, size), range(end + size, last.place + 1, size))
    if (
        not grid.is_regular(d)
        or first.step != 1
        or last.step != 1
        or first.start + first.nsteps + n * size != last.start
        or end + n * size != last.place
        or [item[2][d] for item in between].count(slice(0, size, 1)) != n
        or not all(map(operator.eq, places, [item[3][axis] for item in between]))
    ):
        return None
    return _Span(first.start, first.nsteps + n * size + last.nsteps, 1, first.place)


def _steps(boxes: list[_Box], shape: _Shape, stops: list[int]) -> Iterator[list[Part]]:
    step: list[Part] = []
    reach: list[int] = []  # where the places of the step end
    for box in boxes:
        place = tuple(
            slice(span.place, span.place + span.nsteps) for span in box if span.place is not None
        )
        # Beyond all others in one dimension, it overlaps none. What overlaps waits for its turn,
        # as does what this does not see.
        if step and not any(p.start >= end for p, end in zip(place, reach, strict=True)):
            yield step
            step = []
        reach = [max(p.stop, end) for p, end in zip(place, reach or [0] * len(place), strict=True)]
        if not step:
            reach = [p.stop for p in place]
        selection: list[slice | int] = []
        for d, (start, count, stride, where) in enumerate(box):
            stop = start + (count - 1) * stride + 1
            stops[d] = max(stops[d], stop)
            selection.append(start if where is None else slice(start, stop, stride))
        step.append(Part("basic", tuple(selection), _whole(place, shape)))
    if step:
        yield step


def _box(item: _Item, shape: _Shape) -> _Box | None:
    """None: it selects nothing."""
    places = item.place if isinstance(item.place, tuple) else (item.place,)
    box = []
    axis = 0
    for selected, first, size in zip(item.selection, item.starts, item.sizes, strict=True):
        if type(selected) is int:
            if not 0 <= selected < size:
                raise Unserved("indices that count from the end")
            box.append(_Span(first + selected, 1, 1, None))
            continue
        start, stop, step = selected.indices(size)
        if axis == len(shape) or len(places) != len(shape) or type(places[axis]) is not slice:
            raise Unserved("places in the result that are no box")
        place, end, stride = places[axis].indices(shape[axis])
        count = len(range(start, stop, step))
        if step < 1 or stride != 1 or max(end - place, 0) != count:
            raise Unserved("slices that run backwards, or broadcast")
        box.append(_Span(first + start, count, step, place))
        axis += 1
    if axis != len(shape):
        raise Unserved("places in the result that are no box")
    return tuple(box) if all(span.nsteps for span in box) else None


def _joined(boxes: list[_Box], d: int) -> list[_Box]:
    """Neighbours in the list that go on along dimension `d`, as one."""
    joined: list[_Box] = []
    for box in boxes:
        span = box[d]
        if joined and span.place is not None:
            last = joined[-1]
            start, count, step, place = last[d]
            if (
                span.start == start + count * step
                and place is not None
                and span.place == place + count
                and span.step == step
                and box[:d] == last[:d]
                and box[d + 1 :] == last[d + 1 :]
            ):
                whole = _Span(start, count + span.nsteps, step, place)
                joined[-1] = (*last[:d], whole, *last[d + 1 :])
                continue
        joined.append(box)
    return joined


# Products of indices.


def _products(
    items: list[_Item], drop_axes: _Shape, shape: _Shape, stops: list[int]
) -> Iterator[list[Part]]:
    runs = [items[:1]]
    for before, item in itertools.pairwise(items):
        if item.at > before.at:
            runs[-1].append(item)
        else:  # another selection begins
            runs.append([item])
    for run in runs:
        part = _product(run, drop_axes, shape, stops)
        parts = [_product([item], drop_axes, shape, stops) for item in run] if not part else [part]
        for each in parts:
            if each is None:
                raise Unserved("indices whose places have gaps")
            yield [each]


def _same(selected: Any) -> Any:
    """Equal for what selects the same."""
    if isinstance(selected, slice):
        return selected.start, selected.stop, selected.step
    array = np.asarray(selected)
    return array.dtype.char, array.tobytes()


def _product(items: list[_Item], drop_axes: _Shape, shape: _Shape, stops: list[int]) -> Part | None:
    """One selection that is these of its chunks; None when there is none."""
    ndim = len(items[0].at)
    axes = [d for d in range(ndim) if d not in drop_axes]
    # Of each dimension: what is picked from a chunk and where that goes, by the chunk's coordinate.
    parts: list[dict[int, tuple[Any, _Item, Any]]] = [{} for _ in range(ndim)]
    for item in items:
        if len(item.place) != len(axes) or len(axes) != len(shape):
            raise Unserved("selections of other dimensions than the result's")
        places: list[Any] = [None] * ndim
        for d, where in zip(axes, item.place, strict=True):
            places[d] = where
        for d, (i, selected, where) in enumerate(zip(item.at, item.selection, places, strict=True)):
            same = _same(selected), where is not None and _same(where)
            if parts[d].setdefault(i, (same, item, where))[0] != same:
                return None
    if math.prod(map(len, parts)) != len(items):
        return None

    selection: list[Any] = []
    place: list[slice] = []
    ends = []
    for d in range(ndim):
        picked = [
            (item.starts[d] + _indices(item.selection[d], item.sizes[d]), where)
            for _, item, where in parts[d].values()
        ]
        count = sum(len(indices) for indices, _ in picked)
        if count == 0:
            raise Unserved("a batch that selects nothing")
        ends.append(max(int(indices.max()) for indices, _ in picked if len(indices)) + 1)
        if d in drop_axes:
            if count != 1:
                raise Unserved("dropped dimensions of more than one element")
            selection.append(int(picked[0][0][0]))
            continue
        extent = shape[len(place)]
        placed = [(indices, _indices(where, extent)) for indices, where in picked]
        low = min(int(where.min()) for _, where in placed if len(where))
        whole = np.full(count, -1, np.intp)
        for indices, where in placed:
            if len(indices) != len(where):
                raise Unserved("indices that broadcast")
            if len(where) and int(where.max()) - low >= count:
                return None
            whole[where - low] = indices
        if (whole < 0).any():
            return None
        selection.append(_slice_of(whole) or whole)
        place.append(slice(low, low + count))
    stops[:] = map(max, stops, ends)
    basic = not any(isinstance(item, np.ndarray) for item in selection)
    return Part("basic" if basic else "oindex", tuple(selection), _whole(tuple(place), shape))


def _indices(selection: Any, size: int) -> _Indices:
    """What one dimension of a selection picks from `size` elements, in their order."""
    if isinstance(selection, slice):
        return np.arange(*selection.indices(size))
    array = np.asarray(selection)
    if array.dtype == bool:
        return np.flatnonzero(array)
    if array.dtype.kind not in "iu":
        raise Unserved("indices that are no integers")
    indices: _Indices = array.ravel()
    _check_within(indices, size)
    return indices.astype(np.intp, copy=False)  # the start of a chunk may not fit into their type


def _check_within(indices: _Indices, size: int) -> None:
    # One look: as unsigned numbers, negative ones are too large.
    unsigned = indices.view(f"u{indices.itemsize}")
    if len(indices) and int(unsigned.max()) >= size:
        raise Unserved("indices that count from the end")


def _slice_of(indices: _Indices) -> slice | None:
    """The slice that picks the same, when there is one."""
    if len(indices) < 2:
        return slice(int(indices[0]), int(indices[0]) + 1) if len(indices) else None
    step = int(indices[1]) - int(indices[0])
    if step < 1 or (np.diff(indices) != step).any():
        return None
    return slice(int(indices[0]), int(indices[-1]) + 1, step)


# Points.


def _points(
    items: list[_Item], drop_axes: _Shape, shape: _Shape, stops: list[int]
) -> Iterator[list[Part]]:
    if drop_axes or len(shape) != 1:
        raise Unserved("points with dropped dimensions")
    placed = [_indices(item.place, shape[0]) for item in items]
    low = min((int(where.min()) for where in placed if len(where)), default=0)
    high = max((int(where.max()) for where in placed if len(where)), default=-1) + 1
    if low == high:
        return
    if sum(map(len, placed)) != high - low:  # gaps, or places that overlap: each by itself, in turn
        if len(items) == 1:
            raise Unserved("indices whose places have gaps")
        for item in items:
            yield from _points([item], drop_axes, shape, stops)
        return
    points = [np.full(high - low, -1, np.intp) for _ in stops]
    for item, where in zip(items, placed, strict=True):
        for d, selected in enumerate(item.selection):
            indices = _indices(selected, item.sizes[d])
            if len(indices) != len(where):
                raise Unserved("indices that broadcast")
            points[d][where - low] = item.starts[d] + indices
    if any((indices < 0).any() for indices in points):
        raise Unserved("indices whose places have gaps")
    stops[:] = map(max, stops, (int(indices.max()) + 1 for indices in points))
    yield [Part("vindex", tuple(points), _whole((slice(low, high),), shape))]
