"""Sizes from outside: each is an error at once, before memory or time is spent on it."""

import json
import os
from pathlib import Path

import headrace as hr
import numpy as np
import pytest
import zarr.codecs as zc
from helpers import chunk_files, needs_uring, python, smooth, write_zarr

DATA = smooth("f4", (8, 6))
HUGE = 100 << 30
OPTIONS = [
    pytest.param(None, id="pread"),
    pytest.param({"io": "uring"}, id="uring", marks=needs_uring),
]


def make_sparse(path, nbytes=HUGE):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        os.ftruncate(file.fileno(), nbytes)


def peak_of(code, *args):
    """MiB that a process of its own takes for `code`, beyond what it takes to start."""
    measure = "resource.getrusage(resource.RUSAGE_SELF).ru_maxrss"
    start = f"import sys, resource\nimport headrace as hr\nstart = {measure}\n"
    return int(python(f"{start}{code}\nprint(({measure} - start) >> 10)", *args))


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", ["zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"])
def test_a_document_of_100_gib(store, name, options):
    if name.startswith(".z"):
        write_zarr(store, DATA, zarr_format=2)
        (Path(store) / ".zarray").rename(Path(store) / ".zarray_")
        if name in (".zattrs", ".zmetadata"):
            Path(store, ".zgroup").write_text('{"zarr_format": 2}')
    make_sparse(Path(store) / name)
    opened = hr.open_store(store, storage_options=options)
    with pytest.raises(ValueError, match=rf"(?s){name}.*at most 268435456"):
        hr.open(opened)
    with pytest.raises(ValueError, match="at most"):
        hr.open(hr.cached(opened))


def test_a_child_of_100_gib(store):
    group = hr.create_group(store)
    group.create_array("good", shape=(4,), dtype="i4")
    make_sparse(Path(store) / "bad" / "zarr.json")
    with pytest.raises(ValueError, match="at most"):
        hr.open_group(store)["bad"]
    assert hr.open_group(store)["good"].shape == (4,)


@pytest.mark.parametrize(
    "codec",
    [zc.ZstdCodec(), zc.GzipCodec(), zc.BloscCodec(), zc.Crc32cCodec()],
    ids=lambda codec: type(codec).__name__,
)
@pytest.mark.parametrize("options", OPTIONS)
def test_a_chunk_of_100_gib(store, codec, options):
    write_zarr(store, DATA, chunks=(2, 3), compressors=codec)
    key, chunk = min(chunk_files(store).items())
    make_sparse(chunk)
    opened = hr.open_store(store, storage_options=options)
    for source in opened, hr.cached(opened):
        with pytest.raises(hr.CorruptError, match=key):
            hr.open_array(source)[...]
        with pytest.raises(hr.CorruptError, match=key):
            hr.open_array(source)[0, 0]
    with pytest.raises(hr.CorruptError, match=key):
        hr.open_array(store, mode="r+")[0, 0] = 1


def test_chunks_that_others_made_larger_than_their_data(store):
    """Skippable frames and members without bytes are legal, and nobody's idea of a good chunk."""
    import gzip
    import struct

    for name, codec, filler in (
        ("zstd", zc.ZstdCodec(), struct.pack("<II", 0x184D2A50, 1000) + bytes(1000)),
        ("gzip", zc.GzipCodec(), gzip.compress(b"")),
    ):
        path = f"{store}/{name}"
        write_zarr(path, DATA, chunks=DATA.shape, compressors=codec)
        (chunk,) = chunk_files(path).values()
        chunk.write_bytes(filler * 4000 + chunk.read_bytes())
        assert chunk.stat().st_size > 50 * DATA.nbytes
        assert np.array_equal(hr.open_array(path)[...], DATA)


def test_lists_and_objects_take_no_memory_beyond_their_bound(store):
    write_zarr(store, DATA)
    document = Path(store) / "zarr.json"
    good = json.loads(document.read_text())
    count = 2_000_000
    code = (
        "try:\n    hr.open_array(sys.argv[1])\nexcept (ValueError, NotImplementedError) as e:\n"
        "    assert sys.argv[2] in str(e), e\nelse:\n    sys.exit('no error')"
    )
    for field, word in (
        ("shape", "more dimensions than 64"),
        ("dimension_names", "more"),
        ("codecs", "more codecs than 64"),
        ("chunk_shape", "more dimensions than 64"),
    ):
        text = json.dumps(good)
        values = "[" + "0," * count + "0]"
        if field == "chunk_shape":
            grid = {"name": "regular", "configuration": {"chunk_shape": 0}}
            text = json.dumps(good | {"chunk_grid": grid}).replace(
                '"chunk_shape": 0', f'"chunk_shape": {values}'
            )
        else:
            text = json.dumps(good | {field: 0}).replace(f'"{field}": 0', f'"{field}": {values}')
        document.write_text(text)
        assert peak_of(code, store, word) < 120, field
    text = json.dumps(good)[:-1] + ', "a": 0' * 2 * count + "}"
    document.write_text(text)
    assert peak_of(code, store, "more members than 1048576") < 400


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_attributes_that_could_not_be_read_again_are_not_stored(store, zarr_format):
    group = hr.create_group(store, zarr_format=zarr_format, attributes={"a": 1})
    array = group.create_array("x", shape=(3,), dtype="i4", attributes={"a": 1})
    array[:] = 7
    for node in (group, array):
        for value in (nested(200), "x" * (256 << 20)):
            with pytest.raises(ValueError, match=r"nested too deep|the limit is"):
                node.attrs["k"] = value
        node.attrs["b"] = nested(150)
    again = hr.open_group(store)
    assert dict(again.attrs) == dict(again["x"].attrs) == {"a": 1, "b": nested(150)}
    assert again["x"][:].tolist() == [7, 7, 7]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_nor_is_what_is_consolidated(store, zarr_format):
    group = hr.create_group(store, zarr_format=zarr_format)
    array = group.create_array("x", shape=(3,), dtype="i4")
    # As deep as the array alone may have it.
    for depth in range(200, 150, -1):
        try:
            array.attrs["deep"] = nested(depth)
        except ValueError:
            continue
        break
    assert depth > 190
    with pytest.raises(ValueError, match="nested too deep"):
        hr.consolidate_metadata(store)
    assert hr.open_group(store)["x"].attrs["deep"] == nested(depth)


def test_shapes_whose_bytes_overflow(store):
    array = hr.create_array(store, shape=(3,), chunks=(2,), dtype="i4")
    array[:] = [1, 2, 3]
    most = 2**61 * 2 - 1
    for extent in (2**63 - 1, most + 1):
        with pytest.raises(ValueError, match=r"shape: .* overflows"):
            array.resize((extent,))
    array.resize((most,))
    with pytest.raises(ValueError, match=r"shape: .* overflows"):
        array.append(np.array([1], "i4"))
    assert hr.open_array(store).shape == (most,)
    assert array[:3].tolist() == [1, 2, 3]
