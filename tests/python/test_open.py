"""Opening nodes: stores, modes, groups, consolidated metadata, and the error classes of api.md.

Decisions, where api.md is silent: modes mean what they mean in zarr-python; `w-` on an existing
node is a ValueError; opening an array as a group, or a group as an array, is a ValueError or
FileNotFoundError; a pipe where a chunk should be is an OSError, and a folder a missing chunk,
as in zarr-python.
"""

import errno
import json
import os
from pathlib import Path

import headrace as hr
import numpy as np
import pytest
import zarr
from helpers import assert_same, edit_json, python, values, write_zarr


@pytest.fixture(params=[2, 3])
def tree(request, store):
    """A hierarchy by zarr-python: /x, /a/x, /a/b, not consolidated."""
    root = zarr.create_group(store, zarr_format=request.param, attributes={"title": "root"})
    root.create_group("a/b", attributes={"deep": 1})
    for name in ("x", "a/x"):
        data = values("f4", (6, 5), len(name))
        root.create_array(name, data=data, chunks=(4, 4), attributes={"at": name})
    return store, request.param


def test_open_gives_the_kind_of_the_node(tree):
    store, zarr_format = tree
    assert isinstance(hr.open(store), hr.Group)
    assert isinstance(hr.open(f"{store}/x"), hr.Array)
    assert isinstance(hr.open(store, path="a/x"), hr.Array)
    assert isinstance(hr.open(store, path="/a/"), hr.Group)
    assert hr.open(store).zarr_format == hr.open(f"{store}/x").zarr_format == zarr_format
    assert isinstance(hr.open(Path(store) / "x"), hr.Array)
    assert isinstance(hr.open(f"file://{store}/x"), hr.Array)
    assert isinstance(hr.open_group(store), hr.Group)


def test_group_is_a_mapping(tree):
    group = hr.open_group(tree[0])
    assert sorted(group) == ["a", "x"]
    assert len(group) == 2
    assert "x" in group and "a/b" in group and "y" not in group
    assert isinstance(group["a"]["b"], hr.Group)
    assert_same(group["a/x"][...], values("f4", (6, 5), 3))
    assert dict(group.attrs) == {"title": "root"}
    assert dict(group["a/x"].attrs) == {"at": "a/x"}
    for missing in ("y", "a/y", "x/y"):
        with pytest.raises(KeyError, match=missing.split("/")[-1]):
            group[missing]


def test_tree_shows_every_node(tree):
    text = str(hr.open_group(tree[0]).tree())
    lines = [line.strip("\u2502\u251c\u2514\u2500 ") for line in text.splitlines()]
    for name in ("a", "b", "x"):
        assert any(line.split()[:1] == [name] for line in lines), text
    assert sum(line.split()[:1] == ["x"] for line in lines) == 2


def test_properties(store):
    data = values("i4", (10, 7))
    write_zarr(store, data, chunks=(2, 3), shards=(4, 6), fill_value=-1, dimension_names=["y", "x"])
    array = hr.open_array(store)
    assert (array.shape, array.ndim, array.size, array.nbytes) == ((10, 7), 2, 70, 280)
    assert (array.chunks, array.shards) == ((2, 3), (4, 6))
    assert array.dtype == np.dtype("i4")
    assert array.fill_value == -1
    assert tuple(array.dimension_names) == ("y", "x")
    assert array.zarr_format == 3
    assert str(array.device) == "cpu"
    assert array.nchunks == 5 * 3
    assert array.metadata
    assert array.codecs
    assert len(array) == 10
    text = repr(array)
    assert "(10, 7)" in text and "int32" in text


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_consolidated_metadata_is_used(store, zarr_format):
    """Nodes that only the consolidated metadata knows are there."""
    root = zarr.create_group(store, zarr_format=zarr_format)
    data = values("i2", (6,))
    root.create_array("g/x", data=data, chunks=(4,), attributes={"a": 1})
    zarr.consolidate_metadata(store)
    for name in ("g/x/zarr.json", "g/x/.zarray", "g/x/.zattrs"):
        Path(store, name).unlink(missing_ok=True)
    group = hr.open_group(store)
    assert list(group["g"]) == ["x"]
    assert_same(group["g/x"][...], data)
    assert dict(group["g/x"].attrs) == {"a": 1}


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_consolidate(store, zarr_format):
    hr.create_group(store, zarr_format=zarr_format)
    data = values("f8", (5, 4))
    array = hr.create_array(
        store, name="g/x", shape=(5, 4), dtype="f8", chunks=(2, 2), zarr_format=zarr_format
    )
    array[...] = data
    array.attrs["units"] = "m"
    hr.consolidate_metadata(store)
    group = zarr.open_consolidated(store, mode="r")
    assert dict(group["g/x"].attrs) == {"units": "m"}
    assert_same(np.asarray(group["g/x"][...]), data)
    where = Path(store, ".zmetadata" if zarr_format == 2 else "zarr.json")
    assert "g/x" in where.read_text()


def test_format_is_detected_and_can_be_asked_for(store):
    write_zarr(store, values("i4", (3,)), zarr_format=2, compressors=None)
    assert hr.open_array(store).zarr_format == 2
    assert hr.open_array(store, zarr_format=2).zarr_format == 2
    with pytest.raises(FileNotFoundError):
        hr.open_array(store, zarr_format=3)
    with pytest.raises(ValueError):
        hr.open_array(store, zarr_format=4)


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("opener", ["open", "open_array", "open_group"])
def test_missing_node_is_file_not_found(tmp_path, opener, mode):
    where = str(tmp_path / "nothing.zarr")
    with pytest.raises(FileNotFoundError, match=r"nothing\.zarr"):
        getattr(hr, opener)(where, mode=mode)
    assert not Path(where).exists()
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(FileNotFoundError):
        getattr(hr, opener)(str(empty), mode=mode)


def test_wrong_kind(tree):
    store, _ = tree
    with pytest.raises((ValueError, FileNotFoundError)):
        hr.open_array(store)
    with pytest.raises((ValueError, FileNotFoundError)):
        hr.open_group(f"{store}/x")


def test_modes(store):
    with pytest.raises(ValueError):
        hr.open_array(store, mode="rw")
    first = hr.open_group(store, mode="w-")
    first.attrs["a"] = 1
    with pytest.raises(ValueError):
        hr.open_group(store, mode="w-")
    assert dict(hr.open_group(store, mode="a").attrs) == {"a": 1}
    hr.create_array(store, name="x", shape=(3,), dtype="i4", chunks=(2,))
    array = hr.open_array(store, path="x", mode="r+")
    array[...] = 5
    assert_same(hr.open_array(store, path="x")[...], np.full(3, 5, "i4"))
    assert_same(hr.open_array(store, path="x", mode="a")[...], np.full(3, 5, "i4"))
    with pytest.raises(PermissionError):
        hr.open_array(store, path="x")[0] = 1
    with pytest.raises(PermissionError):
        hr.open_group(store).attrs["b"] = 1
    assert list(hr.open_group(store, mode="w")) == []
    with pytest.raises(FileNotFoundError):
        hr.open_array(store, path="x", mode="r+")


def test_mode_r_of_an_unwritable_folder(store):
    data = values("i4", (4,))
    write_zarr(store, data)
    Path(store).chmod(0o500)
    try:
        assert_same(hr.open_array(store)[...], data)
    finally:
        Path(store).chmod(0o700)


def test_device_of_the_handle(store):
    data = values("i4", (4,))
    write_zarr(store, data)
    array = hr.open_array(store, device="cpu")
    again = array.to("cpu")
    assert str(again.device) == "cpu"
    assert_same(again[...], data)
    for unknown in ("gpu", "cuda:x", "cpu:one", ""):
        with pytest.raises(ValueError):
            hr.open_array(store, device=unknown)


def test_cuda_without_a_gpu_is_refused(store):
    write_zarr(store, values("i4", (4,)))
    if Path("/dev/nvidiactl").exists():
        pytest.skip("a GPU is present")
    # NotImplementedError of a build without CUDA, DeviceError of one with it.
    with pytest.raises((hr.DeviceError, NotImplementedError), match="cuda"):
        hr.open_array(store, device="cuda")[...]
    assert str(hr.open_array(store, device="auto").device) == "cpu"


def test_error_classes():
    assert issubclass(hr.CorruptError, ValueError)
    assert issubclass(hr.DeviceError, RuntimeError)
    assert issubclass(hr.CancelledError, Exception)


def test_unreadable_chunk_is_an_os_error_with_errno(store):
    write_zarr(store, values("i4", (4,)), chunks=(4,), compressors=None)
    chunk = Path(store, "c/0")
    chunk.unlink()
    os.mkfifo(chunk)  # refused, neither data nor fill value
    with pytest.raises(OSError, match="c/0") as failure:
        hr.open_array(store)[...]
    assert failure.value.errno == errno.EINVAL


def test_symbolic_link_to_a_chunk_is_followed(store, tmp_path):
    data = values("i4", (4,))
    write_zarr(store, data, chunks=(4,), compressors=None)
    chunk = Path(store, "c/0")
    chunk.rename(tmp_path / "elsewhere")
    chunk.symlink_to(tmp_path / "elsewhere")
    assert_same(hr.open_array(store)[...], data)


def test_pipe_as_a_chunk_is_refused(store):
    write_zarr(store, values("i4", (4,)), chunks=(4,), compressors=None)
    Path(store, "c/0").unlink()
    os.mkfifo(Path(store, "c/0"))
    # In a process of its own: opening a pipe to read waits for a writer for ever.
    code = """
import sys, headrace as hr
try:
    hr.open_array(sys.argv[1])[...]
except OSError:
    print("refused")
"""
    assert python(code, store, timeout=20) == "refused\n"


def test_local_store_of_zarr_python(store):
    data = values("i4", (5, 4))
    write_zarr(store, data, chunks=(2, 2))
    assert_same(hr.open_array(zarr.storage.LocalStore(store, read_only=True))[...], data)


def test_memory_store_of_zarr_python():
    data = values("i4", (5, 4))
    memory = zarr.storage.MemoryStore()
    zarr.create_array(memory, name="g/x", data=data, chunks=(2, 2))
    assert_same(hr.open_array(memory, path="g/x")[...], data)
    with pytest.raises(ValueError, match="storage_options"):
        hr.open_array(memory, path="g/x", storage_options={"io": "uring"})


def test_an_object_that_is_no_store():
    with pytest.raises(NotImplementedError, match=r"builtins\.set"):
        hr.open_array({1})


OPENERS = [hr.open, hr.open_array]


@pytest.mark.parametrize("opener", OPENERS)
def test_an_array_of_ones_own(tree, opener):
    store, _ = tree
    array = hr.open_array(store, "a/x", mode="r+")
    data = array[...]
    again = opener(array)
    assert again is not array and (again.path, again.read_only) == ("a/x", True)
    assert_same(again[...], data)
    for mode in ("r+", "a"):
        opener(array, mode=mode)[:] = data + 1
        assert_same(opener(again)[...], data + 1)
        array[:] = data
    # What it says since, though the handle was opened before.
    other = hr.open_array(store, "a/x", mode="r+")
    other.resize((2,) * other.ndim)
    assert (array.ndim, opener(array).shape) == (other.ndim, other.shape)
    assert opener(array, mode="w", shape=3, dtype="u1").dtype == np.uint8


@pytest.mark.parametrize("opener", OPENERS)
def test_of_ones_own_array_is_asked_what_it_cannot_be(tree, opener):
    array = hr.open_array(tree[0], "a/x")
    for mode in ("r+", "a"):
        with pytest.raises(PermissionError, match="open for reading only: mode='r'"):
            opener(array, mode=mode)
    with pytest.raises(FileNotFoundError, match=r"it has zarr_format|there is no .*, but"):
        opener(array, zarr_format=5 - array.zarr_format)
    with pytest.raises(ValueError, match="storage_options: the store is open already"):
        opener(array, storage_options={"io": "pread"})
    with pytest.raises(FileNotFoundError, match=r"/a/x/y|'a/x/y'"):
        opener(array, "y")
    with pytest.raises(FileNotFoundError, match="it is an array"):
        hr.open_group(array)
    writable = hr.open_array(tree[0], "a/x", mode="r+")
    with pytest.raises(ValueError, match="an array is there already"):
        opener(writable, mode="w-", shape=3, dtype="u1")
    with pytest.raises(ValueError, match="only groups have members"):
        hr.create_array(writable, "y", shape=3, dtype="u1", zarr_format=array.zarr_format)
    with pytest.raises(ValueError, match="'a/x' is a place within a store"):
        hr.open_store(array)


def test_device_and_implementations_are_those_of_the_handle(store):
    hr.create_array(store, "x", data=np.arange(4))
    chosen = {"zstd": "libzstd"}
    group = hr.open_group(store, device="simt", implementations=chosen)
    array = group["x"]
    for given, path in ((array, None), (group, "x")):
        for opener in OPENERS:
            again = opener(given, path)
            assert (str(again.device), again._implementations) == ("simt", chosen)
            assert str(opener(given, path, device="cpu").device) == "cpu"
            assert opener(given, path, implementations={})._implementations == {}
    assert str(hr.open_group(group)["x"].device) == str(hr.open(group)["x"].device) == "simt"


def test_an_array_in_memory(store):
    array = hr.array([1, 2, 3])
    assert hr.open(array)[:].tolist() == [1, 2, 3]
    opened = hr.open_array(array, mode="r+")
    opened[0] = 5
    assert array[0] == 5


def test_unknown_url_scheme(tmp_path):
    with pytest.raises((ValueError, NotImplementedError), match="gopher"):
        hr.open("gopher://somewhere/x.zarr")


def test_nan_in_attributes(store):
    """xarray writes it, and Python's json reads it."""
    write_zarr(store, values("i4", (4,)), zarr_format=2, compressors=None)
    Path(store, ".zattrs").write_text('{"_FillValue": NaN, "limits": [-Infinity, Infinity]}')
    got = dict(hr.open_array(store).attrs)
    assert json.dumps(got) == '{"_FillValue": NaN, "limits": [-Infinity, Infinity]}'


def test_metadata_change_is_seen_by_a_new_handle(store):
    write_zarr(store, values("i4", (4,)), chunks=(4,))
    assert hr.open_array(store).shape == (4,)
    edit_json(Path(store, "zarr.json"), lambda meta: meta.update(shape=[2]))
    assert hr.open_array(store).shape == (2,)


@pytest.mark.parametrize("opener", [hr.open, hr.open_array])
@pytest.mark.parametrize("mode", ["a", "w", "w-"])
def test_elements_say_what_is_made(store, opener, mode):
    data = values("f4", (5,))
    assert_same(opener(store, "x", mode=mode, data=data)[:], data)
    if mode == "a":
        assert opener(store, "x", mode=mode, data=data[:2]).shape == (5,)


@pytest.mark.parametrize("mode", ["a", "w", "w-"])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_new_members_have_the_format_of_their_group(store, mode, zarr_format):
    hr.create_group(store, zarr_format=zarr_format)
    new = {"shape": 3, "dtype": "i4"}
    assert hr.open_array(store, "a", mode=mode, **new).zarr_format == zarr_format
    assert hr.open_array(store, "g/h/b", mode=mode, **new).zarr_format == zarr_format
    assert hr.open_group(store, "i", mode=mode).zarr_format == zarr_format
    assert hr.open(store, "j/k", mode=mode).zarr_format == zarr_format
    if mode == "w":
        assert hr.open_array(store, "a", mode=mode, **new).zarr_format == zarr_format
    other = 5 - zarr_format
    with pytest.raises(ValueError, match="as that of the group"):
        hr.open_array(store, "z", mode=mode, zarr_format=other, **new)


REFUSED = {
    "chunks": lambda path: hr.create_array(path, shape=3, dtype="i4", chunks=(1, 2)),
    "codec": lambda path: hr.open_array(path, mode="w", shape=3, dtype="i4", compressors="no"),
    "elements": lambda path: hr.create_array(path, data=["a"], dtype="i4"),
    "nothing there": lambda path: hr.open_array(path, mode="a"),
    "arguments": lambda path: hr.open(path, mode="a", shap=3),
    "within itself": lambda path: hr.copy(Path(path).parents[1] / "source", path),
    "rechunk": lambda path: hr.rechunk(
        hr.full((4,), 1, "i4"), path, chunks=2, shards=3, max_memory="1MiB"
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_leaves_no_folders(tmp_path, what):
    (tmp_path / "there").mkdir()
    with pytest.raises((ValueError, TypeError, FileNotFoundError, NotImplementedError)):
        REFUSED[what](str(tmp_path / "there/new/deep"))
    assert os.listdir(tmp_path / "there") == []
    with pytest.raises((ValueError, TypeError, FileNotFoundError, NotImplementedError)):
        REFUSED[what](str(tmp_path / "there"))
    assert (tmp_path / "there").is_dir()  # it was not made for that


def test_discarding_a_folder_keeps_what_lies_in_it(tmp_path):
    made = hr.open_store(tmp_path / "a/b/c", mode="a")
    (tmp_path / "a/mine").touch()
    made.discard()
    assert os.listdir(tmp_path / "a") == ["mine"]
    hr.create_array(made, shape=3, dtype="i4")[:] = 1
    made.discard()
    assert_same(hr.open(tmp_path / "a/b/c")[:], np.ones(3, "i4"))


def test_a_store_that_is_read_only_opens_nothing_to_be_written(store):
    hr.create_array(store, "x", data=[1, 2])
    for place in (hr.open_store(store), hr.cached(store)):
        for opener in (hr.open, hr.open_array):
            with pytest.raises(PermissionError, match="reading only"):
                opener(place, "x", mode="r+")
        assert hr.open(place, "x")[:].tolist() == [1, 2]
