"""headrace.zarr.Store passes zarr-python's tests of stores."""

import asyncio
import functools
import inspect
from pathlib import Path

import headrace as hr
import numpy as np
import pytest

zarr = pytest.importorskip("zarr", minversion="3.1.6")

import headrace.zarr as hz  # noqa: E402
from zarr.abc.store import SuffixByteRequest  # noqa: E402
from zarr.core.buffer import Buffer, cpu  # noqa: E402
from zarr.testing.store import StoreTests  # noqa: E402


def synchronous(cls):
    """Coroutines among the tests as functions: no plugin of pytest is needed."""

    def wrap(coroutine):
        @functools.wraps(coroutine)
        def test(*args, **kwargs):
            asyncio.run(coroutine(*args, **kwargs))

        return test

    for name, function in inspect.getmembers(cls, inspect.iscoroutinefunction):
        if name.startswith("test_"):
            setattr(cls, name, wrap(function))
    return cls


class LocalTests(StoreTests[hz.Store, cpu.Buffer]):
    store_cls = hz.Store
    buffer_cls = cpu.Buffer

    @pytest.fixture
    def store_kwargs(self, tmp_path):
        (tmp_path / "store").mkdir()
        return {"store": str(tmp_path / "store")}

    @pytest.fixture
    def store(self, open_kwargs):
        return asyncio.run(self.store_cls.open(**open_kwargs))

    @pytest.fixture
    def store_not_open(self, store_kwargs):
        return self.store_cls(**store_kwargs)

    async def set(self, store, key, value: Buffer) -> None:
        path = Path(store.handle.url.removeprefix("file://")) / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value.to_bytes())

    async def get(self, store, key):
        path = Path(store.handle.url.removeprefix("file://")) / key
        return self.buffer_cls.from_bytes(path.read_bytes())

    def test_store_repr(self, store):
        assert repr(store) == f"headrace.zarr.Store({store.handle.url!r})"
        assert str(store) == store.handle.url

    def test_store_supports_writes(self, store):
        assert store.supports_writes

    def test_store_supports_listing(self, store):
        assert store.supports_listing


@synchronous
class TestLocal(LocalTests):
    pass


def test_a_store_of_headrace_is_taken_as_it_is():
    handle = hr.memory_store()
    store = hz.Store(handle)
    assert store.handle is handle
    zarr.create_array(store, data=np.array([1, 2, 3]), name="x")
    assert hr.open_array(handle, "x")[1] == 2
    assert hr.open_array(store, "x")[1] == 2


def test_an_archive(tmp_path):
    path = tmp_path / "x.zip"
    hr.save(path, [1, 2, 3])
    store = hz.Store(path, read_only=True)
    assert list(zarr.open_array(store, mode="r")[:]) == [1, 2, 3]
    with pytest.raises(ValueError, match="read-only"):
        zarr.open_array(store, mode="r")[0] = 5


@pytest.mark.parametrize("place", ["folder", "memory"])
def test_keys_and_ranges_as_of_zarrs_stores(tmp_path, place):
    ours = hz.Store(str(tmp_path) if place == "folder" else hr.memory_store())
    theirs = zarr.storage.MemoryStore()

    async def ask(store, key, wanted):
        found = await store.get(key, cpu.buffer_prototype, wanted)
        return await store.exists(key), None if found is None else found.to_bytes()

    async def compare():
        for store in (ours, theirs):
            await store._open()
            await store.set("a/b", cpu.Buffer.from_bytes(b"xyz"))
            with pytest.raises((FileNotFoundError, KeyError)):
                await store.getsize("")
        for key in ("a/b", "a", "", "a/", "/a", "a/b/", "a//b", "none"):
            for nbytes in (0, 1, 3):
                wanted = SuffixByteRequest(nbytes)
                assert await ask(ours, key, wanted) == await ask(theirs, key, wanted), key
            assert await ask(ours, key, None) == await ask(theirs, key, None), key

    asyncio.run(compare())


def test_equal_are_stores_of_one_place(tmp_path):
    path = str(tmp_path / "x.zip")
    hr.save(path, [1, 2, 3])
    assert hz.Store(path, read_only=True) == hz.Store(path, read_only=True)
    handle = hr.memory_store()
    assert hz.Store(handle) == hz.Store(handle)
    assert hz.Store(handle) != hz.Store(hr.memory_store())
    here, there = (
        hz.Store(
            "s3://bucket/a.zarr",
            read_only=True,
            storage_options={"endpoint_url": f"http://localhost:{port}", "anon": True},
        )
        for port in (1, 2)
    )
    assert here == here.with_read_only(True)
    assert here != there
