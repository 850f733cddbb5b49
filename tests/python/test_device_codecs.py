"""Codecs on devices: batches of buffers, the choice of an implementation, nvCOMP.

A batch's new results lie where it is decoded: NumPy arrays for the CPU, `DeviceArray` for a device.
"""

import json

import headrace as hr
import numcodecs
import numpy as np
import pytest
from helpers import assert_same, library, smooth, values, write_zarr

BATCHES = {
    "zstd": hr.codecs.Zstd(level=1, checksum=True),
    "lz4": {"id": "lz4"},
    "gzip": "gzip",
    "blosc": {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1},
    "delta": {"id": "delta", "dtype": "<i4"},
    "crc32c": {"name": "crc32c"},
}
SIZES = [300, 70000, 4, 12000]


def on_device(device, data):
    """A copy of the bytes in the device's memory."""
    identity = hr.codecs.Shuffle(elementsize=1)
    return hr.codecs.encode_batch(identity, [data], device=device)[0]


@pytest.mark.parametrize("codec", BATCHES)
@pytest.mark.parametrize("where", ["host", "device", "mixed"])
def test_batches(device, codec, where):
    codec = BATCHES[codec]
    plain = [values("i4", (n // 4,)) for n in SIZES]
    frames = hr.codecs.encode_batch(codec, plain, device="cpu")
    moved = [
        on_device(device, frame) if where == "device" or (where == "mixed" and i % 2) else frame
        for i, frame in enumerate(frames)
    ]
    decoded = hr.codecs.decode_batch(codec, moved, out_nbytes=SIZES, device=device)
    for got, wanted in zip(decoded, plain, strict=True):
        assert isinstance(got, hr.DeviceArray)
        assert got.device.split(":")[0] == device
        assert got.to_numpy().tobytes() == wanted.tobytes()
    out = [on_device(device, bytes(n)) for n in SIZES]
    out[1] = bytearray(SIZES[1])
    assert hr.codecs.decode_batch(codec, moved, out=out)[0] is out[0]
    for got, wanted in zip(out, plain, strict=True):
        assert bytes(got if isinstance(got, bytearray) else got.to_numpy()) == wanted.tobytes()


def array_on_device(device, data, folder):
    array = hr.create_array(
        folder / "moved.zarr", shape=data.shape, dtype=data.dtype, chunks=data.shape, overwrite=True
    )
    array[...] = data
    return hr.open_array(folder / "moved.zarr", device=device)[...]


@pytest.mark.parametrize("codec", ["zstd", "lz4", "blosc"])
@pytest.mark.parametrize("place", ["cpu", "device", "from host to device"])
def test_one_buffer_with_offsets_into_the_rows_of_one_array(device, tmp_path, place, codec):
    where = "cpu" if place == "cpu" else device
    plain = values("i4", (50, 30, 4))
    frames = hr.codecs.encode_batch(BATCHES[codec], plain, device="cpu")
    encoded, offsets = b"".join(frames), np.cumsum([0, *map(len, frames)])
    inputs = on_device(where, encoded) if place == "device" else encoded
    out = np.zeros_like(plain)
    if where != "cpu":
        out = array_on_device(where, out, tmp_path)
    options = {"out": out, "device": where}
    assert hr.codecs.decode_batch(BATCHES[codec], inputs, offsets=offsets, **options) == [out]
    got = out if where == "cpu" else out.to_numpy()
    assert got.tobytes() == plain.tobytes()
    # The same of a few of them, and as new arrays.
    parts = hr.codecs.decode_batch(
        BATCHES[codec], inputs, offsets=list(offsets[7:10]), out_nbytes=[480] * 2, device=where
    )
    taken = [part if where == "cpu" else part.to_numpy() for part in parts]
    assert [part.tobytes() for part in taken] == [row.tobytes() for row in plain[7:9]]


def test_rows_are_encoded_each_by_itself(device, tmp_path):
    plain = values("i4", (5, 1000))
    wanted = hr.codecs.encode_batch("zstd", list(plain), device="cpu")
    assert hr.codecs.encode_batch("zstd", plain, device="cpu") == wanted
    bounds = np.arange(6, dtype=np.uint16) * 4000
    assert hr.codecs.encode_batch("zstd", plain, offsets=bounds, device="cpu") == wanted
    moved = array_on_device(device, plain, tmp_path)
    encoded = hr.codecs.encode_batch("zstd", moved, device=device)
    decoded = hr.codecs.decode_batch("zstd", encoded, out_nbytes=[4000] * 5, device="cpu")
    assert [part.tobytes() for part in decoded] == [row.tobytes() for row in plain]


@pytest.mark.parametrize(
    ("offsets", "error", "words"),
    [
        ([0, 5, 4], ValueError, "offsets: .* got 4 at 2"),
        ([0, 10_000, 10_001], ValueError, "offsets: .* got 10000 at 1"),
        ([-1, 4, 5], ValueError, "offsets: .* got -1 at 0"),
        ([], TypeError, "offsets"),
        ([0.0, 4.0, 8.0], TypeError, "offsets"),
        ([[0, 4, 8]], TypeError, "offsets"),
        (np.array([0, 2**63 + 1, 4], np.uint64), ValueError, "offsets"),
        ("012", TypeError, "offsets"),
        ([0, 20], ValueError, "expected 1 outputs, got 2"),
    ],
)
def test_offsets_are_checked(offsets, error, words):
    with pytest.raises(error, match=words):
        hr.codecs.decode_batch("zstd", bytes(100), offsets=offsets, out_nbytes=[4, 4], device="cpu")


def test_rows_are_checked(device):
    frames = hr.codecs.encode_batch("zstd", values("i4", (3, 100)), device="cpu")
    with pytest.raises(ValueError, match="expected 3 outputs, got 2"):
        hr.codecs.decode_batch("zstd", frames, out=np.zeros((2, 400), "u1"))
    with pytest.raises((ValueError, BufferError), match="contiguous"):
        hr.codecs.decode_batch("zstd", frames, out=np.zeros((3, 800), "u1")[:, ::2])
    with pytest.raises(hr.CorruptError, match="input 0"):
        hr.codecs.decode_batch("zstd", frames, out=np.zeros((3, 401), "u1"))
    read_only = np.zeros((3, 400), "u1")
    read_only.flags.writeable = False
    with pytest.raises((ValueError, BufferError), match=r"read-only|writable"):
        hr.codecs.decode_batch("zstd", frames, out=read_only)
    assert hr.codecs.decode_batch("zstd", np.zeros((0, 5), "u1"), out_nbytes=[]) == []
    objects = np.empty((3, 50), dtype=object)  # whose bytes are pointers
    for out in (objects, list(objects), [memoryview(row) for row in objects]):
        with pytest.raises(TypeError, match="objects"):
            hr.codecs.decode_batch("zstd", frames, out=out, device=device)
        with pytest.raises(TypeError, match="objects"):
            hr.codecs.encode_batch("zstd", out, device=device)


def test_small_results_live_by_themselves(device):
    plain = [values("i4", (n,)) for n in (1, 1000, 300_000, 7, 0, 100_000, 262_144, 3)]
    frames = hr.codecs.encode_batch("zstd", plain, device="cpu")
    sizes = [part.nbytes for part in plain]
    for stream in ({}, {"stream": 0}):
        decoded = list(
            hr.codecs.decode_batch("zstd", frames, out_nbytes=sizes, device=device, **stream)
        )
        for i in (3, 0, 6, 1, 5, 2, 7, 4):
            kept = decoded[i]
            decoded[i] = None
            assert kept.to_numpy().tobytes() == plain[i].tobytes()


@pytest.mark.parametrize("where", ["host", "device"])
def test_batches_name_the_bad_input(device, where):
    frames = hr.codecs.encode_batch("zstd", [values("i4", (1000,))] * 3, device="cpu")
    bad = bytearray(frames[1])
    bad[-20] ^= 255
    bad[4] ^= 255
    for broken, size in ((bad, 4000), (frames[1][:-3], 4000), (frames[1], 3999), (b"", 4000)):
        batch = [frames[0], broken, frames[2]]
        if where == "device":
            batch = [on_device(device, frame) for frame in batch]
        with pytest.raises(hr.CorruptError, match="input 1: codec zstd"):
            hr.codecs.decode_batch("zstd", batch, out_nbytes=[4000, size, 4000], device=device)


def test_batches_take_streams_and_implementations(device):
    data = values("i4", (1000,))
    frames = hr.codecs.encode_batch("zstd", [data], device="cpu")
    name = f"headrace-{device}"
    for options in (
        {"implementation": name},
        {"implementation": "libzstd"},
        {"stream": 1},
        {"stream": 0},
    ):
        (x,) = hr.codecs.decode_batch("zstd", frames, out_nbytes=[4000], device=device, **options)
        assert x.to_numpy().tobytes() == data.tobytes()
    with pytest.raises(ValueError, match=name):
        hr.codecs.decode_batch("zstd", frames, out_nbytes=[4000], implementation=name)
    with pytest.raises(ValueError, match="stream"):
        hr.codecs.decode_batch("zstd", frames, out_nbytes=[4000], stream=1)
    with pytest.raises(ValueError, match="not contiguous"):
        hr.codecs.decode_batch("zstd", [on_device(device, frames[0])[::2]], out_nbytes=[4000])


LIBRARIES = {
    "zstd": (numcodecs.Zstd(level=1, checksum=True), "libzstd"),
    "lz4": (numcodecs.LZ4(), "headrace"),
    "blosc-lz4": (numcodecs.Blosc("lz4", 5, numcodecs.Blosc.SHUFFLE, typesize=4), "c-blosc"),
    "blosc-zstd": (numcodecs.Blosc("zstd", 1, numcodecs.Blosc.BITSHUFFLE, typesize=8), "c-blosc"),
    "blosc-plain": (numcodecs.Blosc("lz4", 9, numcodecs.Blosc.NOSHUFFLE), "c-blosc"),
    "shuffle": (numcodecs.Shuffle(elementsize=4), "headrace"),
}


@pytest.mark.parametrize("codec", LIBRARIES)
def test_libraries_decode_what_a_device_encodes(device, codec):
    codec, host = LIBRARIES[codec]
    plain = [smooth("f4", (n // 4,)).tobytes() for n in (*SIZES, 400000)] + [
        b"",
        b"abcd",
        bytes(5000),
    ]
    moved = [on_device(device, data) for data in plain]
    own = f"headrace-{device}"
    with hr.config.set({"device_min_decode_nbytes": 0}):
        encoded = hr.codecs.encode_batch(codec, moved)
    forced = hr.codecs.encode_batch(codec, plain, device=device, implementation=own)
    for frame, again, data in zip(encoded, forced, plain, strict=True):
        assert isinstance(frame, hr.DeviceArray)
        assert frame.to_numpy().tobytes() == again.to_numpy().tobytes()
        if data:  # no codec of numcodecs gives nothing
            assert bytes(codec.decode(frame.to_numpy())) == data
    by_host = hr.codecs.encode_batch(codec, moved, device="cpu")
    there = hr.codecs.encode_batch(codec, moved, implementation=host)
    assert [frame.to_numpy().tobytes() for frame in there] == by_host


def test_who_cannot_encode(device):
    buffers = [on_device(device, bytes(4000))]
    own, other = f"headrace-{device}", {"simt": "headrace-cuda", "cuda": "headrace-simt"}[device]
    with pytest.raises(ValueError, match=f"{own} is for devices of that type, not on cpu"):
        hr.codecs.encode_batch("zstd", buffers, device="cpu", implementation=own)
    with pytest.raises(ValueError, match=f"{other} is for devices"):
        hr.codecs.encode_batch("zstd", buffers, implementation=other)
    with pytest.raises(NotImplementedError, match=f"codec gzip on {own}: has no encoder"):
        hr.codecs.encode_batch("gzip", buffers, implementation=own)
    with pytest.raises(NotImplementedError, match="nvcomp only decodes zstd"):
        hr.codecs.encode_batch("zstd", buffers, implementation="nvcomp")


@pytest.mark.parametrize("ordered", ["on the producer's stream", "on another", "on the default"])
def test_torch_takes_and_gives_batches(device, ordered):
    torch = library("torch", device)
    plain = [values("i4", (n // 4,)) for n in SIZES]
    frames = hr.codecs.encode_batch("lz4", plain, device="cpu")
    moved = [torch.frombuffer(bytearray(frame), dtype=torch.uint8).cuda() for frame in frames]
    out = [torch.zeros(n // 4, dtype=torch.int32, device="cuda") for n in SIZES]
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        for x in out:
            x.fill_(3)
        ordering = {"on another": torch.cuda.Stream(), "on the default": None}.get(ordered, stream)
        hr.codecs.decode_batch("lz4", moved, out=out, stream=ordering)
    with torch.cuda.stream(ordering):  # behind the decode, which may only be queued
        found = [got.cpu().numpy() for got in out]
    for got, wanted in zip(found, plain, strict=True):
        assert_same(got, wanted)
    with pytest.raises(hr.CorruptError, match="input 0: codec lz4"):
        hr.codecs.decode_batch("lz4", [moved[1]], out=[out[0]])


NVCOMP = {"zstd": "zstd", "gzip": "gzip", "lz4": {"id": "lz4"}}
HAS_NVCOMP = any(r["implementation"] == "nvcomp" and r["available"] for r in hr.codecs.table())


def test_nvcomp_is_in_the_table():
    rows = [row for row in hr.codecs.table() if row["implementation"] == "nvcomp"]
    assert {row["codec"] for row in rows} == set(NVCOMP)
    assert all(row["device"] == "cuda" and row["used"] == "when asked for" for row in rows)
    assert all(row["available"] or row["why_not"] for row in rows)
    frames = hr.codecs.encode_batch("zstd", [b"abc"], device="cpu")
    with pytest.raises(ValueError, match="nvcomp"):
        hr.codecs.decode_batch(
            "zstd", frames, out_nbytes=[3], device="simt", implementation="nvcomp"
        )
    with pytest.raises(ValueError, match="headrace-cuda"):
        hr.codecs.decode_batch("blosc", [b""], out_nbytes=[3], implementation="nvcomp")


@pytest.mark.skipif(not HAS_NVCOMP, reason="no nvCOMP")
@pytest.mark.parametrize("codec", NVCOMP)
def test_nvcomp_decodes_when_asked(store, codec):
    data = smooth("f4", (64, 40))
    compressor = hr.codecs.parse(NVCOMP[codec])
    array = hr.create_array(
        store, shape=data.shape, dtype="f4", chunks=(8, 16), compressors=compressor
    )
    array[...] = data
    there = hr.open_array(store, device="cuda", implementations={codec: "nvcomp"})
    assert_same(there[...].to_numpy(), data)
    assert_same(there[3:60:7, ::-1].to_numpy(), data[3:60:7, ::-1])

    sizes = [4000, 64000, 8]
    plain = [values("i4", (n // 4,)).tobytes() for n in sizes]
    frames = hr.codecs.encode_batch(compressor, plain, device="cpu")
    options = {"device": "cuda", "implementation": "nvcomp"}
    for batch in (frames, [on_device("cuda", frame) for frame in frames]):
        got = hr.codecs.decode_batch(compressor, batch, out_nbytes=sizes, **options)
        assert [x.to_numpy().tobytes() for x in got] == plain
    with pytest.raises(hr.CorruptError, match=f"input 1: codec {codec}: expected 64004"):
        hr.codecs.decode_batch(compressor, frames, out_nbytes=[4000, 64004, 8], **options)
    if codec == "lz4":  # what corrupt bytes of other formats do, nvCOMP leaves open
        bad = bytearray(frames[1])
        bad[4:40] = b"\xff" * 36
        with pytest.raises(hr.CorruptError, match="input 1: codec lz4"):
            hr.codecs.decode_batch(compressor, [frames[0], bad], out_nbytes=sizes[:2], **options)


def test_the_table_says_what_is_used():
    used = {(r["codec"], r["implementation"]): r["used"] for r in hr.codecs.table()}
    assert "in one chunk" in used["zstd", "headrace-cuda"]
    assert used["gzip", "libdeflate"] == "when asked for"
    assert used["jenkins_lookup3", "headrace"] == "always"
    with hr.config.set({"device_min_decode_nbytes": 3 << 20, "implementations": {"gzip": "isa-l"}}):
        used = {(r["codec"], r["implementation"]): r["used"] for r in hr.codecs.table()}
    assert used["zstd", "headrace-cuda"] == "from 3.0 MiB, as configured"
    assert used["gzip", "isa-l"] == "always, as configured"
    assert used["gzip", "headrace-cuda"] == "when asked for"


def test_the_table_says_who_encodes():
    def encoders():
        table = {(r["codec"], r["implementation"]): r for r in hr.codecs.table()}
        assert all(r["encodes"] == bool(r["used_to_encode"]) for r in table.values())
        return {key: r["used_to_encode"] for key, r in table.items() if r["encodes"]}

    used = encoders()
    on_devices = {codec for codec, name in used if name == "headrace-cuda"}
    assert on_devices == {"bytes", "transpose", "zstd", "lz4", "blosc", "shuffle", "bitshuffle"}
    assert on_devices == {codec for codec, name in used if name == "headrace-simt"}
    assert not any(name == "nvcomp" for _, name in used)
    assert used["zstd", "headrace-cuda"] == "for memory of the device from 1.0 MiB, at fast levels"
    assert used["zstd", "libzstd"] == "for memory of the host, and what devices leave"
    assert used["bytes", "headrace-simt"] == "while elements are placed"
    assert used["gzip", "isa-l"] == "always"
    assert used["gzip", "libdeflate"] == "when asked for"
    asked = {"zstd": "headrace-cuda", "blosc": "c-blosc"}
    with hr.config.set({"device_min_decode_nbytes": 3 << 20, "implementations": asked}):
        used = encoders()
    assert used["zstd", "headrace-cuda"] == "always, as configured"
    assert used["zstd", "headrace-simt"] == "when asked for"
    assert used["zstd", "libzstd"] == "for memory of the host, and what devices leave"
    assert used["lz4", "headrace-cuda"] == "for memory of the device from 3.0 MiB, at fast levels"
    assert used["blosc", "c-blosc"] == "always, as configured"
    assert used["blosc", "headrace"] == "when asked for"


def test_a_limit_moves_decoding_to_the_device(store, tmp_path):
    data = smooth("f4", (30, 40))
    write_zarr(store, data, chunks=(8, 16))
    array = hr.open_array(store, device="simt")
    path = tmp_path / "trace.json"
    for limit, by_host in ((None, True), (0, False), (2 * data.nbytes, True)):
        with hr.config.set({"device_min_decode_nbytes": limit}), hr.trace(path):
            assert_same(array[...].to_numpy(), data)
        events = json.loads(path.read_text())["traceEvents"]
        decodes = [event for event in events if event["name"] == "decode"]
        assert len(decodes) == (12 if by_host else 1), limit  # a chunk each, or all of them
