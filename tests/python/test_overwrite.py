"""overwrite=True and mode "w" remove what is Zarr's own, and nothing else."""

import asyncio
import os
from pathlib import Path

import headrace as hr
import numpy as np
import pytest
import zarr

ONES = np.ones(8, "u4")


def make_array(path, name=None, **options):
    array = hr.create_array(path, name, shape=8, chunks=2, dtype="u4", **options)
    array[...] = ONES
    return array


def files(folder):
    return {str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file()}


def overwrite_array(path):
    make_array(path, overwrite=True)


def overwrite_group(path):
    hr.create_group(path, overwrite=True)


def overwrite_store(path):
    hr.open_store(path, mode="w")


def overwrite_by_mode(path):
    hr.open_array(path, mode="w", shape=4, dtype="u4")


def overwrite_by_save(path):
    hr.save(path, ONES)


def overwrite_by_copy(path):
    make_array("memory://source", overwrite=True)
    hr.copy("memory://source", path, overwrite=True)


def overwrite_by_rechunk(path):
    make_array("memory://source", overwrite=True)
    hr.rechunk("memory://source", path, chunks=(4,), overwrite=True)


OVERWRITES = [
    overwrite_array,
    overwrite_group,
    overwrite_store,
    overwrite_by_mode,
    overwrite_by_save,
    overwrite_by_copy,
    overwrite_by_rechunk,
]
every_way = pytest.mark.parametrize("overwrite", OVERWRITES)


@every_way
@pytest.mark.parametrize(
    "names", [["thesis.bin"], ["deep/er/notes.txt", "0", "c/0"], ["a.zarr/zarr.json"], [".hidden"]]
)
def test_a_folder_that_is_no_node_is_refused(tmp_path, overwrite, names):
    for name in names:
        (tmp_path / "d" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "d" / name).write_text("mine")
    with pytest.raises(ValueError, match=f"no Zarr node.*'{names[0].split('/')[0]}'.*another path"):
        overwrite(str(tmp_path / "d"))
    assert files(tmp_path / "d") == set(names)
    assert all((tmp_path / "d" / name).read_text() == "mine" for name in names)


@every_way
@pytest.mark.parametrize("make", ["missing", "empty", "empty folders", "temporary"])
def test_a_folder_without_files_is_taken(tmp_path, overwrite, make):
    folder = tmp_path / "d"
    if make != "missing":
        folder.mkdir()
    if make == "empty folders":
        (folder / "c/0").mkdir(parents=True)
    if make == "temporary":
        (folder / ".headrace-tmp-1").write_text("")
    overwrite(str(folder))
    assert not [name for name in files(folder) if "tmp" in name]


@every_way
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_files_of_others_stay(tmp_path, overwrite, zarr_format):
    path = tmp_path / "d"
    hr.create_group(path, zarr_format=zarr_format)
    make_array(path, "a", zarr_format=zarr_format)
    make_array(path, "g/b", zarr_format=zarr_format)
    mine = {"README", "a/notes.txt", "g/more/text", "g/b/c/0.bak", "1", "2023/01/02", "a/c/01"}
    for name in mine:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text("mine")
    overwrite(str(path))
    left = files(path)
    assert mine <= left
    allowed = {"zarr.json"} | {f"c/{i}" for i in range(4)}
    assert left - mine <= allowed, "something of the old node is there"
    if overwrite in (overwrite_array, overwrite_by_save):
        assert hr.open_array(path)[...].tolist() == [1] * 8


@pytest.mark.parametrize(
    "grid", [{}, {"shards": 4}, {"zarr_format": 2}, {"chunk_key_encoding": "."}]
)
def test_all_of_an_array_goes(tmp_path, grid):
    array = make_array(tmp_path / "d", **grid)
    array.attrs["x"] = 1
    hr.create_group(tmp_path / "d", overwrite=True)
    assert files(tmp_path / "d") == {"zarr.json"}
    assert [p.name for p in (tmp_path / "d").iterdir()] == ["zarr.json"]


def test_members_called_by_numbers_go_with_their_group(tmp_path):
    """OME-Zarr names the levels of a pyramid so."""
    hr.create_group(tmp_path / "d")
    for name in ("0", "1", "c/0"):
        make_array(tmp_path / "d", name)
    (tmp_path / "d/2").write_text("mine")
    hr.create_group(tmp_path / "d", overwrite=True)
    assert files(tmp_path / "d") == {"zarr.json", "2"}


def test_what_zarr_python_wrote_goes(tmp_path):
    for zarr_format in (2, 3):
        root = zarr.open_group(tmp_path / "d", mode="w", zarr_format=zarr_format)
        root.create_group("g").create_array("a", data=ONES, chunks=(2,))
        zarr.consolidate_metadata(tmp_path / "d")
        hr.create_group(tmp_path / "d", zarr_format=5 - zarr_format, overwrite=True)
        assert len(files(tmp_path / "d")) == (1 if zarr_format == 2 else 2)
        assert list(hr.open_group(tmp_path / "d")) == []


def test_a_malformed_node_can_be_overwritten(tmp_path):
    make_array(tmp_path / "d")
    (tmp_path / "d/zarr.json").write_text("{")
    hr.create_group(tmp_path / "d", overwrite=True)
    assert files(tmp_path / "d") == {"zarr.json"}


# --- links


@pytest.fixture
def outside(tmp_path):
    make_array(tmp_path / "outside")
    (tmp_path / "outside/mine").write_text("mine")
    return tmp_path / "outside"


def assert_untouched(outside):
    assert hr.open_array(outside)[...].tolist() == [1] * 8
    assert (outside / "mine").read_text() == "mine"


def test_links_are_removed_and_not_followed(tmp_path, outside):
    hr.create_group(tmp_path / "d")
    (tmp_path / "d/member").symlink_to(outside)
    (tmp_path / "d/data").symlink_to(tmp_path)
    (tmp_path / "d/dangling").symlink_to("nowhere")
    make_array(tmp_path / "d", "a")
    os.rename(tmp_path / "d/a/c", tmp_path / "chunks")
    (tmp_path / "d/a/c").symlink_to(tmp_path / "chunks")
    hr.create_group(tmp_path / "d", overwrite=True)
    assert_untouched(outside)
    assert len(list((tmp_path / "chunks").iterdir())) == 4
    left = {path.name for path in (tmp_path / "d").iterdir()}
    assert left == {"zarr.json", "data", "dangling"}, "links to no node are somebody's"


def test_a_member_that_is_a_link_is_replaced(tmp_path, outside):
    hr.create_group(tmp_path / "d")
    (tmp_path / "d/member").symlink_to(outside)
    make_array(tmp_path / "d", "member", overwrite=True)[...] = 2
    assert not (tmp_path / "d/member").is_symlink()
    assert_untouched(outside)


def test_nothing_behind_a_link_is_overwritten(tmp_path, outside):
    hr.create_group(outside.parent / "other")
    make_array(outside.parent / "other", "a")
    hr.create_group(tmp_path / "d")
    (tmp_path / "d/member").symlink_to(outside.parent / "other")
    with pytest.raises(OSError, match="symbolic link"):
        make_array(tmp_path / "d", "member/a", overwrite=True)
    assert hr.open_array(tmp_path / "other/a")[...].tolist() == [1] * 8


# --- the root of a file system

ROOTS = ["/", "/tmp/..", "//", "/proc/self/root", "file:///", "file:///tmp/.."]


@pytest.mark.parametrize("overwrite", [overwrite_array, overwrite_group, overwrite_store])
@pytest.mark.parametrize("root", ROOTS)
def test_the_root_folder_is_never_emptied(overwrite, root):
    with pytest.raises((ValueError, PermissionError), match="root of the file system"):
        overwrite(root)


def test_a_mount_point_is_never_emptied():
    with pytest.raises(ValueError, match="file system is mounted"):
        hr.create_group("/proc", overwrite=True)
    store = hr.open_store("/", mode="r+")
    with pytest.raises(ValueError, match="file system is mounted"):
        hr.create_group(store, "sys", overwrite=True)


def test_a_link_to_the_root_is_the_root(tmp_path):
    (tmp_path / "r").symlink_to("/")
    with pytest.raises(ValueError, match="root of the file system"):
        hr.open_store(tmp_path / "r", mode="w")


# --- other stores


def test_memory_holds_nothing_but_keys(tmp_path):
    store = hr.open_store("memory://overwritten", mode="a")
    store._set("notes", b"mine")
    make_array(store, "a")
    hr.create_group(store, overwrite=True)
    assert store._list() == ["zarr.json"]
    hr.open_store("memory://overwritten", mode="w")
    assert store._list() == []


def test_a_store_of_zarr_keeps_what_is_not_zarrs(tmp_path):
    memory = zarr.storage.MemoryStore()
    make_array(memory, "a")
    store = hr.open_array(memory, "a", mode="r+").store
    store._set("notes", b"mine")
    hr.create_group(memory, overwrite=True)
    assert store._list() == ["notes", "zarr.json"]
    other = zarr.storage.MemoryStore()
    foreign = hr.create_group(other).store
    foreign._erase("zarr.json")
    foreign._set("notes", b"mine")
    with pytest.raises(ValueError, match="no Zarr node"):
        hr.create_group(other, overwrite=True)
    assert foreign._list() == ["notes"]


def test_through_a_cache(tmp_path):
    make_array(tmp_path / "d")
    (tmp_path / "d/mine").write_text("mine")
    cached = hr.cached(hr.open_store(tmp_path / "d", mode="r+"))
    assert hr.open_array(cached)[...].tolist() == [1] * 8
    hr.create_array(cached, shape=8, chunks=2, dtype="u4", overwrite=True)
    assert hr.open_array(cached)[...].tolist() == [0] * 8
    assert files(tmp_path / "d") == {"zarr.json", "mine"}


def test_zarr_python_overwrites_where_nothing_lies(tmp_path):
    """delete_dir() of what is not there does nothing."""
    store = hr.zarr.Store(tmp_path / "s.zarr")
    asyncio.run(store.delete_dir("nope"))
    made = zarr.create_array(store, name="x", shape=(2,), dtype="i4", overwrite=True)
    made[:] = 7
    assert hr.open_array(tmp_path / "s.zarr", "x")[:].tolist() == [7, 7]


def test_xarray_writes_a_new_store(tmp_path):
    xr = pytest.importorskip("xarray")
    data = xr.Dataset({"t": ("x", np.arange(4))})
    for _ in range(2):  # a new one, and in place of that
        data.to_zarr(hr.zarr.Store(tmp_path / "new.zarr"), mode="w", zarr_format=3)
    assert hr.open_array(tmp_path / "new.zarr", "t")[:].tolist() == [0, 1, 2, 3]


class _CutOff(zarr.storage.WrapperStore):
    """Whose next removal of a folder fails."""

    fails = 1

    async def delete_dir(self, prefix):
        if self.fails:
            self.fails -= 1
            raise OSError("connection lost")
        await super().delete_dir(prefix)


def test_an_overwrite_that_was_cut_off_can_be_made_again(tmp_path):
    """Across a network the documents go first, and chunks of nobody are left."""
    store = _CutOff(zarr.storage.LocalStore(tmp_path / "s.zarr"))
    hr.create_array(store, "a", shape=4, chunks=2, dtype="u4")[:] = 7
    with pytest.raises(OSError, match="connection lost"):
        hr.create_array(store, "a", shape=4, chunks=2, dtype="u4", overwrite=True)
    made = hr.create_array(store, "a", shape=4, chunks=2, dtype="u4", overwrite=True)
    assert made[:].tolist() == [0, 0, 0, 0]


def test_chunks_of_nobody_are_in_no_ones_way(tmp_path):
    """A writer that came late has left them in a folder; bare numbers may be a user's folders."""
    root = tmp_path / "s.zarr"
    hr.create_group(root)
    for left in ("x/c/0", "y/0.1"):
        (root / left).parent.mkdir(parents=True)
        (root / left).write_bytes(b"old")
        made = hr.create_array(root, left[0], shape=4, chunks=2, dtype="u4", overwrite=True)
        assert made[:].tolist() == [0, 0, 0, 0]
        assert not (root / left).exists()
    (root / "z/0").mkdir(parents=True)
    (root / "z/0/1").write_bytes(b"mine")
    with pytest.raises(ValueError, match="no Zarr node"):
        hr.create_array(root, "z", shape=4, chunks=2, dtype="u4", overwrite=True)


CREATIONS = [
    lambda path, **options: hr.create_array(path, shape=8, chunks=2, dtype="u4", **options),
    lambda path, **options: hr.open_array(path, mode="a", shape=8, chunks=2, dtype="u4", **options),
    lambda path, **options: hr.rechunk("memory://source", path, chunks=(4,)),
]


@pytest.mark.parametrize("create", CREATIONS)
@pytest.mark.parametrize("options", [{}, {"chunk_key_encoding": "."}, {"zarr_format": 2}])
def test_old_chunks_are_no_elements_of_a_new_array(tmp_path, create, options):
    """Chunks without a document: an interrupted removal or copy leaves them."""
    make_array("memory://source", overwrite=True)
    path = tmp_path / "d"
    make_array(path, **options)
    for name in ("zarr.json", ".zarray", ".zattrs"):
        (path / name).unlink(missing_ok=True)
    left = files(path)
    is_rechunk = create is CREATIONS[2]
    if is_rechunk and options == {"zarr_format": 2}:
        return  # bare numbers, and chunks of the new array are called otherwise
    with pytest.raises(ValueError, match=r"chunks of an array that is gone.*overwrite=True"):
        create(path, **options)
    assert files(path) == left
    made = hr.create_array(path, shape=8, chunks=2, dtype="u4", overwrite=True, **options)
    assert made[...].tolist() == [0] * 8
    assert not files(path) & left


def test_folders_of_users_are_no_chunks(tmp_path):
    """Those that a new array's chunks are not called like; nor is what holds no chunk."""
    (tmp_path / "d/2023/1").mkdir(parents=True)
    (tmp_path / "d/2023/1/2").write_text("mine")
    (tmp_path / "d/c/5").mkdir(parents=True)
    (tmp_path / "d/c/README").write_text("mine")
    make_array(tmp_path / "d")
    assert (tmp_path / "d/2023/1/2").read_text() == "mine"


def test_a_store_that_cannot_list_takes_new_arrays(tmp_path):
    class Unlisted(zarr.storage.WrapperStore):
        def list_dir(self, prefix):
            raise NotImplementedError("no lists here")

    store = Unlisted(zarr.storage.LocalStore(tmp_path / "s.zarr"))
    assert make_array(store, "a")[...].tolist() == [1] * 8
    with pytest.raises(NotImplementedError, match="no lists here"):
        hr.open_store(store)._list_dir("")


def test_a_folder_of_stores_across_a_network_is_refused(tmp_path):
    store = zarr.storage.WrapperStore(zarr.storage.MemoryStore())
    for name in "ab":
        make_array(store, name)
    asyncio.run(store.delete("zarr.json"))
    before = sorted(store._store._store_dict)
    for overwrite in (
        lambda: hr.open_group(store, mode="w"),
        lambda: hr.create_array(store, shape=3, dtype="u1", overwrite=True),
        lambda: hr.create_group(store, overwrite=True),
    ):
        with pytest.raises(ValueError, match="no Zarr node"):
            overwrite()
        assert sorted(store._store._store_dict) == before


CALLED_ZIP = {
    "save": lambda path: hr.save(path, ONES),
    "create_array": lambda path: make_array(path, overwrite=True),
    "create_group": lambda path: hr.create_group(path, overwrite=True),
    "open_group": lambda path: hr.open_group(path, mode="w"),
    "array": lambda path: hr.array(ONES, store=path, overwrite=True),
    "copy": lambda path: overwrite_by_copy(path),
    "rechunk": lambda path: overwrite_by_rechunk(path),
}


@pytest.mark.parametrize("write", CALLED_ZIP.values(), ids=CALLED_ZIP)
def test_what_is_called_zip_and_is_no_archive(tmp_path, write):
    """A node in memory, a folder, a node in an archive: what lies beside it stays."""
    make_array("memory://kept", "precious", overwrite=True)
    write("memory://kept/in/a.zip")
    assert hr.load("memory://kept/precious").tolist() == ONES.tolist()
    folder = tmp_path / "a.zip"
    hr.save(tmp_path / "made", x=ONES)
    (tmp_path / "made").rename(folder)
    (folder / "README.txt").write_text("mine")
    write(str(folder))
    assert (folder / "README.txt").read_text() == "mine" and (folder / "zarr.json").exists()
    archive = tmp_path / "s.zip"
    hr.save(archive, precious=ONES)
    with pytest.raises(NotImplementedError, match="existing zip archive"):
        write(f"{archive}/in/a.zip")
    assert hr.load(f"{archive}/precious").tolist() == ONES.tolist()


def test_a_place_within_a_store_is_no_store(tmp_path):
    make_array("memory://whole", "precious", overwrite=True)
    archive = tmp_path / "s.zip"
    hr.save(archive, **{"in/x": ONES})
    for place in ("memory://whole/run", f"{archive}/in", hr.open(archive)["in"]):
        for take in (hr.open_store, hr.cached, lambda place: hr.open_store(place, mode="w")):
            with pytest.raises(ValueError, match="a place within a store"):
                take(place)
    zarr.create_group(f"{tmp_path}/g.zarr").create_group("in")
    with pytest.raises(ValueError, match="'in' is a place within a store"):
        hr.open_store(zarr.open_group(f"{tmp_path}/g.zarr")["in"])
    assert hr.load("memory://whole/precious").tolist() == ONES.tolist()


def test_what_no_array_can_have_is_known_before_anything_is_removed(tmp_path):
    hr.save(tmp_path / "a.zarr", precious=ONES)
    with pytest.raises(NotImplementedError, match="no long double"):
        hr.save(tmp_path / "a.zarr", a=ONES, b=np.ones(3, np.longdouble))
    assert hr.open(tmp_path / "a.zarr").keys() == ["precious"]
    source = hr.create_group("memory://of_v3", overwrite=True)
    source["a"] = ONES
    source.create_group("in").create_array("sharded", data=ONES, chunks=2, shards=4)
    with pytest.raises(NotImplementedError, match="shard"):
        hr.copy(source, tmp_path / "a.zarr", zarr_format=2, overwrite=True)
    assert hr.load(tmp_path / "a.zarr")["precious"].tolist() == ONES.tolist()


@pytest.mark.parametrize(
    ("data", "dtype"),
    [(["a", "b"], "i4"), (["2020-99-01"], "M8[s]"), (["\u00e9"], "S5"), ([1], bytes)],
)
def test_elements_that_are_refused_replace_nothing(tmp_path, data, dtype):
    path = tmp_path / "x.zarr"
    hr.create_array(path, data=np.arange(5))
    for replace in (
        lambda: hr.create_array(path, data=data, dtype=dtype, overwrite=True),
        lambda: hr.open_array(path, mode="w", data=data, dtype=dtype),
    ):
        with pytest.raises((ValueError, TypeError)):
            replace()
        np.testing.assert_array_equal(hr.open(path)[:], np.arange(5))
