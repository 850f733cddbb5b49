"""`hr.references` of HDF5 and NetCDF 4, compared with what h5py and netCDF4 read of the files."""

import io
import json
import shutil
import struct
import sys
import warnings

import headrace as hr
import numpy as np
import pytest
from helpers import assert_same
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

h5py = pytest.importorskip("h5py")

RANDOM = np.random.default_rng(5)
FIELD = np.round(RANDOM.normal(size=(30, 17, 23)) * 40, 2).astype("f4")
WALK = np.cumsum(RANDOM.integers(-2, 3, FIELD.shape), -1).astype("i4")
HAS_AEC = any(row["codec"] == "hdf5_szip" for row in hr.codecs.table())


def datasets(path):
    """The elements of all data sets of a file, by path."""
    found = {}

    def take(name, node):
        if isinstance(node, h5py.Dataset):
            is_text = node.dtype.kind == "O"
            found[name] = np.asarray(node.asstr()[()], "O") if is_text else np.asarray(node[()])

    with h5py.File(path) as file:
        file.visititems(take)
    return found


def filters_of(path):
    with h5py.File(path) as file:
        plists = {name: node.id.get_create_plist() for name, node in file.items()}
        return {
            name: [plist.get_filter(i)[0] for i in range(plist.get_nfilters())]
            for name, plist in plists.items()
        }


def assert_same_file(store, path, device=None):
    for name, wanted in datasets(path).items():
        got = hr.open_array(store, name, device=device)[...]
        if device is not None:
            got = got.to_numpy()
        if wanted.dtype.kind == "O":
            assert np.asarray(got).tolist() == wanted.tolist(), name
        else:
            assert_same(got, wanted)


PACKED = {
    "deflate": (FIELD, {"compression": "gzip"}),
    "shuffled": (FIELD, {"compression": "gzip", "shuffle": True}),
    "checked": (FIELD, {"compression": "gzip", "shuffle": True, "fletcher32": True}),
    "only_checked": (WALK, {"fletcher32": True}),
    "lzf": (WALK, {"compression": "lzf", "shuffle": True}),
    "lzf_plain": (WALK.astype("i2"), {"compression": "lzf"}),
    "scaled": (WALK, {"scaleoffset": 0}),
    "scaled_width": (np.abs(WALK) % 32, {"scaleoffset": 5}),
    "scaled_bytes": (WALK.astype("u1"), {"scaleoffset": 0}),
    "scaled_big": (WALK.astype(">i2"), {"scaleoffset": 0, "compression": "gzip", "shuffle": True}),
    "scaled_floats": (FIELD, {"scaleoffset": 2}),
    "scaled_doubles": (FIELD.astype("f8"), {"scaleoffset": 1, "compression": "gzip"}),
    "scaled_filled": (np.where(WALK > 3, WALK, -999), {"scaleoffset": 0, "fillvalue": -999}),
    "big": (FIELD.astype(">f8"), {"compression": "gzip", "shuffle": True}),
    "complex": (FIELD + 2j * FIELD, {"compression": "gzip"}),
    "szip": (np.abs(WALK), {"compression": "szip"}),
    "szip_differences": (
        WALK.astype("i2"),
        {"compression": "szip", "compression_opts": ("nn", 10)},
    ),
    "szip_doubles": (FIELD.astype("f8").round(), {"compression": "szip"}),
    "szip_checked": (np.abs(WALK), {"compression": "szip", "fletcher32": True}),
    # What szip would make larger HDF5 stores as it is.
    "szip_noise": (RANDOM.integers(0, 255, FIELD.shape, "u1"), {"compression": "szip"}),
    "szip_some_noise": (np.where(WALK > 3, WALK * 7919, 3), {"compression": "szip"}),
}


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("device", [None, "simt"])
def test_filters(name, device, tmp_path):
    values, filters = PACKED[name]
    if filters.get("compression") == "szip":
        if not h5py.h5z.filter_avail(h5py.h5z.FILTER_SZIP):
            pytest.skip("h5py without szip")
        if not HAS_AEC:
            pytest.skip("a build without libaec")
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=values, chunks=(4, 9, 23)[: values.ndim], **filters)
    assert filters_of(path)["x"]
    assert_same_file(hr.references(path), path, device)


@pytest.mark.skipif(HAS_AEC, reason="a build with libaec")
def test_szip_without_libaec_says_so(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=np.abs(WALK), chunks=True, compression="szip")
    with pytest.raises(NotImplementedError, match="libaec"):
        hr.open(hr.references(tmp_path / "a.h5"))["x"][...]


def nbit(file, name, base, precision, offset, values, filters=()):
    kind = base.copy()
    kind.set_precision(precision)
    kind.set_offset(offset)
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((4, 9, 23))
    plist.set_filter(5, h5py.h5z.FLAG_OPTIONAL, ())
    if filters:
        plist.set_deflate(3)
    space = h5py.h5s.create_simple(values.shape)
    made = h5py.h5d.create(file.id, name.encode(), kind, space, plist)
    h5py.Dataset(made)[...] = values


def test_nbit(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        nbit(file, "offset", h5py.h5t.STD_I16LE, 13, 3, WALK)
        nbit(file, "big", h5py.h5t.STD_I32BE, 17, 5, WALK, ("deflate",))
        nbit(file, "unsigned", h5py.h5t.STD_U8LE, 7, 1, np.abs(WALK) % 128)
        nbit(file, "whole", h5py.h5t.STD_I32LE, 32, 0, WALK)
        nbit(file, "wide", h5py.h5t.STD_I64LE, 61, 2, WALK.astype("i8") * 10**12)
    assert set(map(tuple, filters_of(path).values())) == {(5,), (5, 1)}
    assert_same_file(hr.references(path), path)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_filters_types_and_chunks(data, tmp_path):
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3), "shape"))
    chunks = tuple(data.draw(st.integers(1, n), "chunk") for n in shape)
    dtype = data.draw(
        st.sampled_from(["i1", "<u2", ">i2", "<i4", ">u4", "<i8", "<f4", ">f8", "f2"])
    )
    filters = {
        "shuffle": data.draw(st.booleans(), "shuffle"),
        "fletcher32": data.draw(st.booleans(), "fletcher32"),
        "compression": data.draw(st.sampled_from([None, "gzip", "lzf"]), "compression"),
    }
    scalable = np.dtype(dtype) != "f2" and not (filters["shuffle"] and np.dtype(dtype).kind == "f")
    if scalable and data.draw(st.booleans(), "scaled"):
        filters["fletcher32"] = False  # h5py takes but one of them
        filters["scaleoffset"] = 2 if np.dtype(dtype).kind == "f" else 0
    seed = data.draw(st.integers(0, 1000), "seed")
    step = data.draw(st.sampled_from([0, 1, 50]), "step")
    values = np.random.default_rng(seed).integers(-step, step + 1, shape).astype(dtype)
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        made = file.create_dataset("x", shape, dtype, chunks=chunks, fillvalue=3, **filters)
        # Some chunks are not there.
        made[: shape[0] // 2 + 1] = values[: shape[0] // 2 + 1]
    assert_same_file(hr.references(path), path)


def test_layouts_and_types(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["scalar"] = np.float32(3.5)
        file["flags"] = np.array([True, False, True])
        file["codes"] = np.array([b"ab", b"cde"])
        file["none"] = np.zeros((0, 3), "i4")
        file["text"] = "a text"
        file["never_written"] = h5py.Empty("f4")
        del file["never_written"]
        file.create_dataset("unwritten", (4, 3), "f8", fillvalue=2.5)
        file.create_dataset("contiguous", data=FIELD.astype(">i2"))
        file.create_dataset("words", data=["alpha", "", "\u03b2eta"], dtype=h5py.string_dtype())
        kind = h5py.enum_dtype({"land": 1, "sea": 2}, basetype="i2")
        file.create_dataset("surface", data=np.array([1, 2, 1], "i2"), dtype=kind)
        pairs = np.array([(1, 2.5), (3, 4.5)], [("a", "<i4"), ("b", "<f8")])
        file.create_dataset("pairs", data=pairs)
        file.create_dataset(
            "packed_pairs", data=pairs, chunks=(1,), compression="gzip", shuffle=True
        )
        triples = np.dtype(("<i4", (3,)))
        file.create_dataset("triples", (4,), triples, chunks=(2,), compression="gzip")[...] = (
            np.arange(12).reshape(4, 3)
        )
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((900,))
        made = h5py.h5d.create(file.id, b"compact", h5py.h5t.IEEE_F64BE, space, plist)
        h5py.Dataset(made)[...] = np.arange(900)
        missing = file.create_dataset("missing", (8, 8), "f4", chunks=(4, 4), fillvalue=-9.5)
        missing[:4, 4:] = 1
        smaller = file.create_dataset("smaller", data=WALK[0], chunks=(4, 9), maxshape=(None, None))
        smaller.resize((7, 9))
        file.create_group("sub/deeper").create_dataset("u", data=FIELD[:, 0], chunks=True)
        file["sub"].attrs["title"] = "a group"
    store = hr.references(path)
    assert_same_file(store, path)
    group = hr.open(store)
    assert group["sub"].attrs["title"] == "a group"
    assert group["missing"].fill_value == -9.5
    assert group["missing"].nchunks_initialized == 1


def test_a_large_contiguous_array_is_cut_into_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("headrace._reference_model._CONTIGUOUS_NBYTES", 10_000)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = FIELD
    store = hr.references(tmp_path / "a.h5")
    assert hr.open(store)["x"].chunks == (6, 17, 23)
    assert_same_file(store, tmp_path / "a.h5")


def test_user_block(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", userblock_size=1024) as file:
        file.create_dataset("x", data=FIELD, chunks=(4, 9, 23), compression="gzip")
        file["plain"] = WALK
    assert_same_file(hr.references(path), path)


def test_chunks_that_were_stored_without_some_filters(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        filters = {"compression": "gzip", "shuffle": True, "fletcher32": True}
        made = file.create_dataset("x", data=WALK[:8, :9], chunks=(4, 9, 23), **filters)
        raw = WALK[:4, :9].tobytes()
        made.id.write_direct_chunk((0, 0, 0), raw, filter_mask=0b111)
        only = file.create_dataset("all", data=WALK[:8, :9], chunks=(4, 9, 23), compression="gzip")
        for i in (0, 4):
            raw = WALK[i : i + 4, :9].tobytes()
            only.id.write_direct_chunk((i, 0, 0), raw, filter_mask=1)
        mixed = file.create_dataset("lzf", data=WALK[:8, :9], chunks=(4, 9, 23), compression="lzf")
        mixed.id.write_direct_chunk((0, 0, 0), WALK[:4, :9].tobytes(), filter_mask=1)
    assert_same_file(hr.references(path), path)


def test_what_zarr_cannot_have(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["good"] = FIELD
        file["link"] = np.array([file["good"].ref], h5py.ref_dtype)
        file.create_dataset("ragged", (2,), h5py.vlen_dtype("i4"))[0] = [1, 2]
        file["nothing"] = h5py.Empty("f4")
        layout = h5py.VirtualLayout((30, 17, 23), "f4")
        layout[...] = h5py.VirtualSource(file["good"])
        file.create_virtual_dataset("virtual", layout)
        kind = h5py.h5t.STD_I16LE.copy()
        kind.set_precision(11)
        space = h5py.h5s.create_simple((3,))
        h5py.h5d.create(file.id, b"odd", kind, space)
    with pytest.raises(
        NotImplementedError, match=r"/link: .*/nothing: .*/odd: .*/ragged: .*/virtual"
    ):
        hr.references(path)
    with pytest.warns(UserWarning, match="left out /link"):
        store = hr.references(path, left_out="skip")
    assert set(hr.open(store)) == {"good"}


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_dimension_that_grows(data, tmp_path):
    """HDF5 2.0 tells wrong coordinates of chunks where one dimension grows that is not the first,
    in files of its newer formats."""
    from headrace._hdf5_chunks import stored_chunks

    shape = tuple(data.draw(st.lists(st.integers(1, 8), min_size=1, max_size=4), "shape"))
    chunks = tuple(data.draw(st.integers(1, 4), "chunk") for _ in shape)
    growing = data.draw(st.integers(0, len(shape) - 1), "growing")
    limits = [
        max(n, c) + data.draw(st.integers(0, 9), "more") for n, c in zip(shape, chunks, strict=True)
    ]
    limits[growing] = None
    seed = data.draw(st.integers(0, 1000), "seed")
    values = np.random.default_rng(seed).integers(
        0, data.draw(st.sampled_from([1, 2, 1000]), "below"), shape, "i4"
    )
    path = tmp_path / "a.h5"
    options = {
        "libver": data.draw(st.sampled_from(["earliest", "v108", "v110", "latest"]), "libver"),
        "userblock_size": data.draw(st.sampled_from([0, 512]), "user block"),
    }
    filters = {
        "compression": data.draw(st.sampled_from([None, "gzip"]), "compression"),
        "shuffle": data.draw(st.booleans(), "shuffle"),
    }
    with h5py.File(path, "w", **options) as file:
        made = file.create_dataset(
            "x", shape, "i4", chunks=chunks, maxshape=limits, fillvalue=-3, **filters
        )
        # Some chunks are not there; then the array becomes smaller.
        made[: shape[0] // 2 + 1] = values[: shape[0] // 2 + 1]
        made.resize([data.draw(st.integers(1, n), "extent") for n in shape])
    assert_same_file(hr.references(path), path)

    with h5py.File(path) as file, open(path, "rb") as raw:
        node = file["x"]
        found = stored_chunks(node, raw, node.file.userblock_size)

        class ToldRight:  # as by an HDF5 that has no such fault
            maxshape, chunks, shape = node.maxshape, node.chunks, node.shape

            class id:
                read_direct_chunk = node.id.read_direct_chunk

                def chunk_iter(take):
                    for info in found:
                        take(info)

        assert stored_chunks(ToldRight, raw, 0) == found


def test_chunks_that_are_not_where_hdf5_says(tmp_path):
    from headrace._hdf5_chunks import stored_chunks
    from headrace._reference_model import NotRepresentable

    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("x", data=WALK[0], chunks=(4, 9), maxshape=(17, None))
    with h5py.File(path) as file, open(path, "rb") as raw:
        other = io.BytesIO(bytes(len(raw.read())))
        with pytest.raises(NotRepresentable, match="not where HDF5 says"):
            stored_chunks(file["x"], other, 0)


def test_netcdf_of_a_newer_format_that_grows_along_its_last_dimension(tmp_path):
    h5netcdf = pytest.importorskip("h5netcdf")
    data = np.arange(72, dtype="i4").reshape(6, 12)
    with h5netcdf.File(tmp_path / "a.nc", "w", libver="latest") as file:
        file.dimensions = {"site": 6, "time": None}
        made = file.create_variable("x", ("site", "time"), "i4", chunks=(2, 3))
        file.resize_dimension("time", 12)
        made[...] = data
    assert_same(hr.open(hr.references(tmp_path / "a.nc"))["x"][...], data)


@pytest.mark.parametrize("filters", [{"shuffle": True}, {"compression": "gzip"}])
def test_edges_of_arrays_as_elements(filters, tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        made = file.create_dataset("x", (5,), np.dtype(("<f4", (3,))), chunks=(4,), **filters)
        made[...] = np.arange(15, dtype="f4").reshape(5, 3)
    assert_same_file(hr.references(path), path)


def test_a_data_set_that_does_not_open_is_named(tmp_path):
    """Its elements would reach beyond the end of the file."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.zeros(0x1234, "u1")
        file["good"] = FIELD
    data = path.read_bytes().replace(struct.pack("<Q", 0x1234), struct.pack("<Q", 1 << 48))
    path.write_bytes(data)
    with pytest.raises(NotImplementedError, match="/x: "):
        hr.references(path)
    with pytest.warns(UserWarning, match="left out /x"):
        assert list(hr.open(hr.references(path, left_out="skip"))) == ["good"]


def test_attributes_that_are_long_doubles(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(3)
        file["x"].attrs["one"] = np.longdouble(1)
        file["x"].attrs["two"] = np.array([0.5, 2], np.longdouble)
        file["x"].attrs["third"] = np.longdouble(1) / 3
        file["x"].attrs["complex"] = np.clongdouble(1j)
    found = dict(hr.open(hr.references(path))["x"].attrs)
    del found["_ARRAY_DIMENSIONS"]
    assert found == {"one": 1.0, "two": [0.5, 2.0], "third": 1 / 3}


def test_strings_of_variable_length_are_counted_before_they_are_read(tmp_path, monkeypatch):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        kind = h5py.string_dtype()
        file.create_dataset("many", (10**15,), kind, chunks=(1000,))
        text = file.create_dataset("long", (3, 5, 7), kind)
        text[...] = "a text"
        text[2, 3, :4] = ["alpha", "", "\u03b2eta", "gamma"]
    with pytest.raises(NotImplementedError, match=r"/many: .*too many to be kept inline"):
        hr.references(path)
    with pytest.warns(UserWarning, match="left out /many"):
        group = hr.open(hr.references(path, left_out="skip"))
    with h5py.File(path) as file:
        assert group["long"][...].tolist() == file["long"].asstr()[()].tolist()
    read = []
    getitem = h5py.Dataset.__getitem__
    monkeypatch.setattr("headrace._hdf5._MAX_INLINE_NBYTES", 500)
    monkeypatch.setattr("headrace._hdf5._STRINGS_AT_A_TIME", 8)
    monkeypatch.setattr(h5py.Dataset, "__getitem__", lambda *a: read.append(a) or getitem(*a))
    with pytest.raises(NotImplementedError, match=r"/long: .*too many to be kept inline"):
        hr.references(path)
    assert len(read) < 4  # of the 15 rows


# ---- NetCDF


def netcdf_file(path, first=0, count=6, units="days since 2000-01-01", chunk=2):
    netCDF4 = pytest.importorskip("netCDF4")
    with netCDF4.Dataset(path, "w") as file:
        file.title = "a test"
        for name, size in (("time", None), ("lat", 5), ("lon", 8), ("bnds", 2)):
            file.createDimension(name, size)
        time = file.createVariable("time", "f8", ("time",))
        time.units = units
        time[:] = np.arange(first, first + count)
        file.createVariable("lat", "f4", ("lat",))[:] = np.linspace(-5, 5, 5)
        # A variable of a dimension's name that is no coordinate.
        file.createVariable("lon", "f4", ("lat", "lon"))[:] = np.arange(40).reshape(5, 8)
        t2m = file.createVariable(
            "t2m",
            "i2",
            ("time", "lat", "lon"),
            zlib=True,
            chunksizes=(chunk, 5, 8),
            fill_value=-32768,
        )
        t2m.scale_factor, t2m.add_offset = 0.01, 280.0
        t2m[:] = 280 + np.arange(first * 40, (first + count) * 40).reshape(-1, 5, 8) % 97 / 10
        t2m[1, 2, 3] = np.ma.masked
        rain = file.createVariable("rain", "f4", ("time", "lat"), chunksizes=(chunk, 5))
        rain[:] = np.arange(first * 5, (first + count) * 5).reshape(-1, 5)
        file.createVariable("bounds", "f8", ("lat", "bnds"))[:] = 1
        file.createVariable("crs", "i4")[...] = 7
        file.createGroup("forecast").createVariable("step", "i4", ("time",))[:] = np.arange(count)


def opened_by_xarray(path):
    import xarray as xr

    with xr.open_dataset(path, engine="netcdf4") as dataset:
        return dataset.load()


def assert_same_in_xarray(store, wanted):
    import xarray as xr

    with xr.open_dataset(store, engine="headrace") as dataset:
        xr.testing.assert_identical(dataset.load(), wanted)


def test_netcdf(tmp_path):
    netcdf_file(tmp_path / "a.nc")
    store = hr.references(tmp_path / "a.nc")
    assert_same_in_xarray(store, opened_by_xarray(tmp_path / "a.nc"))
    group = hr.open(store)
    assert dict(group["lon"].attrs)["_ARRAY_DIMENSIONS"] == ["lat", "lon"]
    assert "bnds" not in group
    assert hr.open_array(store, "forecast/step")[...].tolist() == list(range(6))


def test_netcdf_where_variables_stand_before_their_coordinates(tmp_path):
    """The netCDF library then gives them numbers of dimensions; wind comes after time by name."""
    xr = pytest.importorskip("xarray")
    wanted = []
    for i in range(2):
        t2m = np.arange(2 * 3 * 4.0).reshape(2, 3, 4) + 100 * i
        dataset = xr.Dataset(
            {"t2m": (("time", "lat", "lon"), t2m), "wind": (("time", "lat", "lon"), -t2m)},
            {"time": np.arange(2) + 2 * i, "lat": np.arange(3.0), "lon": np.arange(4.0)},
        )
        dataset.to_netcdf(tmp_path / f"{i}.nc", engine="netcdf4")
        wanted.append(dataset)
    for i, dataset in enumerate(wanted):
        assert_same_in_xarray(hr.references(tmp_path / f"{i}.nc"), dataset)
    store = hr.references([tmp_path / "0.nc", tmp_path / "1.nc"], concat_dim="time")
    assert_same_in_xarray(store, xr.concat(wanted, "time"))


def test_netcdf_variables_that_reach_less_far_than_their_dimension(tmp_path):
    netCDF4 = pytest.importorskip("netCDF4")
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("time", None)
        file.createDimension("x", 2)
        file.createVariable("time", "i4", ("time",), chunksizes=(2,), fill_value=-1)[:] = range(5)
        short = file.createVariable("short", "f4", ("x", "time"), chunksizes=(1, 2), fill_value=-9)
        short[:, :3] = np.arange(6).reshape(2, 3)
        file.createVariable("never", "f4", ("time",), fill_value=-9)
        file.createVariable("names", str, ("time",))[:2] = np.array(["a", "b"], object)
    store = hr.references(tmp_path / "a.nc")
    group = hr.open(store)
    assert group["short"][...].tolist() == [[0, 1, 2, -9, -9], [3, 4, 5, -9, -9]]
    assert group["never"][...].tolist() == [-9] * 5
    assert group["names"][...].tolist() == ["a", "b", "", "", ""]
    # Not `short`, of which xarray's netCDF4 gives other values than were written.
    import xarray as xr

    with xr.open_dataset(store, engine="headrace") as found:
        wanted = opened_by_xarray(tmp_path / "a.nc")
        assert found.sizes == wanted.sizes
        assert found["names"].values.tolist() == wanted["names"].values.tolist()
        assert found["never"].isnull().all() and wanted["never"].isnull().all()


@pytest.mark.parametrize("zlib", [False, True])
def test_netcdf_variables_without_a_fill_value_that_end_before_their_dimension(zlib, tmp_path):
    netCDF4 = pytest.importorskip("netCDF4")
    kinds = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", "S1"]
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("t", None)
        file.createDimension("x", 3)
        file.createVariable("t", "i4", ("t",))[:] = np.arange(11)
        options = {"fill_value": False, "zlib": zlib}
        for i, kind in enumerate(kinds):
            made = file.createVariable(f"v{i}", kind, ("t", "x"), chunksizes=(4, 2), **options)
            made[:6] = np.arange(18).reshape(6, 3).astype(kind)
            file.createVariable(f"never{i}", kind, ("t", "x"), **options)
    group = hr.open(hr.references(tmp_path / "a.nc"))
    with netCDF4.Dataset(tmp_path / "a.nc") as file:
        file.set_auto_maskandscale(False)
        for i in range(len(kinds)):
            for name in (f"v{i}", f"never{i}"):
                assert_same(group[name][...], file[name][...].astype(group[name].dtype))


def test_two_fill_values_are_refused(tmp_path):
    """What HDF5 has where nothing was written, and netCDF behind the end."""
    netCDF4 = pytest.importorskip("netCDF4")
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("t", None)
        file.createVariable("t", "i4", ("t",))[:] = np.arange(9)
    with h5py.File(tmp_path / "a.nc", "r+") as file:
        made = file.create_dataset("x", (6,), "i4", chunks=(2,), maxshape=(None,))
        made[:2] = 1
        made.dims[0].attach_scale(file["t"])
    with pytest.raises(NotImplementedError, match="/x: it has two fill values"):
        hr.references(tmp_path / "a.nc")
    with h5py.File(tmp_path / "a.nc", "r+") as file:
        file["x"][:] = np.arange(6)
    wanted = [*range(6), *[-2147483647] * 3]
    assert hr.open(hr.references(tmp_path / "a.nc"))["x"][...].tolist() == wanted


def test_zeros_that_nothing_marks_are_no_missing_values(tmp_path):
    xr = pytest.importorskip("xarray")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, dtype in (("i", "i4"), ("f", "f4"), ("b", "?")):
            file.create_dataset(name, (4, 6), dtype, chunks=(2, 3))[:2, :3] = 1
        file["m"] = np.array([0, -9, 1, 2], "i2")
        file["m"].attrs["_FillValue"] = np.int16(-9)
    with xr.open_dataset(hr.references(tmp_path / "a.h5"), engine="headrace") as found:
        assert [found[name].dtype.str for name in "ifb"] == ["<i4", "<f4", "|b1"]
        assert not found["f"].isnull().any() and int(found["i"].sum()) == 6
        assert found["m"].isnull().values.tolist() == [False, True, False, False]


def test_links(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["data/t"] = np.arange(3)
        file["hard"] = file["data/t"]
        file["soft"] = h5py.SoftLink("/data/t")
        file["nowhere"] = h5py.SoftLink("/nothing")
        file["data/up"] = h5py.SoftLink("/")
        file["outside"] = h5py.ExternalLink("b.h5", "/x")
    with pytest.raises(NotImplementedError, match="/outside: a link to another file"):
        hr.references(tmp_path / "a.h5")
    with pytest.warns(UserWarning, match="another file"):
        group = hr.open(hr.references(tmp_path / "a.h5", left_out="skip"))
    assert sorted(group) == ["data", "hard", "soft"] and sorted(group["data"]) == ["t"]
    for name in ("data/t", "hard", "soft"):
        assert group[name][...].tolist() == [0, 1, 2]


def test_a_filter_that_no_chunk_has_passed_need_not_be_known(tmp_path):
    data = np.arange(10, dtype="i4")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((4,))
        plist.set_filter(40000, h5py.h5z.FLAG_OPTIONAL, ())
        space = h5py.h5s.create_simple((10,))
        made = h5py.h5d.create(file.id, b"a", h5py.h5t.NATIVE_INT32, space, plist)
        for begin in (0, 4, 8):
            chunk = np.zeros(4, "i4")
            chunk[: len(data[begin : begin + 4])] = data[begin : begin + 4]
            made.write_direct_chunk((begin,), chunk.tobytes(), filter_mask=1)
    assert_same(hr.open(hr.references(tmp_path / "a.h5"))["a"][...], data)


def test_a_file_without_end_is_no_hdf5():
    with pytest.raises(ValueError, match="neither HDF5"):
        hr.references("/dev/zero")


def test_groups_without_end(tmp_path):
    with h5py.File(tmp_path / "deep.h5", "w") as file:
        file["/".join(["g"] * 2000) + "/a"] = np.arange(3)
    with pytest.warns(UserWarning, match="groups stand around it"):
        group = hr.open(hr.references(tmp_path / "deep.h5", left_out="skip"))
    assert list(group) == ["g"]
    with h5py.File(tmp_path / "wide.h5", "w") as file:  # 2^40 paths
        above = file
        for _ in range(40):
            below = above.create_group("a")
            above["b"] = below
            above = below
    with pytest.raises(NotImplementedError, match="more than 100 groups and data sets"):
        from headrace import _hdf5

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_hdf5, "_MAX_NODES", 100)
            hr.references(tmp_path / "wide.h5")


def test_elements_that_are_not_what_numpy_has(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        space = h5py.h5s.create_simple((2,))
        for name, size, at in (("padded", 4096, (0, 4)), ("swapped", 8, (4, 0))):
            kind = h5py.h5t.create(h5py.h5t.COMPOUND, size)
            kind.insert(b"r", at[0], h5py.h5t.IEEE_F32LE)
            kind.insert(b"i", at[1], h5py.h5t.IEEE_F32LE)
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plist.set_layout(h5py.h5d.COMPACT)
            h5py.h5d.create(file.id, name.encode(), kind, space, plist)
            file[name][:] = np.array([1 + 2j, 3 + 4j], "c8")
    with pytest.raises(NotImplementedError, match=r"4096 bytes.*imaginary part comes first"):
        hr.references(tmp_path / "a.h5")


def test_contiguous_rows_of_a_prime_number(tmp_path, monkeypatch):
    monkeypatch.setattr("headrace._reference_model._CONTIGUOUS_NBYTES", 1 << 12)
    data = np.arange(8209.0)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["prime"] = data
        file["even"] = data[:8192]
    group = hr.open(hr.references(tmp_path / "a.h5"))
    assert group["prime"].chunks == (8209,) and group["even"].chunks == (512,)
    assert_same(group["prime"][...], data)
    assert_same(group["prime"][8200:], data[8200:])


@pytest.mark.parametrize("dtype", ["i1", "u2", "<i4", ">i8"])
def test_scale_offset_of_all_bits(dtype, tmp_path):
    data = np.arange(-30, 30).astype(dtype).reshape(10, 6)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        bits = 8 * data.itemsize
        file.create_dataset("a", data=data, chunks=(4, 4), scaleoffset=bits, dtype=dtype)
    assert_same(hr.open(hr.references(tmp_path / "a.h5"))["a"][...], data)


@pytest.mark.parametrize("name", ["missing_value", "_Unsigned", "flag_values", "units"])
def test_files_whose_elements_mean_different_things(name, tmp_path):
    for i in range(2):
        with h5py.File(tmp_path / f"{i}.h5", "w") as file:
            file["v"] = np.arange(3, dtype="i2")
            file["v"].dims[0].label = "time"
            file["fixed"] = np.arange(3, dtype="i2")
            file["v"].attrs[name] = str(i)
            file["fixed"].attrs["units"] = "m"
    files = [tmp_path / "0.h5", tmp_path / "1.h5"]
    with pytest.raises(ValueError, match=f"/v has another '{name}'"):
        hr.references(files, concat_dim="time")
    for i in range(2):
        with h5py.File(tmp_path / f"{i}.h5", "r+") as file:
            file["v"].attrs[name] = "same"
            file["fixed"].attrs["units"] = f"m{i}"
    with pytest.raises(ValueError, match="/fixed has another 'units'"):
        hr.references(files, concat_dim="time")


def test_the_same_data_as_by_kerchunk(tmp_path):
    hdf = pytest.importorskip("kerchunk.hdf")
    netcdf_file(tmp_path / "a.nc")
    theirs = hdf.SingleHdf5ToZarr(str(tmp_path / "a.nc"), inline_threshold=0).translate()
    (tmp_path / "theirs.json").write_text(json.dumps(theirs))
    kerchunk = hr.open(f"reference://{tmp_path}/theirs.json")
    ours = hr.open(hr.references(tmp_path / "a.nc", out=tmp_path / "ours.json"))
    for name in ("t2m", "rain", "time", "lat"):
        assert_same(ours[name][...], kerchunk[name][...])
        assert ours[name].chunks == kerchunk[name].chunks


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_written_references(tmp_path, kind):
    (tmp_path / "data").mkdir()
    netcdf_file(tmp_path / "data" / "a.nc")
    wanted = opened_by_xarray(tmp_path / "data" / "a.nc")
    if kind == "parquet":
        pytest.importorskip("fastparquet")
    out = tmp_path / f"refs.{kind}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        store = hr.references(tmp_path / "data" / "a.nc", out=out)
    assert_same_in_xarray(store, wanted)
    if kind == "json":
        # They may move together: what lies below is named by where it lies from there.
        shutil.move(tmp_path, moved := tmp_path.with_name(tmp_path.name + "-moved"))
        assert_same_in_xarray(hr.open_store(f"reference://{moved}/refs.json"), wanted)


def test_references_reach_their_files_only(tmp_path):
    (tmp_path / "a").mkdir()
    netcdf_file(tmp_path / "a" / "a.nc")
    (tmp_path / "b").mkdir()
    hr.references(tmp_path / "a" / "a.nc", out=tmp_path / "b" / "refs.json")
    with pytest.raises(PermissionError):
        hr.open(f"reference://{tmp_path}/b/refs.json")["t2m"][...]


@pytest.mark.parametrize("counts", [(6, 6, 3), (4, 5)])
def test_concatenated(tmp_path, counts):
    import xarray as xr

    paths, first = [], 0
    for i, count in enumerate(counts):
        paths.append(tmp_path / f"{i}.nc")
        netcdf_file(paths[-1], first, count, chunk=2 if counts[0] == 6 else 1)
        first += count
    store = hr.references(paths, concat_dim="time")
    parts = [opened_by_xarray(path) for path in paths]
    wanted = xr.concat(parts, "time", data_vars="minimal", coords="minimal", compat="override")
    with xr.open_dataset(store, engine="headrace") as dataset:
        xr.testing.assert_equal(dataset.load(), wanted)


def test_files_that_do_not_fit(tmp_path):
    netcdf_file(tmp_path / "a.nc")
    netcdf_file(tmp_path / "b.nc", 6, units="hours since 2000-01-01")
    netcdf_file(tmp_path / "c.nc", 6, chunk=3)
    with pytest.raises(ValueError, match="'units'"):
        hr.references([tmp_path / "a.nc", tmp_path / "b.nc"], concat_dim="time")
    with pytest.raises(ValueError, match="not the same as in a file before"):
        hr.references([tmp_path / "a.nc", tmp_path / "c.nc"])
    with pytest.raises(ValueError, match=r"nothing in .*'height'"):
        hr.references([tmp_path / "a.nc", tmp_path / "c.nc"], concat_dim="height")
    with pytest.raises(ValueError, match="there are none"):
        hr.references([])


def test_other_files(tmp_path, monkeypatch):
    (tmp_path / "a.bin").write_bytes(b"something else, of more than sixteen bytes")
    with pytest.raises(ValueError, match="neither HDF5 nor"):
        hr.references(tmp_path / "a.bin")
    with pytest.raises(FileNotFoundError):
        hr.references(tmp_path / "missing.nc")
    monkeypatch.setitem(sys.modules, "kerchunk.grib2", None)
    (tmp_path / "a.grib").write_bytes(b"GRIB" + bytes(100))
    with pytest.raises(NotImplementedError, match="pip install kerchunk"):
        hr.references(tmp_path / "a.grib")
