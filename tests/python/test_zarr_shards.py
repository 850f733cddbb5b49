"""Shards through zarr-python: how they are laid out, and what is asked of a foreign store."""

from unittest.mock import AsyncMock

import headrace as hr
import numpy as np
import pytest
from helpers import assert_same

zarr = pytest.importorskip("zarr", minversion="3.1.6")

import headrace.zarr as hz  # noqa: E402
import zarr.storage as zs  # noqa: E402
from zarr.codecs import ShardingCodec  # noqa: E402
from zarr.core.buffer import default_buffer_prototype  # noqa: E402

OURS = "headrace.zarr.CodecPipeline"
DEFAULT = "zarr.core.codec_pipeline.BatchedCodecPipeline"

has_orders = pytest.mark.skipif(
    not hasattr(ShardingCodec, "subchunk_write_order"), reason="needs zarr 3.4"
)


@pytest.fixture(autouse=True)
def use_headrace():
    with zarr.config.set({"codec_pipeline.path": OURS}):
        yield


# The order of chunks in a shard.


def written(folder, path, data, *, chunks, shards, serializer=None, **options):
    """The files of an array that is written whole, then in part."""
    if serializer is None:
        options |= {"chunks": chunks, "shards": shards}
    else:
        options |= {"chunks": shards, "serializer": serializer}
    with zarr.config.set({"codec_pipeline.path": path}):
        array = zarr.create_array(
            folder, shape=data.shape, dtype=data.dtype, compressors=None, **options
        )
        found = []
        for key in (..., np.s_[1:7, 2:11]):
            array[key] = data[key] + len(found)
            files = sorted(file for file in folder.rglob("*") if file.is_file())
            found.append({str(file.relative_to(folder)): file.read_bytes() for file in files})
        return found


@pytest.mark.parametrize("index_location", ["start", "end"])
@pytest.mark.parametrize("shape", [(16, 24), (13, 24), (16, 21)])
def test_shards_are_those_of_zarr_python_bit_for_bit(tmp_path, shape, index_location):
    data = np.arange(np.prod(shape), dtype="i4").reshape(shape)
    options = {"chunks": (2, 3), "shards": {"shape": (8, 12), "index_location": index_location}}
    ours, theirs = (
        written(tmp_path / path, path, data, **options, fill_value=-1) for path in (OURS, DEFAULT)
    )
    assert ours == theirs


@has_orders
@pytest.mark.parametrize("order", ["morton", "lexicographic", "colexicographic", "unordered"])
def test_shards_in_every_order_of_zarr_python(tmp_path, order):
    data = np.arange(16 * 24, dtype="i4").reshape(16, 24)
    data[:3, :4] = 0  # a chunk that is not stored
    serializer = ShardingCodec(chunk_shape=(2, 3), subchunk_write_order=order)
    options = {"chunks": (2, 3), "shards": (8, 12), "serializer": serializer}
    ours, theirs = (written(tmp_path / path, path, data, **options) for path in (OURS, DEFAULT))
    assert ours == theirs


@has_orders
def test_shards_within_shards_of_another_order_are_left_to_zarr_python(tmp_path):
    data = np.arange(16 * 24, dtype="i4").reshape(16, 24)
    inner = ShardingCodec(chunk_shape=(2, 3), subchunk_write_order="lexicographic")
    serializer = ShardingCodec(chunk_shape=(4, 6), codecs=[inner])
    options = {"chunks": (2, 3), "shards": (8, 12), "serializer": serializer}
    ours, theirs = (written(tmp_path / path, path, data, **options) for path in (OURS, DEFAULT))
    assert ours == theirs


# What a store that headrace has no driver for is asked for.


class Recording(zs.WrapperStore):
    """Notes the requests."""

    def __init__(self, store):
        super().__init__(store)
        self.gets = []

    async def get(self, key, prototype=None, byte_range=None):
        self.gets.append(key)
        return await self._store.get(key, prototype or default_buffer_prototype(), byte_range)

    async def getsize(self, key):
        return await self._store.getsize(key)


DATA = np.random.default_rng(0).integers(0, 255, 4000, "u1")
LIMITS = ("sharding_coalesce_max_gap_bytes", "sharding_coalesce_max_bytes")


def sharded():
    """Two shards of twenty chunks."""
    store = zs.MemoryStore()
    zarr.create_array(store, data=DATA, chunks=(100,), shards=(2000,))
    return Recording(store)


def test_the_chunks_of_a_shard_are_one_request():
    store = sharded()
    array = zarr.open_array(store)
    store.gets.clear()
    assert_same(array[50:3900:400], DATA[50:3900:400])
    assert sorted(store.gets) == ["c/0", "c/0", "c/1", "c/1"]  # an index and a range of each


@pytest.mark.skipif(not hasattr(zs.MemoryStore, "get_ranges"), reason="needs zarr 3.4")
@pytest.mark.parametrize("gap, run, n", [(0, 1 << 20, 5), (10**6, 1, 5), (10**6, 1 << 20, 1)])
def test_ranges_are_merged_as_the_arrays_configuration_says(gap, run, n):
    store = sharded()
    array = zarr.open_array(store, config=dict(zip(LIMITS, (gap, run), strict=True)))
    store.gets.clear()
    assert_same(array[50:1900:400], DATA[50:1900:400])
    assert len(store.gets) == 1 + n


@pytest.mark.parametrize("device", ["cpu", "simt"])
@pytest.mark.parametrize("gap, n", [(0, 10), (10**6, 2)])
def test_ranges_are_merged_as_headraces_configuration_says(device, gap, n):
    store = sharded()
    array = hr.open_array(store, device=device)
    store.gets.clear()
    with hr.config.set({"coalesce_gap": gap, "device_min_decode_nbytes": 0}):
        found = array[50:3900:400]
    assert_same(found if device == "cpu" else found.to_numpy(), DATA[50:3900:400])
    assert len(store.gets) == 2 + n


class Losing(Recording):
    """A store that loses its chunks."""

    has_lost = False

    async def get(self, key, prototype=None, byte_range=None):
        if self.has_lost and byte_range is not None:
            return None
        return await super().get(key, prototype, byte_range)


@pytest.mark.parametrize("device", ["cpu", "simt"])
def test_shards_that_are_removed_while_they_are_read_are_missing(device):
    store = Losing(sharded()._store)
    array = hr.open_array(store, device=device)
    store.has_lost = True
    # By their indices: a shard that comes whole is there or not.
    with hr.config.set({"device_min_decode_nbytes": 0, "coalesce_run": 1}):
        found = array[:2500]
    assert_same(found if device == "cpu" else found.to_numpy(), np.zeros(2500, "u1"))
    assert zarr.open_array(store)[150] == 0


@pytest.mark.parametrize("device", ["cpu", "simt"])
def test_chunks_that_are_removed_while_they_are_read_are_missing(device):
    store = zs.MemoryStore()
    zarr.create_array(store, data=DATA, chunks=(2000,), compressors=None)
    store = Losing(store)
    store.has_lost = True
    found = hr.open_array(store, device=device)[10:20]
    assert_same(found if device == "cpu" else found.to_numpy(), np.zeros(10, "u1"))


class Failing(Recording):
    async def get(self, key, prototype=None, byte_range=None):
        if byte_range is not None:
            raise ConnectionError("no answer")
        return await super().get(key, prototype, byte_range)


def test_other_errors_of_ranges_reach_the_caller():
    array = zarr.open_array(Failing(sharded()._store))
    with pytest.raises(ConnectionError, match="no answer"):
        array[150]


# Mocks of stores: they count calls, or have them fail.


@pytest.mark.parametrize("kind", ["memory", "local"])
@pytest.mark.parametrize("shards", [None, (4, 4)])
def test_a_mock_of_a_store_sees_the_calls_of_zarr_python(tmp_path, kind, shards):
    store = zs.MemoryStore() if kind == "memory" else zs.LocalStore(tmp_path / "a")
    mock = AsyncMock(wraps=store, spec=type(store))
    data = np.arange(64, dtype="i4").reshape(8, 8)
    before = hz.fallbacks()
    array = zarr.create_array(
        zs.StorePath(mock), shape=(8, 8), chunks=(2, 2), shards=shards, dtype="i4"
    )
    array[...] = data
    assert_same(array[...], data)
    assert_same(array[3:5, 1], data[3:5, 1])
    assert hz.fallbacks() != before
    assert_same(zarr.open_array(store)[...], data)
