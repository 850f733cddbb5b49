"""Reads to devices, `DeviceArray` and its hand-over; writes from device memory.

On the device that runs kernels on the CPU, and on the GPU where there is one. Decisions, where
api.md is silent: a result without dimensions is a 0-d `DeviceArray`; `numpy.asarray` of a
`DeviceArray` is a TypeError, as CuPy has it; `out` on another device than the handle's is a
ValueError; the memory of "simt" is host memory, so NumPy arrays are memory of that device.
"""

import threading
from pathlib import Path

import headrace as hr
import numpy as np
import pytest
from helpers import (
    HAS_CUDA,
    assert_same,
    chunk_files,
    library,
    read_zarr,
    smooth,
    values,
    write_zarr,
)

CODECS = {
    "none": None,
    "zstd": hr.codecs.Zstd(level=1),
    "blosc": hr.codecs.Blosc(cname="lz4"),
    "gzip": hr.codecs.Gzip(),
    "shuffle": [hr.codecs.Shuffle(elementsize=4), hr.codecs.Crc32c()],
}


@pytest.fixture
def pair(store):
    data = smooth("f4", (30, 40))
    array = hr.create_array(store, shape=data.shape, dtype="f4", chunks=(8, 16), fill_value=7)
    data[24:] = 7  # a row of chunks that are not stored
    array[...] = data
    return hr.open_array(store), data


def out_like(device, shape, dtype="f4"):
    """Writable memory on the device."""
    if device == "simt":
        return np.zeros(shape, dtype)
    torch = pytest.importorskip("torch")
    return torch.zeros(shape, dtype=getattr(torch, np.dtype(dtype).name), device=device)


def to_host(x):
    return x if isinstance(x, np.ndarray) else np.from_dlpack(x.cpu())


# Large enough to be copied straight to where it is wanted, in one copy and in parts.
@pytest.mark.parametrize("rows", [128, 1280])
@pytest.mark.parametrize("shards", [False, True])
def test_uncompressed_chunks_go_straight_to_their_place(store, device, rows, shards):
    data = values("f4", (3 * rows, 512))
    array = hr.create_array(
        store,
        shape=data.shape,
        dtype="f4",
        chunks=(rows, 512),
        shards=(2 * rows, 512) if shards else None,
        compressors=None,
        fill_value=5,
    )
    data[rows : 2 * rows] = 5  # not stored
    array[...] = data
    array = hr.open_array(store, device=device)
    assert_same(array[...].to_numpy(), data)
    assert_same(array[rows - 7 : 2 * rows + 9, 3:].to_numpy(), data[rows - 7 : 2 * rows + 9, 3:])
    for first, last in ((0, 3 * rows), (2 * rows, 3 * rows), (rows, 3 * rows)):
        whole = out_like(device, (last - first + 2, 512))
        array.read(slice(first, last), out=whole[1:-1])
        assert_same(to_host(whole[1:-1]), data[first:last])
        assert not to_host(whole[0]).any() and not to_host(whole[-1]).any()
    turned = out_like(device, (512, rows))
    array.read(slice(0, rows), out=turned.T)
    assert_same(np.ascontiguousarray(to_host(turned).T), data[:rows])


@pytest.mark.parametrize("nbytes", [1, -4, 4096])
def test_uncompressed_chunks_of_another_size_stay_outside(store, device, nbytes):
    data = values("f4", (256, 512))
    array = hr.create_array(
        store, shape=data.shape, dtype="f4", chunks=(256, 512), compressors=None
    )
    array[...] = data
    chunk = Path(store) / "c" / "0" / "0"
    chunk.write_bytes((chunk.read_bytes() + bytes(4096))[: data.nbytes + nbytes])
    memory = out_like(device, (256 + 16, 512))
    with pytest.raises(hr.CorruptError, match="chunk"):
        hr.open_array(store, device=device).read(out=memory[:256])
    assert not to_host(memory[256:]).any()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("shards", [None, (16, 32)])
def test_reads_what_the_host_reads(store, device, codec, shards):
    data = smooth("f4", (30, 40))
    hr.create_array(
        store,
        shape=data.shape,
        dtype="f4",
        chunks=(8, 16),
        shards=shards,
        compressors=CODECS[codec],
    )[...] = data
    array = hr.open_array(store, device=device)
    x = array[...]
    assert isinstance(x, hr.DeviceArray)
    assert_same(x.to_numpy(), data)
    assert_same(array[3:20:2, ::-1].to_numpy(), data[3:20:2, ::-1])
    assert_same(array.oindex[[5, 1, 28], 4].to_numpy(), data[[5, 1, 28], 4])
    assert_same(array.vindex[[5, 1, 28], [0, 39, 3]].to_numpy(), data[[5, 1, 28], [0, 39, 3]])
    assert_same(array.read(np.s_[2:4], device="cpu"), data[2:4])
    assert_same(array.read_async(np.s_[2:4]).result(60).to_numpy(), data[2:4])


def test_attributes(pair, device):
    array, data = pair
    x = array.to(device).read()
    assert x.device.split(":")[0] == device
    assert (x.shape, x.strides, x.dtype) == (data.shape, data.strides, data.dtype)
    assert (x.ndim, x.size, x.nbytes, len(x)) == (2, data.size, data.nbytes, 30)
    assert "DeviceArray" in repr(x) and x.device in repr(x)
    scalar = array.to(device)[3, 4]
    assert (scalar.shape, scalar.to_numpy()) == ((), data[3, 4])
    with pytest.raises(TypeError, match="len"):
        len(scalar)
    with pytest.raises(TypeError, match="to_numpy"):
        np.asarray(x)


KEYS = [
    np.s_[3],
    np.s_[-1, 2],
    np.s_[2:20:3],
    np.s_[::-1, ::-2],
    np.s_[..., 5],
    np.s_[None, 4:2],
    np.s_[5, ..., None],
    np.s_[...],
    (),
]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_slices_are_views(pair, device, key):
    array, data = pair
    view = array.to(device)[...][key]
    assert view.shape == data[key].shape
    assert_same(view.to_numpy(), np.ascontiguousarray(data[key]).reshape(data[key].shape))


@pytest.mark.parametrize("key", [30, -31, (0, 0, 0), (..., ...), [1, 2], "a", True])
def test_wrong_keys(pair, device, key):
    x = pair[0].to(device)[...]
    with pytest.raises(IndexError):
        x[key]


@pytest.mark.parametrize("key", [np.array([1]), np.array([2, 1]), np.array([], int)], ids=str)
def test_an_array_is_no_integer(pair, device, key):
    x = pair[0].to(device)[...]
    for wrong in (key, (0, key)):
        with pytest.raises(TypeError, match="index: expected an integer"):
            x[wrong]
    assert x[np.array(1)].shape == x[1].shape


def test_dlpack_of_a_result(pair, device):
    array, data = pair
    x = array.to(device)[...]
    assert x.__dlpack_device__() == ((1, 0) if device == "simt" else (2, 0))
    on_host = np.from_dlpack(x) if device == "simt" else np.from_dlpack(x, device="cpu")
    assert_same(on_host, data)
    view = x[::2, 1:]
    if device == "simt":
        assert_same(np.from_dlpack(view), data[::2, 1:])
        assert np.shares_memory(np.from_dlpack(view), np.from_dlpack(x))
        assert not np.shares_memory(np.from_dlpack(view, copy=True), np.from_dlpack(x))
        with pytest.raises(AttributeError):
            x.__cuda_array_interface__  # noqa: B018
    else:
        interface = view.__cuda_array_interface__
        assert (interface["version"], interface["shape"]) == (3, (15, 39))
        assert interface["strides"] == (320, 4)
        assert x.__cuda_array_interface__["strides"] is None
        with pytest.raises(BufferError, match="copy"):
            x.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(BufferError):
        x.__dlpack__(stream=0)
    with pytest.raises(BufferError):
        x.__dlpack__(dl_device=(7, 0))


def test_memory_outlives_the_array(pair, device):
    array, data = pair
    row = array.to(device)[...][3]
    taken = np.from_dlpack(row) if device == "simt" else np.from_dlpack(row, device="cpu")
    del array, row
    assert_same(taken, data[3])


def test_dlpack_of_an_array(pair, device):
    array, data = pair
    there = array.to(device)
    if device == "simt":
        assert_same(np.from_dlpack(there), data)
        assert there.__dlpack_device__() == (1, 0)
    else:
        torch = pytest.importorskip("torch")
        x = torch.from_dlpack(there)
        assert x.is_cuda
        assert_same(x.cpu().numpy(), data)


def test_torch_takes_results(pair, device):
    torch = pytest.importorskip("torch")
    array, data = pair
    x = torch.from_dlpack(array.to(device)[4:9])
    assert x.is_cuda == (device == "cuda")
    assert_same(x.cpu().numpy(), data[4:9])


@pytest.mark.parametrize("turn", [False, True])
def test_out_is_filled_in_place(pair, device, turn):
    array, data = pair
    there = array.to(device)
    buffer = out_like(device, (60, 40))
    out = buffer[::2] if device == "cuda" or not turn else buffer[::-2]
    assert there.read(out=out) is out
    assert_same(to_host(out), data)
    gaps = to_host(buffer)[1::2] if not turn or device == "cuda" else to_host(buffer)[::2]
    assert not gaps.any()


def test_out_of_a_device_array(pair, device):
    array, data = pair
    there = array.to(device)
    target = there[...]
    got = there.read(np.s_[:, ::-1], out=target)
    assert got is target
    assert_same(target.to_numpy(), data[:, ::-1])
    there.read_async(np.s_[0:10], out=target[20:]).result(60)
    assert_same(target.to_numpy()[20:], data[:10])


def test_wrong_out(pair, device):
    array = pair[0]
    there = array.to(device)
    for wrong in (out_like(device, (30, 41)), out_like(device, (30, 40), "f8")):
        with pytest.raises(ValueError, match=r"shape|dtype"):
            there.read(out=wrong)
    with pytest.raises(ValueError, match="out lies on"):
        array.read(out=there[...])
    if device == "cuda":
        with pytest.raises(ValueError, match="out lies on"):
            there.read(out=np.zeros((30, 40), "f4"))


def test_read_many(pair, device):
    array, data = pair
    there = array.to(device)
    out = out_like(device, (5, 40))
    first, second, third = hr.read_many(
        [(there, np.s_[3]), (array, np.s_[:2]), (there, np.s_[:5], out)]
    )
    assert_same(first.to_numpy(), data[3])
    assert_same(second, data[:2])
    assert_same(to_host(third), data[:5])


class Stream:
    """A stream as other libraries have them."""

    def __init__(self, handle, name):
        setattr(self, name, handle)


@pytest.mark.parametrize("name", ["cuda_stream", "ptr"])
def test_streams_of_other_libraries(pair, device, name):
    array, data = pair
    there = array.to(device)
    for stream in (None, 1, 0, Stream(0, name)):
        assert_same(there.read(np.s_[1:4], stream=stream).to_numpy(), data[1:4])
    for wrong, error in (("x", TypeError), (True, TypeError), (-3, ValueError)):
        with pytest.raises(error, match="stream"):
            there.read(stream=wrong)
    with pytest.raises(ValueError, match="stream"):
        array.read(stream=1)


@pytest.mark.skipif(not HAS_CUDA, reason="no GPU")
def test_work_of_the_callers_stream_comes_first(pair):
    torch = pytest.importorskip("torch")
    array, data = pair
    there = array.to("cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        out = torch.zeros((30, 40), device="cuda")
        torch.cuda._sleep(50_000_000)
        out.fill_(3)
        there.read(out=out, stream=stream)
        assert_same(out.cpu().numpy(), data)


def test_corrupt_chunks_are_named(store, device):
    data = smooth("f4", (30, 40))
    codecs = [hr.codecs.Shuffle(elementsize=4), hr.codecs.Crc32c()]
    hr.create_array(store, shape=data.shape, dtype="f4", chunks=(8, 16), compressors=codecs)[
        ...
    ] = data
    path = chunk_files(store)["c/1/2"]
    bytes_ = bytearray(path.read_bytes())
    bytes_[40] ^= 255
    path.write_bytes(bytes_)
    array = hr.open_array(store, device=device)
    with pytest.raises(hr.CorruptError, match=r"chunk c/1/2: codec crc32c"):
        array[...]
    with pytest.raises(hr.CorruptError, match=r"chunk c/1/2: codec crc32c"):
        array.read_async().result(60)
    assert_same(array[16:].to_numpy(), data[16:])
    path.write_bytes(bytes_[:-1])
    with pytest.raises(hr.CorruptError, match=r"chunk c/1/2: codec"):
        array[...]


def test_implementations_force_where_chunks_are_decoded(store, device):
    data = smooth("f4", (30, 40))
    write_zarr(store, data, chunks=(8, 16))  # zstd
    array = hr.open_array(store)
    name = f"headrace-{device}"
    there = array.to(device)
    for implementation in (name, "libzstd"):
        got = there.read(implementations={"zstd": implementation})
        assert_same(got.to_numpy(), data)
    with pytest.raises(ValueError, match=name):
        array.read(implementations={"zstd": name})
    rows = [r for r in hr.codecs.table() if r["implementation"] == name]
    assert {"zstd", "blosc", "gzip", "lz4", "crc32c", "shuffle"} <= {r["codec"] for r in rows}
    assert all(r["device"] == device for r in rows)


def test_what_the_host_alone_decodes_ends_on_the_device(store, device):
    data = values("i4", (30, 40))
    codecs = [hr.codecs.Zstd(), hr.codecs.Gzip()]
    hr.create_array(store, shape=data.shape, dtype="i4", chunks=(8, 16), compressors=codecs)[
        ...
    ] = data
    array = hr.open_array(store, device=device)
    assert_same(array[...].to_numpy(), data)
    with pytest.raises(NotImplementedError, match=r"gzip|zstd"):
        array.read(implementations={"zstd": f"headrace-{device}"})


def test_frames_of_tiny_blocks_are_left_to_the_host(store, device):
    n = 4000  # blocks of one byte, for each of which a kernel would keep a hundred
    data = values("u1", (n,))
    frame = bytearray.fromhex("28b52ffde0") + n.to_bytes(8, "little")
    for i, byte in enumerate(data):
        frame += (1 << 3 | (i + 1 == n)).to_bytes(3, "little") + bytes([byte])
    array = hr.create_array(store, shape=(n,), dtype="u1", chunks=(n,), compressors="zstd")
    array[...] = data
    chunk_files(store)["c/0"].write_bytes(frame)
    assert_same(read_zarr(store), data)
    there = hr.open_array(store, device=device)
    assert_same(there[...].to_numpy(), data)
    with pytest.raises(NotImplementedError, match="codec zstd"):
        there.read(implementations={"zstd": f"headrace-{device}"})


@pytest.mark.parametrize(
    "dtype", ["b1", "i1", "u2", "f2", "f8", "c16", ">f4", "S5", "U3", "M8[ns]"]
)
def test_dtypes(store, device, dtype):
    data = values(dtype, (9, 7))
    write_zarr(store, data, chunks=(4, 3))
    assert_same(hr.open_array(store, device=device)[...].to_numpy(), data)


def test_writes_take_device_memory(pair, store, device):
    array, data = pair
    source = array.to(device)[::-1]
    target = hr.open_array(store, mode="r+", device=device)
    target[...] = source
    assert_same(hr.open_array(store)[...], data[::-1])
    target.write(np.s_[:4], source[4:0:-1, ::-1])
    assert_same(hr.open_array(store)[:4], data[::-1][4:0:-1, ::-1])
    target.append(source[:2])
    assert_same(hr.open_array(store)[30:], data[::-1][:2])
    if device == "cuda":
        other = hr.create_array(store, shape=(3,), dtype="f8", chunks=(3,), overwrite=True)
        with pytest.raises(ValueError, match="dtype"):
            other[...] = source[0, :3]


def test_an_allocator_of_the_callers(pair):
    array, data = pair
    there, blocks, freed = array.to("simt"), {}, []

    def allocate(nbytes, stream):
        block = np.empty(nbytes + 256, "u1")
        address = -(-block.ctypes.data // 256) * 256
        blocks[address] = block
        return address

    def free(address, nbytes, stream):
        freed.append(nbytes)
        del blocks[address]

    hr.set_allocator("simt", allocate, free)
    try:
        x = there[...]
        assert len(blocks) == 1
        assert_same(x.to_numpy(), data)
        hr.set_allocator("simt", None, None)
        row = x[3]
        del x
        assert not freed
        del row
        assert freed == [data.nbytes]
        hr.set_allocator("simt", lambda nbytes, stream: 1 // 0, free)
        with pytest.raises(MemoryError, match="ZeroDivisionError"):
            there.read_async().result(60)
        hr.set_allocator("simt", lambda nbytes, stream: 0, free)
        with pytest.raises(MemoryError, match=str(data.nbytes)):
            there.read()
    finally:
        hr.set_allocator("simt", None, None)
    with pytest.raises(ValueError, match="both"):
        hr.set_allocator("simt", allocate, None)
    with pytest.raises(ValueError, match="cpu"):
        hr.set_allocator("cpu", allocate, free)


def test_threads(pair, device):
    array, data = pair
    there, bad = array.to(device), []

    def work():
        for _ in range(3):
            if there[...].to_numpy().tobytes() != data.tobytes():
                bad.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not bad


def test_cupy(pair, device, tmp_path):
    cupy = library("cupy", device)
    array, data = pair
    there = array.to(device)
    assert_same(cupy.asnumpy(cupy.from_dlpack(there[3:9])), data[3:9])
    assert_same(cupy.asnumpy(cupy.asarray(there[3:9])), data[3:9])  # __cuda_array_interface__
    assert_same(cupy.asnumpy(cupy.from_dlpack(there)), data)
    out = cupy.zeros((60, 40), "f4")
    assert there.read(out=out[::2]).base is out
    assert_same(cupy.asnumpy(out)[::2], data)
    assert not cupy.asnumpy(out)[1::2].any()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        out.fill(3)
        there.read(np.s_[::-1], out=out[30:], stream=stream)
        assert_same(cupy.asnumpy(out[30:]), data[::-1])
    with pytest.raises(ValueError, match="dtype"):
        there.read(out=cupy.zeros((30, 40), "f8"))

    target = hr.create_array(tmp_path / "x", shape=data.shape, dtype="f4", chunks=(8, 16))
    target[...] = cupy.asarray(data)[:, ::-1]
    assert_same(target[...], data[:, ::-1])

    frames = hr.codecs.encode_batch("zstd", [cupy.asarray(data)], device="cpu")
    moved = [cupy.frombuffer(frame, "u1") for frame in frames]
    decoded = [cupy.zeros(data.shape, "f4")]
    hr.codecs.decode_batch("zstd", moved, out=decoded, stream=cupy.cuda.get_current_stream())
    assert_same(cupy.asnumpy(decoded[0]), data)


def test_jax(pair, device, tmp_path):
    jax = library("jax", device)
    array, data = pair
    there = array.to(device)
    x = jax.dlpack.from_dlpack(there[3:9])
    assert next(iter(x.devices())).platform == "gpu"
    assert_same(np.asarray(x), data[3:9])
    assert_same(np.asarray(jax.dlpack.from_dlpack(there)), data)
    assert_same(np.asarray(x + 1), data[3:9] + 1)

    target = hr.create_array(tmp_path / "x", shape=data.shape, dtype="f4", chunks=(8, 16))
    target[...] = jax.device_put(data)
    assert_same(target[...], data)
    frames = hr.codecs.encode_batch("zstd", [jax.device_put(data)], device="cpu")
    moved = [jax.device_put(np.frombuffer(frame, "u1")) for frame in frames]
    (got,) = hr.codecs.decode_batch("zstd", moved, out_nbytes=[data.nbytes])
    assert got.to_numpy().tobytes() == data.tobytes()


def test_doctor_lists_devices():
    rows = {row["device"]: row for row in hr.doctor()["devices"]}
    assert rows["cpu"]["available"] and rows["simt"]["available"]
    assert rows["cuda:0"]["available"] or rows["cuda:0"]["why_not"]
