"""What stores of Python raise: their own exceptions, with the place; and calls on their loops."""

import asyncio
import re

import headrace as hr
import numpy as np
import pytest
import zarr
import zarr.core.sync
from headrace._zarr_stores.foreign import foreign_store
from helpers import write_zarr
from zarr.storage import LocalStore, WrapperStore


class Odd(RuntimeError):
    """It has a field, and takes two arguments."""

    def __init__(self, message, code):
        super().__init__(message, code)
        self.code = code


class Raising(WrapperStore):
    error = staticmethod(lambda key: Odd(f"boom {key}", 42))

    def look_at(self, key):
        if key.rpartition("/")[2].isdigit():  # a chunk's
            raise self.error(key)

    async def get(self, key, *args, **kwargs):
        self.look_at(key)
        return await self._store.get(key, *args, **kwargs)

    async def set(self, key, value):
        self.look_at(key)
        await self._store.set(key, value)


DATA = np.arange(64.0).reshape(8, 8)


def notes(error):
    return "\n".join(getattr(error, "__notes__", ()))


@pytest.fixture(params=["chunks", "shards", "v2"])
def path(store, request):
    options = {
        "chunks": {"chunks": (2, 8)},
        "shards": {"chunks": (2, 2), "shards": (4, 8)},
        "v2": {
            "chunks": (2, 8),
            "zarr_format": 2,
            "chunk_key_encoding": {"name": "v2", "separator": "/"},
        },
    }[request.param]
    zarr.create_group(store, zarr_format=options.get("zarr_format", 3))
    write_zarr(store, DATA, name="deep/x", **options)
    return store


def raising(path, **changes):
    wrapped = type("Raising", (Raising,), changes)(LocalStore(path))
    return hr.open_array(wrapped, "deep/x", mode="r+")


@pytest.mark.parametrize(
    "call",
    [
        lambda a: a[:],
        lambda a: a[3:5, 2],
        lambda a: a.read(out=np.empty((8, 8))),
        lambda a: a.oindex[[1, 5]],
        lambda a: hr.read_many([(a, None)]),
        lambda a: a.read_async().result(60),
        lambda a: a.write(np.s_[:4], np.ones((4, 8))),
        lambda a: a.write(np.s_[0], np.ones(8)),
        lambda a: a.write_async(np.s_[1:3], np.ones((2, 8))).result(60),
    ],
    ids=["all", "some", "out", "oindex", "many", "async", "write", "part", "write_async"],
)
def test_the_users_exception_with_array_and_chunk(path, call):
    with pytest.raises(Odd) as info:
        call(raising(path))
    assert info.value.code == 42 and info.value.args[1] == 42
    assert re.search(r"deep/x/(c/)?\d/0 of zarr:", notes(info.value))


def test_an_exception_that_is_one_object_gets_one_note(path):
    one = Odd("always this", 1)
    array = raising(path, error=staticmethod(lambda key: one))
    with pytest.raises(Odd):
        array[0]
    said = list(one.__notes__)
    for _ in range(3):
        with pytest.raises(Odd) as info:
            array[0]
        assert info.value is one
    assert one.__notes__ == said and len(said) == 1


@pytest.mark.parametrize("kind", [LookupError, OSError, TimeoutError, PermissionError, MemoryError])
def test_classes_come_through(path, kind):
    array = raising(path, error=staticmethod(lambda key: kind(key)))
    with pytest.raises(kind) as info:
        array.read_async().result(60)
    assert type(info.value) is kind


def test_what_is_no_error_of_a_chunk_stops_a_verify(path):
    class Stop(BaseException):
        pass

    store = LocalStore(path)
    array = hr.open_array(foreign_store(store), "deep/x")
    assert array.verify() == []

    class Stopping(type(array.store._python_store)):
        depth = 0  # asked by the methods below

        def get_many(self, keys):
            raise Stop

        def get_range(self, key, offset, nbytes):
            raise Stop

        get_ranges = nbytes = get_many

    from headrace import _core

    stopping = _core.python_store(Stopping(store, None, None))
    text = array._metadata_json
    array = _core.open_array(stopping, "deep/x", metadata_json=text, zarr_format=array.zarr_format)
    with pytest.raises(Stop):
        array[:]
    future = array.read_async()
    for _ in range(2):
        with pytest.raises(Stop):
            future.result(60)


def test_a_store_that_answers_nonsense(path):
    from headrace import _core

    array = hr.open_array(foreign_store(LocalStore(path)), "deep/x")

    class Nonsense(type(array.store._python_store)):
        depth = 0

        def get_many(self, keys):
            return ["text" for _ in keys]

        def get_range(self, key, offset, nbytes):
            return 5

        def get_ranges(self, key, ranges):
            return [None]

        def nbytes(self, key):
            return "many"

    store = _core.python_store(Nonsense(LocalStore(path), None, None))
    text = array._metadata_json
    array = _core.open_array(store, "deep/x", metadata_json=text, zarr_format=array.zarr_format)
    for _ in range(2):
        with pytest.raises(TypeError):
            array[:]

    class Late(type(array.store._python_store)):
        async def _get(self, key, wanted=None):
            return 5

    store = _core.python_store(Late(LocalStore(path), None, None))
    array = _core.open_array(store, "deep/x", metadata_json=text, zarr_format=array.zarr_format)
    with pytest.raises(TypeError):
        array[:]


# On the loop of the store.


def on_zarrs_loop(function):
    async def run():
        return function()

    loop = zarr.core.sync._get_loop()
    return asyncio.run_coroutine_threadsafe(run(), loop).result(60)


@pytest.mark.parametrize(
    "call",
    [
        lambda a: a[:],
        lambda a: a.read(np.s_[0], out=np.empty(8)),
        lambda a: hr.read_many([(a, None), (a, np.s_[0])]),
        lambda a: a.write(np.s_[:2], np.zeros((2, 8))),
        lambda a: a.read_async().result(),
        lambda a: a.read_async().exception(),
        lambda a: a.verify(),
        lambda a: a.nchunks_initialized,
        lambda a: np.asarray(a),
        lambda a: np.from_dlpack(a),
        lambda a: hr.open_array(a.store, "deep/x"),
        lambda a: hr.open_group(a.store).keys(),
        lambda a: hr.copy(a, hr.memory_store()),
        lambda a: hr.rechunk(a, hr.memory_store(), chunks=(8, 1)),
    ],
)
def test_a_synchronous_call_on_the_stores_own_loop(path, call):
    array = hr.open_array(WrapperStore(LocalStore(path)), "deep/x", mode="r+")
    with pytest.raises(RuntimeError, match="read_async"):
        on_zarrs_loop(lambda: call(array))


def test_a_loader_on_the_stores_own_loop(path):
    from headrace.loader import Loader

    array = hr.open_array(WrapperStore(LocalStore(path)), "deep/x")
    loader = Loader({"x": array}, batch_size=2)
    with pytest.raises(RuntimeError, match="read_async"):
        on_zarrs_loop(lambda: next(loader))
    assert next(loader)["x"].shape == (2, 1, 8)
    loader.close()


def test_awaiting_on_that_loop_and_waiting_on_others(path):
    array = hr.open_array(WrapperStore(LocalStore(path)), "deep/x")

    async def awaits():
        return await array.read_async()

    loop = zarr.core.sync._get_loop()
    assert np.array_equal(asyncio.run_coroutine_threadsafe(awaits(), loop).result(60), DATA)
    assert np.array_equal(asyncio.run(awaits()), DATA)

    async def reads():
        return array[:]

    assert np.array_equal(asyncio.run(reads()), DATA)
    memory = zarr.storage.MemoryStore()
    write_zarr(memory, DATA)
    assert np.array_equal(on_zarrs_loop(lambda: hr.open_array(memory)[:]), DATA)
    assert np.array_equal(on_zarrs_loop(lambda: hr.open(path)["deep/x"][:]), DATA)
