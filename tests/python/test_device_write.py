"""What writes from device memory store, as zarr-python and numcodecs read it."""

import json
from pathlib import Path

import headrace as hr
import numcodecs
import numpy as np
import pytest
from helpers import assert_same, chunk_files, read_zarr, values

SHAPE, CHUNKS, SHARDS = (30, 41), (8, 16), (16, 32)
DTYPES = ["b1", "i1", "u2", "<i4", ">i4", "f2", "f4", ">f8", "c16", "M8[ns]"]
SHUFFLES = ["noshuffle", "shuffle", "bitshuffle"]
CODECS = {
    "zstd": hr.codecs.Zstd(level=1),
    "zstd-checksum": hr.codecs.Zstd(level=3, checksum=True),
    "lz4": hr.codecs.LZ4(),
    **{f"blosc-lz4-{shuffle}": hr.codecs.Blosc("lz4", 5, shuffle) for shuffle in SHUFFLES},
    **{f"blosc-zstd-{shuffle}": hr.codecs.Blosc("zstd", 2, shuffle) for shuffle in SHUFFLES},
}
PAIRS = [(codec, DTYPES[(3 * i + k) % 10]) for i, codec in enumerate(CODECS) for k in range(3)]
LAYOUTS = {"v2": {"zarr_format": 2}, "v3": {}, "shards": {"shards": SHARDS}}


def write_from(device, store, dtype, codec, **options):
    """Writes an array from memory of the device, whose encoder of `codec` is forced, then a part of
    it over borders of chunks. Returns what the array holds; its first chunk is left out."""
    data, fill = values(dtype, SHAPE), np.zeros((), dtype)[()]
    data[: CHUNKS[0], : CHUNKS[1]] = fill
    copy = store + ".copy"
    hr.create_array(copy, shape=SHAPE, dtype=dtype)[...] = data
    source = hr.open_array(copy, device=device)[...]
    assert isinstance(source, hr.DeviceArray)

    array = hr.create_array(
        store, shape=SHAPE, dtype=dtype, chunks=CHUNKS, fill_value=fill, **options
    )
    forced = {codec.name.removeprefix("numcodecs."): f"headrace-{device}"}
    array.write(..., source, implementations=forced)
    array.write(np.s_[9:27, 5:33], source[11:29, 36:8:-1], implementations=forced)
    data[9:27, 5:33] = data[11:29, 36:8:-1].copy()
    return data


@pytest.mark.parametrize(("codec", "dtype"), PAIRS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_zarr_python_reads_what_devices_write(store, device, layout, codec, dtype):
    codec = CODECS[codec]
    data = write_from(device, store, dtype, codec, compressors=codec, **LAYOUTS[layout])
    assert_same(read_zarr(store), data)
    assert_same(hr.open_array(store)[...], data)
    assert len(chunk_files(store)) == (4 if layout == "shards" else 11)


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [">i4", "f8"])
def test_behind_shuffles_and_transposes(store, device, layout, codec, dtype):
    codec, shuffle = CODECS[codec], hr.codecs.Shuffle(elementsize=np.dtype(dtype).itemsize)
    chain = {"filters": [shuffle], "compressors": codec, "order": "F"}
    if layout != "v2":
        chain = {
            "filters": [hr.codecs.Transpose((1, 0))],
            "compressors": [shuffle, codec, hr.codecs.Crc32c()],
        }
    data = write_from(device, store, dtype, codec, **chain, **LAYOUTS[layout])
    assert_same(read_zarr(store), data)


@pytest.mark.parametrize("codec", CODECS)
def test_numcodecs_decodes_the_chunks(store, device, codec):
    codec = CODECS[codec]
    data = write_from(device, store, "<i4", codec, compressors=codec, zarr_format=2)
    compressor = numcodecs.get_codec(json.loads(Path(store, ".zarray").read_text())["compressor"])
    files = chunk_files(store)
    for key, path in files.items():
        i, j = (int(at) * n for at, n in zip(key.split("."), CHUNKS, strict=True))
        wanted = data[i : i + CHUNKS[0], j : j + CHUNKS[1]]
        chunk = np.frombuffer(compressor.decode(path.read_bytes()), "<i4").reshape(CHUNKS)
        assert_same(chunk[: wanted.shape[0], : wanted.shape[1]], wanted)
        chunk = chunk.copy()
        chunk[: wanted.shape[0], : wanted.shape[1]] = 0
        assert not chunk.any(), "beyond the array lies the fill value"


@pytest.mark.parametrize("index", ["start", "end"])
@pytest.mark.parametrize("slab", [1 << 12, 5 << 12, 1 << 20])
def test_shards_lie_anywhere_in_slabs(store, device, slab, index):
    """Shards of 8 KiB: larger than a slab, over the borders of slabs, many in one."""
    data = values("<f4", (160, 96))
    data[8:16, 32:64] = 0  # an inner chunk that is missing
    data[32:64, :64] = 0  # a shard
    array = hr.create_array(
        store,
        shape=data.shape,
        dtype="f4",
        chunks=(32, 64),
        compressors=None,
        serializer=hr.codecs.Sharding((8, 32), index_location=index),
    )
    array[...] = 1
    source = hr.array(data).to(device)[...]
    with hr.config.set({"device_slab_nbytes": slab}):
        array.write(..., source, implementations={"zstd": f"headrace-{device}"})
    assert_same(read_zarr(store), data)
    assert len(chunk_files(store)) == 9
    assert array.verify() == []


@pytest.mark.parametrize("dtype", ["<f4", ">i8"])
@pytest.mark.parametrize("keeps_empty", [False, True])
@pytest.mark.parametrize("layout", [*LAYOUTS, "F", "checksums"])
def test_chunks_without_a_compressor(store, device, tmp_path, layout, keeps_empty, dtype):
    """A device puts them together as the host does, and they are stored as they come from it."""
    options = {
        "F": {"zarr_format": 2, "order": "F"},
        "checksums": {
            "filters": [hr.codecs.Transpose((1, 0))],
            "compressors": [hr.codecs.Crc32c()],
            "shards": SHARDS,
        },
        **LAYOUTS,
    }[layout]
    options = {"compressors": None, "write_empty_chunks": keeps_empty, **options}
    data = values(dtype, SHAPE)
    data[:8, :16] = data[16:, :32] = 0
    trace = tmp_path / "trace.json"
    files = []
    for place in ("cpu", device):
        path = f"{store}-{place}"
        array = hr.create_array(path, shape=SHAPE, dtype=dtype, chunks=CHUNKS, **options)
        source = hr.array(data).to(place)[...]
        with hr.config.set({"device_min_decode_nbytes": 0}), hr.trace(trace):
            array[...] = source
        files.append({key: file.read_bytes() for key, file in chunk_files(path).items()})
        assert_same(read_zarr(path), data)
    assert files[0] == files[1]
    assert len(files[0]) == {
        ("v2", True): 12, ("v3", True): 12, ("F", True): 12, ("shards", True): 4,
        ("checksums", True): 4, ("v2", False): 7, ("v3", False): 7, ("F", False): 7,
        ("shards", False): 3, ("checksums", False): 3,
    }[layout, keeps_empty]  # fmt: skip
    spans = json.loads(trace.read_text())["traceEvents"]
    chunk_nbytes = np.dtype(dtype).itemsize * CHUNKS[0] * CHUNKS[1]
    assert sum(e["args"]["bytes"] for e in spans if e["name"] == "copy") >= 12 * chunk_nbytes
