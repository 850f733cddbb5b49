"""Dask arrays from Zarr arrays and back, by threads, processes and a cluster."""

import json
import subprocess
import sys
from base64 import b64encode
from pathlib import Path

import headrace as hr
import numpy as np
import pytest
from helpers import assert_same, read_zarr
from hypothesis import given
from hypothesis import strategies as st

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

import headrace.dask  # noqa: E402

SHAPE, CHUNKS, SHARDS = (20, 12), (2, 3), (4, 6)
DATA = np.arange(240, dtype="float32").reshape(SHAPE)


@pytest.fixture(params=["threads", "processes"])
def scheduler(request):
    with dask.config.set(scheduler=request.param, num_workers=2):
        yield request.param


@pytest.fixture
def sharded(store):
    array = hr.create_array(store, "x", shape=SHAPE, dtype="f4", chunks=CHUNKS, shards=SHARDS)
    array[:] = DATA
    return store


def test_round_trip_by_threads_and_processes(sharded, tmp_path, scheduler):
    x = hr.dask.from_zarr(sharded, "x")
    path = str(tmp_path / "out.zarr")
    done = hr.dask.to_zarr(x + 1, path, "y", chunks=CHUNKS, shards=SHARDS)
    assert (done.path, done.shards) == ("y", SHARDS)
    assert_same(read_zarr(path, "y"), DATA + 1)


def test_blocks_are_whole_shards(sharded):
    for limit in ("1B", "100B", "300B", "1MiB"):
        with dask.config.set({"array.chunk-size": limit}):
            x = hr.dask.from_zarr(sharded, "x")
        for sizes, unit in zip(x.chunks, SHARDS, strict=True):
            assert all(size % unit == 0 for size in sizes[:-1])
        assert_same(x.compute(scheduler="sync"), DATA)
    assert x.numblocks == (1, 1)


@pytest.mark.parametrize(
    ("dtype", "values"), [(str, ["a", "bb", "", "c"]), (bytes, [b"a", b"", b"c", b"d"])]
)
@pytest.mark.parametrize("chunks", [(2,), [[1, 3]]])
def test_elements_of_variable_length(dtype, values, chunks):
    array = hr.create_array(hr.memory_store(), shape=(4,), dtype=dtype, chunks=chunks)
    array[...] = np.array(values, dtype=object)
    x = hr.dask.from_zarr(array)
    assert x.chunks == ((4,),)
    assert x.compute(scheduler="sync").tolist() == values


def test_blocks_may_be_chosen(sharded):
    x = hr.dask.from_zarr(sharded, "x", chunks=(7, -1))
    assert x.chunks == ((7, 7, 6), (12,))
    assert_same(x[::-3, [1, 5]].compute(scheduler="sync"), DATA[::-3, [1, 5]])


def test_equal_arrays_have_equal_names(sharded):
    array = hr.open_array(sharded, "x")
    assert hr.dask.from_zarr(array).name == hr.dask.from_zarr(array).name
    assert hr.dask.from_zarr(sharded, "x").name == hr.dask.from_zarr(sharded, "x").name
    names = {hr.dask.from_zarr(sharded, "x", chunks=n).name for n in (2, 4)}
    assert len(names) == 2
    stores = [hr.memory_store(), hr.memory_store()]
    for number, store in enumerate(stores):
        hr.create_array(store, shape=(3,), dtype="i4")[:] = number
    blocks = [hr.dask.from_zarr(store) for store in stores]
    assert [b.sum().compute(scheduler="sync") for b in blocks] == [0, 3]
    assert blocks[0].name != blocks[1].name


def test_the_options_of_a_store_are_of_the_name(tmp_path):
    """References that are given as text have one URL, and buckets on two servers may have."""
    blocks = []
    for value in (1, 2):
        folder = tmp_path / str(value)
        hr.create_array(str(folder), data=np.full(3, value, "i4"))
        files = [path for path in folder.rglob("*") if path.is_file()]
        refs = {
            str(path.relative_to(folder)): f"base64:{b64encode(path.read_bytes()).decode()}"
            for path in files
        }
        options = {"fo": json.dumps({"version": 1, "refs": refs})}
        blocks.append(hr.dask.from_zarr("reference://", storage_options=options))
    found = dask.compute(*blocks, scheduler="sync")
    assert [f.tolist() for f in found] == [[1, 1, 1], [2, 2, 2]]
    place = hr.dask._place

    def bucket(**options):
        return place(hr.open_store("s3://bucket/a", storage_options=options))

    assert bucket(endpoint="http://127.0.0.1:1") != bucket(endpoint="http://127.0.0.1:2")
    assert bucket(secret_access_key="a", access_key_id="b") == bucket()
    web = [place(hr.open_store(f"http://127.0.0.1:1/a?version={n}")) for n in (1, 1, 2)]
    assert web[0] == web[1] != web[2]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_an_array_that_was_written_anew_has_another_name(store, zarr_format):
    names = set()
    for value in range(3):
        array = hr.create_array(
            store, "x", shape=(4,), dtype="f4", zarr_format=zarr_format, overwrite=True
        )
        array[:] = value
        name = hr.dask.from_zarr(store, "x").name
        assert name == hr.dask.from_zarr(hr.open_array(store, "x")).name
        names.add(name)
    assert len(names) == 3


def test_arrays_without_elements_or_dimensions(store):
    for name, shape in (("none", (0, 3)), ("one", ())):
        data = da.zeros(shape, dtype="i2")
        hr.dask.to_zarr(data, store, name)
        got = hr.dask.from_zarr(store, name).compute(scheduler="sync")
        assert_same(got, np.zeros(shape, "i2"))


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=8),
    st.integers(0, 7),
    st.integers(1, 7),
    st.integers(0, 5),
)
def test_no_two_blocks_share_an_object(sizes, start, unit, rest):
    total = sum(sizes)
    array = hr.create_array(
        hr.memory_store(), shape=(start + total + rest,), dtype="i4", chunks=(unit,)
    )
    array[:] = -1
    data = da.from_array(np.arange(total, dtype="i4"), chunks=(tuple(sizes),))
    writers = {}

    class Spy:
        def __setitem__(self, key, value):
            for chunk in range(key[0].start // unit, (key[0].stop - 1) // unit + 1):
                assert writers.setdefault(chunk, key) == key
            array[key] = value

    aligned = headrace.dask._aligned(data, (start,), array.write_chunk_sizes)
    where = (slice(start, start + total),)
    da.store(data.rechunk(aligned), Spy(), regions=where, lock=False, scheduler="sync")
    hr.dask.to_zarr(data, array, region=where)
    wanted = np.full(array.shape, -1, "i4")
    wanted[where] = np.arange(total)
    assert_same(array[:], wanted)


def test_writing_may_be_left_for_later(store):
    data = da.from_array(DATA, chunks=(5, 5))
    later = hr.dask.to_zarr(data, store, "x", compute=False)
    array = hr.open_array(store, "x")
    assert (array.chunks, array.nchunks_initialized) == ((5, 5), 0)
    later.compute(scheduler="threads")
    assert_same(read_zarr(store, "x"), DATA)
    with pytest.raises(ValueError, match="there already"):
        hr.dask.to_zarr(data, store, "x")
    hr.dask.to_zarr(data * 2, store, "x", overwrite=True, dimension_names=["t", "u"])
    assert_same(read_zarr(store, "x"), DATA * 2)


def test_what_cannot_be_written_is_refused(store, tmp_path):
    data = da.from_array(DATA, chunks=5)
    array = hr.create_array(store, shape=(40, 12), dtype="f4")
    for region, message in (
        ((slice(0, 20),), "2 slices"),
        ((slice(0, 40, 2), slice(None)), "step 1"),
        ((slice(0, 21), slice(None)), "shape"),
        (None, "shape"),
    ):
        with pytest.raises(ValueError, match=message):
            hr.dask.to_zarr(data, array, region=region)
    with pytest.raises(ValueError, match="region"):
        hr.dask.to_zarr(data, store, "y", region=(slice(None), slice(None)))
    with pytest.raises(ValueError, match="unknown"):
        hr.dask.to_zarr(data[data > 3], store, "y")
    with pytest.raises(NotImplementedError, match="zip"):
        hr.dask.to_zarr(data, tmp_path / "x.zip", "y")


def test_blocks_on_a_device(sharded, device):
    library = None if device == "simt" else pytest.importorskip("cupy").__name__
    x = hr.dask.from_zarr(sharded, "x", device=device, array_library=library)
    got = (x + 1).sum(axis=0).compute(scheduler="threads")
    assert_same(got if device == "simt" else got.get(), (DATA + 1).sum(axis=0))
    path = hr.dask.to_zarr(x * 2, sharded, "y").path
    assert_same(read_zarr(sharded, path), DATA * 2)


def test_workers_of_a_cluster(sharded):
    pytest.importorskip("distributed")
    script = Path(__file__).resolve().parents[2] / "examples" / "dask_cluster.py"
    done = subprocess.run(
        [sys.executable, script, sharded], capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    assert_same(read_zarr(sharded, "anomaly"), DATA - DATA.mean(axis=0, dtype="f4"))


def test_chunks_of_several_shapes(tmp_path):
    path, edges = str(tmp_path / "x.zarr"), [[8, 8, 3, 1], [2, 10]]
    array = hr.create_array(path, shape=SHAPE, dtype="f4", chunks=edges)
    array[:] = DATA
    for limit, blocks in {"1B": edges, "1MiB": [[20], [12]]}.items():
        with dask.config.set({"array.chunk-size": limit}):
            x = hr.dask.from_zarr(path)
        assert x.chunks == tuple(map(tuple, blocks))
        assert_same(x.compute(scheduler="sync"), DATA)

    target = hr.create_array(str(tmp_path / "y.zarr"), shape=SHAPE, dtype="f4", chunks=edges)
    hr.dask.to_zarr(da.from_array(DATA, chunks=(5, 4)), target)
    assert_same(target[:], DATA)
    region = (slice(3, 18), slice(1, 12))
    hr.dask.to_zarr(da.zeros((15, 11), chunks=(4, 11), dtype="f4"), target, region=region)
    expected = DATA.copy()
    expected[region] = 0
    assert_same(target[:], expected)


def _own_sources(path, array):
    x = hr.dask.from_zarr(path, "x")
    return {
        "from_zarr": x,
        "optimized": dask.optimize(x + 0)[0],
        "delayed": da.from_delayed(dask.delayed(np.asarray)(x), SHAPE, "f4"),
        "map_blocks": x.map_blocks(np.negative),
        "from_array": da.from_array(array, chunks=CHUNKS),
        "in one block": da.from_array(array, chunks=-1),
        "inlined": da.from_array(array, chunks=CHUNKS, inline_array=True),
    }


def test_what_it_is_read_from_is_not_removed(sharded):
    array = hr.open_array(sharded, "x")
    for name, x in _own_sources(sharded, array).items():
        with pytest.raises(ValueError, match="would remove before it is read"):
            hr.dask.to_zarr(x, sharded, "x", overwrite=True)
        assert array[:].tobytes() == DATA.tobytes(), name
    copy = hr.dask.to_zarr(hr.dask.from_zarr(sharded, "x") + 1, sharded, "y")
    again = hr.dask.to_zarr(hr.dask.from_zarr(sharded, "x") + 2, sharded, "y", overwrite=True)
    assert_same(again[:], DATA + 2)
    assert copy.shape == SHAPE


def test_nor_is_what_other_libraries_read(tmp_path):
    xarray, zarr = pytest.importorskip("xarray"), pytest.importorskip("zarr")
    path = str(tmp_path / "a.zarr")
    array = hr.create_array(path, "v", shape=(20,), dtype="f4", chunks=5, dimension_names=["x"])
    array[:] = DATA[:, 0]
    sources = [
        xarray.open_dataset(path, engine=engine, chunks={}, consolidated=False)["v"].data + 1
        for engine in ("headrace", "zarr")
    ]
    sources += [
        da.from_array(zarr.open_array(path, path="v"), chunks=5),
        da.from_zarr(path, component="v"),
    ]
    for x in sources:
        with pytest.raises(ValueError, match="overwrite=True would remove"):
            hr.dask.to_zarr(x, path, "v", overwrite=True)
        assert_same(array[:], DATA[:, 0])
    # However its blocks are moved on the way, by Dask or by headrace.
    moved = [x.rechunk(4) for x in sources]
    moved += [dask.optimize(x)[0] for x in moved]
    moved += [x.map_overlap(lambda block: block, depth=1, boundary="none") for x in sources]
    for x in moved:
        with pytest.raises(ValueError, match="overwrite=True would remove"):
            hr.dask.to_zarr(x, path, "v", overwrite=True)
        with pytest.raises(ValueError, match=r"overwrite=True empties|overlap"):
            hr.rechunk(x, f"{path}/v", chunks=4, overwrite=True)
    assert_same(array[:], DATA[:, 0])
    # Memory, and another place.
    hr.dask.to_zarr(da.from_array(np.ones(20, "f4"), chunks=5), path, "w")
    hr.dask.to_zarr(da.from_array(np.zeros(20, "f4"), chunks=5) + 2, path, "w", overwrite=True)
    hr.dask.to_zarr(sources[0], path, "w", overwrite=True)
    assert_same(hr.open_array(path, "w")[:], DATA[:, 0] + 1)


def test_in_place_each_element_is_made_of_itself(sharded):
    array = hr.open_array(sharded, "x", mode="r+")
    x = hr.dask.from_zarr(sharded, "x", chunks=(3, 5))
    for y in (x[::-1], x - x.mean(), da.roll(x, 3, 0), da.cumsum(x, 0), x.rechunk(4), x.T.T):
        with pytest.raises(ValueError, match="one block may be written before another one is read"):
            hr.dask.to_zarr(y, array)
    with pytest.raises(ValueError, match="one block may be written"):
        hr.dask.to_zarr(x[:-4], array, region=(slice(4, None), slice(None)))
    assert_same(array[:], DATA)
    hr.dask.to_zarr(da.where(x > 7, x * 2 + 1, x), array)
    assert_same(array[:], np.where(DATA > 7, DATA * 2 + 1, DATA))
    hr.dask.to_zarr(hr.dask.from_zarr(sharded, "x").map_blocks(np.negative), array)
    assert_same(array[:], -np.where(DATA > 7, DATA * 2 + 1, DATA))
