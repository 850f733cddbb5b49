"""Codecs that zarr-python knows by headrace's entry points: arrays in both directions."""

import headrace as hr
import numpy as np
import pytest
import zarr
from headrace.zarr import codecs as hz
from helpers import assert_same, python, smooth

MASK = np.arange(21 * 5).reshape(21, 5) % 3 == 0
NUMBERS = smooth("f8", (33, 21))
HAS_ZFP = any(row["codec"] == "zfp" for row in hr.codecs.table())
CASES = {
    "packbits": (MASK, {"serializer": hr.codecs.PackBits()}),
    "packbits, some bits": (
        np.arange(100, dtype="u1").reshape(20, 5) % 8,
        {"serializer": hr.codecs.PackBits("first_byte", 0, 2)},
    ),
    "reshape": (NUMBERS, {"filters": hr.codecs.Reshape([[0, 1]])}),
    "reshape to more": (smooth("i2", (8, 6)), {"filters": hr.codecs.Reshape([2, 2, -1])}),
    "scale_offset": (np.round(NUMBERS), {"filters": hr.codecs.ScaleOffset(250.0, 2.0)}),
    "cast_value": (np.round(NUMBERS), {"filters": hr.codecs.CastValue("int16")}),
    "cast_value of a scale": (
        np.round(NUMBERS * 4) / 4,
        {"filters": [hr.codecs.ScaleOffset(250.0, 4.0), hr.codecs.CastValue("int16")]},
    ),
    "zfp": (NUMBERS, {"serializer": hr.codecs.Zfp(), "compressors": None}),
}
OWN_CAST = hz.CastValue is hz._CastValue  # else zarr-python's, which needs a package of its own


def options_of(name, data):
    if name == "zfp" and not HAS_ZFP:
        pytest.skip("a build without libzfp")
    if "cast_value" in name and not OWN_CAST:
        pytest.importorskip("cast_value_rs")
    chunks = (8, 6) if name == "reshape to more" else (10, 5)
    return {"shape": data.shape, "chunks": chunks, "dtype": data.dtype, "fill_value": 1}


@pytest.mark.parametrize("shards", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_both_ways(tmp_path, name, shards):
    data, codecs = CASES[name]
    options = options_of(name, data)
    if shards:
        options["shards"] = tuple(2 * extent for extent in options["chunks"])
    ours = hr.create_array(tmp_path / "ours", **options, **codecs)
    ours[:-3] = data[:-3]
    wanted = np.array(ours[...])
    assert_same(wanted[:-3], data[:-3])
    theirs = zarr.open_array(tmp_path / "ours", mode="r+")
    assert_same(theirs[...], wanted)
    theirs[-3:] = data[-3:]
    assert_same(hr.open_array(tmp_path / "ours")[...], data)
    as_dicts = {
        key: [c.to_dict() for c in codec] if isinstance(codec, list) else codec and codec.to_dict()
        for key, codec in codecs.items()
    }
    new = zarr.create_array(tmp_path / "theirs", **options, **as_dicts)
    new[...] = data
    assert_same(hr.open_array(tmp_path / "theirs")[...], data)


@pytest.mark.parametrize("name", ["packbits", "reshape", "scale_offset"])
def test_plain_zarr_python_opens_them_in_a_fresh_process(tmp_path, name):
    data, codecs = CASES[name]
    array = hr.create_array(tmp_path / "x", **options_of(name, data), **codecs)
    array[...] = data
    code = """
import sys, zarr, numpy
data = zarr.open_array(sys.argv[1], mode="r")[...]
numpy.save(sys.argv[2], data)
"""
    python(code, tmp_path / "x", tmp_path / "x.npy")
    assert_same(np.load(tmp_path / "x.npy"), data)


def test_wrong_configurations_are_named(tmp_path):
    codec = {"name": "packbits", "configuration": {"padding_encoding": "third_byte"}}
    array = zarr.create_array(tmp_path / "x", shape=8, dtype="bool", serializer=codec)
    with pytest.raises(ValueError, match="padding_encoding"):
        array[...] = True


def test_corrupt_chunks_are_named(tmp_path):
    array = zarr.create_array(
        tmp_path / "x", shape=16, dtype="bool", serializer=hz.PackBits(), compressors=None
    )
    array[...] = True
    (tmp_path / "x" / "c" / "0").write_bytes(b"\xff")
    with pytest.raises(hr.CorruptError, match="packbits: expected"):
        array[...]


def test_zarr_pythons_own_classes_stay(tmp_path):
    for name, own in (("scale_offset", "ScaleOffset"), ("cast_value", "CastValue")):
        wanted = getattr(zarr.codecs, own, None) or getattr(hz, f"_{own}")
        assert zarr.registry.get_codec_class(name) is wanted
