"""`hr.copy` and `hr.save` where what is written is what is read, whatever it is called."""

import os
import zipfile

import headrace as hr
import numpy as np
import pytest
from helpers import chunk_files
from zarr.storage import FsspecStore, LocalStore, MemoryStore, WrapperStore

DATA = np.arange(6.0)


def tree_of(folder):
    return {
        os.path.relpath(os.path.join(above, name), folder): os.path.getmtime(
            os.path.join(above, name)
        )
        for above, _, names in os.walk(folder)
        for name in names
    }


@pytest.fixture
def group(tmp_path):
    group = hr.create_group(tmp_path / "g.zarr")
    group.create_group("sub")
    group.create_array("sub/x", shape=6, dtype="f8", chunks=2)[:] = DATA
    group.create_array("y", shape=6, dtype="f8", chunks=2)[:] = DATA
    return tmp_path / "g.zarr"


def link(tmp_path):
    os.symlink(tmp_path / "g.zarr", tmp_path / "link.zarr")
    return tmp_path / "link.zarr"


SPELLINGS = {
    "path": lambda tmp, at: tmp / "g.zarr" / at,
    "string": lambda tmp, at: str(tmp / "g.zarr" / at),
    "dots": lambda tmp, at: f"{tmp}/g.zarr/../g.zarr/{at}",
    "slashes": lambda tmp, at: f"{tmp}//g.zarr//{at}/",
    "url": lambda tmp, at: f"file://{tmp}/g.zarr/{at}",
    "symlink": lambda tmp, at: link(tmp) / at,
    "store": lambda tmp, at: hr.open_store(tmp / "g.zarr" / at, mode="r+"),
    "group": lambda tmp, at: hr.open_group(tmp / "g.zarr", at, mode="r+"),
    "local store": lambda tmp, at: LocalStore(tmp / "g.zarr" / at),
    "wrapper": lambda tmp, at: WrapperStore(LocalStore(tmp / "g.zarr" / at)),
    "fsspec": lambda tmp, at: FsspecStore.from_url(f"file://{tmp}/g.zarr/{at}"),
    "cached": lambda tmp, at: hr.cached(hr.open_store(tmp / "g.zarr" / at, mode="r+")),
}


@pytest.mark.parametrize("overwrite", [True, False])
@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS.keys())
@pytest.mark.parametrize("at", ["", "sub"])
def test_a_copy_onto_itself(group, tmp_path, spelling, at, overwrite):
    before = tree_of(group)
    with pytest.raises(ValueError, match="overlap"):
        hr.copy(hr.open(group, at), spelling(tmp_path, at), overwrite=overwrite)
    assert tree_of(group) == before


@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_a_parent_into_its_child_and_a_child_over_its_parent(group, tmp_path, spelling):
    before = tree_of(group)
    with pytest.raises(ValueError, match="overlap"):
        hr.copy(group, spelling(tmp_path, "sub"), overwrite=True)
    os.path.lexists(tmp_path / "link.zarr") and os.unlink(tmp_path / "link.zarr")
    with pytest.raises(ValueError, match="overlap"):
        hr.copy(hr.open(group, "sub/x"), spelling(tmp_path, ""), overwrite=True)
    assert tree_of(group) == before


@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_the_source_by_any_name(group, tmp_path, spelling):
    before = tree_of(group)
    with pytest.raises(ValueError, match="overlap"):
        hr.copy(spelling(tmp_path, "sub"), group / "sub", overwrite=True)
    with pytest.raises(ValueError, match="overlap"):
        hr.copy(hr.open(group), str(group / "new" / "below"))
    assert tree_of(group) == before and not (group / "new").exists()


def linked(source, inside, target):
    """`inside` of a group becomes a link to what is now at `target`."""
    at = source / inside
    target.parent.mkdir(parents=True, exist_ok=True)
    os.rename(at, target)
    os.symlink(os.path.relpath(target, at.parent), at)


@pytest.mark.parametrize("way", ["copy", "rechunk", "store"])
@pytest.mark.parametrize("inside", ["sub/x", "sub", "sub/x/c", "sub/x/c/1"])
def test_links_of_the_source_that_lead_into_the_destination(group, tmp_path, inside, way):
    linked(group, inside, tmp_path / "old.zarr" / "there" / "x")
    before = tree_of(tmp_path)
    old = tmp_path / "old.zarr"
    with pytest.raises(ValueError, match="overlap"):
        if way == "rechunk":
            hr.rechunk(group, old, chunks=(3,), overwrite=True)
        else:
            hr.copy(group, hr.open_store(old, mode="r+") if way == "store" else old, overwrite=True)
    assert tree_of(tmp_path) == before


def test_links_of_links_and_links_elsewhere(group, tmp_path):
    (tmp_path / "old.zarr").mkdir()
    linked(group, "sub/x", tmp_path / "other" / "x")
    hr.copy(group, tmp_path / "old.zarr", overwrite=True)
    assert np.array_equal(hr.load(tmp_path / "old.zarr", "sub/x"), DATA)
    linked(tmp_path / "other", "x/c", tmp_path / "old.zarr" / "c")
    os.symlink("nowhere", group / "dangling")
    os.symlink(group, group / "sub" / "around")
    with pytest.raises(ValueError, match="overlap"):
        hr.copy(group, tmp_path / "old.zarr", overwrite=True)
    assert np.array_equal(hr.load(group, "sub/x"), DATA)


def test_neighbours_and_names_that_begin_alike_are_copied(group, tmp_path):
    hr.copy(group, tmp_path / "g.zarr2")
    assert np.array_equal(hr.load(tmp_path / "g.zarr2", "y"), DATA)
    hr.copy(
        hr.open(group, "sub/x"),
        hr.open_group(group, "sub", mode="r+").create_group("x2"),
        overwrite=True,
    )
    assert np.array_equal(hr.load(group, "sub/x2"), DATA)


def test_a_zip_archive_over_itself(tmp_path):
    archive = tmp_path / "a.zip"
    hr.save(archive, u=DATA, v=DATA)
    before = archive.read_bytes()
    for name in (archive, f"zip://{archive}", str(archive)):
        with pytest.raises(ValueError, match="overlap"):
            hr.copy(archive, name, overwrite=True)
    with pytest.raises(ValueError, match="overlap"):
        hr.copy(hr.open(archive, "u"), archive, overwrite=True)
    assert archive.read_bytes() == before and zipfile.ZipFile(archive).testzip() is None


def test_memory(tmp_path):
    named = hr.open_store("memory://overlap", mode="a")
    nameless = hr.memory_store()
    foreign = MemoryStore()
    for store, again in ((named, "memory://overlap"), (nameless, nameless), (foreign, foreign)):
        hr.save(store, u=DATA)
        with pytest.raises(ValueError, match="overlap"):
            hr.copy(store, again, overwrite=True)
        assert np.array_equal(hr.load(store)["u"], DATA)
    with pytest.raises(ValueError, match="overlap"):
        hr.copy("memory://overlap", "memory://overlap/u/deeper")
    hr.copy(nameless, hr.memory_store())
    hr.copy(foreign, MemoryStore())
    hr.copy("memory://overlap", "memory://overlap2")


def test_two_handles_of_one_remote_place(group, tmp_path):
    def opened():
        return FsspecStore.from_url("memory://overlap-remote/g.zarr")

    pytest.importorskip("fsspec")
    hr.copy(group, opened(), overwrite=True)
    with pytest.raises(ValueError, match="overlap"):
        hr.copy(opened(), opened(), overwrite=True)
    assert np.array_equal(hr.load(opened(), "y"), DATA)


# save


def test_names_that_collide_are_refused(tmp_path):
    path = tmp_path / "s.zarr"
    hr.save(path, old=DATA)
    before = tree_of(path)
    for args, kwargs in [
        ((DATA,), {"arr_0": DATA}),
        ((DATA, DATA), {"arr_1": DATA}),
        ((), {"a/b": DATA, "a": DATA}),
        ((), {"a": DATA, "a/b": DATA}),
        ((), {"a/b/c": DATA, "x": DATA, "a": DATA}),
        ((), {"a": DATA, "/a/": DATA}),
        ((), {"a//b": DATA, "a/b": DATA}),
        ((), {"": DATA}),
        ((), {"/": DATA}),
        ((), {"../e": DATA}),
        ((), {"a/./b": DATA}),
        ((), {"a\\b": DATA}),
        ((), {"zarr.json": DATA}),
        ((), {"a/.zarray": DATA}),
    ]:
        with pytest.raises(ValueError, match="save"):
            hr.save(path, *args, **kwargs)
        assert tree_of(path) == before


def test_an_array_that_cannot_be_saved_leaves_what_was_there(tmp_path):
    path = tmp_path / "s.zarr"
    hr.save(path, old=DATA)
    with pytest.raises(TypeError):
        hr.save(path, good=DATA, bad=np.array([1, "x", None], object))
    assert np.array_equal(hr.load(path)["old"], DATA)


def test_names_that_do_not_collide_are_all_saved(tmp_path):
    path = tmp_path / "s.zarr"
    hr.save(path, DATA, DATA + 1, **{"a/b": DATA + 2, "ab": DATA + 3, "a/c": DATA + 4})
    assert np.array_equal(hr.load(path, "arr_1"), DATA + 1)
    assert np.array_equal(hr.load(path, "a/b"), DATA + 2)
    assert np.array_equal(hr.load(path, "ab"), DATA + 3)
    assert np.array_equal(hr.load(path, "a/c"), DATA + 4)


def test_what_is_replaced_may_be_among_what_is_saved(tmp_path):
    path = tmp_path / "s.zarr"
    hr.save(path, u=DATA, v=DATA * 2)
    old = hr.open(path)
    hr.save(path, u=old["v"], v=old["u"].lazy, w=old["u"].lazy[1:])
    found = hr.load(path)
    assert np.array_equal(found["u"], DATA * 2) and np.array_equal(found["v"], DATA)
    assert np.array_equal(found["w"], DATA[1:])
    hr.save(path, hr.open(path, "u"))
    assert np.array_equal(hr.load(path), DATA * 2)


def test_nodes_have_no_names_of_documents(tmp_path):
    for name in ("zarr.json", "a/.zgroup", "zarr.json/x"):
        with pytest.raises(ValueError, match="document"):
            hr.create_array(tmp_path / "n.zarr", name, shape=4, dtype="f4")
        with pytest.raises(ValueError, match="document"):
            hr.create_group(tmp_path / "n.zarr", name)
    assert not (tmp_path / "n.zarr").exists()


def test_dask_does_not_remove_what_it_reads(tmp_path):
    pytest.importorskip("dask.array")
    import headrace.dask

    path = tmp_path / "d.zarr"
    hr.save(path, x=DATA)
    doubled = headrace.dask.from_zarr(path, "x") * 2
    for target, at in ((path, "x"), (str(path), None), (hr.open_store(path, mode="r+"), "x")):
        with pytest.raises(ValueError, match="read from"):
            headrace.dask.to_zarr(doubled, target, at, overwrite=True)
    assert np.array_equal(hr.load(path)["x"], DATA)
    headrace.dask.to_zarr(doubled, path, "doubled", overwrite=True)
    assert np.array_equal(hr.load(path, "doubled"), DATA * 2)
    assert chunk_files(path)


def lazy_sources(path):
    """What reads the array of `path`, by libraries."""
    import dask.array
    import xarray as xr
    import zarr

    yield zarr.open_array(path)
    yield xr.open_dataset(os.path.dirname(path), engine="zarr", consolidated=False)
    yield xr.open_dataset(os.path.dirname(path), engine="headrace")["y"]
    yield dask.array.from_zarr(path)


def test_rechunk_of_what_other_libraries_read_from_there(tmp_path):
    pytest.importorskip("xarray")
    pytest.importorskip("dask")
    group = hr.create_group(tmp_path / "x.zarr")
    names = ["time"]
    group.create_array("y", shape=6, dtype="f8", chunks=2, dimension_names=names)[:] = DATA
    place = str(tmp_path / "x.zarr" / "y")
    before = tree_of(tmp_path)
    for source in lazy_sources(place):
        for target in (place, str(tmp_path / "x.zarr")):
            with pytest.raises(ValueError, match=r"overlap|cannot be told"):
                hr.rechunk(source, target, chunks=(3,), overwrite=True)
    assert tree_of(tmp_path) == before
    # Beside it, and in the place of something else, where that can be told.
    for number, source in enumerate(lazy_sources(place)):
        copy = tmp_path / f"{number}.zarr"
        for overwrite in (False, True) if number < 3 else (False,):
            hr.rechunk(source, copy, chunks=(3,), overwrite=overwrite)
        found = hr.open(copy)
        assert (found if isinstance(found, hr.Array) else found["y"])[...].tolist() == list(DATA)


def test_what_references_lead_to_is_not_replaced(tmp_path):
    h5py = pytest.importorskip("h5py")
    (tmp_path / "d").mkdir()
    with h5py.File(tmp_path / "d" / "a.h5", "w") as file:
        file["y"] = DATA
    store = hr.references(tmp_path / "d" / "a.h5", out=tmp_path / "d" / "refs.json")
    for source in (store, hr.references(tmp_path / "d" / "a.h5")):
        for target in (tmp_path / "d", tmp_path):
            with pytest.raises(ValueError, match="overlap"):
                hr.copy(source, target, overwrite=True)
    hr.copy(store, tmp_path / "d" / "a.zarr")
    assert hr.open(tmp_path / "d" / "a.zarr")["y"][...].tolist() == list(DATA)
