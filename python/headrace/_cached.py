"""Copies of a store's bytes in memory and on a local disk."""

from __future__ import annotations

import json
import os
from typing import Any

from . import _check, _core, _secrets
from ._paths import expanded
from ._stores import open_store
from .config import _nbytes


def cached(
    store: Any,
    *,
    memory: int | str = "1GiB",
    directory: str | os.PathLike[str] | None = None,
    disk: int | str = "100GiB",
    block: int | str = "256KiB",
    name: str | None = None,
    storage_options: dict[str, Any] | None = None,
) -> _core.Store:
    """A store that keeps what is read of another, compressed as it is, in memory and on disk.

    Any range of an object that was read before, an inner chunk of a shard say, is not asked for
    again; what was used longest ago goes first. It is for stores that are slow: those across a
    network, or a shared file system.

    Objects are taken for what they were when they were read first. Writes through this store are
    seen by reads that begin after them. What others write is seen when something of the object has
    to be fetched: all that is read of it is read anew then, so that no read has old bytes and new
    ones. Remove the folder to begin anew.

    Parameters
    ----------
    store
        A path, a URL (opened to be read), a `Store`, or a store of zarr-python or obstore.
    memory
        Bytes, or as in "8GiB", in this process. 0: none.
    directory
        A folder on a local disk, made when missing, whose copies outlive the process. They lie in
        its folder ``headrace-cache-1``; no other file in it is touched. Processes of one user may
        share it. Copies are checked by size and CRC-32 when they are read. None: no copies on disk.
    disk
        Bytes in the folder; each process that writes to it may exceed that by a 16th.
    block
        Objects are kept, and asked for, in blocks of so many bytes.
    name
        What the copies on disk are known by. None: the URL, with its query, headers, user and
        endpoint, what is in a file of references, and the options that are no secrets where fsspec
        opens it. A URL that is signed anew each time, a token that is renewed, and references that
        are made anew need a name for what is still the same to be found. So do stores of fsspec
        that a secret tells apart; store objects of other libraries and stores in memory, which
        have no URL that other processes know; and references that are given as text.
    storage_options
        As `open_store` has them.

    Raises
    ------
    ValueError
        ``directory`` without a ``name`` for a store that needs one; in the store itself; or with a
        folder ``headrace-cache-1`` that is somebody else's.
    PermissionError
        That folder belongs to another user, or others may write to it.

    Returns
    -------
    Store
        Made anew with the same copies on disk when it is unpickled.

    Examples
    --------
    >>> store = hr.cached("s3://bucket/era5.zarr", directory="/nvme/cache", disk="500GiB")
    >>> t2m = hr.open_array(store, "t2m")
    """
    if name is not None:
        _check.text("name", name)
    if not isinstance(directory, str | bytes | os.PathLike | None):
        raise _check.wrong_type("directory", "a path or None", directory)
    opened = open_store(store, storage_options=storage_options)
    if name is None:
        name = "" if directory is None else _lasting_name(store, opened, storage_options)
    return _core.cached_store(
        opened,
        _nbytes("memory", memory),
        "" if directory is None else os.path.abspath(expanded(os.fsdecode(directory))),
        _nbytes("disk", disk),
        _nbytes("block", block),
        name,
    )


_NAMELESS = "reference://"  # all of the URL where references are given as text


def _lasting_name(store: Any, opened: _core.Store, options: dict[str, Any] | None) -> str:
    """What other processes know the store by; empty where its place says it."""
    if opened.url == _NAMELESS:
        raise ValueError("name: copies on disk need one: the references have no place")
    if opened._python_store is None and not opened.url.startswith("memory:"):
        return ""
    if isinstance(store, str) and not store.startswith("memory:"):
        # For fsspec an option may be the archive or the host that it reads.
        told = _secrets.public(options or {})
        return f"{store} {json.dumps(told, sort_keys=True, default=repr)}" if told else store
    raise ValueError(f"name: copies on disk need one: {opened.url} is of this process only")


def cache_stats(store: _core.Store) -> dict[str, Any]:
    """What a store that `cached` made has done, in this process.

    Returns
    -------
    dict
        ``memory_hits``, ``disk_hits`` and ``misses``, of blocks; ``fetched_bytes`` from the store
        behind it; ``memory_bytes`` held; ``damaged_files``, which were removed; ``failures`` to
        read or write the folder, which reads pass over, and the ``last_failure``.

    Raises
    ------
    ValueError
        The store is none of `cached`.

    Examples
    --------
    >>> store = hr.cached("s3://bucket/era5.zarr", directory="/nvme/cache")
    >>> hr.cache_stats(store)["misses"]
    0
    """
    if not isinstance(store, _core.Store):
        raise _check.wrong_type("store", "a store that `cached` made", store)
    return _core.cache_stats(store)
