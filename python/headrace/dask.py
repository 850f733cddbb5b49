"""Dask arrays from Zarr arrays, and Zarr arrays from Dask's.

Blocks that are read are whole shards (whole chunks where there are none), so that nothing is
fetched twice; blocks that are written are, too, so that no two tasks write one object.

Examples
--------
>>> x = headrace.dask.from_zarr("era5.zarr", "t2m")
>>> headrace.dask.to_zarr(x.mean(axis=0), "mean.zarr", "t2m")
"""

from __future__ import annotations

import bisect
import contextlib
import importlib
import itertools
import math
import os
import uuid
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any
from urllib.parse import unquote

import dask.array as da
import numpy as np
from dask.array.core import normalize_chunks
from dask.base import tokenize
from dask.blockwise import Blockwise
from dask.highlevelgraph import HighLevelGraph

from . import _core
from ._array_library import library_for
from ._create import create_array
from ._foreign_places import places_of
from ._open import open as open_node
from ._open import open_array
from ._place import overlap, place_overlaps
from ._secrets import public

__all__ = ["from_zarr", "to_zarr"]

# What arrays have that are in memory, and no array that is read when it is sliced.
_OF_MEMORY = ("__array_interface__", "__cuda_array_interface__", "__dlpack__")


class _Source:
    """An array that Dask slices: each slice is a read, to arrays of a library."""

    def __init__(self, array: _core.Array, library: str | None) -> None:
        self.array = array
        self.library = library
        self.shape, self.dtype, self.ndim = array.shape, array.dtype, array.ndim

    def __getitem__(self, key: Any) -> Any:
        elements = self.array.read(key)
        if self.library is None:
            return elements
        return importlib.import_module(self.library).from_dlpack(elements)


def from_zarr(
    store: Any,
    path: str | None = None,
    *,
    chunks: Any = "auto",
    device: str | None = None,
    array_library: str | ModuleType | None = None,
    zarr_format: int | None = None,
    storage_options: dict[str, Any] | None = None,
    name: str | None = None,
) -> da.Array:
    """A Dask array whose blocks are read from a Zarr array when they are computed.

    Parameters
    ----------
    store, path
        What `headrace.open_array` takes; or an open `Array`.
    chunks
        ``"auto"``: multiples of the shards, or of the chunks where there are no shards, of about
        Dask's ``array.chunk-size``; anything else as in `dask.array.from_array`.
    device
        Where blocks are read to: ``"cpu"``, ``"cuda:0"``; the configured default when None.
    array_library
        The module whose ``from_dlpack`` makes the blocks on a device; CuPy when None.
    zarr_format, storage_options
        As in `headrace.open_array`.
    name
        Name of the Dask array; made from the store, the path and the metadata when None, and of
        local stores from when and where the metadata and the folder were written. Chunks that
        others replace deeper down, or in other stores, leave it the same: give a name, then, where
        results of that name are kept.

    Returns
    -------
    dask.array.Array

    Raises
    ------
    ImportError
        The library for arrays on the device is not installed.

    Examples
    --------
    >>> x = headrace.dask.from_zarr("era5.zarr", "t2m", device="cuda:0")
    >>> x[:, ::2].mean(axis=0).compute()
    """
    if isinstance(store, _core.Array):
        array = store if device is None else store.to(device)
    else:
        array = open_array(
            store,
            path,
            device=device,
            zarr_format=zarr_format,
            storage_options=storage_options,
        )
    library = None if array.device == "cpu" else library_for(array.device, array_library)
    if chunks == "auto":
        chunks = _auto_blocks(array)
    if name is None:
        place = _place(array.store)
        version = _version(array)
        token = tokenize(place, array.path, array.metadata, version, chunks, array.device, library)
        name = f"from-zarr-{token}"
    empty = importlib.import_module(library or "numpy").empty
    return da.from_array(
        _Source(array, library),
        chunks=chunks,
        name=name,
        asarray=False,
        fancy=False,
        meta=empty((0,) * array.ndim, dtype=array.dtype),
    )


def _place(store: _core.Store) -> tuple[Any, ...]:
    """What is another for stores of other contents: references as text all have one URL, and so
    have buckets of one name on several servers."""
    # A store that nobody else can open has no name of its own.
    if not store._can_reopen:
        return (uuid.uuid4().hex,)
    options = store.storage_options
    # What stands behind the '?', and in references, may be a secret, but says what is there.
    return store.url, sorted(public(options).items()), options.get("query"), options.get("fo")


def _version(array: _core.Array) -> tuple[Any, ...]:
    """What is another after the array was written anew, where its store tells; else nothing.

    The folder's times change with the names in it, and a document's when it is replaced: not with
    chunks that are replaced deeper down.
    """
    kind, _, place = array.store.url.partition("://")
    if kind not in ("file", "zip"):
        return ()
    root = unquote(place)
    paths = [root]
    if kind == "file":
        folder = os.path.join(root, array.path)
        paths = [folder, *(os.path.join(folder, name) for name in ("zarr.json", ".zarray"))]
    found = []
    for path in paths:
        with contextlib.suppress(OSError):
            state = os.stat(path)
            found.append((state.st_ino, state.st_mtime_ns, state.st_size))
    return tuple(found)


def _refuse_removed_source(array: da.Array, target: Any, path: str | None) -> None:
    """ValueError when making room for the target would remove what the array is read from."""
    for source in _sources(array.__dask_graph__()):
        known = _reads_from(source, target, path)
        if known or (known is None and _is_node(target, path)):
            what = (
                f"the array is read from {_described(source)}"
                if known
                else f"it cannot be told where {_described(source)} is read from, and whether that "
                "is the destination"
            )
            raise ValueError(
                f"to_zarr: {what}, which overwrite=True would remove before it is read; write "
                "elsewhere"
            )


def _refuse_changed_source(array: da.Array, target: _core.Array) -> None:
    """ValueError when blocks of the target would be written that others still have to read."""
    graph = array.__dask_graph__()
    for source in _sources(graph):
        if not _reads_from(source, target.store, target.path):
            continue
        if array.shape != target.shape or not _is_elementwise(graph):
            raise ValueError(
                f"to_zarr: the array is read from {_described(source)}, which it would be written "
                "to: one block may be written before another one is read. Write elsewhere; in "
                "place goes only what makes each element of that same element"
            )


def _reads_from(source: Any, target: Any, path: str | None) -> bool | None:
    """Whether one of them is within the other, or is the other; None if unknown."""
    if isinstance(source, _core.Array):
        return overlap(source.store, source.path, target, path)
    places = places_of(source)
    if places is None:
        return None
    return any(place_overlaps(place, target, path) for place in places)


def _is_node(target: Any, path: str | None) -> bool:
    try:
        open_node(target, path)
    except NotImplementedError:
        return True  # one that headrace does not read, but others may
    except (OSError, ValueError):
        return False
    return True


def _described(source: Any) -> str:
    if isinstance(source, _core.Array):
        return f"/{source.path} of {source.store.url}"
    kind = type(source)
    return f"an array of type {kind.__module__.partition('.')[0]}.{kind.__qualname__}"


def _sources(graph: Mapping[Any, Any]) -> list[Any]:
    """The arrays that tasks of a graph read, of any library, but for those in memory."""
    found: list[Any] = []
    seen: dict[int, Any] = {}
    for part in _parts(graph):
        _collect(part, found, seen)
    return found


def _parts(graph: Any) -> Iterator[Any]:
    """What holds all that tasks hold: of blockwise layers, which are many tasks, their one form."""
    if not isinstance(graph, HighLevelGraph):
        yield from graph.values()
        return
    for layer in graph.layers.values():
        if isinstance(layer, Blockwise):
            yield getattr(layer, "task", None) or layer.dsk  # before Dask 2024.12
            yield from layer.io_deps.values()
            yield from (value for value, axes in layer.indices if axes is None)
        else:
            yield from layer.values()


def _collect(value: Any, found: list[Any], seen: dict[int, Any]) -> None:
    if isinstance(value, str | int | float | slice | np.ndarray) or id(value) in seen:
        return
    seen[id(value)] = value  # which lives as long as its number is known
    if isinstance(value, _Source):
        _collect(value.array, found, seen)
    elif isinstance(value, Mapping):
        for each in value.values():
            _collect(each, found, seen)
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            _collect(each, found, seen)
    elif type(value).__module__.partition(".")[0] == "dask":  # a task; tuples before 2024.12
        for name in ("value", "args", "kwargs", "mapping"):
            _collect(getattr(value, name, None), found, seen)
    elif isinstance(value, _core.Array) or (
        hasattr(value, "shape")
        and hasattr(value, "dtype")
        and not any(hasattr(value, name) for name in _OF_MEMORY)
    ):
        found.append(value)


def _is_elementwise(graph: Any) -> bool:
    """Whether each block is made of the blocks in its place alone."""
    if not isinstance(graph, HighLevelGraph):
        return False
    for name, layer in graph.layers.items():
        if isinstance(layer, Blockwise):
            if any(axes not in (None, layer.output_indices) for _, axes in layer.indices):
                return False
        elif len(layer) != 1 or graph.dependencies[name]:
            return False
    return True


def _auto_blocks(array: _core.Array) -> tuple[Any, ...]:
    if array.is_rectilinear:
        return _blocks_of_edges(array)
    unit = array.shards or array.chunks
    proposed = _proposed(array, unit)
    # Dask may propose parts of a unit, which would each fetch the whole.
    return tuple(
        max(blocks[0] // extent, 1) * extent for blocks, extent in zip(proposed, unit, strict=True)
    )


def _blocks_of_edges(array: _core.Array) -> tuple[tuple[int, ...], ...]:
    """Blocks of whole chunks (shards), neighbours merged up to the extents that Dask proposes."""
    sizes = array.write_chunk_sizes
    largest = tuple(max(row, default=1) for row in sizes)
    proposed = _proposed(array, largest)
    return tuple(_joined(row, blocks[0]) for row, blocks in zip(sizes, proposed, strict=True))


def _proposed(array: _core.Array, unit: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """The blocks that Dask proposes; it has no number for elements of variable length."""
    dtype = array.dtype
    if dtype.hasobject:  # what their references take
        dtype = np.dtype(("V", dtype.itemsize))
    blocks: tuple[tuple[int, ...], ...] = normalize_chunks(
        "auto", array.shape, dtype=dtype, previous_chunks=unit
    )
    return blocks


def _joined(sizes: tuple[int, ...], most: int) -> tuple[int, ...]:
    joined: list[int] = []
    for size in sizes:
        if joined and joined[-1] + size <= most:
            joined[-1] += size
        else:
            joined.append(size)
    return tuple(joined) or (0,)


def to_zarr(
    array: da.Array,
    store: Any,
    path: str | None = None,
    *,
    region: tuple[slice, ...] | None = None,
    compute: bool = True,
    overwrite: bool = False,
    storage_options: dict[str, Any] | None = None,
    **create: Any,
) -> Any:
    """Write a Dask array to a Zarr array, from all workers at once.

    Blocks are merged (`dask.array.rechunk`) until each covers whole shards, or whole chunks where
    there are no shards: no two tasks write the same object, and none needs a lock.

    Parameters
    ----------
    array
        Blocks are arrays of NumPy, or of a device by DLPack.
    store, path
        What `headrace.create_array` takes; or an open `Array`, which is filled. Workers in other
        processes reopen the store by its URL, so that it must not be one in memory.
    region
        Where in an open `Array` to write: slices of step 1; all of it when None.
    compute
        False returns a `dask.delayed.Delayed` that writes when it is computed.
    overwrite
        Remove what is there first.
    storage_options
        Options of the store, see `headrace.open_store`.
    **create
        Other arguments of `headrace.create_array`; ``chunks`` are the array's largest blocks when
        neither it nor ``shards`` is given.

    Returns
    -------
    headrace.Array or dask.delayed.Delayed

    Raises
    ------
    ValueError
        Blocks of unknown size; a region of another shape than the array; ``overwrite`` of what
        the array is read from, or may be; an open `Array` that the array is read from, but for
        what is done to each element by itself. Sources are found in the tasks of the graph, not
        in what functions have of their own.
    NotImplementedError
        A zip archive, which has one writer.

    Examples
    --------
    >>> headrace.dask.to_zarr(x, "out.zarr", "t2m", chunks=(1, 721, 1440), shards=(24, 721, 1440))
    """
    if any(math.isnan(extent) for extent in array.shape):
        raise ValueError("to_zarr: blocks of unknown size; call compute_chunk_sizes() first")
    if isinstance(store, _core.Array):
        target = store
    elif region is not None:
        raise ValueError("region: only for an open headrace.Array")
    else:
        if overwrite:
            _refuse_removed_source(array, store, path)
        if "shards" not in create:
            create.setdefault("chunks", tuple(max(max(sizes), 1) for sizes in array.chunks))
        target = create_array(
            store,
            path,
            shape=array.shape,
            dtype=array.dtype,
            overwrite=overwrite,
            storage_options=storage_options,
            **create,
        )
    if target.store.url.startswith("zip:"):
        if target is not store:
            target.store.discard()
        raise NotImplementedError("to_zarr: a zip archive has one writer; write a folder")
    offsets = _offsets(target, array.shape, region)
    if target is store:
        _refuse_changed_source(array, target)
    written = array.rechunk(_aligned(array, offsets, target.write_chunk_sizes))
    where = tuple(
        slice(start, start + extent) for start, extent in zip(offsets, array.shape, strict=True)
    )
    stored = da.store(written, target, lock=False, regions=where, compute=compute)
    return target if compute else stored


def _offsets(
    target: _core.Array, shape: tuple[int, ...], region: tuple[slice, ...] | None
) -> tuple[int, ...]:
    wanted = region or (slice(None),) * target.ndim
    if len(wanted) != target.ndim:
        raise ValueError(f"region: expected {target.ndim} slices, got {len(wanted)}")
    ranges = [range(n)[part] for n, part in zip(target.shape, wanted, strict=True)]
    if any(taken.step != 1 for taken in ranges):
        raise ValueError(f"region: expected slices of step 1, got {wanted}")
    if tuple(map(len, ranges)) != shape:
        raise ValueError(f"region: expected shape {shape}, got {tuple(map(len, ranges))}")
    return tuple(taken.start for taken in ranges)


def _aligned(
    array: da.Array, offsets: tuple[int, ...], units: tuple[tuple[int, ...], ...]
) -> tuple[tuple[int, ...], ...]:
    """The blocks merged until each ends where a chunk (shard) of the target does."""
    return tuple(
        _merged(sizes, start, list(itertools.accumulate(extents)))
        for sizes, start, extents in zip(array.chunks, offsets, units, strict=True)
    )


def _merged(sizes: tuple[int, ...], start: int, borders: list[int]) -> tuple[int, ...]:
    total = sum(sizes)
    if total == 0:
        return (0,)
    ends = {
        min(borders[bisect.bisect_left(borders, start + end)] - start, total)
        for end in itertools.accumulate(sizes)
    }
    edges = sorted({0, *ends})
    return tuple(b - a for a, b in itertools.pairwise(edges)) or (0,)


def __dir__() -> list[str]:
    return __all__
