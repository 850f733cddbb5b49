"""Small wants: data=, members set and removed, arrays by what they hold, names of dimensions."""

import copy
import os
import pickle
import sys
import warnings
from decimal import Decimal

import headrace as hr
import numpy as np
import pytest
import zarr
from helpers import assert_same, on_a_terminal, smooth


@pytest.fixture
def group(store):
    return hr.create_group(store)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_create_array_of_data(store, zarr_format):
    data = smooth("f4", (6, 5))
    array = hr.create_array(store, "x", data=data, chunks=(2, 5), zarr_format=zarr_format)
    assert_same(array[...], data)
    assert array.chunks == (2, 5)
    assert_same(zarr.open_array(store, path="x", mode="r")[...], data)


def test_data_is_converted(store):
    array = hr.create_array(store, data=[[1, 2], [3, 4]], dtype="f8")
    assert (array.dtype, array.shape) == (np.float64, (2, 2))
    assert array[1].tolist() == [3.0, 4.0]


@pytest.mark.parametrize(
    "data", [3.5, np.float32(2), [], ["a", "bc"], [b"x", b"yz"], np.array(["2020"], "M8[D]"), True]
)
def test_data_of_any_kind(store, data):
    got = hr.create_array(store, data=data)[...]
    assert np.asarray(got).tolist() == np.asarray(data).tolist()


def test_data_of_a_device(store):
    data = hr.array(np.arange(6, dtype="f4")).read(device="simt")
    array = hr.create_array(store, data=data, chunks=3)
    assert array[:].tolist() == [0, 1, 2, 3, 4, 5]
    assert array.dtype == np.float32


def test_data_of_torch(store):
    torch = pytest.importorskip("torch")
    assert hr.create_array(store, data=torch.ones(2, 3))[:].tolist() == [[1, 1, 1]] * 2


def test_data_and_shape_agree(store):
    assert hr.create_array(store, data=np.zeros(3), shape=3).shape == (3,)
    with pytest.raises(ValueError, match=r"shape: expected that of data, \(3,\), got \(4,\)"):
        hr.create_array(store, "y", data=np.zeros(3), shape=4)
    with pytest.raises(TypeError, match="shape or data is missing"):
        hr.create_array(store, "y")
    with pytest.raises(TypeError, match="objects must hold"):
        hr.create_array(store, "y", data=np.array([1, None], object))


def test_members_are_set_and_removed(group, store):
    group["x"] = np.arange(4)
    assert_same(group["x"][:], np.arange(4))
    group["x"] = [[1.5]]
    assert group["x"].shape == (1, 1)
    group["a/b"] = "text"
    assert group["a/b"][()] == "text"
    with pytest.raises(ValueError, match="'a' is a group: remove it first"):
        group["a"] = 1
    with pytest.raises(TypeError, match=r"headrace\.copy copies arrays"):
        group["y"] = group["x"]
    del group["a"]
    del group["x"]
    assert list(group) == [] and list(hr.open(store)) == []
    with pytest.raises(KeyError, match="'x'"):
        del group["x"]
    with pytest.raises(TypeError, match="members have names"):
        del group[0]
    with pytest.raises(TypeError, match="members have names"):
        group[0] = 1


def test_what_is_read_only_keeps_its_members(group, store):
    group["x"] = [1]
    opened = hr.open(store)
    with pytest.raises(PermissionError):
        del opened["x"]
    with pytest.raises(PermissionError):
        opened["x"] = [2]
    assert opened["x"][0] == 1


def test_arrays_by_what_they_hold(store):
    assert hr.zeros((2, 3))[:].tolist() == [[0.0] * 3] * 2
    assert hr.ones(3, "i4")[:].tolist() == [1, 1, 1]
    assert hr.empty(2, "u1").dtype == np.uint8
    assert hr.full(2, 7)[:].tolist() == [7, 7]
    assert hr.full(2, "x")[:].tolist() == ["x", "x"]
    assert np.isnan(hr.full((), np.nan)[()])
    kept = hr.full((10, 10), 2.5, "f4", store=store, path="x", chunks=(5, 10))
    assert kept.nchunks_initialized == 0 and kept.nbytes_stored() == 0
    assert zarr.open_array(store, path="x", mode="r")[3, 3] == 2.5
    assert hr.array([[1, 2]], store=store, path="y", dtype="i8")[0, 1] == 2
    with pytest.raises(TypeError, match="fill_value: expected a scalar"):
        hr.full(2, [1, 2])


@pytest.mark.parametrize(
    "value",
    [300, -1, "many", 1j, 1.5, np.float32(1.5), np.array(0.5), np.longdouble(1.5), Decimal("0.5")],
)
def test_a_fill_value_of_another_type(store, value):
    with pytest.raises((TypeError, ValueError), match="fill_value: expected a value of uint8, got"):
        hr.full(3, value, "uint8", store=store)
    assert not os.path.exists(os.path.join(store, "zarr.json"))


def test_chunks_by_dimension(store):
    names = ["time", "lat", "lon"]
    make = {"shape": (24, 10, 20), "dtype": "f4", "dimension_names": names, "overwrite": True}
    assert hr.create_array(store, chunks={"time": 1}, **make).chunks == (1, 10, 20)
    assert hr.create_array(store, chunks={"lon": 5, 1: 2}, **make).chunks == (24, 2, 5)
    assert hr.create_array(store, chunks=(1, -1, 4), **make).chunks == (1, 10, 4)
    array = hr.create_array(store, chunks={"time": 1}, shards={"time": 12}, **make)
    assert (array.chunks, array.shards) == ((1, 10, 20), (12, 10, 20))
    with pytest.raises(ValueError, match="chunks: no dimension 'tiem'; did you mean 'time'"):
        hr.create_array(store, chunks={"tiem": 1}, **make)
    with pytest.raises(ValueError, match="chunks: no dimension 3: there are 3"):
        hr.create_array(store, chunks={3: 1}, **make)
    with pytest.raises(ValueError, match="dimension 0 is given twice"):
        hr.create_array(store, chunks={"time": 1, 0: 2}, **make)
    with pytest.raises(TypeError, match="chunks: expected names or numbers"):
        hr.create_array(store, chunks={2.5: 1}, **make)


with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # from zarr 3.4 on
    START_OF_ZARR = zarr.codecs.ShardingCodecIndexLocation.start


@pytest.mark.parametrize("location", ["start", "end", None, START_OF_ZARR])
@pytest.mark.parametrize("chunks", [(2, 3), "auto"])
def test_shards_as_zarr_python_takes_them(store, chunks, location):
    data = smooth("f4", (8, 6))
    shards = {"shape": (4, 6), "index_location": location}
    array = hr.create_array(store, "x", data=data, chunks=chunks, shards=shards)
    wanted = "end" if location is None else getattr(location, "value", location)
    assert array.codecs[0].index_location == wanted and len(array.codecs) == 1
    assert (array.is_sharded, array.shards) == (True, (4, 6))
    assert chunks == "auto" or array.chunks == chunks
    assert_same(array[...], data)
    assert_same(zarr.open_array(store, path="x", mode="r")[...], data)
    if chunks != "auto" and location is not None:
        make = {"shape": (8, 6), "dtype": "f4", "chunks": chunks, "shards": shards}
        theirs = zarr.create_array(store, name="y", **make)
        sharding = array.metadata["codecs"][0]["configuration"]
        assert sharding["index_location"] == wanted
        assert [theirs.shards, theirs.chunks] == [array.shards, array.chunks]
        assert hr.open(store, "y").codecs[0].index_location == wanted


def test_an_index_in_front_is_what_the_serializer_makes(store):
    inner = hr.codecs.Sharding((2, 2), index_location="start")
    make = {"shape": (4, 4), "dtype": "i4", "fill_value": 3, "dimension_names": ["a", "b"]}
    one = hr.create_array(store, "one", chunks=4, serializer=inner, compressors=None, **make)
    shards = {"shape": 4, "index_location": "start"}
    other = hr.create_array(store, "other", chunks=2, shards=shards, **make)
    assert one.metadata == other.metadata
    shards = {"shape": [[2, 2], 4], "index_location": "start"}
    cut = hr.create_array(store, "cut", chunks=(2, 2), shards=shards, **make)
    cut[...] = np.arange(16).reshape(4, 4)
    assert (cut.is_rectilinear, cut.codecs[0].index_location) == (True, "start")
    assert_same(hr.open(store, "cut")[...], np.arange(16, dtype="i4").reshape(4, 4))


def test_a_dimension_that_is_called_shape(store):
    make = {"shape": (8, 6), "dtype": "f4", "chunks": (2, 3), "overwrite": True}
    names = ["shape", "index_location"]
    array = hr.create_array(store, shards={"shape": 4}, dimension_names=names, **make)
    assert array.shards == (4, 3)
    both = {"shape": 4, "index_location": 6}
    assert hr.create_array(store, shards=both, dimension_names=names, **make).shards == (4, 6)
    names = ["y", "index_location"]
    by_name = hr.create_array(store, shards={"index_location": 6}, dimension_names=names, **make)
    assert by_name.shards == (2, 6)
    shards = {"shape": (4, 6), "index_location": "start"}
    assert hr.create_array(store, shards=shards, dimension_names=names, **make).shards == (4, 6)


@pytest.mark.parametrize(
    ("shards", "message"),
    [
        ({"shape": 4, "index_location": "middle"}, '"start" or "end", got \'middle\''),
        ({"shape": 4, "index": "end"}, "expected 'shape' and 'index_location', got 'index'"),
        ({"index_location": "end"}, "expected 'shape' beside 'index_location'"),
        ({"shape": 3, "index_location": "start"}, "expected multiples of chunks"),
        ({"shape": "auto"}, "shards: expected extents, got 'auto'"),
        ("auto", "shards: expected extents, got 'auto'"),
        ({"shape": (4,), "index_location": "start"}, "shards: expected 2 extents"),
    ],
)
def test_shards_that_are_none(store, shards, message):
    with pytest.raises(ValueError, match=message):
        hr.create_array(store, shape=(8, 6), dtype="f4", chunks=(2, 3), shards=shards)
    assert not os.path.exists(store)


def test_rechunk_by_dimension(store, tmp_path):
    data = smooth("f4", (8, 6))
    array = hr.create_array(store, data=data, chunks=(1, 6), dimension_names=["time", "x"])
    out = hr.rechunk(array, str(tmp_path / "out.zarr"), chunks={"time": -1, "x": 2})
    assert out.chunks == (8, 2)
    assert_same(out[:], data)
    assert hr.rechunk_plan(array, chunks={"x": 3})[0]["chunks"] == (1, 3)
    with pytest.raises(ValueError, match="a group needs a list"):
        hr.rechunk_plan(hr.create_group(str(tmp_path / "g.zarr")), chunks={"time": 1})


SELECTIONS = [
    {"time": 3},
    {"time": slice(1, 5)},
    {"lat": 2, "lon": slice(None, None, 2)},
    {"time": [0, 4, 2], "lon": [1, 1, 3]},
    {"time": np.arange(8) % 3 == 0, "lat": 1},
    {"time": 1, "lat": 2, "lon": 3},
    {0: slice(2, 4), "lon": -1},
    {},
]


@pytest.fixture
def cube(store):
    data = smooth("f4", (8, 6, 5))
    names = ["time", "lat", "lon"]
    return hr.create_array(store, data=data, chunks=(2, 3, 5), dimension_names=names), data


@pytest.mark.parametrize("selection", SELECTIONS)
def test_selections_by_dimension(cube, selection):
    array, data = cube
    names = ["time", "lat", "lon"]
    # As xarray's isel: the outer product, dimension by dimension.
    wanted = data
    items = {names[key] if isinstance(key, int) else key: at for key, at in selection.items()}
    for axis in reversed(range(3)):
        item = items.get(names[axis], slice(None))
        wanted = (
            wanted[(slice(None),) * axis + (np.asarray(item),)]
            if isinstance(item, list)
            else wanted[(slice(None),) * axis + (item,)]
        )
    assert_same(np.asarray(array[selection]), np.asarray(wanted))
    assert_same(array.read(selection), np.asarray(wanted))
    assert_same(array.read_async(selection).result(30), np.asarray(wanted))
    assert_same(array.oindex[selection], np.asarray(wanted))
    assert_same(np.asarray(hr.read_many([(array, selection)])[0]), np.asarray(wanted))


def test_selections_by_dimension_as_xarray(cube):
    xr = pytest.importorskip("xarray")
    array, data = cube
    cube_of_xarray = xr.DataArray(data, dims=["time", "lat", "lon"])
    for selection in ({"time": [1, 2], "lat": 3}, {"lon": [0, 0]}, {"time": slice(0, 8, 3)}):
        assert_same(array[selection], cube_of_xarray.isel(selection).values)


def test_writes_by_dimension(cube):
    array, data = cube
    array[{"time": 2}] = 7
    array.write({"lat": [0, 5]}, -1)
    array.write_async({"time": 0, "lon": 1}, np.full(6, 3, "f4")).result(30)
    data = data.copy()
    data[2] = 7
    data[:, [0, 5]] = -1
    data[0, :, 1] = 3
    assert_same(array[...], data)


def test_resize_and_append_by_dimension(cube, store):
    array, data = cube
    other = hr.open_array(store, mode="r+")
    assert other.append(data[:2], axis="time") == (10, 6, 5)
    array.resize({"lon": 3})  # time stays as the other handle has left it
    assert array.shape == (10, 6, 3)
    assert_same(array[...], np.concatenate([data, data[:2]])[..., :3])
    array.resize({0: 4, "lat": 6})
    assert_same(array[...], data[:4, :, :3])
    with pytest.raises(ValueError, match="no dimension 'tim'; did you mean 'time'"):
        array.append(data[:1], axis="tim")
    with pytest.raises(ValueError, match="no dimension 3"):
        array.resize({3: 1})
    with pytest.raises(ValueError, match="extent -1"):
        array.resize({"lat": -1})
    with pytest.raises(TypeError, match="shape"):
        array.resize({"lat": "many"})


def test_the_dimensions_of_a_v2_array_follow_its_attributes(tmp_path):
    array = hr.create_array(tmp_path / "a", data=np.arange(6).reshape(2, 3), zarr_format=2)
    other = array.to("simt")
    array.attrs["_ARRAY_DIMENSIONS"] = ["y", "x"]
    assert array.dimension_names == other.dimension_names == ("y", "x")
    assert array[{"x": 2}].tolist() == [2, 5]
    array.attrs.clear()
    assert array.dimension_names is None


def test_chunks_and_shards_by_iterators():
    array = hr.create_array({}, shape=(4, 6), dtype="i4", chunks=iter([1, 3]), shards=iter([2, 6]))
    assert (array.chunks, array.shards) == ((1, 3), (2, 6))
    array = hr.create_array({}, shape=(4, 6), dtype="i4", chunks=iter([[1, 3], 3]))
    assert array.write_chunk_sizes == ((1, 3), (3, 3))


@pytest.mark.parametrize("shape", [np.array([4, 5, 3]), [np.int8(4), np.int64(5), 3]])
def test_resize_by_integers_of_numpy(cube, shape):
    array, _ = cube
    array.resize(shape)
    assert array.shape == (4, 5, 3)
    row = hr.zeros(4)
    row.resize(np.array(7))
    assert row.shape == (7,)
    with pytest.raises(TypeError, match="shape: expected an integer or a sequence of integers"):
        array.resize(np.array([4.0, 5, 3]))
    with pytest.raises(TypeError, match="integers, got True"):
        row.resize(True)
    assert row.shape == (7,)


@pytest.mark.parametrize("path", [None, "deep/x"])
def test_what_cannot_be_appended_names_the_array(store, path):
    array = hr.create_array(store, path, shape=(2, 3), dtype="i4")
    name = path or array.store.url
    for data in (np.zeros((2, 4), "i4"), np.full((2, 3), "text"), [[1, 2, 3], [4, 5]]):
        with pytest.raises(ValueError, match=rf"\[append\] {name}: "):
            array.append(data)
    with pytest.raises(ValueError, match=rf"\[append\] {name}: axis 2 of"):
        array.append(np.zeros((2, 3), "i4"), axis=2)
    with pytest.raises(ValueError, match=rf"\[write\] {name}: expected elements of int32: "):
        array[:] = np.full((2, 3), "text")
    assert array.shape == (2, 3)


def test_lazy_views_by_dimension(cube):
    array, data = cube
    view = array.lazy[{"lat": slice(1, 4)}][{"time": 2}]
    assert view.shape == (3, 5)
    assert_same(view.read(), data[2, 1:4])
    assert_same(view[{"lon": 1}].read(), data[2, 1:4, 1])
    with pytest.raises(ValueError, match="no dimension 'time'"):
        view[{"time": 0}]


def test_lazy_views_of_an_array_that_was_made_smaller(store):
    array = hr.create_array(store, shape=(10, 3), dtype="i4", chunks=(4, 3))
    array[:] = np.arange(30).reshape(10, 3)
    views = [array.lazy, array.lazy[2:8], array.lazy[::-2, 1], array.lazy[7:, None]]
    array.resize((5, 3))
    for view in views:
        assert view.read().shape == view.shape == view[...].read().shape
        assert view.size == view.read().size
    assert_same(views[0][-1].read(), np.array([12, 13, 14], "i4"))
    with pytest.raises(IndexError, match="outside the view's axis of length 3"):
        views[1][3]
    array.resize((20, 3))
    assert views[0].shape == views[0].read().shape == (10, 3)


def test_progress(tmp_path):
    data = smooth("f4", (64, 128))
    path = str(tmp_path / "p.zarr")
    calls = []

    def note(done, total):
        calls.append((done, total))

    def check(total):
        assert calls[0][1] == calls[-1][1] == total
        assert calls[-1][0] == total
        assert [done for done, _ in calls] == sorted(done for done, _ in calls)
        calls.clear()

    hr.save(path, data, progress=note)
    check(data.nbytes)
    assert_same(hr.load(path, progress=note), data)
    check(data.nbytes)
    hr.copy(path, str(tmp_path / "q.zarr"), progress=note)
    check(data.nbytes)
    array = hr.open(str(tmp_path / "q.zarr"))
    assert array.verify(progress=note) == []
    check(array.nbytes_stored())
    hr.rechunk(path, str(tmp_path / "r.zarr"), chunks=(8, 8), progress=note)
    assert calls
    group = hr.create_group(str(tmp_path / "g.zarr"))
    group["a"], group["b"] = data, data[:3]
    calls.clear()
    got = hr.load(group, progress=note)
    check(data.nbytes + data[:3].nbytes)
    assert_same(got["b"], data[:3])
    for wrong in (5, "x"):
        with pytest.raises(TypeError, match="progress: expected"):
            hr.load(path, progress=wrong)
        with pytest.raises(TypeError, match="progress: expected"):
            array.verify(progress=wrong)


def test_what_a_progress_raises_ends_the_call(tmp_path):
    path = str(tmp_path / "p.zarr")
    hr.save(path, np.zeros((10, 10)))

    def stop(done, total):
        raise KeyError("enough")

    for call in (
        lambda: hr.load(path, progress=stop),
        lambda: hr.open(path).verify(progress=stop),
        lambda: hr.copy(path, str(tmp_path / "q.zarr"), progress=stop),
    ):
        with pytest.raises(KeyError, match="enough"):
            call()


def test_no_bar_without_a_terminal(tmp_path, capfd):
    path = str(tmp_path / "p.zarr")
    hr.save(path, np.zeros(100), progress=True)
    hr.load(path, progress=True)
    hr.open(path).verify(progress=True)
    out, error = capfd.readouterr()
    assert (out, error) == ("", "")


def test_a_data_set_is_not_an_array(tmp_path):
    xr = pytest.importorskip("xarray")
    with pytest.raises(TypeError, match=r"ds\.to_zarr\(path\)"):
        hr.save(str(tmp_path / "d.zarr"), xr.Dataset({"x": ("t", [1, 2])}))


def shown_by(code):
    """What Python shows on a terminal."""
    text, status = on_a_terminal([sys.executable, "-c", code])
    assert status == 0, text
    return text


@pytest.mark.parametrize("library", ["own", "rich"])
def test_bars_shown_by(tmp_path, library):
    if library == "rich":
        pytest.importorskip("rich")
    hide = "sys.modules['rich'] = None" if library == "own" else ""
    path = str(tmp_path / "p.zarr")
    text = shown_by(
        f"""
import sys
import headrace as hr, numpy as np
from headrace import _progress
{hide}
if {library == "own"}:
    _progress._has_rich = lambda: False
hr.save({path!r}, np.zeros((64, 1000)), progress=True)
hr.load({path!r}, progress=True)
hr.copy({path!r}, {path + "2"!r}, progress=True)
hr.open({path!r}).verify(progress=True)
hr.rechunk({path!r}, {path + "3"!r}, chunks=(8, 8), progress=True)
try:
    hr.load({path!r}, "nothing", progress=True)
except FileNotFoundError:
    print("good")
"""
    )
    for label in ("save", "load", "copy", "verify", "rechunk"):
        assert label in text, text
    assert "good" in text
    assert "100%" in text or library == "rich"


def test_pickles(tmp_path):
    path = str(tmp_path / "p.zarr")
    array = hr.create_array(path, data=np.arange(6), attributes={"a": 1}, dimension_names=["x"])
    for thing in (array, hr.open(path).attrs, array.lazy[{"x": slice(2)}], array.info, array.store):
        again = pickle.loads(pickle.dumps(thing))
        assert type(again) is type(thing)
    assert pickle.loads(pickle.dumps(array.attrs)).asdict() == {"a": 1}
    assert pickle.loads(pickle.dumps(array.lazy[{"x": slice(2)}])).read().tolist() == [0, 1]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda x: copy.deepcopy([x])[0]])
@pytest.mark.parametrize("place", ["memory", "folder"])
def test_copies_are_handles_on_the_same_store(store, copied, place):
    group = hr.create_group(hr.memory_store() if place == "memory" else store)
    array = group.create_array("x", data=np.arange(6), attributes={"a": 1})
    for handle in (copied(array), copied(group)["x"], copied(group.store)):
        again = hr.open_array(handle, "x") if isinstance(handle, hr.Store) else handle
        assert again is not array
        array[0] += 1
        assert again[0] == array[0]
    assert copied(array.attrs).asdict() == {"a": 1}
    assert not copied(array).read_only and copied(hr.open_group(group.store)).read_only
    assert copied(array.lazy[2:4]).read().tolist() == [2, 3]


@pytest.mark.parametrize(
    "dtype", [str, bytes, "string", np.dtypes.StringDType(), ">i4", "<f8", "U5", "S3", "M8[s]"]
)
def test_required_twice(group, dtype):
    first = group.require_array("r", shape=(2,), dtype=dtype)
    for exact in (False, True):
        assert group.require_array("r", shape=(2,), dtype=dtype, exact=exact).path == first.path
    with pytest.raises(TypeError, match="'r': expected dtype complex64, got"):
        group.require_array("r", shape=(2,), dtype="complex64", exact=True)


def test_required_types_as_of_zarr(group, store):
    theirs = zarr.open_group(store, mode="r+")
    for kept in ("i4", "f4", "U3", "u1"):
        group.create_array(kept, shape=2, dtype=kept)
        for wanted in ("i4", "i8", "u1", "f4", "f8", "U3", "U5", "bool", "complex64"):
            answers = []
            for one in (group, theirs):
                try:
                    one.require_array(kept, shape=2, dtype=wanted)
                    answers.append(True)
                except TypeError:
                    answers.append(False)
            assert answers[0] == answers[1], (kept, wanted)
    with pytest.raises(TypeError, match="expected dtype i8, got int32"):
        group.require_array("i4", shape=2, dtype="i8", exact=True)
    with pytest.raises(TypeError, match="got int32"):
        group.require_array("i4", shape=2, dtype=str)


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [(np.int64(3), (3,)), (np.array([3, 4]), (3, 4)), ([np.int32(3)], (3,)), (np.array(3), (3,))],
)
def test_shapes_of_numpy(shape, wanted):
    group = hr.create_group(hr.memory_store())
    assert group.create_array("a", shape=shape, dtype="i4").shape == wanted
    assert group.require_array("a", shape=shape, dtype="i4").shape == wanted
    assert hr.array(np.zeros(wanted)).shape == wanted
    assert hr.create_array(hr.memory_store(), data=np.zeros(wanted), shape=shape).shape == wanted
    assert hr.open_array(hr.memory_store(), mode="w", shape=shape, dtype="i4").shape == wanted


def test_a_fill_value_without_a_fraction():
    assert (
        hr.full(2, 3.0, "i4")[:].tolist() == hr.full(2, np.float32(3), "i4")[:].tolist() == [3, 3]
    )


@pytest.mark.parametrize("make", [int, np.int64, np.array, lambda n: [n], lambda n: np.array([n])])
def test_chunks_of_numpy(make):
    array = hr.zeros(8, chunks=make(2), shards=make(4))
    assert (array.chunks, array.shards) == ((2,), (4,))
    assert hr.zeros(8, chunks=make(-1)).chunks == (8,)
    copy = hr.rechunk(array, hr.memory_store(), chunks=make(4), shards=make(8))
    assert (copy.chunks, copy.shards) == ((4,), (8,))
