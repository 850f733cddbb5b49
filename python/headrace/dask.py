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
from types import ModuleType
from typing import Any
from urllib.parse import unquote

import dask.array as da
from dask.array.core import normalize_chunks
from dask.base import tokenize

from . import _core
from ._array_library import library_for
from ._create import create_array
from ._open import open_array
from ._place import overlap

__all__ = ["from_zarr", "to_zarr"]


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
        # A store that nobody else can open has no name of its own.
        place = array.store.url if array.store._can_reopen else uuid.uuid4().hex
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


def _refuse_own_source(array: da.Array, target: Any, path: str | None) -> None:
    """ValueError when making room for the target would remove what the array is read from."""
    for source in _sources(array):
        store, base = source.array.store, source.array.path
        if overlap(store, base, target, path):
            raise ValueError(
                f"to_zarr: the array is read from /{base} of {store.url}, which overwrite=True "
                "would remove before it is read; write elsewhere"
            )


def _sources(array: da.Array) -> list[_Source]:
    """What `from_zarr` put into the graph; each array of `from_array` is a task of its own."""
    found = []
    for task in array.__dask_graph__().values():
        value = getattr(task, "value", task)  # from Dask 2024.12 on, a DataNode
        if isinstance(value, _Source):
            found.append(value)
    return found


def _auto_blocks(array: _core.Array) -> tuple[Any, ...]:
    if array.is_rectilinear:
        return _blocks_of_edges(array)
    unit = array.shards or array.chunks
    proposed = normalize_chunks("auto", array.shape, dtype=array.dtype, previous_chunks=unit)
    # Dask may propose parts of a unit, which would each fetch the whole.
    return tuple(
        max(blocks[0] // extent, 1) * extent for blocks, extent in zip(proposed, unit, strict=True)
    )


def _blocks_of_edges(array: _core.Array) -> tuple[tuple[int, ...], ...]:
    """Blocks of whole chunks (shards), neighbours merged up to the extents that Dask proposes."""
    sizes = array.write_chunk_sizes
    largest = tuple(max(row, default=1) for row in sizes)
    proposed = normalize_chunks("auto", array.shape, dtype=array.dtype, previous_chunks=largest)
    return tuple(_joined(row, blocks[0]) for row, blocks in zip(sizes, proposed, strict=True))


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
        the array is read from.
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
            _refuse_own_source(array, store, path)
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
