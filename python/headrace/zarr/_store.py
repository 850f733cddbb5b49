"""A zarr-python store over one of headrace's."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from zarr.abc.store import (
    ByteRequest,
    OffsetByteRequest,
    RangeByteRequest,
    SuffixByteRequest,
)
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype

from .. import _core, _secrets
from .._stores import open_store
from .._zarr_stores.own import OwnStore
from ..errors import ConflictError

# Among the options that a pickle does not have: the URL, where secrets are in it.
_SECRET_URL = "secret url"


class Store(OwnStore):
    """A headrace store as a store of zarr-python.

    With `CodecPipeline` chunks go past it, straight from headrace's driver.

    Parameters
    ----------
    store
        A path or URL as `headrace.open_store` takes it, or a `headrace.Store`.
    read_only
        Whether writes are refused.
    storage_options
        Options of the store, see `headrace.open_store`.

    Examples
    --------
    >>> store = headrace.zarr.Store("era5.zarr", storage_options={"io": "uring"})
    >>> zarr.open_array(store, path="t2m")[0]
    """

    supports_writes = True
    supports_deletes = True
    supports_listing = True
    supports_partial_writes = False

    def __init__(
        self,
        store: str | os.PathLike[str] | _core.Store,
        *,
        read_only: bool = False,
        storage_options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(read_only=read_only)
        if isinstance(store, str):
            store, storage_options = _secrets.without_secrets(store, storage_options)
        self._source = (store, storage_options)
        mode = "r" if read_only else "a"
        self._owns_handle = not isinstance(store, _core.Store)
        self._handle = open_store(store, mode=mode, storage_options=storage_options)

    @property
    def handle(self) -> _core.Store:
        """The `headrace.Store` behind it."""
        return self._handle

    def with_read_only(self, read_only: bool = False) -> Store:
        store, storage_options = self._source
        return type(self)(store, read_only=read_only, storage_options=storage_options)

    def __getstate__(self) -> dict[str, Any]:
        store, storage_options = self._source
        options = dict(storage_options or {})
        if isinstance(store, str) and _secrets.hides(store):
            options[_SECRET_URL], store = store, _secrets.shown(store)
        return {**self.__dict__, "_source": (store, _secrets.set_aside(options))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        store, set_aside = state["_source"]
        options = _secrets.restored(*set_aside)
        store = options.pop(_SECRET_URL, store)
        self.__dict__.update(state, _source=(store, options))

    def __str__(self) -> str:
        return self._handle.url

    def __repr__(self) -> str:
        return f"headrace.zarr.Store({self._handle.url!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Store):
            return False
        ours, theirs = self._handle, other._handle
        identities = ours._identity(), theirs._identity()
        if identities[0] == identities[1]:
            return True
        # Archives and references that are opened twice; their options are a part of their name.
        by_place = all(identity.startswith("driver:") for identity in identities)
        return (
            by_place and ours.url == theirs.url and ours.storage_options == theirs.storage_options
        )

    __hash__ = None  # type: ignore[assignment]

    def close(self) -> None:
        """Close it: an archive that was opened here for writing appears only then, whole.

        In a ``with`` statement, which discards the archive when the block raises. A store that was
        handed over is its owner's to close.
        """
        super().close()
        if self._owns_handle:
            self._handle.close()

    def __exit__(self, *raised: Any) -> None:
        if self._owns_handle and raised and raised[0] is not None:
            self._handle.discard()
        super().__exit__(*raised)

    async def _call(self, function: Callable[..., Any], *args: Any) -> Any:
        if not self._is_open:
            await self._open()
        return await asyncio.to_thread(function, *args)

    async def get(
        self,
        key: str,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        if not _is_key(key):
            return None
        if isinstance(byte_range, SuffixByteRequest) and byte_range.suffix == 0:
            # For the core an offset of 0 is the beginning.
            found = b"" if await self.exists(key) else None
        else:
            offset, nbytes = _range(byte_range)
            found = await self._call(self._handle._get, key, offset, nbytes)
        if found is None:
            return None
        return (prototype or default_buffer_prototype()).buffer.from_bytes(found)

    async def get_partial_values(
        self,
        prototype: BufferPrototype,
        key_ranges: Iterable[tuple[str, ByteRequest | None]],
    ) -> list[Buffer | None]:
        return list(
            await asyncio.gather(*(self.get(key, prototype, wanted) for key, wanted in key_ranges))
        )

    async def exists(self, key: str) -> bool:
        return _is_key(key) and await self._call(self._handle._exists, key)

    async def getsize(self, key: str) -> int:
        nbytes = await self._call(self._handle._nbytes, key) if _is_key(key) else None
        if nbytes is None:
            raise FileNotFoundError(key)
        return nbytes

    async def set(self, key: str, value: Buffer) -> None:
        self._check_writable()
        if not isinstance(value, Buffer):
            raise TypeError(f"value: expected a Buffer, got {type(value).__name__}")
        await self._call(self._handle._set, key, value.as_buffer_like())

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        self._check_writable()
        if await self.exists(key):  # some servers take no notice of the condition below
            return
        try:
            await self._call(self._handle._set_new, key, value.as_buffer_like())
        except ConflictError:
            return
        except NotImplementedError:
            await self.set(key, value)

    async def delete(self, key: str) -> None:
        self._check_writable()
        await self._call(self._handle._erase, key)

    async def delete_dir(self, prefix: str) -> None:
        self._check_writable()
        # zarr-python's way to overwrite a node: files that are not Zarr's stay.
        await self._call(self._handle._remove_nodes, prefix)

    async def clear(self) -> None:
        self._check_writable()
        await self._call(self._handle._erase_prefix, "")

    async def is_empty(self, prefix: str) -> bool:
        return not await self._call(self._handle._list_dir, prefix)

    async def list(self) -> AsyncIterator[str]:
        for key in await self._call(self._handle._list):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        # zarr's prefixes need not end at a slash.
        folder = prefix.rpartition("/")[0]
        for key in await self._call(self._handle._list, folder):
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        for name in await self._call(self._handle._list_dir, prefix.rstrip("/")):
            yield name


def _is_key(key: str) -> bool:
    """Whether an object may have it. Of others zarr's stores say that there is none."""
    return all(key.split("/"))


def _range(wanted: ByteRequest | None) -> tuple[int, int | None]:
    """Offset, negative from the end, and number of bytes."""
    if wanted is None:
        return 0, None
    if isinstance(wanted, RangeByteRequest):
        return wanted.start, wanted.end - wanted.start
    if isinstance(wanted, OffsetByteRequest):
        return wanted.offset, None
    if isinstance(wanted, SuffixByteRequest):
        return -wanted.suffix, None
    raise ValueError(f"Unexpected byte_range, got {wanted}.")
