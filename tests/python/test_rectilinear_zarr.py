"""Rectilinear chunk grids shared with zarr-python from 3.2 on: each reads and writes the other's
arrays, and headrace's pipeline serves them inside of it."""

import headrace as hr
import numpy as np
import pytest
from helpers import assert_same, chunk_files, values

zarr = pytest.importorskip("zarr")
if "rectilinear_chunks" not in zarr.config.get("array"):
    pytest.skip("this version of zarr-python has regular grids only", allow_module_level=True)

import headrace.zarr  # noqa: E402
from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

EDGES = [[10, 10, 13], [1, 20]]
SHARDS = {"shape": (35, 21), "chunks": (5, 3), "shards": [[10, 20, 5], [6, 15]]}
GRIDS = {
    "chunks": {"shape": (33, 21), "chunks": EDGES},
    "mixed": {"shape": (33, 21), "chunks": [[30, 3], 8]},
    "shards": SHARDS,
}


@pytest.fixture(autouse=True)
def rectilinear():
    with zarr.config.set({"array.rectilinear_chunks": True}):
        yield


@pytest.fixture(params=GRIDS)
def grid(request):
    return GRIDS[request.param]


def test_each_reads_the_others(tmp_path, grid):
    data = values("f8", grid["shape"])
    ours = hr.create_array(str(tmp_path / "ours"), dtype="f8", **grid)
    theirs = zarr.create_array(tmp_path / "theirs", dtype="f8", **grid)
    ours[...] = data
    theirs[...] = data
    assert_same(zarr.open_array(tmp_path / "ours")[...], data)
    assert_same(hr.open_array(str(tmp_path / "theirs"))[...], data)
    assert ours.read_chunk_sizes == theirs.read_chunk_sizes
    assert ours.write_chunk_sizes == theirs.write_chunk_sizes


def test_resized_alike(tmp_path):
    data = values("i4", (33, 21))
    arrays = [
        create(where, shape=data.shape, dtype="i4", chunks=EDGES)
        for create, where in (
            (hr.create_array, str(tmp_path / "ours")),
            (zarr.create_array, tmp_path / "theirs"),
        )
    ]
    for array in arrays:
        array[...] = data
        array.resize((15, 9))
        array.resize((50, 21))
        array[33:40] = data[:7]
    ours, theirs = (chunk_files(tmp_path / name) for name in ("ours", "theirs"))
    assert ours.keys() == theirs.keys()
    # What was cut off is gone for headrace; zarr-python shows what its chunks still hold of it.
    wanted = np.zeros((50, 21), "i4")
    wanted[:15, :9] = data[:15, :9]
    wanted[33:40] = data[:7]
    assert_same(arrays[0][...], wanted)
    assert_same(zarr.open_array(tmp_path / "ours")[...], wanted)
    assert_same(hr.open_array(str(tmp_path / "theirs"))[...], arrays[1][...])
    assert arrays[0].write_chunk_sizes == arrays[1].write_chunk_sizes


def test_the_pipeline(tmp_path, grid, monkeypatch):
    data = values("i4", grid["shape"])

    def unserved(*args):
        raise AssertionError("left to zarr-python's own pipeline")

    monkeypatch.setattr(headrace.zarr.CodecPipeline, "_read_default", unserved)
    monkeypatch.setattr(headrace.zarr.CodecPipeline, "_write_default", unserved)
    with zarr.config.set({"codec_pipeline.path": "headrace.zarr.CodecPipeline"}):
        array = zarr.create_array(tmp_path / "a", dtype="i4", **grid)
        array[...] = data
        array[9:12, 3:8] = 7
        data[9:12, 3:8] = 7
        for index in (np.s_[...], np.s_[5:25, 2::3], np.s_[20], np.s_[31, 20], np.s_[::4]):
            assert_same(array[index], data[index])
        rows, columns = [32, 0, 10, 10], [20, 0, 1]
        assert_same(array.oindex[rows, columns], data[np.ix_(rows, columns)])
        assert_same(array.vindex[rows, [0, 1, 2, 20]], data[rows, [0, 1, 2, 20]])
    assert_same(zarr.open_array(tmp_path / "a")[...], data)


def test_the_pipeline_after_a_resize(tmp_path):
    data = values("i4", (33, 21))
    with zarr.config.set({"codec_pipeline.path": "headrace.zarr.CodecPipeline"}):
        array = zarr.create_array(tmp_path / "a", shape=(33, 21), dtype="i4", chunks=EDGES)
        array[...] = data
        array.resize((50, 21))
        array[33:] = data[:17]
        assert_same(array[20:], np.concatenate([data[20:], data[:17]]))
    assert_same(zarr.open_array(tmp_path / "a")[...], np.concatenate([data, data[:17]]))


@given(st.data())
def test_random_grids(draw):
    edges = st.lists(st.integers(1, 7), min_size=1, max_size=5)
    chunks = [draw.draw(edges), draw.draw(edges)]
    shape = tuple(map(sum, chunks))
    index = tuple(draw.draw(st.slices(extent)) for extent in shape)
    index = tuple(slice(s.start, s.stop, abs(s.step or 1)) for s in index)
    data = values("i2", shape)
    store = zarr.storage.MemoryStore()
    zarr.create_array(store, shape=shape, dtype="i2", chunks=chunks)
    with zarr.config.set({"codec_pipeline.path": "headrace.zarr.CodecPipeline"}):
        ours = zarr.open_array(store)
        ours[...] = data
        assert_same(np.asarray(ours[index]), data[index])
        ours[index] = 3
    data[index] = 3
    assert_same(zarr.open_array(store)[...], data)
    assert_same(hr.open_array(store)[...], data)
