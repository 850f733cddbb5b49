"""What the engine calls for a zarr-python store that it has no driver for.

The engine asks from its own threads, for many keys at once where it can; the store answers on its
event loop, by its own asynchronous methods. A store in memory answers without waiting, so that no
loop is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import wait
from typing import Any, TypeAlias

import numpy as np
import zarr
import zarr.core.sync as zarr_sync
from zarr.abc.store import RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, cpu
from zarr.core.common import concurrent_map
from zarr.storage import FsspecStore, MemoryStore, ObjectStore, WrapperStore

from .. import _core, _secrets, config
from .pending import Answer as _Answer
from .pending import PendingReads, loop_closed
from .place import lasting_name, place_of

_BATCH = 64  # objects asked for at once
_LOOK_S = 0.5  # how often who waits for a loop looks whether there still is one

_Bytes = np.ndarray[Any, Any]
_Names = list[str]  # `list` is a method below
_Wanted: TypeAlias = RangeByteRequest | SuffixByteRequest
# Id, key, first byte and number of bytes: neither for all, no first byte for a suffix.
_Requests = list[tuple[int, str, int | None, int | None]]


def _without_loop(coroutine: Coroutine[Any, Any, Any], loop: object) -> Any:
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise RuntimeError("a store in memory waited for something")


def _loop_of(loop: asyncio.AbstractEventLoop | None) -> asyncio.AbstractEventLoop:
    if loop is not None:
        return loop
    if zarr.config.get("threading.max_workers", None) is not None:
        zarr_sync._get_executor()  # the loop's own threads, as many as are configured
    return zarr_sync._get_loop()


def _on_loop(coroutine: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop | None) -> Any:
    """What it returns or raises. zarr-python's `sync` waits for ever for a loop that stops."""
    try:
        where = _loop_of(loop)
        _refuse_to_wait_for(where)
        task = asyncio.run_coroutine_threadsafe(coroutine, where)
    except BaseException:
        coroutine.close()
        raise
    while not wait([task], timeout=_LOOK_S).done:
        # One that is not running yet may still begin.
        if where.is_closed() or _core.calls_are_refused():
            if not where.is_closed():
                task.cancel()
            raise loop_closed()
    return task.result()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """zarr-python's, if it was made."""
    return zarr_sync.loop[0]


def _refuse_to_wait_for(loop: asyncio.AbstractEventLoop) -> None:
    """A thread that runs the loop would wait for what only itself can do."""
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        return
    if running is loop:
        raise RuntimeError(
            "a synchronous call cannot wait for the event loop that it is called on: await "
            "array.read_async(...), or call from another thread (asyncio.to_thread)"
        )


def _bytes(buffer: Buffer) -> _Bytes:
    return np.ascontiguousarray(buffer.as_numpy_array())


def _is_below_a_file(error: Exception) -> bool:
    """Whether there is no such object because a part of its key names a file, and no folder."""
    # obstore has no class for it.
    return isinstance(error, NotADirectoryError) or "Not a directory (os error" in str(error)


def _name_of(store: Store) -> str:
    """What messages call it: a URL, or the kind of store. Which one it is `identity` tells."""
    while isinstance(store, WrapperStore):
        store = store._store
    if isinstance(store, FsspecStore):
        filesystem = getattr(store.fs, "sync_fs", store.fs)
        protocol = filesystem.protocol
        scheme = protocol if isinstance(protocol, str) else protocol[0]
        path = str(store.path)
        place = path if "://" in path else f"{scheme}://{path.lstrip('/')}"
        return f"fsspec+{_secrets.shown(place)}"
    kind = type(store.store) if isinstance(store, ObjectStore) else type(store)
    return f"{kind.__module__.partition('.')[0]}:{kind.__name__}"


class ForeignStore:
    """The interface that ``_core.python_store`` calls; see ``headrace/store.h``."""

    batch_size = _BATCH

    def __init__(
        self,
        store: Store,
        loop: asyncio.AbstractEventLoop | None,
        coalescing: tuple[int, int] | None,
    ) -> None:
        self._store = store
        self._loop = loop
        self.coalescing = coalescing
        self.in_memory = type(store) is MemoryStore
        self._reads = PendingReads()
        self._run = _without_loop if self.in_memory else _on_loop
        self.url = _name_of(store)
        # Writers of one process wait for each other by these: a folder is one place whatever leads
        # there, other stores are told by their names.
        place = self.place()
        is_folder = place.startswith("/") and not os.path.isfile(place)
        self.identity, self.folder = ("", place) if is_folder else (place, "")
        self.lasting_name = lasting_name(place)
        self.read_only = bool(store.read_only)
        self._watchers: dict[int, set[str]] = {}

    def place(self) -> str:
        """Where it keeps its objects: equal for stores that are one."""
        return place_of(self._store)

    def check_caller(self) -> None:
        """RuntimeError where a synchronous call would wait for itself."""
        if not self.in_memory:
            loop = _running_loop() if self._loop is None else self._loop
            if loop is not None:
                _refuse_to_wait_for(loop)

    def reduce(self) -> tuple[Any, ...]:
        """How another process opens it again."""
        if self.in_memory:
            raise TypeError(f"{self.url} lives in this process only and cannot be pickled")
        return foreign_store, (self._store,)

    @contextlib.contextmanager
    def missing_keys(self) -> Iterator[set[str]]:
        """The keys that were asked for meanwhile and are not there."""
        missing: set[str] = set()
        self._watchers[id(missing)] = missing
        try:
            yield missing
        finally:
            del self._watchers[id(missing)]

    def _is_missing(self, key: str) -> None:
        for watcher in list(self._watchers.values()):
            watcher.add(key)

    def _await(self, coroutine: Coroutine[Any, Any, Any], key: str) -> Any:
        try:
            return self._run(coroutine, self._loop)
        except BaseException as error:
            self._tell(error, key)
            raise

    def _tell(self, error: BaseException, key: str) -> None:
        """The store's own exception goes to the caller, who is to know which object it is about."""
        note = f"headrace: {key or 'the root'} of {self.url}"
        with contextlib.suppress(Exception):  # an exception that takes no notes
            if note not in getattr(error, "__notes__", ()):
                error.add_note(note)

    async def _get(self, key: str, wanted: _Wanted | None = None) -> _Bytes | None:
        try:
            found = await self._store.get(key, cpu.buffer_prototype, wanted)
        except Exception as error:
            if not _is_below_a_file(error):
                self._tell(error, key)
                raise
            found = None
        if found is None:
            self._is_missing(key)
            return None
        return _bytes(found)

    async def _get_all(
        self, requests: list[tuple[str, RangeByteRequest | None]]
    ) -> list[_Bytes | None]:
        if self.in_memory:
            return [await self._get(*request) for request in requests]
        return await concurrent_map(requests, self._get, zarr.config.get("async.concurrency"))

    async def _get_ranges(self, key: str, ranges: list[RangeByteRequest]) -> list[_Bytes | None]:
        # From zarr 3.4 on.
        if self.in_memory or not hasattr(self._store, "get_ranges"):
            return await self._get_all([(key, wanted) for wanted in ranges])
        gap, run = self.coalescing or (config.get("coalesce_gap"), config.get("coalesce_run"))
        answer = self._store.get_ranges(
            key,
            ranges,
            prototype=cpu.buffer_prototype,
            max_gap_bytes=gap,
            max_coalesced_bytes=run,
        )
        found: list[_Bytes | None] = [None] * len(ranges)
        try:
            async for part in answer:
                for i, buffer in part:
                    found[i] = None if buffer is None else _bytes(buffer)
        except BaseExceptionGroup as errors:
            others = errors.split(FileNotFoundError)[1]
            if others is not None:
                raise others from None
        return found

    @property
    def depth(self) -> int:
        """How many reads run at a time; 0, of a store in memory: it is asked, and answers."""
        return 0 if self.in_memory else _BATCH

    @property
    def local(self) -> bool:
        """Whether it answers without waiting."""
        return self.in_memory

    def submit(self, requests: _Requests, answer: _Answer) -> None:
        """Begins reads; the loop tells what came of each by `answer(id, bytes, error)`."""
        loop = _loop_of(self._loop)
        _refuse_to_wait_for(loop)
        self._reads.begin([id for id, *_ in requests], answer, loop)
        loop.call_soon_threadsafe(self._begin, requests, loop)

    def _begin(self, requests: _Requests, loop: asyncio.AbstractEventLoop) -> None:
        for id, key, first, nbytes in requests:
            wanted: _Wanted | None = None
            if nbytes is not None:
                wanted = (
                    SuffixByteRequest(nbytes)
                    if first is None
                    else RangeByteRequest(first, first + nbytes)
                )
            self._reads.run(id, loop.create_task(self._answer(id, key, wanted)))

    async def _answer(self, id: int, key: str, wanted: _Wanted | None) -> None:
        try:
            found = await self._get(key, wanted)
        except BaseException as error:
            self._reads.end(id, None, error)
            if not isinstance(error, Exception):
                raise
        else:
            self._reads.end(id, found, None)

    def cancel(self, id: int) -> None:
        self._reads.cancel(id)

    def get_many(self, keys: list[str]) -> list[_Bytes | None]:
        return self._run(self._get_all([(key, None) for key in keys]), self._loop)

    def nbytes(self, key: str) -> int | None:
        try:
            return self._await(self._store.getsize(key), key)
        except (FileNotFoundError, KeyError):
            self._is_missing(key)
            return None

    def get_range(self, key: str, offset: int, nbytes: int) -> _Bytes | None:
        return self._await(self._get(key, RangeByteRequest(offset, offset + nbytes)), key)

    def get_ranges(self, key: str, ranges: list[tuple[int, int]]) -> list[_Bytes] | None:
        wanted = [RangeByteRequest(offset, offset + nbytes) for offset, nbytes in ranges]
        found = self._await(self._get_ranges(key, wanted), key)
        return None if any(part is None for part in found) else found

    def set(self, key: str, value: bytes) -> None:
        self._await(self._store.set(key, cpu.Buffer.from_bytes(value)), key)

    def erase(self, key: str) -> None:
        try:
            self._await(self._store.delete(key), key)
        except (FileNotFoundError, KeyError):
            return

    def erase_prefix(self, prefix: str) -> None:
        self._await(self._store.delete_dir(prefix), prefix)

    def list(self, prefix: str) -> _Names:
        return self._await(_collect(self._store.list_prefix, prefix), prefix)

    def list_dir(self, prefix: str) -> _Names:
        return self._await(_collect(self._store.list_dir, prefix), prefix)


async def _collect(list_names: Callable[[str], AsyncIterator[str]], prefix: str) -> list[str]:
    # Called here: some stores want the loop as soon as they are asked.
    return [name async for name in list_names(prefix)]


def foreign_store(
    store: Store,
    loop: asyncio.AbstractEventLoop | None = None,
    coalescing: tuple[int, int] | None = None,
) -> _core.Store:
    """Any zarr-python store as one of headrace's.

    Parameters
    ----------
    store
        An open store, or one that opens itself.
    loop
        Where its coroutines run; None is zarr-python's own loop.
    coalescing
        Ranges of a shard with at most so many unused bytes between them are asked for as one, up to
        so many bytes; None: ``coalesce_gap`` and ``coalesce_run`` of `headrace.config`.
    """
    return _core.python_store(ForeignStore(store, loop, coalescing))
