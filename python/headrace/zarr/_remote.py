"""Stores that fsspec reaches: over HTTP, in clouds, by reference files."""

from __future__ import annotations

from typing import Any

import fsspec  # noqa: F401  (zarr imports it when it is needed: too late to say what is missing)
from zarr.storage import FsspecStore

from .. import _core
from ._native import resolve


def open_url(url: str, mode: str, storage_options: dict[str, Any] | None) -> _core.Store:
    """The store at a URL of fsspec.

    Parameters
    ----------
    url
        ``https://``, ``s3://``, ``simplecache::s3://``, ``reference://``, ...
    mode
        As for `headrace.open_store`.
    storage_options
        For fsspec's file system: ``{"anon": True}``, ...

    Raises
    ------
    NotImplementedError
        fsspec does not know the scheme, or wants a package for it.
    FileExistsError
        Mode ``"w-"`` and there is something.
    """
    try:
        opened = FsspecStore.from_url(url, storage_options=storage_options, read_only=mode == "r")
    except (ImportError, ValueError) as error:
        raise NotImplementedError(f"store {url}: {error}") from error
    store, _ = resolve(opened, "r" if mode == "r" else "a")
    if mode == "w":
        store._erase_prefix("")
    if mode == "w-" and store._list_dir(""):
        raise FileExistsError(f"{url} exists")
    return store
