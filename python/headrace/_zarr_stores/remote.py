"""Stores that fsspec reaches: over HTTP, in clouds, by reference files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import fsspec  # noqa: F401  (zarr imports it when it is needed: too late to say what is missing)
from zarr.storage import FsspecStore

from .. import _core, _secrets
from .native import resolve


class _RootStore(FsspecStore):
    """The root of a file system, as references have it.

    zarr 3.1 lists "/a" there, which is not the name of anything: groups would look empty.
    """

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        try:
            entries = await self.fs._ls(prefix.strip("/"), detail=False)
        except FileNotFoundError:
            return
        for entry in entries:
            yield entry.rstrip("/").rpartition("/")[2]

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        for entry in await self.fs._find(prefix.strip("/"), withdirs=False):
            yield entry.lstrip("/")


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
        raise NotImplementedError(_secrets.shown(f"store {url}: {error}")) from error
    if not opened.path.strip("/"):
        opened = _RootStore(opened.fs, opened.read_only, opened.path, opened.allowed_exceptions)
    store, _ = resolve(opened, "r" if mode == "r" else "a")
    if mode == "w":
        store._remove_nodes()
    if mode == "w-" and store._list_dir(""):
        raise FileExistsError(f"{_secrets.shown(url)} exists")
    return store
