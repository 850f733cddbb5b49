"""headrace.zarr inside zarr-python: results and stored chunks as with its own pipeline."""

import asyncio
import contextlib
import itertools
import os
import pickle
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import headrace as hr
import numpy as np
import pytest
from forking import fork
from helpers import OfTheApplication, assert_same, library, python
from hypothesis import given
from hypothesis import strategies as st

zarr = pytest.importorskip("zarr", minversion="3.1.6")

import headrace.zarr as hz  # noqa: E402
import zarr.codecs as zc  # noqa: E402
import zarr.storage as zs  # noqa: E402
from zarr.core.buffer import BufferPrototype, cpu, default_buffer_prototype  # noqa: E402

OURS = "headrace.zarr.CodecPipeline"
DEFAULT = "zarr.core.codec_pipeline.BatchedCodecPipeline"
STORES = ("local", "zip", "memory", "fsspec", "headrace")


def pipeline(path):
    return zarr.config.set({"codec_pipeline.path": path})


@pytest.fixture(autouse=True)
def use_headrace():
    with pipeline(OURS):
        yield


def writable(kind, folder):
    if kind == "memory":
        return zs.MemoryStore()
    if kind == "fsspec":
        pytest.importorskip("fsspec")
        return zs.FsspecStore.from_url(f"memory://{uuid.uuid4().hex}")
    if kind == "headrace":
        return hz.Store(hr.memory_store())
    path = folder / uuid.uuid4().hex
    return zs.ZipStore(f"{path}.zip", mode="w") if kind == "zip" else zs.LocalStore(path)


def readable(store):
    """An archive is read only when it is written."""
    if not isinstance(store, zs.ZipStore):
        return store
    store.close()
    return zs.ZipStore(store.path, mode="r")


def stored_keys(store):
    async def keys():
        return {key async for key in store.list()}

    return asyncio.run(keys()) if not isinstance(store, zs.FsspecStore) else zarr_keys(store)


def zarr_keys(store):
    from zarr.core.sync import _collect_aiterator, sync

    return set(sync(_collect_aiterator(store.list())))


def opened(store, path):
    """The same array through one pipeline or the other."""
    with pipeline(path):
        return zarr.open_array(store, mode="r" if store.read_only else "r+")


def spies(monkeypatch):
    """Counts the batches that are left to zarr-python."""
    left = []
    for name in ("_read_default", "_write_default"):
        original = getattr(hz.CodecPipeline, name)

        def spy(self, *args, original=original, name=name):
            left.append(name)
            return original(self, *args)

        monkeypatch.setattr(hz.CodecPipeline, name, spy)
    return left


@pytest.fixture
def left_to_zarr(monkeypatch):
    return spies(monkeypatch)


# Random arrays, stores and selections against zarr-python's own pipeline.

DTYPES = ("u1", "i2", ">f4", "f8", "c8", "b1", "M8[s]", "S3", "U2")


@st.composite
def grids(draw):
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=0, max_size=3)))
    chunks = tuple(draw(st.integers(1, n + 2)) for n in shape)
    shards = None
    if shape and draw(st.booleans()):
        shards = tuple(c * draw(st.integers(1, 3)) for c in chunks)
    return shape, chunks, shards


@st.composite
def arrays(draw):
    """Arguments of zarr.create_array."""
    shape, chunks, shards = draw(grids())
    zarr_format = draw(st.sampled_from((2, 3))) if shards is None else 3
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    codec = draw(st.sampled_from((None, "zstd", "gzip", "blosc")))
    options = {"shape": shape, "chunks": chunks, "dtype": dtype, "zarr_format": zarr_format}
    if zarr_format == 3:
        options["shards"] = shards
        options["compressors"] = {
            None: None,
            "zstd": zc.ZstdCodec(checksum=True),
            "gzip": zc.GzipCodec(),
            "blosc": zc.BloscCodec(shuffle="shuffle"),
        }[codec]
        if draw(st.booleans()) and len(shape) > 1:
            options["filters"] = [zc.TransposeCodec(order=tuple(reversed(range(len(shape)))))]
    else:
        import numcodecs

        options["compressors"] = {
            None: None,
            "zstd": numcodecs.Zstd(),
            "gzip": numcodecs.Zlib(),
            "blosc": numcodecs.Blosc(),
        }[codec]
        options["order"] = draw(st.sampled_from("CF"))
    if dtype.kind in "iufc":
        options["fill_value"] = draw(st.sampled_from((0, 1)))
    options["config"] = {"write_empty_chunks": draw(st.booleans())}
    return options


def dimension_keys(n):
    number = st.integers(-n, n - 1)
    bound = st.none() | st.integers(-n - 1, n + 1)
    return {
        "int": number,
        "slice": st.builds(slice, bound, bound, st.none() | st.integers(1, 4)),
        "array": st.lists(number, min_size=1, max_size=6).map(np.array),
        "bool": st.lists(st.booleans(), min_size=n, max_size=n).map(np.array),
    }


@st.composite
def selections(draw, shape, chunks):
    """What kind of indexing, and its key."""
    kinds = ["basic", "oindex", "mask"] + ["vindex", "blocks"] * (len(shape) > 0)
    kind = draw(st.sampled_from(kinds))
    if kind == "mask":
        count = int(np.prod(shape))
        bits = draw(st.lists(st.booleans(), min_size=count, max_size=count))
        return kind, np.array(bits, bool).reshape(shape)
    if kind == "vindex":
        count = draw(st.integers(1, 8))
        return kind, tuple(
            np.array(draw(st.lists(st.integers(-n, n - 1), min_size=count, max_size=count)))
            for n in shape
        )
    if kind == "blocks":
        return kind, tuple(
            draw(st.integers(0, -(-n // c) - 1)) for n, c in zip(shape, chunks, strict=True)
        )
    allowed = ("int", "slice") if kind == "basic" else ("int", "slice", "array", "bool")
    return kind, tuple(draw(st.one_of(*(dimension_keys(n)[k] for k in allowed))) for n in shape)


def selected(array, kind, key):
    if kind == "basic":
        return array[key]
    if kind == "mask":
        return array.get_mask_selection(key)
    return getattr(array, kind)[key]


def assign(array, kind, key, value):
    if kind == "basic":
        array[key] = value
    elif kind == "mask":
        array.set_mask_selection(key, value)
    else:
        getattr(array, kind)[key] = value


def filled(shape, dtype, seed):
    numbers = np.random.default_rng(seed).integers(0, 4, shape)
    if dtype.kind in "SU":
        return numbers.astype(dtype)
    return numbers.astype("i8").astype(dtype)


def outcome(call, *args):
    """The result of a call, or its error: both pipelines refuse the same keys."""
    try:
        return call(*args), None
    except Exception as error:
        return None, type(error)


@given(options=arrays(), data=st.data())
@pytest.mark.parametrize("kind", STORES)
def test_reads_as_zarr_python_does(tmp_path_factory, kind, options, data):
    folder = tmp_path_factory.mktemp("read")
    store = writable(kind, folder)
    with pipeline(DEFAULT):
        array = zarr.create_array(store, **options)
        written = data.draw(selections(options["shape"], options["chunks"]))
        value = filled(array.shape, array.dtype, 1)
        if written[0] == "basic":
            outcome(assign, array, *written, selected(value, *written))
        else:
            array[...] = value
    store = readable(store)
    ours, default = opened(store, OURS), opened(store, DEFAULT)
    for _ in range(4):
        key = data.draw(selections(options["shape"], options["chunks"]))
        wanted, failure = outcome(selected, default, *key)
        got, error = outcome(selected, ours, *key)
        assert error == failure
        if failure is None:
            assert_same(np.asarray(got), np.asarray(wanted))
    if isinstance(store, zs.ZipStore):
        store.close()


@given(options=arrays(), data=st.data())
@pytest.mark.parametrize("kind", ["local", "memory", "headrace"])
def test_writes_as_zarr_python_does(tmp_path_factory, kind, options, data):
    folder = tmp_path_factory.mktemp("write")
    stores = [writable(kind, folder) for _ in range(2)]
    pair = []
    for store, path in zip(stores, (OURS, DEFAULT), strict=True):
        with pipeline(path):
            pair.append(zarr.create_array(store, **options))
    for seed in range(3):
        key = data.draw(selections(options["shape"], options["chunks"]))
        wanted = np.zeros(options["shape"], options["dtype"])
        shape = outcome(lambda key=key, x=pair[1]: np.shape(selected(x, *key)))[0]
        if shape is None or key[0] == "vindex":
            continue  # points that repeat have no order
        scalar = data.draw(st.booleans())
        value = filled((), wanted.dtype, seed)[()] if scalar else filled(shape, wanted.dtype, seed)
        if outcome(assign, pair[1], *key, value)[1] is not None:
            break  # zarr-python cannot write every orthogonal selection of shards
        assign(pair[0], *key, value)
    with pipeline(DEFAULT):
        assert_same(zarr.open_array(stores[0])[...], zarr.open_array(stores[1])[...])
    assert stored_keys(stores[0]) == stored_keys(stores[1])


# What is served, and what is left to zarr-python.


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("shards", [None, (8, 8)])
def test_serves_every_kind_of_selection(tmp_path, left_to_zarr, kind, shards):
    data = np.arange(300.0).reshape(20, 15)
    store = writable(kind, tmp_path)
    zarr.create_array(store, data=data, chunks=(4, 4), shards=shards)
    store = readable(store)
    left_to_zarr.clear()
    array = zarr.open_array(store, mode="r")
    assert_same(array[...], data)
    assert_same(array[3:17:2, 5], data[3:17:2, 5])
    assert array[4, 4] == data[4, 4]
    assert_same(array.oindex[[9, 2, 2], 3:9], data[[9, 2, 2], 3:9])
    assert_same(array.oindex[[9, 2], [1, 14]], data[np.ix_([9, 2], [1, 14])])
    assert_same(array.oindex[4, [1, 14]], data[4, [1, 14]])
    assert_same(array.vindex[[9, 2], [1, 14]], data[[9, 2], [1, 14]])
    assert_same(array.get_mask_selection(data % 7 == 0), data[data % 7 == 0])
    assert_same(array.blocks[1:2], data[8:16] if shards else data[4:8])
    assert left_to_zarr == []
    if isinstance(store, zs.ZipStore):
        store.close()


def array_that_headrace_lacks(path, dtype):
    return zarr.create_array(
        path, shape=40, chunks=7, dtype=dtype, zarr_format=2, compressors=OfTheApplication()
    )


def test_leaves_what_headrace_lacks_to_zarr_python(tmp_path, left_to_zarr):
    numbers = np.arange(40)
    array = array_that_headrace_lacks(tmp_path / "inverted", "i8")
    array[:] = numbers
    assert_same(array[3:], numbers[3:])
    assert left_to_zarr == ["_write_default", "_read_default"]


class ProgramsGzip(zc.GzipCodec):
    """A codec of the program's own under a name that headrace knows."""

    decoded = 0

    async def _decode_single(self, *args):
        ProgramsGzip.decoded += 1
        return await super()._decode_single(*args)


@pytest.mark.parametrize("shards", [None, (20,)])
def test_leaves_codecs_of_the_program_to_zarr_python(tmp_path, left_to_zarr, shards):
    numbers = np.arange(40)
    array = zarr.create_array(
        tmp_path / "x", data=numbers, chunks=(10,), shards=shards, compressors=ProgramsGzip()
    )
    ProgramsGzip.decoded = 0
    assert_same(array[:], numbers)
    assert ProgramsGzip.decoded == 4
    assert set(left_to_zarr) == {"_write_default", "_read_default"}


class ProgramsBuffer(cpu.Buffer):
    """Memory of the program's own kind."""


class TakesProgramsBuffers(zs.MemoryStore):
    async def get(self, key, prototype, byte_range=None):
        if "/c/" in key:
            assert prototype.buffer is ProgramsBuffer
        return await super().get(key, prototype, byte_range)


def test_leaves_buffers_of_the_program_to_zarr_python(left_to_zarr):
    numbers = np.arange(40)
    array = zarr.create_array(TakesProgramsBuffers(), name="x", shape=40, chunks=10, dtype="i8")
    prototype = BufferPrototype(buffer=ProgramsBuffer, nd_buffer=cpu.NDBuffer)
    array.set_basic_selection(slice(None), numbers, prototype=prototype)
    assert_same(array.get_basic_selection(slice(None), prototype=prototype), numbers)
    assert left_to_zarr == ["_write_default", "_read_default"]


def test_follows_a_store_that_moves(tmp_path):
    array = zarr.create_array(zs.LocalStore(tmp_path / "a"), data=np.arange(40), chunks=10)
    assert_same(array[:], np.arange(40))
    asyncio.run(array.store.move(tmp_path / "b"))
    assert_same(array[:], np.arange(40))
    array[:10] = 0
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("dtype", ["string", "variable_length_bytes"])
@pytest.mark.parametrize(
    "options", [{}, {"shards": (4, 4)}, {"zarr_format": 2}, {"fill_value": "fill"}], ids=str
)
def test_elements_of_variable_length(tmp_path, left_to_zarr, dtype, options):
    words = [f"{i}" * (i % 5) + "\u00fc" * (i % 2) for i in range(60)]
    if dtype != "string":
        words = [word.encode() for word in words]
        if options.get("zarr_format") == 2:
            pytest.skip("zarr-python creates no such array")
        if "fill_value" in options:
            options = {"fill_value": b"fill"}
    data = np.empty(60, dtype=object)
    data[:] = words
    data = data.reshape(6, 10)
    stored, plain = (
        zarr.create_array(tmp_path / name, shape=(6, 10), chunks=(2, 2), dtype=dtype, **options)
        for name in ("a", "b")
    )
    with pipeline(DEFAULT):
        plain = zarr.open_array(tmp_path / "b")
    # zarr-python's own pipeline writes no single element of bytes.
    one = np.s_[5, 5] if dtype == "string" else np.s_[5:6, 5:6]
    keys = [np.s_[1:5, 2:9], np.s_[0], one, np.s_[::3, 1::4], np.s_[...]]
    for key in keys:
        for array in (stored, plain):
            array[key] = data[key]
        got, wanted = stored[...], plain[...]
        assert got.dtype == wanted.dtype
        assert got.tolist() == wanted.tolist()
        assert np.asarray(stored[key]).tolist() == np.asarray(plain[key]).tolist()
    assert stored.oindex[[4, 0, 0], 1:3].tolist() == plain.oindex[[4, 0, 0], 1:3].tolist()
    assert stored.vindex[[4, 0], [1, 9]].tolist() == plain.vindex[[4, 0], [1, 9]].tolist()
    if dtype == "string":
        stored[0] = plain[0] = data[3, 3]
        assert stored[...].tolist() == plain[...].tolist()
    assert left_to_zarr == []


def test_structures(tmp_path, left_to_zarr):
    data = np.zeros(10, [("a", "i4"), ("b", "f8")])
    data["a"], data["b"] = np.arange(10), np.arange(10) / 2
    array = zarr.create_array(tmp_path / "x", shape=10, chunks=4, dtype=data.dtype, zarr_format=2)
    array[:] = data
    assert_same(array[2:9], data[2:9])
    array[3:5] = (7, 8.5)
    data[3:5] = (7, 8.5)
    assert_same(array[...], data)
    assert left_to_zarr == []


# zarr-python's own, with numpy 2.5.
@pytest.mark.filterwarnings("ignore:The 'generic' unit:DeprecationWarning")
@pytest.mark.parametrize("dtype", [">m8", [("a", ">f4"), ("b", ">i4")]], ids=str)
def test_big_endian_times_and_structures(tmp_path, left_to_zarr, dtype):
    values = np.arange(96, dtype="u1").view(dtype)
    read = {}
    for path in (OURS, DEFAULT):
        with pipeline(path):
            array = zarr.create_array(
                tmp_path / path,
                shape=12,
                chunks=12,
                dtype=values.dtype,
                zarr_format=2,
                compressors=None,
            )
            array[:] = values
        assert (tmp_path / path / "0").read_bytes() == values.tobytes()
        read[path] = opened(zs.LocalStore(tmp_path / OURS), path)[:]
    assert_same(read[OURS], read[DEFAULT])
    assert not left_to_zarr


def test_order_f_and_out(tmp_path):
    data = np.arange(120, dtype="f4").reshape(10, 12)
    array = zarr.create_array(tmp_path / "x", data=data, chunks=(3, 5), config={"order": "F"})
    x = array[2:9]
    assert x.flags.f_contiguous
    assert_same(np.ascontiguousarray(x), data[2:9])
    out = default_buffer_prototype().nd_buffer.empty((7, 12), "f4")
    array.get_basic_selection(slice(2, 9), out=out)
    assert_same(out.as_numpy_array(), data[2:9])


# Resizing: the pipeline is not told.


def test_follows_its_array_when_it_grows_and_shrinks(tmp_path, left_to_zarr):
    array = zarr.create_array(tmp_path / "x", shape=10, chunks=8, dtype="i4")
    array[:] = np.arange(10)
    array.resize((30,))
    array[10:] = np.arange(10, 30)
    assert_same(array[:], np.arange(30, dtype="i4"))
    array[:10] = -1  # ends where the array ended before: the chunk is not whole any more
    assert_same(array[:], np.r_[np.full(10, -1), 10:30].astype("i4"))
    array.resize((9,))
    assert_same(array[:], np.full(9, -1, "i4"))
    for start in range(9, 400, 17):
        array.append(np.arange(start, start + 17, dtype="i4"))
    assert_same(array[9:], np.arange(9, 400 - 400 % 17 + 17, dtype="i4")[: len(array[9:])])
    assert left_to_zarr == []


def test_a_shrunk_edge_forgets_what_was_beyond_it(tmp_path):
    for path in (OURS, DEFAULT):
        with pipeline(path):
            array = zarr.create_array(tmp_path / path, shape=16, chunks=8, dtype="i4")
            array[:] = 7
            array.resize((5,))
            array[:] = 1
            array.resize((16,))
            assert_same(array[:], np.r_[np.full(5, 1), np.zeros(11)].astype("i4"))


@pytest.mark.parametrize("path", [OURS, DEFAULT])
def test_a_shrunk_shard_keeps_what_was_beyond_its_edge(tmp_path, path):
    with pipeline(path):
        array = zarr.create_array(tmp_path / "x", shape=(8,), chunks=(4,), shards=(8,), dtype="i4")
        array[:] = 7
        array.resize((5,))
        array[:] = 1
        array.resize((8,))
        assert_same(array[:], np.r_[np.full(5, 1), np.full(3, 7)].astype("i4"))


def test_sees_what_another_array_wrote(tmp_path):
    one = zarr.create_array(tmp_path / "x", shape=(12,), chunks=(4,), shards=(12,), dtype="i4")
    other = zarr.open_array(tmp_path / "x")
    one[:] = 1
    assert_same(other[:], np.full(12, 1, "i4"))
    one[4:8] = 2
    assert_same(other[:], np.repeat([1, 2, 1], 4).astype("i4"))


# As an object of zarr-python.


def test_pipeline_compares_and_pickles(tmp_path):
    zarr.create_array(tmp_path / "x", data=np.arange(10))
    one, other = (zarr.open_array(tmp_path / "x", mode="r") for _ in range(2))
    assert isinstance(one._async_array.codec_pipeline, hz.CodecPipeline)
    assert one == other
    assert_same(pickle.loads(pickle.dumps(one))[:], np.arange(10))
    names = [type(codec).__name__ for codec in one._async_array.codec_pipeline]
    assert names == ["BytesCodec", "ZstdCodec"]


def test_many_threads_read_one_array(tmp_path):
    data = np.arange(10000).reshape(100, 100)
    array = zarr.create_array(tmp_path / "x", data=data, chunks=(10, 10))
    with ThreadPoolExecutor(8) as pool:
        rows = list(pool.map(lambda i: array[i], range(100)))
    assert_same(np.stack(rows), data)


@pytest.mark.parametrize("kind", ["local", "memory", "headrace"])
def test_in_a_loop_of_the_callers_own(tmp_path, kind):
    data = np.arange(60).reshape(6, 10)
    store = writable(kind, tmp_path)
    zarr.create_array(store, data=data, chunks=(2, 3))

    async def read():
        array = await zarr.AsyncArray.open(store)
        parts = await asyncio.gather(*(array.getitem(i) for i in range(6)))
        return np.stack(parts)

    assert_same(asyncio.run(read()), data)
    assert_same(asyncio.run(read()), data)


def test_errors_are_raised_where_they_belong(tmp_path):
    array = zarr.create_array(tmp_path / "x", data=np.arange(1000.0), chunks=100)
    chunk = tmp_path / "x" / "c" / "3"
    chunk.write_bytes(chunk.read_bytes()[:20])
    with pytest.raises(hr.CorruptError, match="c/3"):
        array[:]
    assert_same(array[:300], np.arange(300.0))
    with pytest.raises(IndexError):
        array[2000]
    with pytest.raises(ValueError, match=r"read-only|read only"):
        zarr.open_array(tmp_path / "x", mode="r")[0] = 1


class Failing(zs.WrapperStore):
    """A store whose chunks cannot be had."""

    async def get(self, key, prototype=None, byte_range=None):
        if key.startswith("c/"):
            raise ConnectionError(f"no answer for {key}")
        return await self._store.get(key, prototype or default_buffer_prototype(), byte_range)

    async def getsize(self, key):
        raise ConnectionError(f"no answer for {key}")


def test_the_error_of_a_foreign_store_reaches_the_caller():
    store = zs.MemoryStore()
    zarr.create_array(store, data=np.arange(100), chunks=10)
    with pytest.raises(ConnectionError, match="no answer"):
        zarr.open_array(Failing(store))[:]


class Counting(zs.WrapperStore):
    """Counts the requests and the bytes that are asked for."""

    requests = 0
    nbytes = 0

    async def get(self, key, prototype=None, byte_range=None):
        found = await self._store.get(key, prototype or default_buffer_prototype(), byte_range)
        Counting.requests += 1
        Counting.nbytes += 0 if found is None else len(found)
        return found

    async def getsize(self, key):
        Counting.requests += 1
        return len(await self._store.get(key, default_buffer_prototype()))


def test_reads_parts_of_shards_of_a_foreign_store():
    store = zs.MemoryStore()
    data = np.arange(100000.0)
    zarr.create_array(store, data=data, chunks=(1000,), shards=(100000,), compressors=None)
    array = zarr.open_array(Counting(store), mode="r")
    Counting.nbytes = 0
    assert_same(array[5000:6000], data[5000:6000])
    assert 8000 <= Counting.nbytes < 20000


@pytest.mark.parametrize("device", ["cpu", "simt"])
@pytest.mark.parametrize("chunks", [1, 2, 5])
def test_asks_a_foreign_store_once_for_each_chunk(device, chunks):
    data = np.arange(500.0)
    store = zs.MemoryStore()
    array = zarr.create_array(store, shape=500, dtype="f8", chunks=50)
    array[:100] = data[:100]
    counted = hr.open_array(Counting(store), device=device)
    expected = np.where(data < 100, data, 0)[: 50 * chunks]
    Counting.requests = 0
    assert_same(np.asarray(counted.read((slice(0, 50 * chunks),), device="cpu")), expected)
    assert Counting.requests == chunks


# headrace's own functions with stores of zarr-python.


@pytest.mark.parametrize("kind", ["local", "memory", "fsspec", "headrace"])
def test_headrace_opens_stores_of_zarr_python(tmp_path, kind):
    data = np.arange(60.0).reshape(6, 10)
    store = writable(kind, tmp_path)
    group = zarr.create_group(store)
    group.create_array("a/b", data=data, chunks=(2, 3), shards=(4, 6))
    array = hr.open_array(store, "a/b")
    assert_same(array[1:5, ::2], data[1:5, ::2])
    assert list(hr.open_group(store)) == ["a"]
    writer = hr.open_array(zs.StorePath(store, "a"), "b", mode="r+")
    writer[2:3] = -1
    data[2:3] = -1
    assert_same(group["a/b"][...], data)


# Devices.


def test_results_in_the_memory_of_the_configured_device(tmp_path, device, left_to_zarr):
    data = np.arange(300, dtype="f4").reshape(20, 15)
    array = zarr.create_array(tmp_path / "x", data=data, chunks=(4, 4))
    other = zarr.create_array(tmp_path / "y", data=data, chunks=(4, 4), compressors=None)
    with zarr.config.set({"ndbuffer": "headrace.zarr.NDBuffer"}), hr.config.set(device=device):
        x = array[3:17:2]
        assert isinstance(x, hr.DeviceArray) and x.device.split(":")[0] == device
        assert_same(x.to_numpy(), data[3:17:2])
        assert_same(array.oindex[[9, 2], 3:9].to_numpy(), data[[9, 2], 3:9])
        assert array[4, 4].to_numpy() == data[4, 4]
        nothing = array[3:3]
        assert isinstance(nothing, hr.DeviceArray) and nothing.shape == (0, 15)
        assert_same(nothing.to_numpy(), data[3:3])
        other[...] = array[...]
        assert left_to_zarr == []
    assert_same(other[...], data)


def test_results_and_values_of_cupy(tmp_path, device, left_to_zarr):
    cupy = library("cupy", device)
    data = np.arange(300, dtype="f4").reshape(20, 15)
    array = zarr.create_array(tmp_path / "x", data=data, chunks=(4, 4), shards=(8, 8))
    with zarr.config.enable_gpu(), pipeline(OURS):
        array = zarr.open_array(tmp_path / "x")
        x = array[3:17:2]
        assert isinstance(x, cupy.ndarray)
        assert_same(cupy.asnumpy(x), data[3:17:2])
        assert_same(cupy.asnumpy(array.oindex[[9, 2], 3:9]), data[[9, 2], 3:9])
        array[2:9] = x * 2
    assert left_to_zarr == []
    data[2:9] = data[3:17:2] * 2
    assert_same(zarr.open_array(tmp_path / "x")[...], data)


def test_a_device_result_of_zarr_pythons_codecs(tmp_path, device, left_to_zarr):
    data = np.arange(40, dtype="f4")
    array = array_that_headrace_lacks(tmp_path / "x", "f4")
    array[:] = data
    with zarr.config.set({"ndbuffer": "headrace.zarr.NDBuffer"}), hr.config.set(device=device):
        x = array[5:]
        assert isinstance(x, hr.DeviceArray)
        assert_same(x.to_numpy(), data[5:])
        array[:10] = 1
    assert_same(array[:12], np.r_[np.ones(10), data[10:12]].astype("f4"))


@contextlib.contextmanager
def threads(n):
    with hr.config.set(threads=n):
        yield


@pytest.mark.parametrize("kind", ["memory", "fsspec"])
def test_foreign_stores_with_one_thread_and_many_chunks(tmp_path, kind):
    data = np.arange(1000).reshape(50, 20)
    store = writable(kind, tmp_path)
    for n in (1, 4):
        with threads(n):
            array = zarr.create_array(store, data=data, chunks=(1, 5), overwrite=True)
            assert_same(array[...], data)


def test_blocks_of_every_size_line_up(tmp_path):
    data = np.arange(7 * 9).reshape(7, 9)
    array = zarr.create_array(tmp_path / "x", data=data, chunks=(2, 3))
    for start, step in itertools.product(range(7), (1, 2, 3, 5)):
        assert_same(array[start::step, 1::step], data[start::step, 1::step])


def test_example_runs(tmp_path):
    example = Path(__file__).parents[2] / "examples" / "zarr_pipeline.py"
    printed = python(example.read_text(), str(tmp_path))
    assert "zarr-python alone" in printed and "DeviceArray" in printed


def test_numpy_results_stay_on_the_host_whatever_the_device(tmp_path, device):
    data = np.arange(300, dtype="f4").reshape(20, 15)
    array = zarr.create_array(tmp_path / "x", data=data, chunks=(4, 4))
    with hr.config.set(device=device):
        assert type(array[...]) is np.ndarray
        array[:2] = 0
    assert_same(array[2:], data[2:])


def test_in_the_child_of_a_fork(tmp_path):
    data = np.arange(10000.0)
    array = zarr.create_array(tmp_path / "x", data=data, chunks=1000)
    store = zs.MemoryStore()
    other = zarr.create_array(store, data=data, chunks=1000)
    assert_same(array[:], data)
    assert_same(other[:], data)
    child = fork()
    if child == 0:
        good = np.array_equal(array[:], data) and np.array_equal(other[:], data)
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_nothing_is_left_at_the_end_of_the_interpreter(tmp_path):
    """pytest keeps the parameters of its tests to the very end, in cycles with much else."""
    path = tmp_path / "test_parameter.py"
    path.write_text("""
import numpy, pytest, zarr
@pytest.mark.parametrize("array", [zarr.array(numpy.arange(10), chunks=5)])
def test_reads(array):
    assert array[:].sum() == 45
""")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:asyncio", "-p", "headrace.zarr", path],
        cwd=tmp_path,
        env={**os.environ, "ZARR_CODEC_PIPELINE__PATH": OURS},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert done.stderr == ""


def test_chunks_that_must_not_be_missing(tmp_path):
    if "read_missing_chunks" not in zarr.config.get("array"):
        pytest.skip("this version of zarr-python fills missing chunks always")
    options = {"shape": 10, "chunks": 5, "dtype": "i4", "config": {"read_missing_chunks": False}}
    array = zarr.create_array(tmp_path / "x", **options)
    array[:5] = 1
    assert_same(array[:5], np.ones(5, "i4"))
    with pytest.raises(Exception, match="c/1"):
        array[:]


def test_a_relative_folder_is_where_the_process_is(tmp_path, monkeypatch):
    """As for zarr-python, whose stores keep the path as it was given."""
    for name in "ab":
        folder = tmp_path / name
        folder.mkdir()
        zarr.create_array(folder / "x.zarr", shape=4, chunks=2, dtype="i4")[:] = ord(name)
    monkeypatch.chdir(tmp_path / "a")
    with zarr.config.set({"codec_pipeline.path": "headrace.zarr.CodecPipeline"}):
        array = zarr.open_array("x.zarr")
        assert array[:].tolist() == [97] * 4
        monkeypatch.chdir(tmp_path / "b")
        assert array[:].tolist() == [98] * 4
        array.append(np.array([7, 7], "i4"))
    assert zarr.open_array(tmp_path / "b" / "x.zarr")[:].tolist() == [98] * 4 + [7] * 2
    assert zarr.open_array(tmp_path / "a" / "x.zarr")[:].tolist() == [97] * 4
