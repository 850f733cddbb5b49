"""Zarr as the netCDF library writes it (NCZarr): what it wrote is what is read."""

import json

import headrace as hr
import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr
import zarr.codecs.numcodecs
from helpers import assert_same

netCDF4 = pytest.importorskip("netCDF4")

MODES = ["zarr", "nczarr", "xarray"]
DTYPES = ["i1", "u1", "i2", "u2", "i4", "i8", "f4", "f8", "S1"]
CODECS = {
    "plain": {},
    "zlib": {"compression": "zlib", "shuffle": False},
    "zlib, shuffled": {"compression": "zlib"},
    "zlib, shuffled, checksum": {"compression": "zlib", "fletcher32": True},
    "checksum": {"fletcher32": True},
    "bzip2": {"compression": "bzip2"},
    "zstd": {"compression": "zstd"},
    "blosc": {"compression": "blosc_lz4", "blosc_shuffle": 1},
    "blosc, bits": {"compression": "blosc_zstd", "blosc_shuffle": 2},
}
DIMENSIONS = {"time": None, "y": 40, "x": 30}


def elements(dtype, shape):
    values = np.add.outer(np.arange(shape[0]), np.arange(np.prod(shape[1:]))).reshape(shape) // 7
    if dtype == "S1":
        return (65 + values % 26).astype("u1").view("S1")
    return (values % 100).astype(dtype)


def create(path, mode):
    file = netCDF4.Dataset(f"file://{path}#mode={mode},file", "w")
    for name, extent in DIMENSIONS.items():
        file.createDimension(name, extent)
    return file


def write(group, name, along, dtype, **options):
    shape = [5 if DIMENSIONS[d] is None else DIMENSIONS[d] for d in along]
    values = elements(dtype, shape)
    variable = group.createVariable(name, dtype, along, **options)
    variable.set_auto_maskandscale(False)
    variable[...] = values
    return values


def skip_unless_built(file, options):
    compression = options.get("compression", "zlib").partition("_")[0]
    if compression != "zlib" and not getattr(file, f"has_{compression}_filter")():
        pytest.skip(f"this netCDF library has no {compression}")


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("mode", MODES)
def test_all_that_netcdf_compresses(tmp_path, mode, codec):
    path, options = tmp_path / "a.zarr", CODECS[codec]
    written = {}
    with create(path, mode) as file:
        skip_unless_built(file, options)
        for dtype in DTYPES:
            if "blosc" in options.get("compression", "") and np.dtype(dtype).itemsize == 1:
                continue  # netCDF's filter shuffles single bytes, which it then can not compress
            written[dtype] = write(
                file, dtype, ("time", "y", "x"), dtype, chunksizes=(2, 40, 30), **options
            )
    group = hr.open(path)
    for dtype, values in written.items():
        assert_same(group[dtype][...], values)
        assert group[dtype].dimension_names == ("time", "y", "x")
        assert_same(group[dtype].read(device="simt").to_numpy(), values)


@pytest.mark.parametrize("mode", MODES)
def test_groups_attributes_scalars_and_fill_values(tmp_path, mode):
    path = tmp_path / "a.zarr"
    with create(path, mode) as file:
        file.title = "hello"
        scalar = file.createVariable("scalar", "f8", ())
        scalar[...] = 4.5
        filled = file.createVariable("filled", "f4", ("y", "x"), fill_value=-9.0)
        filled[3] = 1
        inner = file.createGroup("inner").createGroup("deep")
        values = write(inner, "v", ("y",), "i4")
        inner["v"].setncatts({"units": "m", "range": np.array([0, 5], "i4"), "factor": 2.5})
    group = hr.open(path)
    assert group.attrs["title"] == "hello"
    assert group["scalar"][...].item() == 4.5
    assert group["filled"].fill_value == -9
    assert_same(group["filled"][2:4], np.array([[-9] * 30, [1] * 30], "f4"))
    v = group["inner/deep/v"]
    assert_same(v[...], values)
    assert {name: v.attrs[name] for name in ("units", "range", "factor")} == {
        "units": "m",
        "range": [0, 5],
        "factor": 2.5,
    }


@pytest.mark.parametrize("mode", ["nczarr", "xarray"])
def test_xarray_opens_it(tmp_path, mode):
    path = tmp_path / "a.zarr"
    with create(path, mode) as file:
        time = file.createVariable("time", "i4", ("time",))
        time.units = "days since 2000-01-01"
        time[:5] = np.arange(5)
        values = write(file, "v", ("time", "y", "x"), "i2", compression="zlib")
        file["v"].scale_factor = 0.5
    with xr.open_dataset(path, engine="headrace", consolidated=False) as dataset:
        assert dataset["v"].dims == ("time", "y", "x")
        np.testing.assert_array_equal(dataset["v"], values * 0.5)
        assert dataset["time"].values[4] == np.datetime64("2000-01-05")


@pytest.mark.parametrize("codec", CODECS)
def test_numbers_as_text(tmp_path, codec):
    """As netCDF 4.9 wrote all parameters of a filter."""
    path, options = tmp_path / "a.zarr", CODECS[codec]
    with create(path, "zarr") as file:
        skip_unless_built(file, options)
        values = write(file, "v", ("y", "x"), "f8", **options)
    document = path / "v" / ".zarray"
    metadata = json.loads(document.read_text())
    for codec in [*(metadata["filters"] or ()), metadata["compressor"] or {}]:
        codec.update({key: str(value) for key, value in codec.items()})
    document.write_text(json.dumps(metadata))
    array = hr.open(path / "v")
    assert_same(array[...], values)
    assert_same(array.read(device="simt").to_numpy(), values)


def test_text_that_is_no_number(tmp_path):
    path = tmp_path / "a.zarr"
    with create(path, "zarr") as file:
        write(file, "v", ("y", "x"), "f8", compression="zlib")
    document = path / "v" / ".zarray"
    document.write_text(
        document.read_text().replace('"elementsize": 0', '"elementsize": "8 or so"')
    )
    with pytest.raises(ValueError, match="'elementsize' must be an integer"):
        hr.open(path / "v")[...]


@pytest.mark.parametrize("pipeline", [False, True])
@pytest.mark.parametrize("mode", ["nczarr", "zarr", "zarr,noxarray"])
def test_netcdf_reads_what_is_written_into_its_shuffled_arrays(tmp_path, mode, pipeline):
    """Their elementsize is 0."""
    if pipeline and "noxarray" in mode:
        pytest.skip("zarr-python's documents do not tell")
    path = tmp_path / "a.zarr"
    with create(path, mode) as file:
        values = write(file, "v", ("y", "x"), "i4", compression="zlib")
    assert json.loads((path / "v" / ".zarray").read_text())["filters"][0]["elementsize"] == 0
    if pipeline:
        with zarr.config.set({"codec_pipeline.path": "headrace.zarr.CodecPipeline"}):
            array = zarr.open_array(path / "v", mode="r+")
            assert_same(array[...], values)
            array[3:7, 5] = 70_000
    else:
        array = hr.open(path / "v", mode="r+")
        array[3:7, 5] = 70_000
    values[3:7, 5] = 70_000
    assert_same(array[...], values)
    assert_same(hr.open(path / "v")[...], values)
    with netCDF4.Dataset(f"file://{path}#mode={mode},file") as file:
        assert_same(np.asarray(file["v"][...]), values)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_an_elementsize_of_0_of_numcodecs_shuffles_nothing(tmp_path, zarr_format):
    values = np.arange(30, dtype="i4").reshape(5, 6)
    filters = [numcodecs.Shuffle(elementsize=0)]
    if zarr_format == 3:
        theirs = {"compressors": [zarr.codecs.numcodecs.Shuffle(elementsize=0)]}
    else:
        theirs = {"filters": filters, "compressors": None}
    zarr.create_array(tmp_path / "a", data=values, zarr_format=zarr_format, **theirs)
    array = hr.open(tmp_path / "a", mode="r+")
    assert_same(array[...], values)
    array[2] = -1
    values[2] = -1
    assert_same(zarr.open_array(tmp_path / "a")[...], values)


def test_what_netcdf_writes_without_marks(tmp_path):
    path = tmp_path / "a.zarr"
    with create(path, "nczarr,noxarray") as file:
        values = write(file, "v", ("y", "x"), "i4", compression="zlib")
    assert json.loads((path / "v" / ".zattrs").read_text()) == {}
    array = hr.open(path / "v", mode="r+")
    array.append(values[:4])
    array.attrs["units"] = "m"
    assert_same(hr.open(path / "v")[...], np.concatenate([values, values[:4]]))
    hr.copy(path / "v", tmp_path / "b")
    assert_same(zarr.open_array(tmp_path / "b")[...], np.concatenate([values, values[:4]]))


@pytest.mark.parametrize("netcdfs", [True, False])
def test_a_change_of_attributes_leaves_a_shuffle_what_it_was(tmp_path, netcdfs):
    path = tmp_path / "a.zarr"
    if netcdfs:
        with create(path, "nczarr") as file:
            values = write(file, "v", ("y", "x"), "i4", compression="zlib")
        document = path / "v" / ".zarray"  # as zarr-python 2 would leave it
        document.write_text(json.dumps(json.loads(document.read_text()), sort_keys=True))
        changed = {"units": "m"}
    else:
        values = elements("i4", (4, 5))
        filters = [numcodecs.Shuffle(elementsize=0), numcodecs.Zlib(level=3)]
        zarr.create_array(path / "v", data=values, zarr_format=2, filters=filters, compressors=None)
        changed = {"_ARRAY_DIMENSIONS": ["y", "x"]}
    array = hr.open(path / "v", mode="r+")
    array.attrs.put(changed)
    assert_same(hr.open(path / "v")[...], values)
    assert_same(zarr.open_array(path / "v")[...], values)
    array.attrs.update(name="v")
    array[1] = -1
    values[1] = -1
    assert_same(hr.open(path / "v")[...], values)
    assert_same(zarr.open_array(path / "v")[...], values)
    assert zarr.open_array(path / "v").attrs.asdict() == changed | {"name": "v"}


@pytest.mark.parametrize("copied", [True, False])
def test_no_shuffle_is_no_shuffle_to_all_in_new_arrays_of_v2(tmp_path, copied):
    values = np.arange(30, dtype="i4") * 70_000
    if copied:
        nothing = zarr.codecs.numcodecs.Shuffle(elementsize=0)
        zarr.create_array(tmp_path / "a", data=values, compressors=[nothing], dimension_names=["x"])
        hr.copy(tmp_path / "a", tmp_path / "b", zarr_format=2)
    else:
        hr.create_array(
            tmp_path / "b",
            data=values,
            zarr_format=2,
            filters=[hr.codecs.Shuffle(elementsize=0)],
            attributes={"_ARRAY_DIMENSIONS": ["x"]},
        )
    assert_same(hr.open(tmp_path / "b")[...], values)
    assert_same(zarr.open_array(tmp_path / "b")[...], values)


def test_netcdf_reads_what_headrace_writes(tmp_path):
    path, values = tmp_path / "a.zarr", elements("f8", (50, 60))
    group = hr.create_group(path, zarr_format=2)
    codecs = {
        "none": (None, None),
        "zlib": (hr.codecs.Zlib(), None),
        "shuffled": (hr.codecs.Zlib(), [hr.codecs.Shuffle()]),
        "zstd": (hr.codecs.Zstd(), None),
        "bzip2": (hr.codecs.BZ2(), None),
        "blosc": (hr.codecs.Blosc(), None),
    }
    for name, (compressor, filters) in codecs.items():
        group.create_array(
            name,
            shape=values.shape,
            chunks=(20, 60),
            dtype="f8",
            compressors=compressor,
            filters=filters,
            fill_value=-1,
            attributes={"_ARRAY_DIMENSIONS": ["y", "x"]},
        )[...] = values
    with netCDF4.Dataset(f"file://{path}#mode=xarray,file") as file:
        for name in codecs:
            if name in ("zstd", "bzip2", "blosc") and not getattr(file, f"has_{name}_filter")():
                continue
            assert file[name].dimensions == ("y", "x")
            assert_same(file[name][...].data, values)
