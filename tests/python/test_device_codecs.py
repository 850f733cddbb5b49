"""Codecs on devices: batches of buffers, the choice of an implementation, nvCOMP.

A batch's new results lie where it is decoded: NumPy arrays for the CPU, `DeviceArray` for a device.
"""

import json

import headrace as hr
import numcodecs
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
        wanted = {"on another": torch.cuda.Stream(), "on the default": None}.get(ordered, stream)
        hr.codecs.decode_batch("lz4", moved, out=out, stream=wanted)
    for got, wanted in zip(out, plain, strict=True):
        assert_same(got.cpu().numpy(), wanted)
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
