"""Rectilinear chunk grids, against NumPy; what zarr-python wrote is in test_golden.py."""

import json
import subprocess
import sys
from pathlib import Path

import headrace as hr
import numpy as np
import pytest
from helpers import HAS_CUDA, assert_same, assert_selected, chunk_files, edit_json, values
from hypothesis import given, settings
from hypothesis import strategies as st

EDGES = [[10, 10, 13], [1, 20]]
DEVICES = ["cpu", "simt", pytest.param("cuda", marks=pytest.mark.skipif(not HAS_CUDA, reason="-"))]


def create(path, shape=(33, 21), chunks=EDGES, dtype="f8", **options):
    data = values(dtype, shape)
    array = hr.create_array(str(path), shape=shape, dtype=dtype, chunks=chunks, **options)
    array[...] = data
    return array, data


def chunk_shapes(path):
    document = json.loads((path / "zarr.json").read_text())
    return document["chunk_grid"]["configuration"]["chunk_shapes"]


def set_grid(path, chunk_shapes, **configuration):
    def change(document):
        document["chunk_grid"] = {
            "name": "rectilinear",
            "configuration": {"kind": "inline", "chunk_shapes": chunk_shapes, **configuration},
        }

    edit_json(path / "zarr.json", change)


def test_what_it_tells(tmp_path):
    array, _ = create(tmp_path / "a")
    assert array.read_chunk_sizes == array.write_chunk_sizes == ((10, 10, 13), (1, 20))
    assert array.nchunks == array.nchunks_initialized == 6
    assert array.shards is None
    with pytest.raises(NotImplementedError, match="rectilinear"):
        _ = array.chunks
    assert "chunks=<variable>" in repr(array)
    assert sorted(chunk_files(tmp_path / "a")) == [f"c/{i}/{j}" for i in range(3) for j in range(2)]

    regular, _ = create(tmp_path / "b", chunks=(10, 20))
    assert regular.read_chunk_sizes == ((10, 10, 10, 3), (20, 1))


def test_lists_are_stored_as_runs(tmp_path):
    create(tmp_path / "a", shape=(47, 9, 6), chunks=[[10, 10, 10, 10, 7], 4, [6]])
    assert chunk_shapes(tmp_path / "a") == [[[10, 4], 7], 4, [6]]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("compressors", ["auto", None])
def test_every_kind_of_selection(tmp_path, device, compressors):
    _, data = create(tmp_path / "a", compressors=compressors)
    array = hr.open_array(str(tmp_path / "a"), device=device)

    def host(got):
        return got if device == "cpu" else got.to_numpy()

    with hr.config.set({"device_min_decode_nbytes": 0}):
        for index in (
            np.s_[...],
            np.s_[5:25, ::-3],
            np.s_[20],
            np.s_[19:21, 0:2],
            np.s_[-1, None, :],
            np.s_[::7, 4:4],
        ):
            assert_selected(host(array[index]), data, index)
        rows, columns = [32, 0, 10, 10, 19, 20], [20, 0, 1]
        assert_same(host(array.oindex[rows, columns]), data[np.ix_(rows, columns)])
        points = ([32, 0, 10, 19, 10], [0, 20, 1, 1, 1])
        assert_same(host(array.vindex[points]), data[points])
        mask = data > 0
        assert_same(host(array.vindex[mask]), data[mask])
        assert_same(host(array.blocks[1:, 1]), data[10:, 1:])
        assert_same(host(array.blocks[2, 0]), data[20:, :1])


def test_missing_chunks_and_parts_of_chunks(tmp_path):
    array = hr.create_array(
        str(tmp_path / "a"), shape=(33, 21), dtype="i4", chunks=EDGES, fill_value=-7
    )
    expected = np.full((33, 21), -7, "i4")
    for index in (np.s_[8:12, 0:3], np.s_[32, 5], np.s_[::5, 20]):
        value = values("i4", expected[index].shape, 3)
        array[index] = value
        expected[index] = value
    assert_same(array[...], expected)
    array.oindex[[9, 21], [0, 2]] = 5
    expected[np.ix_([9, 21], [0, 2])] = 5
    array.vindex[[1, 32], [1, 20]] = 6
    expected[[1, 32], [1, 20]] = 6
    assert_same(hr.open_array(str(tmp_path / "a"))[...], expected)
    array[10:20] = -7  # all fill value: removed
    assert "c/1/0" not in chunk_files(tmp_path / "a")


@pytest.mark.parametrize("device", DEVICES)
def test_shards_of_several_shapes(tmp_path, device):
    options = {"shape": (35, 21), "chunks": (5, 3), "shards": [[10, 20, 5], [6, 15]]}
    array, data = create(tmp_path / "a", **options)
    assert array.chunks == (5, 3)
    with pytest.raises(NotImplementedError, match="rectilinear"):
        _ = array.shards
    assert array.read_chunk_sizes == ((5,) * 7, (3,) * 7)
    assert array.write_chunk_sizes == ((10, 20, 5), (6, 15))
    assert array.nchunks == array.nchunks_initialized == 49
    array[9:12, 5:8] = 1.5
    data[9:12, 5:8] = 1.5
    got = hr.open_array(str(tmp_path / "a"), device=device)[2:33, ::2]
    assert_same(got if device == "cpu" else got.to_numpy(), data[2:33, ::2])
    assert array.verify() == []


@pytest.mark.parametrize("shards", [None, [[10, 20, 5], [6, 15]]])
def test_written_from_a_device(tmp_path, shards):
    grid = {"chunks": (5, 3), "shards": shards} if shards else {"chunks": [[4, 30, 1], [20, 1]]}
    data = values("f4", (35, 21))
    for name, where in (("host", np.s_[...]), ("part", np.s_[3:34, 2:20])):
        array = hr.create_array(
            str(tmp_path / name), shape=data.shape, dtype="f4", fill_value=2, device="simt", **grid
        )
        source = hr.create_array(hr.memory_store(), shape=data[where].shape, dtype="f4")
        source[...] = data[where]
        with hr.config.set({"device_min_decode_nbytes": 0}):
            array[where] = source.to("simt")[...]
        expected = np.full_like(data, 2)
        expected[where] = data[where]
        assert_same(hr.open_array(str(tmp_path / name))[...], expected)


def test_resize_and_append(tmp_path):
    array, data = create(tmp_path / "a")
    array.resize((15, 9))
    assert chunk_shapes(tmp_path / "a") == [[[10, 2], 13], [1, 20]]  # edges stay
    assert array.read_chunk_sizes == ((10, 5), (1, 8))
    assert_same(array[...], data[:15, :9])
    assert "c/2/0" not in chunk_files(tmp_path / "a")

    array.resize((20, 9))
    array[15:] = data[15:20, :9]
    array.append(data[20 : 40 - 7, :9])
    assert_same(array[...], data[:33, :9])
    assert chunk_shapes(tmp_path / "a") == [[[10, 2], 13], [1, 20]]

    array.append(data[:8, :9])  # behind the last edge: one further chunk
    assert chunk_shapes(tmp_path / "a") == [[[10, 2], 13, 8], [1, 20]]
    assert_same(hr.open_array(str(tmp_path / "a"))[33:], data[:8, :9])


def test_a_shard_that_a_resize_cannot_add(tmp_path):
    array, data = create(tmp_path / "a", shape=(30, 4), chunks=(5, 2), shards=[[10, 20], 4])
    with pytest.raises(ValueError, match="do not divide"):
        array.resize((33, 4))
    assert_same(hr.open_array(str(tmp_path / "a"))[...], data)
    array.resize((40, 4))
    assert array.write_chunk_sizes == ((10, 20, 10), (4,))


def test_copies(tmp_path):
    array, data = create(tmp_path / "a", shape=(35, 21), chunks=(5, 3), shards=[[10, 25], [6, 15]])
    copied = hr.copy(array, str(tmp_path / "b"))
    assert copied.write_chunk_sizes == array.write_chunk_sizes
    assert_same(copied[...], data)
    with pytest.raises(NotImplementedError):
        hr.copy(array, str(tmp_path / "v2"), zarr_format=2)

    edges_beyond, data = create(tmp_path / "c")
    edges_beyond.resize((15, 21))
    copied = hr.copy(edges_beyond, str(tmp_path / "d"))
    assert chunk_shapes(tmp_path / "d") == [[[10, 2]], [1, 20]]
    assert_same(copied[...], data[:15])


def test_one_extent_a_dimension_is_a_regular_grid(tmp_path):
    create(tmp_path / "a", chunks=(10, 20))
    set_grid(tmp_path / "a", [10, 20])
    array = hr.open_array(str(tmp_path / "a"), mode="r+")
    assert array.chunks == (10, 20)
    array.resize((40, 21))
    assert chunk_shapes(tmp_path / "a") == [10, 20]


def test_arguments_that_make_no_grid(tmp_path):
    def refused(error, match, **options):
        with pytest.raises(error, match=match):
            hr.create_array(str(tmp_path / "no"), **{"shape": (33, 21), "dtype": "f4", **options})

    refused(ValueError, "end at 20", chunks=[[10, 10], 4])
    refused(ValueError, "at least 1", chunks=[[10, 0, 23], 4])
    refused(ValueError, "at least 1", chunks=[[10, -1, 24], 4])
    refused(ValueError, "end at 0", chunks=[[], 4])
    refused(ValueError, "overflows", chunks=[[2**62, 2**62], 4])
    refused(ValueError, "2 dimensions", chunks=[[33]])
    refused(ValueError, "Zarr format 2", chunks=EDGES, zarr_format=2)
    refused(ValueError, "inner chunks", chunks=EDGES, shards=(20, 20))
    refused(ValueError, "multiples", chunks=(5, 3), shards=[[10, 23], [21]])
    refused(ValueError, "beside shards", shards=[[10, 23], [21]])
    refused(TypeError, "integer", chunks=[[10, 2.5, 20.5], 4])


@pytest.mark.parametrize(
    "dimension",
    [
        [],
        0,
        -4,
        [0, 33],
        [-1, 34],
        [10, 10],
        [[10, 2]],
        [[33, 0]],
        [[33, -1]],
        [[33]],
        [[11, 3, 1]],
        [[2**40, 2**40]],
        [2**62, 2**62],
        [2**64],
        [33.5],
        ["33"],
        None,
        {"33": 1},
        [[[33]]],
    ],
)
def test_hostile_edges(tmp_path, dimension):
    create(tmp_path / "a")
    set_grid(tmp_path / "a", [dimension, [1, 20]])
    with pytest.raises(hr.CorruptError, match="chunk_shapes"):
        hr.open_array(str(tmp_path / "a"))


def test_hostile_grids(tmp_path):
    create(tmp_path / "a")
    set_grid(tmp_path / "a", EDGES[:1])
    with pytest.raises(hr.CorruptError, match="1 dimensions"):
        hr.open_array(str(tmp_path / "a"))
    set_grid(tmp_path / "a", EDGES, kind="elsewhere")
    with pytest.raises(NotImplementedError, match="inline"):
        hr.open_array(str(tmp_path / "a"))
    set_grid(tmp_path / "a", EDGES, more=1)
    with pytest.raises(NotImplementedError, match="unknown field"):
        hr.open_array(str(tmp_path / "a"))


def test_edges_far_beyond_the_array_cost_nothing(tmp_path):
    _, data = create(tmp_path / "a")
    set_grid(tmp_path / "a", [[10, 10, 13, [1, 2**60]], [1, 20, [2, 2**61]]])
    array = hr.open_array(str(tmp_path / "a"), mode="r+")
    assert_same(array[...], data)
    assert array.nchunks == 6
    array.append(data[:2])
    assert array.nchunks == 10
    copied = hr.copy(array, str(tmp_path / "b"))
    assert copied.write_chunk_sizes == ((10, 10, 13, 1, 1), (1, 20))


def test_command_line_of_more_chunks_than_memory_has_room_for(tmp_path):
    hr.create_array(str(tmp_path / "a"), shape=(2**58 + 3,), dtype="i4", chunks=(9,))
    set_grid(tmp_path / "a", [[[1, 2**58], 3]])
    command = [Path(sys.executable).parent / "headrace", "read", tmp_path / "a", "--selection"]
    for selection in "0", "-4:":
        assert subprocess.run([*command, selection], capture_output=True).returncode == 0
    facts = hr.advise(hr.open_array(str(tmp_path / "a")), window=2)
    assert facts["present"]["chunks"] == pytest.approx(2)


def test_more_shapes_than_are_remembered(tmp_path):
    extents = list(range(1, 41))
    array, data = create(tmp_path / "a", shape=(820, 55), chunks=[extents, list(range(1, 11))])
    assert array.nchunks == 400
    assert_same(array[...], data)
    assert_same(array[::-5, 3:50], data[::-5, 3:50])


def test_command_line(tmp_path):
    create(tmp_path / "a")

    def headrace(*arguments):
        command = [Path(sys.executable).parent / "headrace", *arguments, str(tmp_path / "a")]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert json.loads(headrace("info", "--json"))["chunks"] == [[[10, 2], 13], [1, 20]]
    assert "[[[10,2],13],[1,20]]" in headrace("info")
    assert json.loads(headrace("verify", "--json"))["chunks"] == 6


def edges_of(extent):
    """Cuts of a dimension, to its end or beyond."""
    cuts = st.lists(st.integers(1, max(extent, 1)), min_size=1, max_size=6)

    def reach(edges):
        total = sum(edges)
        return edges if total >= extent else [*edges, extent - total]

    return st.one_of(st.integers(1, extent + 3), cuts.map(reach))


@st.composite
def grids(draw):
    shape = tuple(draw(st.lists(st.integers(1, 30), min_size=1, max_size=3)))
    chunks = [draw(edges_of(extent)) for extent in shape]
    if all(isinstance(edges, int) for edges in chunks):
        chunks[0] = [shape[0]]
    index = tuple(
        draw(
            st.one_of(
                st.integers(-extent, extent - 1),
                st.slices(extent).filter(lambda s: s.step != 0),
            )
        )
        for extent in shape
    )
    lists = [draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=8)) for n in shape]
    return shape, chunks, index, lists


@settings(max_examples=60)
@given(grids(), st.sampled_from(["cpu", "simt"]), st.booleans())
def test_like_numpy(case, device, sharded):
    shape, chunks, index, lists = case
    if sharded:
        doubled = [e * 2 if isinstance(e, int) else [2 * edge for edge in e] for e in chunks]
        grid = {"chunks": (2,) * len(shape), "shards": doubled}
    else:
        grid = {"chunks": chunks}
    data = values("i4", shape)
    array = hr.create_array(hr.memory_store(), shape=shape, dtype="i4", device=device, **grid)
    host = array.to("cpu")
    with hr.config.set({"device_min_decode_nbytes": 0}):
        host[...] = data
        whole, part = array[...], array[index]
        rows = array.oindex[tuple(lists)]
    if device != "cpu":
        whole, part, rows = whole.to_numpy(), part.to_numpy(), rows.to_numpy()
    assert_same(whole, data)
    assert_selected(part, data, index)
    assert_same(rows, data[np.ix_(*lists)])

    host[index] = 7
    data[index] = 7
    assert_same(host[...], data)
