"""headrace's view of a zarr-python store: by a driver of its own where it has one."""

from __future__ import annotations

import os
from typing import Any

from zarr.abc.store import Store as ZarrStore
from zarr.core.buffer import Buffer, cpu
from zarr.storage import (
    FsspecStore,
    LocalStore,
    MemoryStore,
    ObjectStore,
    StorePath,
    ZipStore,
)

from .. import _check, _core
from .foreign import foreign_store
from .own import OwnStore
from .urls import place_of


def _place(store: ZarrStore) -> str | None:
    """URL of the folder or archive."""
    if type(store) is LocalStore:
        return _url("file", os.fspath(store.root))
    # An archive that zarr-python writes has no directory yet, one in a file object no path.
    if type(store) is ZipStore and store._zmode == "r" and store.path is not None:
        return _url("zip", os.fspath(store.path))
    if type(store) is FsspecStore:
        # What has no asynchronous interface is wrapped.
        filesystem = getattr(store.fs, "sync_fs", store.fs)
        if type(filesystem).__name__ == "LocalFileSystem":
            return _url("file", filesystem._strip_protocol(store.path))
    return None


def _url(scheme: str, path: str) -> str:
    return f"{scheme}://{os.path.abspath(path).replace('%', '%25')}"


def native_store(store: ZarrStore, mode: str | None = None) -> _core.Store | None:
    """None when headrace has no driver for such a store.

    Parameters
    ----------
    store
        zarr-python's store.
    mode
        As for `headrace.open_store`; by default that of the store.

    Raises
    ------
    FileNotFoundError
        It is to be read, and does not exist.
    """
    if isinstance(store, OwnStore):
        return store.handle
    url = _place(store)
    if url is None:
        return _across_a_network(store, mode)
    try:
        url.encode()
    except UnicodeError as error:
        raise NotImplementedError(f"a path that is no UTF-8: {url!r}") from error
    if store.read_only or url.startswith("zip:"):
        mode = "r"
    return _core.open_store(url, mode or "a")


def _across_a_network(store: ZarrStore, mode: str | None) -> _core.Store | None:
    place = place_of(store)
    if place is None:
        return None
    url, options = place
    try:
        return _core.open_store(url, "r" if store.read_only else mode or "a", options)
    except (NotImplementedError, ValueError):
        # An option that is the other library's alone; whether it can be had that library says.
        return None


def resolve(store: Any, mode: str) -> tuple[_core.Store, str]:
    """Any store object that headrace's functions are given, and the path it names."""
    path = ""
    store = getattr(store, "store_path", store)  # arrays and groups of zarr-python
    if isinstance(store, dict):
        store = _of_dict(store, mode)
    elif type(store).__name__ == "FSMap":
        store = FsspecStore.from_mapper(store, read_only=mode == "r")
    if isinstance(store, StorePath):
        store, path = store.store, store.path
    elif not isinstance(store, ZarrStore):
        store = ObjectStore(store)
    native = native_store(store, mode)
    return (foreign_store(store) if native is None else native), path


def _of_dict(store: dict[Any, Any], mode: str) -> MemoryStore:
    """A dict is a store as it is for zarr-python; one of bytes is read."""
    wanted = "a dict of zarr-python's buffers or of bytes, by keys such as 'zarr.json'"
    for key, value in store.items():
        if not isinstance(key, str) or not isinstance(value, Buffer | bytes):
            raise _check.wrong_type("store", wanted, {key: value})
    if not any(isinstance(value, bytes) for value in store.values()):
        return MemoryStore(store, read_only=mode == "r")
    if mode != "r":
        raise ValueError(
            "store: a dict of bytes is read only; write to zarr.storage.MemoryStore() or to "
            "headrace.memory_store()"
        )
    buffers = {
        key: cpu.Buffer.from_bytes(value) if isinstance(value, bytes) else value
        for key, value in store.items()
    }
    return MemoryStore(buffers, read_only=True)
