"""Stores of Icechunk and obstore: hr.open, xarray's engine, zarr-python's ObjectStore."""

import pickle

import headrace as hr
import numpy as np
import pytest
import zarr
from headrace._zarr_stores.urls import place_of
from helpers import DEVICES, assert_same, smooth
from zarr.storage import FsspecStore

DATA = smooth("f4", (20, 30))
TIME = np.arange(20, dtype="i8")


def write_group(store):
    group = hr.create_group(store, attributes={"title": "x"})
    names = ["time", "x"]
    for name, options in {"plain": {}, "sharded": {"shards": (10, 30)}}.items():
        array = hr.create_array(
            store,
            name,
            shape=DATA.shape,
            chunks=(5, 10),
            dtype="f4",
            dimension_names=names,
            **options,
        )
        array[...] = DATA
        array[3:7, ::2] = DATA[3:7, ::2] + 1
        array[3:7, ::2] = DATA[3:7, ::2]
    time = hr.create_array(store, "time", shape=(20,), dtype="i8", dimension_names=names[:1])
    time[...] = TIME
    return group


def check_group(store):
    group = hr.open(store)
    assert sorted(group) == ["plain", "sharded", "time"]
    assert group.attrs["title"] == "x"
    for name in ("plain", "sharded"):
        array = hr.open(store, name)
        assert_same(array[...], DATA)
        assert_same(array[2:9, ::-4], DATA[2:9, ::-4])
        assert_same(array.vindex[[3, 19, 0], [1, 2, 29]], DATA[[3, 19, 0], [1, 2, 29]])
    assert array.nchunks_initialized == 12


@pytest.fixture
def session():
    """A session of a new repository that holds the group, and the repository."""
    icechunk = pytest.importorskip("icechunk")
    repository = icechunk.Repository.create(icechunk.in_memory_storage())
    writable = repository.writable_session("main")
    write_group(writable.store)
    writable.commit("written by headrace")
    return repository.readonly_session("main"), repository


def test_icechunk_is_read_and_written(session):
    readable, repository = session
    check_group(readable.store)
    assert_same(zarr.open_array(readable.store, path="sharded", mode="r")[...], DATA)
    later = repository.writable_session("main")
    hr.open(later.store, "plain", mode="r+")[0] = 7
    hr.open(later.store, "sharded", mode="r+").append(DATA[:5])
    assert_same(hr.open(readable.store, "plain")[...], DATA)  # its snapshot
    later.commit("more")
    now = repository.readonly_session("main").store
    assert (hr.open(now, "plain")[0] == 7).all()
    assert_same(hr.open(now, "sharded")[...], np.concatenate([DATA, DATA[:5]]))


def test_a_readable_session_refuses_writes(session):
    readable, _ = session
    with pytest.raises(PermissionError):
        hr.open(readable.store, "plain", mode="r+")[0] = 1


@pytest.mark.parametrize("device", DEVICES)
def test_icechunk_to_a_device(session, device):
    array = hr.open(session[0].store, "sharded", device=device)
    assert_same(array[3:9, ::2].to_numpy(), DATA[3:9, ::2])


def test_icechunk_in_xarray(session):
    xr = pytest.importorskip("xarray")
    ds = xr.open_dataset(session[0].store, engine="headrace")
    wanted = xr.open_dataset(session[0].store, engine="zarr", consolidated=False)
    xr.testing.assert_identical(ds, wanted)
    assert_same(ds.sharded.sel(time=[3, 17]).values, DATA[[3, 17]])


def test_icechunk_goes_to_another_process_by_pickle(tmp_path):
    icechunk = pytest.importorskip("icechunk")
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path / "x")))
    writable = repository.writable_session("main")
    write_group(writable.store)
    writable.commit("written by headrace")
    array = hr.open(repository.readonly_session("main").store, "sharded")
    assert_same(pickle.loads(pickle.dumps(array))[...], DATA)


@pytest.mark.parametrize("kind", ["memory", "local"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_obstore_is_read_and_written(tmp_path, kind, wrapped):
    stores = pytest.importorskip("obstore.store")
    store = stores.MemoryStore() if kind == "memory" else stores.LocalStore(tmp_path)
    if wrapped:
        store = zarr.storage.ObjectStore(store)
    write_group(store)
    if kind == "local":
        (tmp_path / "README").write_text("no node")
        check_group(tmp_path)
    check_group(store)
    zarr_store = store if wrapped else zarr.storage.ObjectStore(store)
    assert_same(zarr.open_array(zarr_store, path="sharded", mode="r")[...], DATA)
    if kind == "local":
        pickled = pickle.loads(pickle.dumps(hr.open(store, "plain")))
        assert_same(pickled[...], DATA)


def test_obstore_in_xarray(tmp_path):
    xr = pytest.importorskip("xarray")
    stores = pytest.importorskip("obstore.store")
    store = zarr.storage.ObjectStore(stores.LocalStore(tmp_path))
    write_group(store)
    ds = xr.open_dataset(store, engine="headrace")
    assert_same(ds.plain.isel(time=slice(3, 9)).values, DATA[3:9])
    assert_same(ds.time.values, TIME)


def test_obstore_that_is_read_only(tmp_path):
    stores = pytest.importorskip("obstore.store")
    write_group(tmp_path)
    store = zarr.storage.ObjectStore(stores.LocalStore(tmp_path), read_only=True)
    check_group(store)
    with pytest.raises(PermissionError):
        hr.open(store, "plain", mode="r+")[0] = 1


def test_an_option_that_is_an_object_leaves_a_store_to_its_library():
    """A session of botocore, DefaultAzureCredential() of adlfs, Google's credentials."""
    asyn = pytest.importorskip("fsspec.asyn")
    members = {"__module__": "fsspec.implementations.http", "protocol": "http", "cacheable": False}
    cls = type("HTTPFileSystem", (asyn.AsyncFileSystem,), members)

    def place(**options):
        return place_of(FsspecStore(cls(asynchronous=True, **options), path="http://host/x"))

    assert place(headers={"a": "b"}) == ("http://host/x", {"headers": {"a": "b"}})
    assert place(credential=object()) is None
    assert place(client_kwargs={"auth": object()}) is None


@pytest.mark.parametrize("wrapped", [False, True])
def test_objects_are_asked_for_once_and_shards_twice_at_most(monkeypatch, wrapped):
    """A store in memory gives its objects whole; another one's size is not asked for either."""
    inner = zarr.storage.MemoryStore()
    store = zarr.storage.WrapperStore(inner) if wrapped else inner
    zarr.create_array(inner, name="chunks", data=DATA, chunks=(4, *DATA.shape[1:]))
    zarr.create_array(inner, name="plain", data=DATA, chunks=DATA.shape, compressors=None)
    zarr.create_array(
        inner, name="shards", data=DATA, chunks=(2, *DATA.shape[1:]), shards=DATA.shape
    )
    asked = []

    def noting(name):
        asks = getattr(zarr.storage.MemoryStore, name)

        def ask(self, key, *args, **kwargs):
            asked.append((name, key))
            return asks(self, key, *args, **kwargs)

        monkeypatch.setattr(zarr.storage.MemoryStore, name, ask)

    noting("get")
    noting("getsize")
    noting("exists")
    for name, most in (("chunks", 1), ("plain", 1), ("shards", 2 if wrapped else 1)):
        array = hr.open_array(store, name)
        for wanted in (slice(0, 1), slice(0, 4), slice(1, None)):
            asked.clear()
            assert_same(array[wanted], DATA[wanted])
            objects = {key for _, key in asked}
            assert len(asked) <= most * len(objects), asked
