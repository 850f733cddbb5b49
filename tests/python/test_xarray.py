"""xarray's engine "headrace" gives what its engine "zarr" gives."""

import asyncio
import copy
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import headrace as hr
import numpy as np
import pytest
import zarr
from headrace import _python_codecs
from headrace._array_library import library_for
from helpers import DEVICES, OfTheApplication, edit_json, python
from hypothesis import given
from hypothesis import strategies as st

xr = pytest.importorskip("xarray")

TIME, LAT, LON = 10, 6, 8
SIX_HOURS = np.timedelta64(6, "h")


def field(seed=0, dtype="float32"):
    return np.random.default_rng(seed).normal(280, 10, (TIME, LAT, LON)).astype(dtype)


def weather():
    """Coordinates, bounds, times, packed and plain fields with holes, as forecasts have them."""
    holes = field(1)
    holes[2, 1] = np.nan
    dims = ("time", "lat", "lon")
    ds = xr.Dataset(
        {
            "t2m": (dims, field(), {"units": "K", "valid_range": [180.0, 340.0]}),
            "holes": (dims, holes, {"units": "m"}),
            "packed": (dims, holes),
            "byte": (dims, np.clip(field(2) - 200, 0, 250)),
            "count": (dims, field(3).astype("int32")),
            "mask": (("lat", "lon"), field(4)[0] > 280),
            "time_bnds": (("time", "nv"), np.arange(2 * TIME).reshape(TIME, 2)),
            "scalar": ((), 3.5),
            "wave": (("lat",), np.arange(LAT) * (1 + 2j)),
            "empty": (("none", "lat"), np.zeros((0, LAT), "float32")),
        },
        coords={
            "time": ("time", np.datetime64("2020-01-01", "ns") + np.arange(TIME) * SIX_HOURS),
            "lat": np.linspace(-60, 60, LAT),
            "lon": np.linspace(0, 315, LON, dtype="float32"),
            "height": (("lat", "lon"), field(5)[0], {"units": "m"}),
            "level": ((), 850, {"units": "hPa"}),
        },
        attrs={"title": "weather", "history": ["a", "b"], "version": 1.5},
    )
    ds.time.attrs["bounds"] = "time_bnds"
    packing = {"scale_factor": 0.01, "add_offset": 250.0}
    ds.packed.encoding = {"dtype": "int16", "_FillValue": -32767, **packing}
    ds.byte.encoding = {"dtype": "int8", "_Unsigned": "true", "_FillValue": -1}
    ds["count"].encoding = {"_FillValue": 280, "dtype": "int32"}
    ds.holes.encoding = {"_FillValue": np.float32(9.96921e36), "missing_value": 9.96921e36}
    ds.holes.encoding.pop("missing_value")
    ds.time.encoding = {"units": "hours since 1900-01-01", "dtype": "int32"}
    return ds


def texts():
    words = ["north", "", "s\u00fcd", "a longer one"]
    return xr.Dataset(
        {
            "fixed": ("station", np.array(words)),
            "bytes": ("station", np.array([b"a", b"bb", b"", b"dddd"])),
            "objects": ("station", np.array(words, dtype=object)),
            "chars": ("station", np.array([b"ab", b"cd", b"ef", b"gh"]), {}, {"dtype": "S1"}),
        },
        coords={"station": np.array(["n", "e", "s", "w"]), "x": ("station", np.arange(4.0))},
    )


def calendars():
    days = xr.date_range("2001-02-26", periods=5, calendar="noleap", use_cftime=True)
    lead = np.array([0, 6, 12, 18, 24], "m8[h]").astype("m8[ns]")
    return xr.Dataset(
        {
            "valid": ("time", np.arange("2001-03", "2001-08", dtype="M8[M]").astype("M8[ns]")),
            "lead": ("time", lead),
            "x": ("time", np.arange(5)),
        },
        coords={"time": days},
    )


SETS = {"weather": weather, "texts": texts, "calendars": calendars}


def chunked(ds, shards):
    """Two chunks along each dimension; two chunks a shard on top."""
    encoding = {}
    for name, variable in ds.variables.items():
        chunks = tuple(max(1, -(-n // (4 if shards else 2))) for n in variable.shape)
        if not chunks or 0 in variable.shape:
            continue
        encoding[name] = {"chunks": chunks}
        if shards:
            encoding[name]["shards"] = tuple(2 * n for n in chunks)
    return encoding


@pytest.fixture(scope="module", params=["v2", "v2-consolidated", "v3", "v3-consolidated", "shards"])
def layout(request):
    return request.param


@pytest.fixture(scope="module")
def stored(layout, tmp_path_factory):
    """The paths of the data sets in one layout, by name."""
    folder = tmp_path_factory.mktemp(layout)
    zarr_format, shards = (2 if "v2" in layout else 3), layout == "shards"
    for name, make in SETS.items():
        ds = make()
        ds.to_zarr(
            folder / name,
            zarr_format=zarr_format,
            consolidated="consolidated" in layout,
            encoding=chunked(ds, shards),
        )
    return {name: str(folder / name) for name in SETS}


@pytest.fixture(scope="module")
def weather_v3(tmp_path_factory):
    path = tmp_path_factory.mktemp("weather") / "v3.zarr"
    ds = weather()
    ds.to_zarr(path, encoding=chunked(ds, False))
    return str(path)


def open_zarr(path, **options):
    with xr.open_dataset(path, engine="zarr", consolidated=False, **options) as ds:
        return ds.load()


def open_headrace(path, **options):
    with xr.open_dataset(path, engine="headrace", **options) as ds:
        return ds.load()


def assert_same_encoding(got, wanted):
    for name in wanted.variables:
        left, right = dict(got[name].encoding), dict(wanted[name].encoding)
        assert left.keys() == right.keys(), name
        for key, value in right.items():
            same = left[key] == value or (left[key] != left[key] and value != value)
            assert same, (name, key, left[key], value)
            assert type(left[key]) is type(value), (name, key)


def assert_equal_to_zarr(path, **options):
    got, wanted = open_headrace(path, **options), open_zarr(path, **options)
    xr.testing.assert_identical(got, wanted)
    for name, variable in wanted.variables.items():
        assert got[name].dtype == variable.dtype, name
        assert list(got[name].attrs) == list(variable.attrs), name
    assert_same_encoding(got, wanted)
    assert got.encoding == wanted.encoding


@pytest.mark.parametrize("name", SETS)
def test_equal_to_the_engine_zarr(stored, name):
    assert_equal_to_zarr(stored[name])


@pytest.mark.parametrize(
    "options",
    [
        {"decode_cf": False},
        {"mask_and_scale": False},
        {"decode_times": False},
        {"decode_coords": "all"},
        {"decode_coords": False},
        {"concat_characters": False},
        {"decode_timedelta": False},
        {"drop_variables": ["time_bnds", "station", "lead"]},
    ],
    ids=str,
)
def test_decoding_options_mean_the_same(stored, options):
    for path in stored.values():
        assert_equal_to_zarr(path, **options)


def test_fill_values_mark_missing_values_on_request(weather_v3):
    store = xr.backends.ZarrStore.open_group(weather_v3, use_zarr_fill_value_as_mask=True)
    with (
        xr.open_dataset(store) as wanted,
        xr.open_dataset(weather_v3, engine="headrace", use_zarr_fill_value_as_mask=True) as got,
    ):
        assert np.isnan(wanted["count"]).any() or wanted["count"].dtype.kind == "f"
        xr.testing.assert_identical(got, wanted)


@pytest.fixture(scope="module")
def in_memory(weather_v3):
    return open_zarr(weather_v3)


def slices(n):
    # xarray itself stumbles over empty slices with a negative step, with every engine.
    return st.slices(n).filter(lambda s: (s.step or 1) > 0 or len(range(n)[s]) > 0)


selectors = {
    n: st.one_of(
        st.integers(-n, n - 1),
        slices(n),
        st.lists(st.integers(-n, n - 1), max_size=2 * n).map(lambda x: np.array(x, int)),
        st.lists(st.booleans(), min_size=n, max_size=n).map(np.array),
    )
    for n in (TIME, LAT, LON)
}


@given(
    time=selectors[TIME],
    lat=selectors[LAT],
    lon=selectors[LON],
    name=st.sampled_from(["t2m", "packed", "byte"]),
    step=st.integers(1, 3),
)
def test_selections_are_those_of_numpy(weather_v3, in_memory, time, lat, lon, name, step):
    key = {"time": time, "lat": lat, "lon": lon}
    with xr.open_dataset(weather_v3, engine="headrace", cache=False) as ds:
        got, wanted = ds[name].isel(key), in_memory[name].isel(key)
        if got.ndim:
            got, wanted = got[::step], wanted[::step]
        xr.testing.assert_identical(got, wanted)


@given(
    st.lists(
        st.tuples(*(st.integers(-n, n - 1) for n in (TIME, LAT, LON))), min_size=1, max_size=12
    ),
    st.booleans(),
)
def test_vectorized_selections_are_those_of_numpy(weather_v3, in_memory, points, whole_axis):
    columns = zip(*points, strict=True)
    time, lat, lon = (xr.DataArray(list(column), dims="point") for column in columns)
    key = {"time": time, "lon": lon} if whole_axis else {"time": time, "lat": lat, "lon": lon}
    with xr.open_dataset(weather_v3, engine="headrace", cache=False) as ds:
        xr.testing.assert_identical(ds.packed.isel(key), in_memory.packed.isel(key))
        got, wanted = (d.t2m.transpose("lon", "time", "lat") for d in (ds, in_memory))
        xr.testing.assert_identical(got.isel(key), wanted.isel(key))


def test_labels_select_as_in_memory(weather_v3):
    with xr.open_dataset(weather_v3, engine="headrace") as ds:
        memory = weather()
        key = {"lat": slice(-40, 40), "lon": [0, 90], "time": "2020-01-01"}
        xr.testing.assert_equal(ds.t2m.sel(key), memory.t2m.sel(key))
        near = {"lat": 1.0, "method": "nearest"}
        xr.testing.assert_equal(ds.t2m.sel(**near), memory.t2m.sel(**near))
        means = ds.t2m.groupby("time.hour").mean()
        xr.testing.assert_allclose(means, memory.t2m.groupby("time.hour").mean())


def test_data_are_read_when_they_are_asked_for(weather_v3, tmp_path):
    path = shutil.copytree(weather_v3, tmp_path / "x.zarr")
    ds = xr.open_dataset(path, engine="headrace")
    shutil.rmtree(path / "t2m" / "c")
    assert ds.t2m.isnull().all()  # missing chunks are fill values


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_groups_and_trees(tmp_path, zarr_format):
    path = str(tmp_path / "tree.zarr")
    tree = xr.DataTree.from_dict(
        {"/": xr.Dataset(attrs={"k": 1}), "/a": weather(), "/a/b": texts(), "/c": calendars()}
    )
    tree.drop_nodes(["a"]).to_zarr(path, zarr_format=zarr_format)
    weather().to_zarr(path, group="a", mode="a", zarr_format=zarr_format)
    texts().to_zarr(path, group="a/b", mode="a", zarr_format=zarr_format)
    zarr.consolidate_metadata(path, zarr_format=zarr_format)
    for group in (None, "/", "a", "a/b"):
        options = {"group": group, "decode_timedelta": True}
        assert_equal_to_zarr(path, **options)
        with (
            xr.open_datatree(path, engine="zarr", **options) as wanted,
            xr.open_datatree(path, engine="headrace", **options) as got,
        ):
            xr.testing.assert_identical(got, wanted)
        wanted = xr.open_groups(path, engine="zarr", **options)
        got = xr.open_groups(path, engine="headrace", **options)
        assert got.keys() == wanted.keys()


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_consolidated_metadata_are_used_required_or_passed_over(tmp_path, zarr_format):
    path = tmp_path / "x.zarr"
    calendars().to_zarr(path, zarr_format=zarr_format, consolidated=False)
    assert_equal_to_zarr(path)
    with pytest.raises(ValueError, match="no consolidated metadata"):
        xr.open_dataset(path, engine="headrace", consolidated=True)
    zarr.consolidate_metadata(path, zarr_format=zarr_format)
    if zarr_format == 3:
        edit_json(path / "x/zarr.json", lambda j: j["attributes"].update(new=1))
    else:
        edit_json(path / "x/.zattrs", lambda j: j.update(new=1))
    for consolidated, seen in ((None, False), (True, False), (False, True)):
        ds = open_headrace(path, consolidated=consolidated, decode_timedelta=True)
        assert ("new" in ds.x.attrs) == seen
        again = pickle.loads(pickle.dumps(hr.open_group(path, use_consolidated=consolidated)))
        assert ("new" in again["x"].attrs) == seen


def test_what_is_missing_has_a_name(weather_v3, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.zarr"):
        xr.open_dataset(tmp_path / "nowhere.zarr", engine="headrace")
    with pytest.raises(KeyError, match="other"):
        xr.open_dataset(weather_v3, engine="headrace", group="other")
    with pytest.raises(ValueError, match="is an array"):
        xr.open_dataset(weather_v3, engine="headrace", group="t2m")
    zarr.create_array(tmp_path / "plain.zarr", name="x", shape=(3,), dtype="i4", zarr_format=3)
    zarr.create_array(tmp_path / "two.zarr", name="x", shape=(3,), dtype="i4", zarr_format=2)
    for name in ("plain.zarr", "two.zarr"):
        with pytest.raises(KeyError, match="dimension"):
            xr.open_dataset(tmp_path / name, engine="headrace")


def test_plain_opening_stays_with_the_engine_zarr(weather_v3):
    assert "headrace" in xr.backends.list_engines()
    with xr.open_dataset(weather_v3) as ds:
        assert "headrace" not in type(ds.t2m.variable._data.array.array.array).__module__


def test_other_ways_to_name_the_store(weather_v3, tmp_path, monkeypatch):
    wanted = open_headrace(weather_v3)
    archive = shutil.make_archive(str(tmp_path / "w"), "zip", weather_v3)
    monkeypatch.setenv("HOME", str(tmp_path))
    for store in (
        f"file://{weather_v3}",
        archive,
        "~/w.zip",
        hr.open_store(weather_v3),
        hr.open_group(weather_v3),
        zarr.storage.LocalStore(weather_v3),
    ):
        xr.testing.assert_identical(open_headrace(store), wanted)
    got = open_headrace(weather_v3, backend_kwargs={"storage_options": {"io": "pread"}})
    xr.testing.assert_identical(got, wanted)


def test_big_endian_arrays(tmp_path):
    for zarr_format in (2, 3):
        path = tmp_path / str(zarr_format)
        ds = xr.Dataset({"x": ("t", np.arange(5, dtype=">f4")), "y": ("t", np.ones(5, ">i2"))})
        ds.to_zarr(path, zarr_format=zarr_format)
        assert_equal_to_zarr(path)
        assert_equal_to_zarr(path, decode_cf=False)


def test_names_of_dimensions_as_netcdf_c_writes_them(tmp_path):
    path = tmp_path / "nc.zarr"
    xr.Dataset({"x": (("t", "u"), np.ones((2, 3)))}, attrs={"k": 1}).to_zarr(path, zarr_format=2)
    (path / ".zmetadata").unlink()
    edit_json(path / "x/.zattrs", lambda j: {"_ncProperties": "v", "units": "m"})
    edit_json(path / "x/.zarray", lambda j: j.update(_NCZARR_ARRAY={"dimrefs": ["/t", "/g/u"]}))
    got = open_headrace(path)
    assert (got.x.dims, got.x.attrs) == (("t", "u"), {"units": "m"})


def test_arguments_of_the_engine_zarr(weather_v3):
    wanted = open_headrace(weather_v3)
    for arguments in ({"mode": "r"}, {"cache_members": False}, {"cache_members": True}):
        with xr.open_dataset(weather_v3, engine="headrace", **arguments) as ds:
            xr.testing.assert_identical(ds, wanted)
    xr.open_datatree(weather_v3, engine="headrace", mode="r").close()
    with pytest.raises(ValueError, match="mode: the engine headrace reads only"):
        xr.open_dataset(weather_v3, engine="headrace", mode="a")


def test_copies_pickle_and_reopen(weather_v3):
    wanted = open_headrace(weather_v3)
    with xr.open_dataset(weather_v3, engine="headrace", cache=False) as ds:
        for again in (
            pickle.loads(pickle.dumps(ds)),
            pickle.loads(pickle.dumps(ds.isel(lat=slice(2)))),
            copy.deepcopy(ds),
            ds.copy(deep=True),
        ):
            part = {"lat": slice(2)}
            xr.testing.assert_identical(again.isel(part), wanted.isel(part))


def test_a_store_in_memory_copies():
    store = hr.memory_store()
    group = hr.create_group(store)
    group.create_array("x", shape=(3,), dtype="int32", dimension_names=["t"])[:] = [1, 2, 3]
    with xr.open_dataset(store, engine="headrace") as ds:
        assert copy.deepcopy(ds).x.values.tolist() == [1, 2, 3]
        assert ds.x[::-1].values.tolist() == [3, 2, 1]


def test_load_async(weather_v3):
    async def load(ds):
        return await ds.isel(lat=[0, 2]).load_async()

    with xr.open_dataset(weather_v3, engine="headrace", cache=False) as ds:
        xr.testing.assert_identical(asyncio.run(load(ds)), ds.isel(lat=[0, 2]).load())


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_chunks_for_dask(weather_v3, scheduler):
    dask = pytest.importorskip("dask")
    with (
        dask.config.set(scheduler=scheduler, num_workers=2),
        xr.open_dataset(weather_v3, engine="headrace", chunks={}) as ds,
        xr.open_dataset(weather_v3, engine="zarr", chunks={}) as wanted,
        xr.open_dataset(weather_v3, engine="headrace", chunks={}) as again,
    ):
        assert ds.packed.chunks == wanted.packed.chunks
        assert ds.packed.data.name == again.packed.data.name
        xr.testing.assert_identical(ds.packed.mean("time").compute(), wanted.packed.mean("time"))


# What headrace cannot read is read by zarr-python, one variable at a time.


def test_what_headrace_lacks_is_read_by_zarr_python(tmp_path):
    path = tmp_path / "x y.zarr"
    ds = xr.Dataset({"s": ("t", np.arange(5.0)), "x": ("t", [1, 2, 3, 4, 5])})
    encoding = {"s": {"compressors": OfTheApplication()}}
    for group in (None, "g"):
        ds.to_zarr(path, group=group, mode="a", zarr_format=2, encoding=encoding)
        with _python_codecs.left_out():
            got = open_headrace(path, group=group)
        assert got.s.values.tolist() == [0, 1, 2, 3, 4]
    with _python_codecs.left_out(), pytest.raises(NotImplementedError, match="zarr-python"):
        _zarr_hidden(path)


def test_codecs_of_the_users_python(tmp_path):
    ds = xr.Dataset({"s": ("t", np.arange(5.0))})
    encoding = {"s": {"compressors": OfTheApplication()}}
    ds.to_zarr(tmp_path / "x", zarr_format=2, encoding=encoding)
    xr.testing.assert_identical(open_headrace(tmp_path / "x"), ds)
    xr.testing.assert_identical(open_headrace(tmp_path / "x", device="simt"), ds)
    _zarr_hidden(tmp_path / "x")


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("dtype", [object, "T"])
def test_strings_of_variable_length_are_those_of_the_engine_zarr(tmp_path, zarr_format, dtype):
    words = np.array(["north", "", "s\u00fcd", "a longer one"], dtype=dtype)
    ds = xr.Dataset(
        {"s": (("y", "x"), words.reshape(2, 2)), "name": ((), np.array("one", dtype=dtype))},
        coords={"y": np.array(["p", "q"], dtype=dtype), "label": ("x", words[2:])},
    )
    ds.to_zarr(tmp_path / "x", zarr_format=zarr_format)
    got, wanted = open_headrace(tmp_path / "x"), open_zarr(tmp_path / "x")
    xr.testing.assert_identical(got, wanted)
    for name in wanted.variables:
        assert got[name].dtype == wanted[name].dtype, name
    xr.testing.assert_identical(got.sel(y="q").load(), wanted.sel(y="q").load())
    xr.testing.assert_identical(got.isel(x=[1, 0, 1], y=0).load(), wanted.isel(x=[1, 0, 1], y=0))
    points = xr.DataArray([0, 1, 1], dims="p")
    xr.testing.assert_identical(
        got.isel(x=points, y=points).load(), wanted.isel(x=points, y=points)
    )
    _zarr_hidden(tmp_path / "x")


def _zarr_hidden(path):
    with pytest.MonkeyPatch.context() as patch:
        for name in [n for n in sys.modules if n.partition(".")[0] == "zarr"]:
            patch.delitem(sys.modules, name)
        patch.setitem(sys.modules, "zarr", None)
        open_headrace(path)


def test_zarr_python_is_not_needed(weather_v3):
    code = """
import sys, warnings
sys.modules["zarr"] = None
warnings.filterwarnings("ignore", "Engine 'kerchunk' loading failed")  # it needs zarr-python
import xarray as xr
ds = xr.open_dataset(sys.argv[1], engine="headrace").load()
assert "compressors" not in ds.t2m.encoding
print(float(ds.t2m.mean()))
"""
    assert float(python(code, weather_v3)) == float(open_zarr(weather_v3).t2m.mean())


# Devices. "simt" runs the kernels of CUDA on the host, where NumPy can take the results.


def device_arrays(ds):
    """The data variables that live on a device, of a data set that is not loaded."""
    return [n for n, v in ds.data_vars.items() if "DeviceArray" in repr(v.variable._data)]


@pytest.mark.parametrize("options", [{}, {"mask_and_scale": False}, {"decode_cf": False}], ids=str)
@pytest.mark.parametrize("name", SETS)
def test_devices_decode_as_the_host_does(stored, name, options):
    got = open_headrace(stored[name], device="simt", **options)
    wanted = open_headrace(stored[name], **options)
    xr.testing.assert_identical(got, wanted)
    for variable in wanted.variables:
        assert got[variable].dtype == wanted[variable].dtype, variable


def test_numbers_go_to_the_device_and_the_rest_stays(weather_v3, tmp_path):
    with xr.open_dataset(weather_v3, engine="headrace", device="simt") as ds:
        assert set(device_arrays(ds)) == set(ds.data_vars) - {"time_bnds"}
        assert ds.time_bnds.dtype.kind == "M"
        assert not device_arrays(ds.reset_coords())[len(ds.data_vars) :]
    with xr.open_dataset(weather_v3, engine="headrace", device="cpu") as ds:
        assert device_arrays(ds) == []


MISSING = {
    "nothing": {},
    "float": {"_FillValue": -1.0},
    "two": {"_FillValue": -1, "missing_value": 7},
    "several": {"missing_value": [1, 2]},
    "too large": {"_FillValue": 1e300},
    "not a number": {"_FillValue": np.nan},
}
PACKING = {
    "plain": {},
    "scale": {"scale_factor": 0.25},
    "offset": {"add_offset": 10.0},
    "both": {"scale_factor": 0.1, "add_offset": -273.15},
    "unsigned": {"_Unsigned": "true"},
    "signed": {"_Unsigned": "false"},
    "unsigned and packed": {"_Unsigned": "true", "scale_factor": 0.5},
}


@pytest.mark.filterwarnings("ignore::xarray.SerializationWarning")
@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("packing", PACKING)
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_every_packing_is_decoded_as_xarray_does(tmp_path, missing, packing, zarr_format):
    group = hr.create_group(tmp_path / "x.zarr", zarr_format=zarr_format)
    for dtype in ("i1", "u1", "<i2", ">u2", "i4", "u8", "f2", "f4", "f8", "?"):
        attributes = {**MISSING[missing], **PACKING[packing], "_ARRAY_DIMENSIONS": ["t"]}
        if "_FillValue" in attributes:
            if np.dtype(dtype).kind in "iub" and not isinstance(attributes["_FillValue"], int):
                continue
            if np.dtype(dtype).kind in "ub":
                attributes["_FillValue"] = 1
            if zarr_format == 3:
                attributes["_FillValue"] = xr.backends.zarr.FillValueCoder.encode(
                    attributes["_FillValue"], np.dtype(dtype)
                )
        values = np.array([0, 1, 2, 7, 120, 0, 1, 3]).astype(dtype)
        if np.dtype(dtype).kind in "if":
            values[-2:] = [-1, -128]
        array = group.create_array(
            dtype.strip("<>?") or "bool",
            shape=values.shape,
            dtype=dtype,
            chunks=(3,),
            attributes=attributes,
            dimension_names=["t"] if zarr_format == 3 else None,
        )
        array[:] = values
    with (
        xr.open_dataset(group, engine="headrace") as host,
        xr.open_dataset(group, engine="headrace", device="simt") as device,
    ):
        assert device_arrays(device)
        for name in host:
            try:
                wanted = host[name].load()
            except (TypeError, ValueError) as error:
                with pytest.raises(type(error)):
                    device[name].load()
                continue
            xr.testing.assert_identical(device[name].load(), wanted)
            assert device[name].dtype == wanted.dtype


class Elsewhere(np.lib.mixins.NDArrayOperatorsMixin):
    """An array that, as CuPy's, never becomes one of NumPy's by itself."""

    def __init__(self, values):
        self.values = values

    shape = property(lambda self: self.values.shape)
    ndim = property(lambda self: self.values.ndim)
    dtype = property(lambda self: self.values.dtype)
    real = property(lambda self: Elsewhere(self.values.real))
    imag = property(lambda self: Elsewhere(self.values.imag))

    def __array__(self, dtype=None, copy=None):
        raise TypeError("implicit conversion to NumPy")

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        return Elsewhere(getattr(ufunc, method)(*map(here, inputs), **kwargs))

    def __array_function__(self, function, types, args, kwargs):
        return Elsewhere(function(*map(here, args), **{k: here(v) for k, v in kwargs.items()}))

    def __getitem__(self, key):
        return Elsewhere(self.values[key])

    def __dlpack__(self, **kwargs):
        return self.values.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()

    def astype(self, dtype, copy=True):
        return Elsewhere(self.values.astype(dtype, copy=copy))


def here(x):
    if isinstance(x, list | tuple):
        return type(x)(map(here, x))
    return x.values if isinstance(x, Elsewhere) else x


@pytest.fixture
def elsewhere(monkeypatch):
    """A library of such arrays."""
    library = ModuleType("elsewhere")
    library.from_dlpack = lambda x: Elsewhere(np.from_dlpack(x))
    library.asarray = lambda x, dtype: Elsewhere(np.asarray(x, dtype))
    library.where = np.where
    monkeypatch.setitem(sys.modules, "elsewhere", library)
    return library


def test_work_stays_in_the_library_of_the_device(weather_v3, elsewhere):
    wanted = open_zarr(weather_v3)
    with xr.open_dataset(
        weather_v3, engine="headrace", device="simt", array_library=elsewhere
    ) as ds:
        for coordinate in ds.coords.values():
            assert isinstance(coordinate.data, np.ndarray)
        part = {"lat": slice(None, None, -2), "lon": [1, 5]}
        points = {d: xr.DataArray([0, 1, 3], dims="p") for d in ds.packed.dims}
        for got, same in (
            (ds.packed.isel(part), wanted.packed.isel(part)),
            (ds.packed.isel(points), wanted.packed.isel(points)),
            (ds.packed.sel(lat=slice(-30, 30)) * 2, wanted.packed.sel(lat=slice(-30, 30)) * 2),
            (ds.byte.mean("time"), wanted.byte.mean("time")),
            (ds.t2m.groupby("time.day").mean(), wanted.t2m.groupby("time.day").mean()),
            (ds.t2m - ds.holes.isel(time=0), wanted.t2m - wanted.holes.isel(time=0)),
        ):
            assert isinstance(got.data, Elsewhere)
            with pytest.raises(TypeError, match="implicit"):
                got.values  # noqa: B018
            xr.testing.assert_allclose(got.copy(data=got.data.values), same)


def test_data_sets_on_devices_pickle(weather_v3):
    with xr.open_dataset(weather_v3, engine="headrace", device="simt", cache=False) as ds:
        again = pickle.loads(pickle.dumps(ds))
        assert device_arrays(again) == device_arrays(ds)
        xr.testing.assert_identical(again.packed, ds.packed.load())


def test_dask_takes_chunks_on_devices(weather_v3):
    dask = pytest.importorskip("dask")
    with (
        dask.config.set(scheduler="threads", num_workers=2),
        xr.open_dataset(weather_v3, engine="headrace", device="simt", chunks={}) as ds,
    ):
        wanted = open_zarr(weather_v3).packed.mean("lat")
        xr.testing.assert_allclose(ds.packed.mean("lat").compute(), wanted)


def test_other_libraries_take_the_data_by_dlpack(weather_v3):
    with xr.open_dataset(weather_v3, engine="headrace", device="simt") as ds:
        step = ds.packed.isel(time=3).load()
        shared = np.from_dlpack(step.headrace)
        assert np.shares_memory(shared, step.data)
        torch = pytest.importorskip("torch")
        tensor = step.headrace.to_torch()
        assert (tensor.dtype, tensor.shape) == (torch.float32, (LAT, LON))
        assert tensor.data_ptr() == step.data.ctypes.data


@pytest.mark.parametrize("device", ["cpu", "simt"])
def test_data_that_run_backwards_are_copied_for_torch(weather_v3, device):
    pytest.importorskip("torch")
    with xr.open_dataset(weather_v3, engine="headrace", device=device) as ds:
        flipped = ds.packed.isel(time=3)[::-1, ::-2]
        np.testing.assert_array_equal(flipped.headrace.to_torch(), flipped.values)
        with pytest.raises(BufferError, match="without a copy"):
            flipped.headrace.__dlpack__(copy=False)


def test_a_data_set_is_the_same_elsewhere_after_an_append(tmp_path):
    path = tmp_path / "a.zarr"
    xr.Dataset({"v": ("x", np.arange(4.0))}).to_zarr(path)
    with xr.open_dataset(path, engine="headrace") as ds:
        sent = pickle.dumps(ds)
        xr.Dataset({"v": ("x", np.arange(4.0, 7.0))}).to_zarr(path, append_dim="x")
        elsewhere = pickle.loads(sent)
        xr.testing.assert_identical(elsewhere, ds)
        assert elsewhere.v.mean() == 1.5


def test_a_missing_or_unfit_library_is_named(weather_v3):
    def open_with(library):
        return xr.open_dataset(weather_v3, engine="headrace", device="simt", array_library=library)

    with pytest.raises(NotImplementedError, match="array API"):
        open_with("torch")
    with pytest.raises(ImportError, match="no_such_library"):
        open_with("no_such_library")


def test_what_headrace_cannot_read_is_refused_on_a_device(tmp_path):
    path = tmp_path / "x.zarr"
    xr.Dataset({"x": ("t", np.arange(5))}).to_zarr(
        path, zarr_format=2, encoding={"x": {"compressors": [OfTheApplication()]}}
    )
    assert open_headrace(path).x.values.tolist() == [0, 1, 2, 3, 4]
    refused = pytest.raises(
        NotImplementedError, match=r"^x: .*: codec numcodecs.headrace_test_inverted"
    )
    with _python_codecs.left_out(), refused:
        xr.open_dataset(path, engine="headrace", device="simt")


@pytest.mark.parametrize("device", DEVICES)
def test_the_library_on_a_gpu_is_cupy(weather_v3, device):
    if device == "cuda":
        cupy = pytest.importorskip("cupy")
        got = open_headrace(weather_v3, device="cuda")
        wanted = open_zarr(weather_v3)
        for name in device_arrays(xr.open_dataset(weather_v3, engine="headrace", device="cuda")):
            assert isinstance(got[name].data, cupy.ndarray)
            np.testing.assert_array_equal(got[name].data.get(), wanted[name].values)
    else:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "cupy", None)
            with pytest.raises(ImportError, match="cupy"):
                library_for("cuda:0", None)


def test_the_example_runs(weather_v3):
    script = Path(__file__).resolve().parents[2] / "examples" / "xarray_open.py"
    for arguments in ([], [weather_v3, "--device", "simt"]):
        done = subprocess.run(
            [sys.executable, script, *arguments], capture_output=True, text=True, timeout=100
        )
        assert done.returncode == 0, done.stderr
        assert "t2m" in done.stdout


def test_chunks_of_several_shapes(tmp_path):
    pytest.importorskip("dask")
    data, edges = field()[:, :, 0], [[4, 4, 2], [1, 5]]
    group = hr.create_group(tmp_path / "x.zarr")
    group.create_array(
        "x", shape=data.shape, dtype="f4", chunks=edges, dimension_names=["time", "lat"]
    )[:] = data
    ds = xr.open_dataset(tmp_path / "x.zarr", engine="headrace", consolidated=False, chunks={})
    assert ds["x"].chunks == ((4, 4, 2), (1, 5))
    assert ds["x"].encoding["preferred_chunks"] == {"time": (4, 4, 2), "lat": (1, 5)}
    np.testing.assert_array_equal(ds["x"].values, data)


@pytest.mark.parametrize("dtype", ["S3", "U9"])
@pytest.mark.parametrize("chunks", [None, {}])
def test_one_string_has_the_type_of_its_array(tmp_path, dtype, chunks):
    path = tmp_path / "x.zarr"
    data = xr.Dataset({"v": ("x", np.array(["ab", "c"], dtype))})
    data.to_zarr(path, zarr_format=2, consolidated=False)
    one, wanted = (
        xr.open_dataset(path, engine=engine, chunks=chunks, consolidated=False).v.isel(x=0).load()
        for engine in ("headrace", "zarr")
    )
    assert one.dtype == wanted.dtype == dtype
    xr.testing.assert_identical(one, wanted)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_what_is_no_member_is_told(tmp_path, zarr_format):
    """As the engine "zarr" does, which names it and not what it is."""
    xr.Dataset({"a": ("x", [1.0, 2.0]), "b": ("x", [3.0, 4.0])}).to_zarr(
        tmp_path, zarr_format=zarr_format, consolidated=False
    )
    (tmp_path / "b" / ("zarr.json" if zarr_format == 3 else ".zarray")).unlink()
    with pytest.warns(UserWarning, match="Object at b is not recognized"):
        wanted = xr.open_dataset(
            tmp_path, engine="zarr", consolidated=False, zarr_format=zarr_format
        )
    with pytest.warns(UserWarning, match="left out what is no array and no group of it: b$"):
        found = xr.open_dataset(tmp_path, engine="headrace", zarr_format=zarr_format)
    xr.testing.assert_identical(found, wanted)
