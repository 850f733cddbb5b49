"""Copies into the other format, read by zarr-python."""

import json
from pathlib import Path

import headrace as hr
import numcodecs
import numpy as np
import pytest
import zarr
from helpers import assert_same, chunk_files, read_zarr, values, write_zarr

SHAPE, CHUNKS = (21, 13), (8, 13)
STEPS = np.arange(21 * 13).reshape(SHAPE)

# Names -> dtype of the array, filters.
FILTERS = {
    "delta": ("<i4", [numcodecs.Delta("<i4")]),
    "delta to another type": ("<i4", [numcodecs.Delta("<i4", astype="<i2")]),
    "delta of big-endian": (">i4", [numcodecs.Delta(">i4")]),
    "delta to big-endian": ("<i8", [numcodecs.Delta("<i8", astype=">i2")]),
    "delta to bytes": ("<i8", [numcodecs.Delta("<i8", astype="|i1")]),
    "scale": ("<f8", [numcodecs.FixedScaleOffset(offset=3, scale=10, dtype="<f8", astype="<i2")]),
    "scale to bytes": (">f4", [numcodecs.FixedScaleOffset(0, 0.5, dtype=">f4", astype="u1")]),
    "quantize": ("<f4", [numcodecs.Quantize(1, dtype="<f4")]),
    "quantize to another type": ("<f8", [numcodecs.Quantize(1, dtype="<f8", astype="<f4")]),
    "bitround": ("<f4", [numcodecs.BitRound(5)]),
    "astype": ("<f8", [numcodecs.AsType(encode_dtype="<f4", decode_dtype="<f8")]),
    "three": (
        "<f8",
        [
            numcodecs.FixedScaleOffset(offset=0, scale=1, dtype="<f8", astype="<i4"),
            numcodecs.Delta("<i4"),
            numcodecs.Shuffle(4),
        ],
    ),
}


@pytest.mark.parametrize("compressor", [None, numcodecs.Zlib(1)], ids=["plain", "zlib"])
@pytest.mark.parametrize("name", FILTERS)
def test_filters_of_version_2_in_version_3(store, tmp_path, name, compressor):
    dtype, filters = FILTERS[name]
    data = (STEPS if "bytes" not in name else STEPS % 50).astype(dtype)
    write_zarr(store, data, chunks=CHUNKS, zarr_format=2, filters=filters, compressors=compressor)
    source = hr.open_array(store)
    where = str(tmp_path / "copy.zarr")
    copied = hr.copy(store, where, zarr_format=3)
    assert copied.zarr_format == 3
    names = [codec["name"] for codec in copied.metadata["codecs"]]
    in_front = [f"numcodecs.{f.codec_id}" for f in filters if f.codec_id != "shuffle"]
    if name == "quantize to another type":  # zarr-python's quantize keeps the type
        in_front.append("numcodecs.astype")
    assert names[: len(in_front) + 1] == [*in_front, "bytes"]
    assert_same(copied[...], source[...])
    assert_same(read_zarr(where), source[...])
    # The very bytes, which numcodecs made in the source.
    if compressor is None and "big-endian" not in name:
        left, right = chunk_files(store), chunk_files(where)
        assert [left[key].read_bytes() for key in sorted(left)] == [
            right[key].read_bytes() for key in sorted(right)
        ]


def test_order_f_keeps_its_transpose_in_front(store, tmp_path):
    data = values("<i4", SHAPE)
    write_zarr(
        store,
        data,
        chunks=CHUNKS,
        zarr_format=2,
        order="F",
        filters=[numcodecs.Delta("<i4")],
        compressors=None,
    )
    where = str(tmp_path / "copy.zarr")
    copied = hr.copy(store, where, zarr_format=3)
    names = [codec["name"] for codec in copied.metadata["codecs"]]
    assert names == ["transpose", "numcodecs.delta", "bytes"]
    assert_same(read_zarr(where), data)


def test_filters_that_version_3_has_no_place_for(store, tmp_path):
    filters = [numcodecs.Shuffle(4), numcodecs.Delta("<i4")]
    write_zarr(
        store, values("<i4", SHAPE), chunks=CHUNKS, zarr_format=2, filters=filters, compressors=None
    )
    with pytest.raises(NotImplementedError, match=r'numcodecs\.delta.*after "numcodecs\.shuffle"'):
        hr.copy(store, str(tmp_path / "copy.zarr"), zarr_format=3)


def test_names_of_dimensions_in_both_formats(store, tmp_path):
    names = ["time", "x"]
    write_zarr(store, values("f4", SHAPE), chunks=CHUNKS, zarr_format=3, dimension_names=names)
    second, third = str(tmp_path / "2.zarr"), str(tmp_path / "3.zarr")
    copied = hr.copy(store, second, zarr_format=2)
    assert copied.attrs["_ARRAY_DIMENSIONS"] == names
    assert json.loads(Path(second, ".zarray").read_text())["zarr_format"] == 2
    assert_same(read_zarr(second), values("f4", SHAPE))
    back = hr.copy(second, third, zarr_format=3)
    assert list(back.dimension_names) == names
    assert "_ARRAY_DIMENSIONS" not in back.attrs
    assert zarr.open_array(third).metadata.dimension_names == tuple(names)
    assert_same(read_zarr(third), values("f4", SHAPE))


def test_group_of_the_other_format(store, tmp_path):
    root = zarr.create_group(store, zarr_format=2, attributes={"title": "x"})
    root.create_array("g/a", data=values("i4", (9,)), chunks=(4,))
    where = str(tmp_path / "copy.zarr")
    assert hr.copy(store, where, zarr_format=3).attrs["title"] == "x"
    assert zarr.open_group(where, zarr_format=3)["g/a"][...].tolist() == list(values("i4", (9,)))


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("name", ["copy.zarr", "copy.zip"])
def test_metadata_stay_consolidated(store, tmp_path, zarr_format, name):
    root = zarr.create_group(store, zarr_format=5 - zarr_format)
    root.create_array("g/a", data=values("i4", (9,)), chunks=(4,))
    where = str(tmp_path / name)
    assert not hr.copy(store, where, zarr_format=zarr_format).consolidated
    hr.consolidate_metadata(store)
    copied = hr.copy(store, where, zarr_format=zarr_format, overwrite=True)
    assert copied.consolidated
    assert list(copied["g"]) == ["a"]
    if name == "copy.zarr":
        theirs = zarr.open_consolidated(where, zarr_format=zarr_format)
        assert theirs["g/a"][...].tolist() == list(values("i4", (9,)))


def test_shards_in_version_2(store, tmp_path):
    write_zarr(store, values("i4", (8, 8)), chunks=(4, 4), shards=(8, 8))
    with pytest.raises(NotImplementedError, match="sharding_indexed"):
        hr.copy(store, str(tmp_path / "copy.zarr"), zarr_format=2)


def test_a_fill_value_of_null_stays(tmp_path):
    """xarray takes any other for the mark of missing elements."""
    for dtype in ("i4", "f8", "?", "M8[s]"):
        data = np.arange(4).astype(dtype)
        source = tmp_path / f"{np.dtype(dtype).name}.zarr"
        made = zarr.create_array(
            source, shape=4, chunks=2, dtype=dtype, zarr_format=2, fill_value=None
        )
        made[:] = data
        assert json.loads((source / ".zarray").read_text())["fill_value"] is None
        copy = hr.copy(source, tmp_path / f"{np.dtype(dtype).name}-copy.zarr")
        assert copy.fill_value is None and copy.metadata["fill_value"] is None
        assert_same(copy[...], data)


def test_data_sets_of_xarray_into_the_other_format(tmp_path):
    xr = pytest.importorskip("xarray")
    wanted = xr.Dataset(
        {
            "packed": ("x", np.array([0.0, 1, np.nan, 2])),
            "plain": ("x", np.arange(4, dtype="i4")),
            "flag": ("x", np.array([False, True, False, True])),
            "nan": ("x", np.array([0, np.nan, 2, 3], "f4")),
            "scalar": ((), np.int32(0)),
        },
        {"x": np.arange(4)},
    )
    encoding = {"packed": {"dtype": "i2", "_FillValue": -9, "scale_factor": 0.5}}
    wanted.to_zarr(tmp_path / "3.zarr", zarr_format=3, encoding=encoding)
    hr.copy(tmp_path / "3.zarr", tmp_path / "2.zarr", zarr_format=2)
    hr.copy(tmp_path / "2.zarr", tmp_path / "3b.zarr", zarr_format=3)
    for name in ("3.zarr", "2.zarr", "3b.zarr"):
        for engine in ("zarr", "headrace"):
            with xr.open_dataset(
                tmp_path / name,
                engine=engine,
                **({"consolidated": False} if engine == "zarr" else {}),
            ) as found:
                xr.testing.assert_identical(found.load(), wanted)


def test_empty_bytes_are_no_missing_elements_for_xarray(tmp_path):
    xr = pytest.importorskip("xarray")
    names = np.array([b"a", b"", b"cd"])
    xr.Dataset({"name": ("n", names)}).to_zarr(tmp_path / "3.zarr", zarr_format=3)
    hr.copy(tmp_path / "3.zarr", tmp_path / "2.zarr", zarr_format=2)
    got = xr.open_zarr(tmp_path / "2.zarr")["name"].values
    assert got.tolist() == names.tolist() and got.dtype == names.dtype
