"""Where the objects of a zarr-python store lie."""

from __future__ import annotations

import os
import re
from typing import Any

from zarr.storage import (
    FsspecStore,
    LocalStore,
    MemoryStore,
    ObjectStore,
    WrapperStore,
    ZipStore,
)

from .. import _paths, _secrets
from .own import OwnStore


def place_of(store: Any) -> str:
    """Equal for stores that keep the same objects, as far as their classes are known.

    What lies in a folder has the folder's real path; a store within another begins with its place
    and a slash.
    """
    # Not isinstance: a mock says that it is what it stands for, and has nothing of that.
    while issubclass(type(store), WrapperStore):
        store = store._store
    kind = type(store)
    if issubclass(kind, OwnStore):
        return _paths.place_of(store.handle, "") or _object(store.handle)
    if issubclass(kind, LocalStore):
        return os.path.realpath(store.root)
    if issubclass(kind, ZipStore):
        return _object(store) if store.path is None else os.path.realpath(store.path)
    if issubclass(kind, MemoryStore):
        return _object(store._store_dict)
    if issubclass(kind, FsspecStore):
        return _fsspec_place(store.fs, store.path)
    if issubclass(kind, ObjectStore):
        return _obstore_place(store.store)
    return _object(store)


# Servers and files, whose places say all that tells them apart. Others may mean something else in
# another process, or keep a part of their name (an account, a commit) in their options.
_LASTING = re.compile(
    r"/|(s3a?|gs|gcs|https?|s?ftp|ssh|(web)?hdfs|smb|S3Store|GCSStore|HTTPStore):"
)


def lasting_name(place: str) -> str:
    """A place by which other processes know the store; "" where there is none."""
    return place if _LASTING.match(place) else ""


def _object(thing: Any) -> str:
    return f"object:{id(thing):x}"


# Of fsspec: what they hold lies in the file system behind them.
_CACHES = ("CachingFileSystem", "WholeFileCacheFileSystem", "SimpleCacheFileSystem")


def _fsspec_place(filesystem: Any, path: str) -> str:
    filesystem = getattr(filesystem, "sync_fs", filesystem)  # of a wrapper
    name = type(filesystem).__name__
    if name in _CACHES:
        return _fsspec_place(filesystem.fs, path)
    if name == "DirFileSystem":
        return _fsspec_place(filesystem.fs, filesystem._join(path))
    if name == "LocalFileSystem":
        return os.path.realpath(filesystem._strip_protocol(path))
    protocol = filesystem.protocol
    options = filesystem.storage_options
    client = options.get("client_kwargs") or {}
    server = options.get("endpoint_url") or client.get("endpoint_url") or options.get("host")
    files = "" if name != "ReferenceFileSystem" else _object(filesystem)
    scheme = protocol if isinstance(protocol, str) else protocol[0]
    # Of web servers the path is a URL.
    server, path = (_secrets.named(str(part or "")) for part in (server, path))
    return f"{scheme}:{server}{files}//{path.strip('/')}"


def _obstore_place(store: Any) -> str:
    prefix = getattr(store, "prefix", None)
    name = type(store).__name__
    if name == "LocalStore":
        return os.path.realpath(prefix or "/")
    if name == "MemoryStore":
        return _object(store)
    config = dict(getattr(store, "config", None) or {})
    bucket = config.get("bucket") or config.get("container_name") or getattr(store, "url", "")
    server = config.get("endpoint") or config.get("endpoint_url") or ""
    server, bucket = (_secrets.named(str(part)) for part in (server, bucket))
    return f"{name}:{server}//{bucket}/{prefix or ''}".rstrip("/")
