"""hr.codecs: the table, batches of buffers, and every way to name a codec.

Decisions, where api.md is silent: a row of the table is a mapping or has attributes `codec`,
`implementation`, `device`, `available`; batches take any mix of buffers, return one bytes-like
object for each, or `out`; bytes made with one codec decode with its peer in numcodecs.
"""

import gzip
import zlib

import headrace as hr
import numcodecs
import numpy as np
import pytest
import zarr
import zarr.codecs as zc
from helpers import as_bytes, assert_same, read_zarr, smooth

REQUIRED = ["bytes", "transpose", "zstd", "gzip", "zlib", "lz4", "blosc", "crc32c", "shuffle",
            "bitshuffle", "delta", "fixedscaleoffset", "bitround", "sharding_indexed"]  # fmt: skip
PEERS = {
    "zstd": numcodecs.Zstd(3),
    "gzip": numcodecs.GZip(5),
    "zlib": numcodecs.Zlib(5),
    "lz4": numcodecs.LZ4(),
    "blosc": numcodecs.Blosc("lz4", 5, 1),
}
SIZES = [0, 1, 7, 300, 70000]


def get(row, key):
    return row[key] if isinstance(row, dict) else getattr(row, key)


def plain(n):
    return smooth("f4", (-(-n // 4),)).tobytes()[:n]


def test_table():
    rows = hr.codecs.table()
    there = {get(row, "codec").removeprefix("numcodecs.") for row in rows if get(row, "available")}
    assert [name for name in REQUIRED if name not in there] == []
    for row in rows:
        assert get(row, "implementation")
        assert str(get(row, "device")).split(":")[0] in ("cpu", "cuda", "simt")


@pytest.mark.parametrize("name", PEERS)
def test_decode_what_numcodecs_encoded(name):
    sizes = [n for n in SIZES if n or name not in ("lz4", "blosc")]
    buffers = [PEERS[name].encode(plain(n)) for n in sizes]
    decoded = hr.codecs.decode_batch(name, buffers, out_nbytes=sizes)
    assert [as_bytes(x) for x in decoded] == [plain(n) for n in sizes]


@pytest.mark.parametrize("name", PEERS)
def test_numcodecs_decodes_what_was_encoded(name):
    sizes = SIZES[1:]
    encoded = hr.codecs.encode_batch(name, [plain(n) for n in sizes])
    for n, frame in zip(sizes, encoded, strict=True):
        assert bytes(PEERS[name].decode(as_bytes(frame))) == plain(n)
    if name == "zlib":
        assert zlib.decompress(as_bytes(encoded[-1])) == plain(sizes[-1])
    if name == "gzip":
        assert gzip.decompress(as_bytes(encoded[-1])) == plain(sizes[-1])


@pytest.mark.parametrize("name", PEERS)
def test_decode_into_out(name):
    encoded = [PEERS[name].encode(plain(n)) for n in (300, 70000)]
    out = [np.zeros(300, "u1"), bytearray(70000)]
    result = hr.codecs.decode_batch(name, encoded, out=out)
    assert out[0].tobytes() == plain(300)
    assert bytes(out[1]) == plain(70000)
    assert len(result) == 2


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda b: np.frombuffer(b, "u1")])
def test_kinds_of_buffers(kind):
    frame = PEERS["zstd"].encode(plain(300))
    (decoded,) = hr.codecs.decode_batch("zstd", [kind(frame)], out_nbytes=[300])
    assert as_bytes(decoded) == plain(300)


def test_large_batch_and_empty_batch():
    frames = [PEERS["lz4"].encode(plain(100 + k)) for k in range(2000)]
    decoded = hr.codecs.decode_batch("lz4", frames, out_nbytes=[100 + k for k in range(2000)])
    assert [as_bytes(x) for x in decoded] == [plain(100 + k) for k in range(2000)]
    assert list(hr.codecs.decode_batch("zstd", [], out_nbytes=[])) == []
    assert list(hr.codecs.encode_batch("zstd", [])) == []


@pytest.mark.parametrize("name", PEERS)
def test_bad_frames_are_corrupt(name):
    good = PEERS[name].encode(plain(300))
    for bad, n in [(good[:-3], 300), (b"", 300), (good, 299), (good, 301)]:
        with pytest.raises(hr.CorruptError):
            hr.codecs.decode_batch(name, [good, bad], out_nbytes=[300, n])
    # Noise may look like a version of the format that is not known.
    with pytest.raises((hr.CorruptError, NotImplementedError)):
        hr.codecs.decode_batch(name, [good, b"\xff" * 40], out_nbytes=[300, 300])


def test_wrong_calls():
    frame = PEERS["zstd"].encode(plain(300))
    with pytest.raises(NotImplementedError, match="quantum7"):
        hr.codecs.decode_batch("quantum7", [frame], out_nbytes=[300])
    with pytest.raises((ValueError, NotImplementedError), match="no-such"):
        hr.codecs.decode_batch("zstd", [frame], out_nbytes=[300], implementation="no-such")
    with pytest.raises((ValueError, TypeError)):
        hr.codecs.decode_batch("zstd", [frame])
    with pytest.raises((ValueError, TypeError)):
        hr.codecs.decode_batch("zstd", [frame], out_nbytes=[300, 300])
    with pytest.raises((ValueError, TypeError, BufferError)):
        hr.codecs.decode_batch("zstd", [frame], out=[bytes(300)])


@pytest.mark.parametrize("name", PEERS)
def test_every_implementation_gives_the_same(name):
    frames = [PEERS[name].encode(plain(n)) for n in SIZES[1:]]
    rows = [r for r in hr.codecs.table() if get(r, "codec").removeprefix("numcodecs.") == name]
    rows = [r for r in rows if get(r, "available") and str(get(r, "device")) == "cpu"]
    assert rows
    for row in rows:
        which = get(row, "implementation")
        got = hr.codecs.decode_batch(name, frames, out_nbytes=SIZES[1:], implementation=which)
        assert [as_bytes(x) for x in got] == [plain(n) for n in SIZES[1:]], which


def c(name, *args, **kw):
    return lambda: getattr(hr.codecs, name)(*args, **kw)


V3 = {
    "object zstd": (c("Zstd", level=5, checksum=True), "zstd"),
    "object blosc": (c("Blosc", cname="zstd", clevel=3, shuffle="bitshuffle"), "blosc"),
    "object gzip": (c("Gzip", level=2), "gzip"),
    "dict": (lambda: {"name": "zstd", "configuration": {"level": 2, "checksum": False}}, "zstd"),
    "zarr zstd": (lambda: zc.ZstdCodec(level=4), "zstd"),
    "zarr gzip": (lambda: zc.GzipCodec(level=4), "gzip"),
    "zarr blosc": (lambda: zc.BloscCodec(cname="lz4", typesize=4), "blosc"),
    "numcodecs zstd": (lambda: numcodecs.Zstd(2), "zstd"),
    "numcodecs gzip": (lambda: numcodecs.GZip(2), "gzip"),
    "numcodecs lz4": (lambda: numcodecs.LZ4(), "numcodecs.lz4"),
    "numcodecs blosc": (lambda: numcodecs.Blosc("zstd", 3, 2), "blosc"),
}


@pytest.mark.parametrize("given", V3)
@pytest.mark.parametrize("several", [False, True])
def test_compressors_v3(store, given, several):
    make, name = V3[given]
    data = smooth("f4", (20, 10))
    compressors = [make(), hr.codecs.Crc32c()] if several else make()
    array = hr.create_array(
        store, shape=(20, 10), dtype="f4", chunks=(8, 8), compressors=compressors
    )
    array[...] = data
    assert_same(array[...], data)
    names = [codec.to_dict()["name"] for codec in zarr.open_array(store).metadata.codecs]
    assert names == ["bytes", name] + ["crc32c"] * several
    assert_same(read_zarr(store), data)


V2 = {
    "object zstd": (c("Zstd", level=5), {"id": "zstd", "level": 5}),
    "object zlib": (c("Zlib", level=5), {"id": "zlib", "level": 5}),
    "object lz4": (c("LZ4"), {"id": "lz4"}),
    "object blosc": (
        c("Blosc", cname="lz4", clevel=5, shuffle="shuffle"),
        {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0},
    ),
    "dict": (lambda: {"id": "gzip", "level": 3}, {"id": "gzip", "level": 3}),
    "numcodecs": (lambda: numcodecs.Zlib(2), {"id": "zlib", "level": 2}),
    "zarr": (lambda: zc.ZstdCodec(level=4), {"id": "zstd", "level": 4}),
}


@pytest.mark.parametrize("given", V2)
def test_compressors_v2(store, given):
    make, wanted = V2[given]
    data = smooth("f4", (20, 10))
    options = {"shape": (20, 10), "dtype": "f4", "chunks": (8, 8), "zarr_format": 2}
    hr.create_array(store, compressors=make(), **options)[...] = data
    config = zarr.open_array(store).compressors[0].get_config()
    assert {key: config[key] for key in wanted} == wanted
    assert_same(read_zarr(store), data)


FILTERS = {
    "delta": (c("Delta", dtype="<i4"), "i4"),
    "shuffle": (c("Shuffle", elementsize=4), "i4"),
    "fixedscaleoffset": (
        c("FixedScaleOffset", offset=0, scale=4, dtype="<f4", astype="<i4"),
        "f4",
    ),
    "bitround": (c("BitRound", keepbits=20), "f4"),
    "quantize": (c("Quantize", digits=3, dtype="<f4"), "f4"),
    "numcodecs delta": (lambda: numcodecs.Delta("<i4"), "i4"),
}


@pytest.mark.parametrize("given", FILTERS)
def test_filters_v2(store, given):
    make, dtype = FILTERS[given]
    data = smooth(dtype, (20, 10))
    hr.create_array(
        store, shape=(20, 10), dtype=dtype, chunks=(8, 8), filters=[make()], zarr_format=2
    )[...] = data
    assert_same(hr.open_array(store)[...], data)
    assert_same(read_zarr(store), data)


def test_transpose_and_endian_v3(store):
    data = smooth("i2", (5, 6, 7))
    hr.create_array(
        store,
        shape=data.shape,
        dtype="i2",
        chunks=(2, 3, 4),
        filters=[hr.codecs.Transpose((2, 0, 1))],
        serializer=hr.codecs.Bytes("big"),
        compressors=None,
    )[...] = data
    assert_same(hr.open_array(store)[...], data)
    assert_same(read_zarr(store), data)


@pytest.mark.parametrize("location", ["start", "end"])
def test_sharding_object(store, location):
    data = smooth("f4", (20, 12))
    sharding = {
        "name": "sharding_indexed",
        "configuration": {
            "chunk_shape": [4, 4],
            "codecs": [
                {"name": "bytes", "configuration": {"endian": "little"}},
                {"name": "crc32c"},
            ],
            "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            "index_location": location,
        },
    }
    hr.create_array(
        store, shape=data.shape, dtype="f4", chunks=(8, 12), serializer=sharding, compressors=None
    )[...] = data
    array = hr.open_array(store)
    assert (array.chunks, array.shards) == ((4, 4), (8, 12))
    assert_same(array[...], data)
    assert_same(read_zarr(store), data)


def test_implementations_are_chosen_per_handle_and_call(store):
    data = smooth("f4", (20, 12))
    hr.create_array(store, shape=data.shape, dtype="f4", chunks=(8, 12), compressors="auto")[
        ...
    ] = data
    rows = [r for r in hr.codecs.table() if get(r, "codec") == "zstd" and get(r, "available")]
    for row in rows:
        if str(get(row, "device")) == "cpu":
            which = {"zstd": get(row, "implementation")}
            assert_same(hr.open_array(store, implementations=which)[...], data)
            assert_same(hr.open_array(store).read(implementations=which), data)
    with pytest.raises((ValueError, NotImplementedError), match="no-such"):
        hr.open_array(store, implementations={"zstd": "no-such"})[...]


def test_config_is_a_setting_and_a_context(store):
    before = hr.config.get("device")
    with hr.config.set({"device": "cpu"}):
        assert hr.config.get("device") == "cpu"
    assert hr.config.get("device") == before
    with pytest.raises((KeyError, ValueError)):
        hr.config.set({"no.such.setting": 1})
