"""Codecs of HDF5, TIFF and GRIB 2 behind references: what libraries of these formats wrote.

The chunks are those of tests/golden/generate/write_foreign.py, as arrays of Zarr v2 here.
"""

import base64
import json

import headrace as hr
import numpy as np
import pytest
from helpers import GOLDEN, assert_same

CASES = json.loads((GOLDEN / "codec_vectors" / "foreign.json").read_text())["cases"]
TABLE = {row["codec"]: row for row in hr.codecs.table() if row["device"] == "cpu"}
HAS_AEC = "hdf5_szip" in TABLE


def opened(codec, encoded, dtype, shape, device=None):
    """An array of one chunk, which the references hold themselves."""
    zarray = {
        "zarr_format": 2,
        "shape": shape,
        "chunks": shape,
        "dtype": dtype,
        "order": "C",
        "fill_value": None,
        "compressor": None,
        "filters": [codec],
    }
    key = "x/" + ".".join("0" for _ in shape)
    inline = "base64:" + base64.b64encode(encoded).decode()
    refs = {"x/.zarray": json.dumps(zarray), key: inline}
    options = {"fo": json.dumps({"version": 1, "refs": refs}), "allow": []}
    store = hr.open_store("reference://", storage_options=options)
    return hr.open_array(store, "x", device=device)


@pytest.mark.parametrize("device", [None, "simt"])
@pytest.mark.parametrize("name", sorted({case["codec"].partition(".")[2] for case in CASES}))
def test_chunks_of_other_libraries(name, device):
    if name == "hdf5_szip" and not HAS_AEC:
        pytest.skip("a build without libaec")
    n = 0
    for case in CASES:
        if case["codec"] != "numcodecs." + name:
            continue
        options = json.loads(case["configuration"])
        encoded, decoded = bytes.fromhex(case["encoded"]), bytes.fromhex(case["decoded"])
        if name == "grib" and not HAS_AEC and b"\0\0\0\x19\x05" in encoded:
            continue  # CCSDS
        dtype = options.get("dtype", "|u1")
        shape = options.get("shape", [len(decoded) // np.dtype(dtype).itemsize])
        array = opened({"id": name, **options}, encoded, dtype, shape, device)
        got = array[...] if device is None else array[...].to_numpy()
        assert_same(got, np.frombuffer(decoded, dtype).reshape(shape))
        n += 1
    assert n >= 3


def test_the_table_says_that_they_are_read_only():
    names = {case["codec"].partition(".")[2] for case in CASES} - {"imagecodecs_lzf"} | {"lzf"}
    for name in names - ({"hdf5_szip"} - TABLE.keys()):
        assert TABLE[name]["used"] == "always"
        assert (TABLE[name]["encodes"], TABLE[name]["used_to_encode"]) == (False, "")


def test_they_are_not_written(tmp_path):
    (tmp_path / "a").mkdir()
    zarray = {"zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "|u1", "order": "C"}
    unset = {"fill_value": 0, "compressor": {"id": "imagecodecs_lzw"}, "filters": None}
    (tmp_path / "a" / ".zarray").write_text(json.dumps({**zarray, **unset}))
    with pytest.raises(NotImplementedError, match="read only"):
        hr.open(tmp_path / "a", mode="r+")[...] = 1


def grib_message(sample, **keys):
    eccodes = pytest.importorskip("eccodes")
    pytest.importorskip("kerchunk.codecs")
    handle = eccodes.codes_grib_new_from_samples(sample)
    try:
        values = np.round(np.sin(np.arange(eccodes.codes_get_size(handle, "values"))), 1)
        eccodes.codes_set_values(handle, values)
        for key, value in keys.items():
            eccodes.codes_set(handle, key, value)
        found = {name: eccodes.codes_get_array(handle, name) for name in ("values", "latitudes")}
        return eccodes.codes_get_message(handle), found
    finally:
        eccodes.codes_release(handle)


def test_what_headrace_does_not_decode_of_grib_kerchunk_does():
    message, wanted = grib_message("regular_ll_sfc_grib1")
    codec = {"id": "grib", "var": "t2m", "dtype": "float64"}
    shape = [wanted["values"].size]
    assert_same(opened(codec, message, "<f8", shape)[...], wanted["values"])
    message, wanted = grib_message("regular_ll_sfc_grib2")
    codec = {"id": "grib", "var": "latitude", "dtype": "float64"}
    assert_same(opened(codec, message, "<f8", shape)[...], wanted["latitudes"])


def test_damaged_messages_are_corrupt():
    case = next(c for c in CASES if c["codec"] == "numcodecs.grib")
    codec = {"id": "grib", **json.loads(case["configuration"])}
    encoded, n = bytes.fromhex(case["encoded"]), len(case["decoded"]) // 16
    for damaged in (encoded[:-30], b"GRIP" + encoded[4:], b"", encoded[:120] + bytes(60)):
        with pytest.raises(hr.CorruptError):
            opened(codec, damaged, "<f8", [n])[...]


# ---- by hr.references


@pytest.mark.parametrize("compression", ["lzw", "zlib", "packbits", None])
@pytest.mark.parametrize("dtype", ["u1", "<u2", ">i4", "<f4", ">f8"])
def test_references_of_tiff(tmp_path, compression, dtype):
    tifffile = pytest.importorskip("tifffile")
    pytest.importorskip("imagecodecs")
    data = np.cumsum(np.random.default_rng(3).integers(-2, 3, (64, 96)), 1).astype(dtype)
    options = {"compression": compression, "tile": (32, 32), "byteorder": np.dtype(dtype).byteorder}
    if options["byteorder"] not in "<>":
        del options["byteorder"]
    if compression in ("lzw", "zlib"):
        options["predictor"] = 3 if data.dtype.kind == "f" else 2
    tifffile.imwrite(tmp_path / "a.tif", data, **options)
    store = hr.references(tmp_path / "a.tif", out=tmp_path / "refs.json")
    assert_same(hr.open(store)[...], data)
    assert_same(hr.open_array(store, device="simt")[3:50].to_numpy(), data[3:50])


def test_references_of_tiff_with_a_short_strip(tmp_path):
    tifffile = pytest.importorskip("tifffile")
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((50, 40), "u1"), rowsperstrip=16)
    with pytest.raises(NotImplementedError, match=r"a\.tif"):
        hr.references(tmp_path / "a.tif")


@pytest.mark.filterwarnings("ignore")  # of cfgrib and xarray
def test_references_of_grib(tmp_path):
    pytest.importorskip("kerchunk.grib2")
    pytest.importorskip("cfgrib")
    message, wanted = grib_message(
        "regular_ll_sfc_grib2", typeOfLevel="heightAboveGround", level=2, shortName="2t"
    )
    (tmp_path / "a.grib2").write_bytes(message)
    group = hr.open(hr.references(tmp_path / "a.grib2"))
    assert_same(group["t2m"][...].ravel(), wanted["values"])
    assert group["heightAboveGround"][...] == 2
    (tmp_path / "b.grib2").write_bytes(message * 2)
    with pytest.raises(NotImplementedError, match="2 messages"):
        hr.references(tmp_path / "b.grib2")
