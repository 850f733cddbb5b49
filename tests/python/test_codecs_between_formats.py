"""Codecs that one format, or a draft of it, says otherwise than another: read, and copied."""

import json

import headrace as hr
import numcodecs
import numpy as np
import pytest
import zarr
from helpers import assert_same


def write_v3(path, values, codecs, order="little"):
    """One chunk, behind a list of codecs that makes these bytes of it."""
    path.mkdir()
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(values.shape),
        "data_type": values.dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(values.shape)}},
        "chunk_key_encoding": {"name": "default"},
        "fill_value": 0,
        "codecs": codecs,
    }
    (path / "zarr.json").write_text(json.dumps(document))
    chunk = path.joinpath("c", *"0" * values.ndim)
    chunk.parent.mkdir(parents=True)
    stored = values.astype(values.dtype.newbyteorder(">" if order == "big" else "<"))
    return chunk, stored


@pytest.mark.parametrize("order", ["little", "big"])
def test_endian_is_what_drafts_called_bytes(tmp_path, order):
    values = np.arange(12, dtype="i4").reshape(3, 4)
    codecs = [{"name": "endian", "configuration": {"endian": order}}]
    chunk, stored = write_v3(tmp_path / "a", values, codecs, order)
    chunk.write_bytes(stored.tobytes())
    assert_same(hr.open(tmp_path / "a")[...], values)
    for zarr_format in (2, 3):
        copy = tmp_path / f"{zarr_format}"
        hr.copy(tmp_path / "a", copy, zarr_format=zarr_format)
        assert_same(zarr.open_array(copy)[...], values)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_endian_is_bytes_in_new_arrays(tmp_path, zarr_format):
    values = np.arange(12, dtype="i4").reshape(3, 4)
    serializer = {"name": "endian", "configuration": {"endian": "big"}}
    hr.create_array(tmp_path / "a", data=values, serializer=serializer, zarr_format=zarr_format)
    assert_same(zarr.open_array(tmp_path / "a")[...].astype("i4"), values)
    assert_same(hr.open(tmp_path / "a")[...], values)


def test_endian_of_structures(tmp_path):
    values = np.array([(1, 2), (3, 4)], [("a", ">i2"), ("b", ">i4")])
    fields = {"fields": [["a", "int16"], ["b", "int32"]]}
    codecs = [{"name": "endian", "configuration": {"endian": "big"}}]
    chunk, _ = write_v3(tmp_path / "a", np.zeros(2, "i4"), codecs)
    document = json.loads((tmp_path / "a" / "zarr.json").read_text())
    document["data_type"] = {"name": "structured", "configuration": fields}
    document["fill_value"] = "AAAAAAAA"
    (tmp_path / "a" / "zarr.json").write_text(json.dumps(document))
    chunk.write_bytes(values.tobytes())
    for device in ("cpu", "simt"):
        found = hr.open(tmp_path / "a").read(device=device)
        found = np.asarray(found if device == "cpu" else found.to_numpy())
        assert found["a"].tolist() == [1, 3]
        assert found["b"].tolist() == [2, 4]


@pytest.mark.parametrize("nested", [False, True])
def test_copies_of_shards_say_nothing_of_drafts(tmp_path, nested):
    values = np.arange(96, dtype="i4").reshape(8, 12)
    inner = [zarr.codecs.TransposeCodec(order=(1, 0)), zarr.codecs.BytesCodec()]
    if nested:
        inner = [zarr.codecs.ShardingCodec(chunk_shape=(2, 3), codecs=inner)]
    serializer = zarr.codecs.ShardingCodec(chunk_shape=(4, 6), codecs=inner)
    zarr.create_array(
        tmp_path / "a", data=values, chunks=(8, 12), serializer=serializer, compressors=None
    )
    document = tmp_path / "a" / "zarr.json"
    text = document.read_text().replace('"name": "bytes"', '"name": "endian"')
    metadata = json.loads(text)
    codec = metadata["codecs"][0]
    while codec["name"] == "sharding_indexed":
        codec = codec["configuration"]["codecs"][0]
    codec["configuration"]["order"] = "F"
    document.write_text(json.dumps(metadata))
    assert_same(hr.open(tmp_path / "a")[...], values)
    hr.copy(tmp_path / "a", tmp_path / "b")
    assert_same(zarr.open_array(tmp_path / "b")[...], values)
    assert_same(hr.open(tmp_path / "b")[...], values)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_transpose_by_its_letter(tmp_path, order):
    values = np.arange(24, dtype="i2").reshape(2, 3, 4)
    codecs = [
        {"name": "transpose", "configuration": {"order": order}},
        {"name": "bytes", "configuration": {"endian": "little"}},
    ]
    chunk, stored = write_v3(tmp_path / "a", values, codecs)
    chunk.write_bytes((stored.T if order == "F" else stored).tobytes())
    array = hr.open(tmp_path / "a")
    assert_same(array[...], values)
    assert_same(array[1, 2:, ::2], values[1, 2:, ::2])
    assert_same(array.read(device="simt").to_numpy(), values)
    for zarr_format in (2, 3):
        copy = tmp_path / f"{zarr_format}"
        hr.copy(tmp_path / "a", copy, zarr_format=zarr_format)
        assert_same(zarr.open_array(copy)[...], values)


def test_a_transpose_by_another_letter(tmp_path):
    codecs = [{"name": "transpose", "configuration": {"order": "A"}}, {"name": "bytes"}]
    write_v3(tmp_path / "a", np.zeros((2, 3), "u1"), codecs)
    with pytest.raises(hr.CorruptError, match='expected a permutation, "C" or "F"'):
        hr.open(tmp_path / "a")


def v2_array(path, values, *, filters=None, compressor=None, **changes):
    """By zarr-python; then `changes` to what the document says of the last codec."""
    zarr.create_array(
        path, data=values, zarr_format=2, chunks=(4, 5), filters=filters, compressors=compressor
    )
    document = json.loads((path / ".zarray").read_text())
    (document["compressor"] or document["filters"][-1]).update(changes)
    (path / ".zarray").write_text(json.dumps(document))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("codec", ["pcodec", "zfpy"])
def test_codecs_of_arrays_take_the_place_of_bytes(tmp_path, codec, dtype):
    pytest.importorskip("pcodec" if codec == "pcodec" else "zfpy")
    values = np.linspace(-3, 5, 40, dtype=dtype).reshape(8, 5)
    make = {"pcodec": "PCodec", "zfpy": "ZFPY"}[codec]
    compressor = getattr(__import__(f"numcodecs.{codec}", fromlist=[make]), make)()
    v2_array(tmp_path / "a", values, compressor=compressor)
    hr.copy(tmp_path / "a", tmp_path / "b", zarr_format=3)
    wanted = zarr.open_array(tmp_path / "a")[...]
    assert_same(zarr.open_array(tmp_path / "b")[...], wanted)
    assert_same(hr.open(tmp_path / "b")[...], wanted)


@pytest.mark.parametrize("behind", [False, True])
def test_a_quantize_that_changes_the_type(tmp_path, behind):
    values = np.linspace(-3, 5, 40).reshape(8, 5)
    quantize = numcodecs.Quantize(digits=2, dtype="<f8", astype="<f4")
    if behind:
        hr.create_array(tmp_path / "b", data=values, chunks=(4, 5), filters=[quantize])
        wanted = quantize.decode(quantize.encode(values)).reshape(8, 5)
    else:
        v2_array(tmp_path / "a", values, filters=[quantize])
        wanted = zarr.open_array(tmp_path / "a")[...]
        hr.copy(tmp_path / "a", tmp_path / "b", zarr_format=3)
    assert_same(hr.open(tmp_path / "b")[...], wanted)
    assert_same(zarr.open_array(tmp_path / "b")[...], wanted)


@pytest.mark.parametrize(
    ("compressor", "level", "kept"),
    [
        (numcodecs.GZip(5), -1, 6),
        (numcodecs.GZip(5), "7", 7),
        (numcodecs.Zstd(5), 99, 22),
        (numcodecs.Zstd(5), -3, -3),
    ],
)
def test_levels_that_v3_does_not_know(tmp_path, compressor, level, kept):
    values = np.arange(40).reshape(8, 5)
    v2_array(tmp_path / "a", values, compressor=compressor, level=level)
    hr.copy(tmp_path / "a", tmp_path / "b", zarr_format=3)
    assert_same(zarr.open_array(tmp_path / "b")[...], values)
    codec = json.loads((tmp_path / "b" / "zarr.json").read_text())["codecs"][-1]
    assert codec["configuration"]["level"] == kept


def test_a_shuffle_of_no_whole_elements_is_not_written(tmp_path):
    """numcodecs would not read it."""
    whole = "10 bytes is no multiple of the elementsize of 4"
    options = {"shape": 5, "dtype": "u2", "chunks": 5, "zarr_format": 2}
    with pytest.raises(ValueError, match=whole):
        hr.create_array(tmp_path / "a", filters=[hr.codecs.Shuffle(elementsize=4)], **options)
    zarr.create_array(tmp_path / "b", filters=[numcodecs.Shuffle(4)], compressors=None, **options)
    array = hr.open(tmp_path / "b", mode="r+")
    with pytest.raises(ValueError, match=whole):
        array[...] = 1
    with zarr.config.set({"codec_pipeline.path": "headrace.zarr.CodecPipeline"}):
        theirs = zarr.open_array(tmp_path / "b", mode="r+")
        with pytest.raises(ValueError, match=whole):
            theirs[...] = 1
    assert array.nchunks_initialized == 0


def test_a_shuffle_of_no_whole_elements_is_not_written_by_a_device(tmp_path):
    options = {"shape": 5, "dtype": "u2", "chunks": 5, "zarr_format": 2}
    zarr.create_array(
        tmp_path / "a", filters=[numcodecs.Shuffle(4)], compressors=numcodecs.LZ4(), **options
    )
    hr.save(tmp_path / "data", np.arange(5, dtype="u2"))
    on_device = hr.open(tmp_path / "data", device="simt")[...]
    array = hr.open(tmp_path / "a", mode="r+", device="simt")
    with (
        hr.config.set({"device_min_decode_nbytes": 0}),
        pytest.raises(ValueError, match="10 bytes is no multiple of the elementsize of 4"),
    ):
        array[...] = on_device
    assert array.nchunks_initialized == 0
