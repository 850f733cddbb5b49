"""References of NetCDF 3: what they read is what netCDF4 reads, whatever the header says."""

import json
import struct

import headrace as hr
import numpy as np
import pytest
from cloud_servers import file_server
from helpers import assert_same

netCDF4 = pytest.importorskip("netCDF4")

FORMATS = ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"]
CLASSIC_TYPES = ["i1", "S1", "i2", "i4", "f4", "f8"]
MORE_TYPES = ["u1", "u2", "u4", "i8", "u8"]


def types_of(format):
    return CLASSIC_TYPES + (MORE_TYPES if format == FORMATS[2] else [])


def elements(dtype, shape, seed=0):
    random = np.random.default_rng(seed)
    if dtype == "S1":
        return random.integers(65, 91, shape, "u1").view("S1")
    return random.integers(0, 100, shape).astype(dtype)


def make(path, variables, format=FORMATS[0], dimensions=None):
    """`variables`: names of dimensions, type and options by the name."""
    dimensions = dimensions or {"time": None, "y": 3, "x": 7}
    with netCDF4.Dataset(path, "w", format=format) as file:
        for name, extent in dimensions.items():
            file.createDimension(name, extent)
        for i, (name, (along, dtype, options)) in enumerate(variables.items()):
            variable = file.createVariable(name, dtype, along, **options)
            variable.set_auto_mask(False)
            shape = [5 if dimensions[d] is None else dimensions[d] for d in along]
            variable[...] = elements(dtype, shape, i)
    return path


def compare(path, device="cpu", **options):
    group = hr.open(hr.references(path, **options))
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        file.set_auto_chartostring(False)
        assert sorted(group.array_keys()) == sorted(file.variables)
        for name, variable in file.variables.items():
            array = hr.open_array(group.store, name, device=device)
            found = array[...] if device == "cpu" else array[...].to_numpy()
            wanted = np.asarray(variable[...])
            assert_same(np.asarray(found).astype(wanted.dtype), wanted)
            assert list(array.dimension_names or ()) == list(variable.dimensions)
    return group


@pytest.mark.parametrize("device", ["cpu", "simt"])
@pytest.mark.parametrize("format", FORMATS)
def test_every_type_fixed_and_along_records(tmp_path, format, device):
    variables = {}
    for dtype in types_of(format):
        variables[f"fixed_{dtype}"] = (("y", "x"), dtype, {})
        variables[f"records_{dtype}"] = (("time", "x"), dtype, {})
    variables |= {"scalar": ((), "f8", {}), "time": (("time",), "f8", {})}
    compare(make(tmp_path / "a.nc", variables, format), device)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("along", [("time",), ("time", "x")])
def test_a_variable_alone_with_its_records_is_not_aligned(tmp_path, format, along):
    for dtype in types_of(format):
        path = make(tmp_path / f"{dtype}.nc", {"v": (along, dtype, {})}, format)
        compare(path)


@pytest.mark.parametrize("format", FORMATS)
def test_no_record_and_no_variable(tmp_path, format):
    with netCDF4.Dataset(tmp_path / "a.nc", "w", format=format) as file:
        file.createDimension("time", None)
        file.createVariable("v", "i2", ("time",))
    assert hr.open(hr.references(tmp_path / "a.nc"))["v"].shape == (0,)
    with netCDF4.Dataset(tmp_path / "b.nc", "w", format=format) as file:
        file.title = "nothing"
    group = hr.open(hr.references(tmp_path / "b.nc"))
    assert list(group) == [] and group.attrs["title"] == "nothing"


def test_attributes_are_those_that_netcdf4_reads(tmp_path):
    with netCDF4.Dataset(tmp_path / "a.nc", "w", format=FORMATS[2]) as file:
        file.createDimension("x", 2)
        v = file.createVariable("v", "i2", ("x",), fill_value=-9)
        v[:] = [1, 2]
        wanted = {
            "one": 2.5, "several": [1, 2, 3], "text": "Z\xfcrich", "empty": "", "large": 2**63 + 1,
        }  # fmt: skip
        for name, value in wanted.items():
            v.setncattr(name, np.uint64(value) if name == "large" else value)
        file.setncatts({"history": "made\nby hand", "levels": np.array([0.5, 1.5], "f4")})
    group = hr.open(hr.references(tmp_path / "a.nc"))
    assert dict(group.attrs) == {"history": "made\nby hand", "levels": [0.5, 1.5]}
    found = dict(group["v"].attrs)
    assert {name: found[name] for name in wanted} == wanted
    assert group["v"].fill_value == -9


def test_xarray_has_the_same_data_set(tmp_path):
    xarray = pytest.importorskip("xarray")
    path = tmp_path / "a.nc"
    random = np.random.default_rng(0)
    data = xarray.Dataset(
        {
            "t": (("time", "x"), random.normal(size=(6, 4)).astype("f4")),
            "packed": (("time", "x"), random.normal(size=(6, 4))),
            "name": (("x",), ["a", "bc", "def", ""]),
        },
        {"time": np.arange("2020-01-01", "2020-01-07", dtype="M8[D]").astype("M8[ns]")},
        {"title": "six days"},
    )
    data["t"][2, 1] = np.nan
    packing = {"dtype": "i2", "scale_factor": 0.001, "add_offset": 1.0, "_FillValue": -32768}
    data.to_netcdf(
        path, format="NETCDF3_64BIT", encoding={"packed": packing}, unlimited_dims="time"
    )
    store = hr.references(path)
    with xarray.open_dataset(path) as theirs, xarray.open_dataset(store, engine="headrace") as ours:
        xarray.testing.assert_identical(ours.load(), theirs.load())


def test_files_along_the_record_dimension(tmp_path):
    variables = {"v": (("time", "y", "x"), "f4", {}), "time": (("time",), "f8", {})}
    paths = [make(tmp_path / f"{i}.nc", variables) for i in range(3)]
    group = hr.open(hr.references(paths, concat_dim="time", out=tmp_path / "all.json"))
    parts = [hr.open(hr.references(path)) for path in paths]
    for name in variables:
        assert_same(group[name][...], np.concatenate([part[name][...] for part in parts]))


def test_across_a_network(tmp_path):
    variables = {"v": (("time", "x"), "f4", {}), "time": (("time",), "f8", {})}
    local = hr.open(hr.references(make(tmp_path / "a.nc", variables)))
    with file_server(tmp_path, lambda request: None) as url:
        far = hr.open(hr.references(f"{url}/a.nc"))
        for name in variables:
            assert_same(far[name][...], local[name][...])


def test_large_variables_are_cut(tmp_path, monkeypatch):
    monkeypatch.setattr("headrace._reference_model._CONTIGUOUS_NBYTES", 100)
    variables = {
        "fixed": (("y", "x"), "f8", {}),
        "records": (("time", "y", "x"), "f8", {}),
        "time": (("time",), "i2", {}),
    }
    group = compare(make(tmp_path / "a.nc", variables))
    assert group["fixed"].chunks == (1, 7) and group["records"].chunks == (1, 1, 7)


# ---- hostile headers


def words(*values):
    return b"".join(v if isinstance(v, bytes) else struct.pack(">I", v) for v in values)


def name(text):
    raw = text.encode()
    return words(len(raw), raw + bytes(-len(raw) % 4))


def header(records=0, dimensions=(), variables=b"", count=0):
    listed = [words(name(d), extent) for d, extent in dimensions]
    return words(b"CDF\x01", records, 10 if listed else 0, len(listed), *listed, 0, 0) + words(
        11 if count else 0, count, variables
    )


def variable(text, dimensions, kind=4, begin=200):
    return words(name(text), len(dimensions), *dimensions, 0, 0, kind, 0, begin)


X = [("x", 2)]
RECORDS = [("t", 0), ("x", 2)]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"CDF\x03" + bytes(60), "version 3"),
        (b"CDF\x01", "ends within"),
        (words(b"CDF\x01", 0, 10, 2**31, name("x"), 2), "ends within"),
        (words(b"CDF\x01", 0, 10, 1, 2**31, b"x"), "ends within"),
        (words(b"CDF\x01", 0, 11, 1, bytes(60)), "kind 11 where one of kind 10"),
        (header(dimensions=[("t", 0), ("u", 0)]), "two dimensions grow"),
        (header(0, X, variable("v", [3]), 1), "a dimension that is none"),
        (header(0, RECORDS, variable("v", [1, 0]), 1), "than its first"),
        (header(0, X, variable("v", [0]) + variable("v", [0]), 2), "two variables have one name"),
        (header(0, X, variable("v", [0], kind=7), 1), "type 7"),
        (header(0, X, words(name("v"), 2**30), 1), "dimensions"),
    ],
)
def test_damaged_headers_are_named(tmp_path, data, why):
    (tmp_path / "a.nc").write_bytes(data)
    with pytest.raises(ValueError, match=f"damaged as NetCDF 3.*{why}"):
        hr.references(tmp_path / "a.nc")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (header(0, X, variable("v", [0]), 1), "reach to byte 208"),
        (header(0, [("x", 2**31)], variable("v", [0]), 1), "reach to byte"),
        (header(2**31, RECORDS, variable("v", [0, 1]), 1), "reach to byte"),
        (header(0, X, variable("../v", [0]), 1), "its name"),
        (header(0, X, variable(".zattrs", [0]), 1), "its name"),
    ],
)
def test_what_is_not_in_the_file_is_left_out(tmp_path, data, why):
    (tmp_path / "a.nc").write_bytes(data)
    with pytest.raises(NotImplementedError, match=why):
        hr.references(tmp_path / "a.nc")
    with pytest.warns(UserWarning, match=why):
        group = hr.open(hr.references(tmp_path / "a.nc", left_out="skip"))
    assert list(group) == []


def test_large_records_that_are_none_take_no_memory(tmp_path):
    huge = [("t", 0), ("a", 2**31 - 1), ("b", 2**31 - 1)]
    (tmp_path / "a.nc").write_bytes(header(0, huge, variable("v", [0, 1, 2]), 1))
    hr.references(tmp_path / "a.nc", out=tmp_path / "a.json")
    found = json.loads((tmp_path / "a.json").read_text())["refs"]
    assert json.loads(found["v/.zarray"])["shape"] == [0, 2**31 - 1, 2**31 - 1]
    assert not [key for key in found if key.startswith("v/0")]


def test_records_that_were_not_counted(tmp_path):
    """Who streams a file writes a number that is none: the length of the file says it."""
    variables = {"v": (("time", "x"), "i2", {}), "time": (("time",), "f8", {})}
    path = make(tmp_path / "a.nc", variables)
    with netCDF4.Dataset(path) as file:
        wanted = np.asarray(file["v"][...])
    data = bytearray(path.read_bytes())
    data[4:8] = b"\xff" * 4
    path.write_bytes(data)
    assert_same(hr.open(hr.references(path))["v"][...].astype("i2"), wanted)


def test_any_damage_is_an_error_or_other_elements(tmp_path):
    variables = {"v": (("time", "x"), "i2", {"fill_value": 3}), "w": (("y",), "f8", {})}
    data = make(tmp_path / "a.nc", variables).read_bytes()
    random = np.random.default_rng(1)
    path = tmp_path / "b.nc"
    for _ in range(500):
        damaged = bytearray(data[: random.integers(4, len(data) + 1)])
        for _ in range(random.integers(1, 4)):
            damaged[random.integers(4, max(len(damaged), 5)) % len(damaged)] = random.integers(256)
        path.write_bytes(damaged)
        try:
            group = hr.open(hr.references(path))
        except (ValueError, NotImplementedError, hr.CorruptError):
            continue
        for array in group.values():
            array[...]
