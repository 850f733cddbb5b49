"""Rechunk and convert from HDF5, NetCDF and GRIB, through references and through xarray.

The files are made by h5py, h5netcdf and eccodes, and what comes out is compared with what these
read, bit for bit.
"""

import json
from contextlib import nullcontext

import headrace as hr
import numpy as np
import pytest
from helpers import assert_same

ONE_TO_ONE = {"chunks": None, "shards": "auto", "verify": True}
RANDOM = np.random.default_rng(0)
FIELD = RANDOM.normal(size=(20, 16, 12)).astype("f4")


def references(path, refs):
    """The node behind references, as a file of them is opened."""
    path.write_text(json.dumps(refs))
    return hr.open("reference://", storage_options={"fo": str(path), "remote_protocol": "file"})


def parquet(path, refs):
    pytest.importorskip("fastparquet")
    from kerchunk.df import refs_to_dataframe

    refs_to_dataframe(refs, str(path))
    return hr.open("reference://", storage_options={"fo": str(path), "remote_protocol": "file"})


# ---- zarr-python


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "c8"])
def test_arrays_of_zarr_that_xarray_wrote(tmp_path, zarr_format, dtype):
    xarray, zarr = pytest.importorskip("xarray"), pytest.importorskip("zarr")
    data = np.arange(20).astype(dtype)
    attributes = {} if dtype in ("f8", "f4") else {"_FillValue": np.dtype(dtype).type(19)}
    dataset = xarray.Dataset({"v": (("x",), data, attributes)})
    dataset.to_zarr(tmp_path / "a.zarr", zarr_format=zarr_format, consolidated=False)
    source = zarr.open_array(tmp_path / "a.zarr", path="v", mode="r")
    copy = hr.rechunk(source, tmp_path / "b.zarr", chunks=7)
    assert_same(copy[:], data)
    assert dict(copy.attrs).get("_FillValue") == source.attrs.get("_FillValue")
    np.testing.assert_array_equal(copy.fill_value, source.fill_value)


# ---- HDF5


TEXTS = {str: ["a", "", "bcd"], bytes: [b"a", b"", b"bcd"]}


@pytest.mark.parametrize("dtype", TEXTS)
@pytest.mark.parametrize("kind", ["numpy", "xarray", "index", "zarr", "dask in xarray"])
def test_objects(tmp_path, dtype, kind):
    values = np.array(TEXTS[dtype], dtype=object)
    out, path = tmp_path / "out.zarr", "v"
    if kind == "numpy":
        source, path = values, ""
    elif kind == "zarr":
        hr.create_array(tmp_path / "in.zarr", data=values, chunks=(2,))
        source, path = pytest.importorskip("zarr").open_array(tmp_path / "in.zarr", mode="r"), ""
    elif kind == "index":
        source = pytest.importorskip("xarray").Dataset(coords={"v": values})
    else:
        source = pytest.importorskip("xarray").Dataset({"v": ("x", values)})
    if kind == "dask in xarray":
        pytest.importorskip("dask")
        source = source.chunk(x=2)
        with pytest.raises(
            TypeError, match=r"/v of the source has objects .* known only in memory"
        ):
            hr.rechunk(source, out, chunks=None)
        source = source.compute()
    hr.rechunk(source, out, chunks=(1,), verify=True)
    copy = hr.open_array(out, path)
    assert copy.metadata["data_type"] == {str: "string", bytes: "bytes"}[dtype]
    assert copy[...].tolist() == values.tolist()


def test_objects_that_are_no_texts(tmp_path):
    xr = pytest.importorskip("xarray")
    source = xr.Dataset({"v": ("x", np.array(["a", None], dtype=object))})
    with pytest.raises(
        TypeError, match=r"/v of the source has objects .* not all str or all bytes"
    ):
        hr.rechunk(source, tmp_path / "out.zarr", chunks=None)
    assert not (tmp_path / "out.zarr").exists()


def test_missing_strings_of_a_file_are_refused(tmp_path):
    """Which are found when they are read: its encoding says that there are strings."""
    xr = pytest.importorskip("xarray")
    da = pytest.importorskip("dask.array")
    blocks = da.from_array(np.array(["a", None], dtype=object), chunks=1)
    source = xr.Dataset({"v": xr.Variable("x", blocks, encoding={"dtype": str})})
    with pytest.raises(TypeError, match="objects of the source are not all str"):
        hr.rechunk(source, tmp_path / "out.zarr", chunks=None)


def test_strings_of_netcdf(tmp_path):
    """xarray reads them as objects, and says what they were."""
    pytest.importorskip("h5netcdf")
    xr = pytest.importorskip("xarray")
    xr.Dataset({"v": ("x", np.array(["a", "bcd"], dtype=object))}).to_netcdf(
        tmp_path / "in.nc", engine="h5netcdf"
    )
    with xr.open_dataset(tmp_path / "in.nc", engine="h5netcdf") as dataset:
        hr.rechunk(dataset, tmp_path / "out.zarr", chunks=None)
    assert hr.open_array(tmp_path / "out.zarr", "v")[...].tolist() == ["a", "bcd"]


def test_masked_blocks_of_dask_are_refused(tmp_path):
    da = pytest.importorskip("dask.array")
    blocks = da.from_array(np.ma.array([1, 2, 3], mask=[0, 0, 1]), chunks=1)
    with pytest.raises(TypeError, match="source: elements are masked"):
        hr.rechunk(blocks, tmp_path / "out.zarr", chunks=None)


@pytest.fixture
def hdf5(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        packed = {"compression": "gzip", "shuffle": True}
        file.create_dataset("shuffled", data=FIELD, chunks=(5, 8, 12), **packed)
        file.create_dataset("uneven", data=FIELD[:7, :11, 0], chunks=(3, 4), compression="gzip")
        file.create_dataset("chunked", data=FIELD.astype(">f8"), chunks=(20, 4, 4))
        file.create_dataset("contiguous", data=np.arange(60, dtype="i4").reshape(6, 10))
        missing = file.create_dataset(
            "missing", (8, 8), "f4", chunks=(4, 4), fillvalue=-9.5, **packed
        )
        missing[:4, 4:] = 1
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((5,))
        made = h5py.h5d.create(file.id, b"compact", h5py.h5t.IEEE_F64LE, space, plist)
        h5py.Dataset(made)[...] = FIELD[0, 0, :5]
        file["scalar"] = np.float32(3.5)
        file["flags"] = np.array([True, False, True])
        file["codes"] = np.array([b"ab", b"cde"])
        deeper = file.create_group("sub/deeper")
        deeper.create_dataset("u", data=FIELD[:, 0] * 100, dtype="i2", chunks=(5, 12), **packed)
        deeper["u"].attrs["scale_factor"] = 0.01
        deeper.create_dataset("names", data=["alpha", "be"], dtype=h5py.string_dtype())
    return path


def datasets(path):
    """The elements of all data sets of the file, by path."""
    import h5py

    found = {}

    def take(name, node):
        if isinstance(node, h5py.Dataset):
            is_text = h5py.check_string_dtype(node.dtype) and node.dtype.kind == "O"
            found[name] = node.asstr()[...].tolist() if is_text else np.asarray(node[()])

    with h5py.File(path) as file:
        file.visititems(take)
    return found


@pytest.fixture(params=[references, parquet])
def form(request):
    options = nullcontext()
    if request.param is parquet:
        # fsspec 2026.9 takes the names of missing chunks, NaN in strings of pandas 3, for files.
        pandas = pytest.importorskip("pandas")
        options = pandas.option_context("future.infer_string", False)
    with options:
        yield request.param


@pytest.mark.filterwarnings("ignore:The 'fastparquet' engine is deprecated")
@pytest.mark.filterwarnings("ignore:.*infer_string")
def test_hdf5_by_references(hdf5, tmp_path, form):
    hdf = pytest.importorskip("kerchunk.hdf")
    refs = hdf.SingleHdf5ToZarr(str(hdf5), vlen_encode="embed").translate()
    source = form(tmp_path / "refs", refs)
    copy = hr.rechunk(source, str(tmp_path / "copy.zarr"), **ONE_TO_ONE)
    wanted = datasets(hdf5)
    assert len(wanted) == 11
    for name, values in wanted.items():
        for node in (source, copy):
            if isinstance(values, list):
                assert node[name][...].tolist() == values
            else:
                assert_same(node[name][...], values)
    assert copy["shuffled"].shards == (20, 16, 12)
    assert copy["missing"].fill_value == -9.5
    assert copy["missing"].nchunks_initialized == 1
    assert dict(copy["sub/deeper/u"].attrs)["scale_factor"] == 0.01


def test_files_of_other_formats_say_how(hdf5, tmp_path):
    with pytest.raises(ValueError, match="reference:// or through xarray"):
        hr.rechunk(str(hdf5), str(tmp_path / "copy.zarr"), chunks=None)
    references = tmp_path / "refs.json"
    references.write_text('{"version": 1, "refs": {}}')
    with pytest.raises(ValueError, match=f"opened by reference://{references}$"):
        hr.open(references)


# ---- NetCDF


@pytest.fixture
def dataset():
    """Packed values with missing ones, a grid mapping, coordinates that are no dimensions."""
    xr = pytest.importorskip("xarray")
    t2m = (280 + FIELD[:8, :6, :10]).astype("f8").round(2)
    t2m[2, 3, 4] = np.nan
    return xr.Dataset(
        {
            "t2m": (("time", "lat", "lon"), t2m, {"units": "K", "grid_mapping": "crs"}),
            "rain": (("time", "lat"), np.where(FIELD[:8, :6, 0] > 0, FIELD[:8, :6, 0], np.nan)),
            "crs": ((), np.int32(7), {"grid_mapping_name": "latitude_longitude"}),
        },
        coords={
            "time": np.arange("2020-01-01", "2020-01-09", dtype="M8[D]").astype("M8[ns]"),
            "lat": np.linspace(-5, 5, 6),
            "lon": np.arange(10.0),
            "area": (("lat", "lon"), FIELD[0, :6, :10]),
            "height": 2.0,
        },
        attrs={"title": "a test"},
    )


ENCODING = {
    "t2m": {"dtype": "int16", "scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -32768},
    "rain": {"_FillValue": np.float32(-1)},
}


@pytest.fixture
def netcdf(dataset, tmp_path):
    pytest.importorskip("h5netcdf")
    path = tmp_path / "a.nc"
    storage = {"chunksizes": (3, 6, 5), "zlib": True, "shuffle": True, "complevel": 4}
    encoding = {**ENCODING, "t2m": {**ENCODING["t2m"], **storage}}
    dataset.to_netcdf(path, engine="h5netcdf", encoding=encoding)
    return path


def by_kerchunk(path, folder):
    hdf = pytest.importorskip("kerchunk.hdf")
    return references(folder / "refs.json", hdf.SingleHdf5ToZarr(str(path)).translate())


def by_xarray(path, folder):
    import xarray as xr

    return xr.open_dataset(path, engine="h5netcdf")


def by_xarray_as_stored(path, folder):
    import xarray as xr

    return xr.open_dataset(path, engine="h5netcdf", decode_cf=False)


def assert_same_in_xarray(store, wanted):
    import xarray as xr

    for options in ({"engine": "zarr", "consolidated": False}, {"engine": "headrace"}):
        with xr.open_dataset(store, **options) as copy:
            xr.testing.assert_identical(copy.load(), wanted)


@pytest.mark.parametrize("way", [by_kerchunk, by_xarray, by_xarray_as_stored])
def test_netcdf(netcdf, tmp_path, way):
    import xarray as xr

    with xr.open_dataset(netcdf, engine="h5netcdf") as wanted:
        wanted.load()
    copy = hr.rechunk(way(netcdf, tmp_path), str(tmp_path / "copy.zarr"), **ONE_TO_ONE)
    assert (copy["t2m"].chunks, copy["t2m"].shards) == ((3, 6, 5), (9, 6, 10))
    assert copy["t2m"].dtype == ("f8" if way is by_xarray else "i2")
    assert_same_in_xarray(str(tmp_path / "copy.zarr"), wanted)


@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3")
def test_netcdf_by_virtualizarr(netcdf, tmp_path):
    virtualizarr = pytest.importorskip("virtualizarr")
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr.parsers import HDFParser

    registry = ObjectStoreRegistry({"file://": LocalStore()})
    virtual = virtualizarr.open_virtual_dataset(f"file://{netcdf}", registry, HDFParser())
    virtual.vz.to_kerchunk(str(tmp_path / "refs.json"), format="json")
    source = references(tmp_path / "refs.json", json.loads((tmp_path / "refs.json").read_text()))
    copy = hr.rechunk(source, str(tmp_path / "copy.zarr"), **ONE_TO_ONE)
    wanted = datasets(netcdf)
    for name in ("t2m", "rain", "time", "lat", "lon", "area"):
        assert_same(copy[name][...], wanted[name])
    assert (copy["t2m"].chunks, copy["t2m"].shards) == ((3, 6, 5), (9, 6, 10))


@pytest.mark.parametrize("copy", ["rechunk", "copy"])
def test_zarr_2_of_xarray_is_the_same_in_zarr_3(dataset, tmp_path, copy):
    import xarray as xr

    dataset.to_zarr(tmp_path / "a.zarr", zarr_format=2, encoding=ENCODING)
    with xr.open_dataset(tmp_path / "a.zarr", engine="zarr") as wanted:
        wanted.load()
    target = str(tmp_path / "copy.zarr")
    if copy == "rechunk":
        hr.rechunk(str(tmp_path / "a.zarr"), target, **ONE_TO_ONE)
    else:
        hr.copy(str(tmp_path / "a.zarr"), target, zarr_format=3)
    assert hr.open(target)["t2m"].zarr_format == 3
    assert_same_in_xarray(target, wanted)


# ---- GRIB

LEVELS, DAYS = (850, 500), (1, 2, 3)
GRID = {
    "Ni": 16,
    "Nj": 8,
    "latitudeOfFirstGridPointInDegrees": 70,
    "latitudeOfLastGridPointInDegrees": 0,
    "longitudeOfFirstGridPointInDegrees": 0,
    "longitudeOfLastGridPointInDegrees": 150,
    "iDirectionIncrementInDegrees": 10,
    "jDirectionIncrementInDegrees": 10,
    "bitsPerValue": 16,
}


@pytest.fixture
def grib(tmp_path):
    """A file of temperatures, and what eccodes reads there: time, level, latitude, longitude."""
    eccodes = pytest.importorskip("eccodes")
    path, values = tmp_path / "a.grib2", []
    with open(path, "wb") as file:
        for day in DAYS:
            for level in LEVELS:
                message = eccodes.codes_grib_new_from_samples("regular_ll_pl_grib2")
                keys = {**GRID, "dataDate": 20200100 + day, "dataTime": 0, "level": level}
                for key, value in {**keys, "shortName": "t"}.items():
                    eccodes.codes_set(message, key, value)
                field = 250 + level / 100 + day + RANDOM.normal(size=128)
                eccodes.codes_set_values(message, field)
                eccodes.codes_write(message, file)
                values.append(eccodes.codes_get_values(message))
                eccodes.codes_release(message)
    return path, np.array(values).reshape(len(DAYS), len(LEVELS), 8, 16)


def test_grib_by_references(grib, tmp_path):
    grib2 = pytest.importorskip("kerchunk.grib2")
    from kerchunk.combine import MultiZarrToZarr

    path, values = grib
    combined = MultiZarrToZarr(
        grib2.scan_grib(str(path)),
        concat_dims=["time", "isobaricInhPa"],
        identical_dims=["latitude", "longitude"],
    )
    source = references(tmp_path / "refs.json", combined.translate())
    copy = hr.rechunk(source, str(tmp_path / "copy.zarr"), **ONE_TO_ONE)
    order = [LEVELS.index(level) for level in copy["isobaricInhPa"][...]]
    assert_same(copy["t"][...], values[:, order])
    assert (copy["t"].shards, copy["t"].chunks) == ((3, 2, 8, 16), (1, 1, 8, 16))


def test_grib_by_xarray(grib, tmp_path):
    pytest.importorskip("cfgrib")
    import xarray as xr

    path, values = grib
    with xr.open_dataset(path, engine="cfgrib", backend_kwargs={"indexpath": ""}) as dataset:
        hr.rechunk(dataset, str(tmp_path / "copy.zarr"), **ONE_TO_ONE)
        assert_same(dataset["t"].values, values.astype("f4"))
        assert_same_in_xarray(str(tmp_path / "copy.zarr"), dataset.load())
