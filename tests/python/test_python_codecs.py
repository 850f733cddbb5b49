"""Codecs that headrace lacks and Python has: numcodecs', zarr-python's, and one's own."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import headrace as hr
import numcodecs
import numpy as np
import pytest
import zarr
import zarr.codecs.numcodecs as nc
from headrace import _python_codecs
from helpers import DEVICES, as_bytes, assert_same, python, smooth
from numcodecs.abc import Codec
from numcodecs.compat import ensure_contiguous_ndarray
from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec, BytesBytesCodec
from zarr.registry import register_codec

pytestmark = pytest.mark.filterwarnings("ignore:(?s).*not part of the Zarr format 3 specification")

DATA = smooth("f4", (33, 21))
CHUNKS = (20, 16)


class Xor(Codec):
    """numcodecs' interface: every byte changed, which `fault` makes go wrong."""

    codec_id = "test-xor"
    seen: list = []  # noqa: RUF012

    def __init__(self, fault=None):
        self.fault = fault

    def encode(self, buf):
        Xor.seen.append(buf)
        if self.fault == "encode raises":
            raise RuntimeError("not today")
        encoded = ensure_contiguous_ndarray(buf).view("u1") ^ 0x5A
        encoded[:2] ^= 0xFF if self.fault == "corrupt" else 0
        return encoded if self.fault != "encode gives text" else "text"

    def decode(self, buf, out=None):
        assert out is None
        decoded = np.frombuffer(buf, "u1") ^ 0x5A
        if self.fault == "decode raises":
            raise RuntimeError("not today")
        if self.fault == "short":
            return decoded[:-1]
        if self.fault == "long":
            return decoded.tobytes() + b"x"
        if self.fault == "strided":
            return np.repeat(decoded, 2)[::2]
        if self.fault == "nothing":
            return None
        if self.fault == "no memory":
            raise MemoryError("all gone")
        if self.fault == "writes":
            buf[:] = 0
        return memoryview(decoded.tobytes())


class Halves(Codec):
    """A filter that gives elements of half the size."""

    codec_id = "test-halves"

    def encode(self, buf):
        return buf.astype("f2")

    def decode(self, buf, out=None):
        return np.frombuffer(buf, "f2").astype("f4")


@dataclass(frozen=True)
class OfZarr:
    """What codecs of zarr-python share here: their configuration is a key."""

    key: int = 0x5A
    is_fixed_size = True

    @classmethod
    def from_dict(cls, data):
        return cls(**data.get("configuration", {}))

    def to_dict(self):
        return {"name": self.name, "configuration": {"key": self.key}}

    def compute_encoded_size(self, n, _):
        return n


class XorBytes(OfZarr, BytesBytesCodec):
    name = "test.xor"

    async def _decode_single(self, data, spec):
        return spec.prototype.buffer.from_array_like(data.as_numpy_array() ^ np.uint8(self.key))

    _encode_single = _decode_single


class Turn(OfZarr, ArrayArrayCodec):
    """Dimensions the other way round, elements as float64: views of the same memory."""

    name = "test.turn"

    def resolve_metadata(self, spec):
        from dataclasses import replace

        from zarr.dtype import Float64

        return replace(spec, shape=spec.shape[::-1], dtype=Float64())

    async def _encode_single(self, data, spec):
        return spec.prototype.nd_buffer.from_ndarray_like(data.as_numpy_array().T.astype("f8"))

    async def _decode_single(self, data, spec):
        turned = data.as_numpy_array().T.astype(spec.dtype.to_native_dtype())
        return spec.prototype.nd_buffer.from_ndarray_like(turned[:-1] if self.key == 1 else turned)


class Text(OfZarr, ArrayBytesCodec):
    """Elements as decimal text."""

    name = "test.text"
    is_fixed_size = False

    async def _encode_single(self, data, spec):
        text = " ".join(repr(x) for x in data.as_numpy_array().ravel().tolist())
        return spec.prototype.buffer.from_bytes(text.encode())

    async def _decode_single(self, data, spec):
        values = np.array(data.to_bytes().split(), spec.dtype.to_native_dtype())
        return spec.prototype.nd_buffer.from_ndarray_like(values.reshape(spec.shape))


numcodecs.register_codec(Xor)
numcodecs.register_codec(Halves)
for cls in (XorBytes, Turn, Text):
    register_codec(cls.name, cls)


def pcodec(**options):
    pytest.importorskip("pcodec")
    return nc.PCodec(**options)


CASES = {
    "numcodecs": {"zarr_format": 2, "filters": None, "compressors": Xor()},
    "numcodecs in front": {"zarr_format": 2, "filters": Xor(), "compressors": numcodecs.BZ2()},
    "base64": {"zarr_format": 2, "filters": None, "compressors": numcodecs.Base64()},
    "order F": {"zarr_format": 2, "filters": None, "compressors": Xor(), "order": "F"},
    "bytes": {"zarr_format": 3, "compressors": [XorBytes()]},
    "bytes behind": {"zarr_format": 3, "compressors": [zarr.codecs.ZstdCodec(), XorBytes(3)]},
    "array": {"zarr_format": 3, "filters": [Turn()]},
    "serializer": {"zarr_format": 3, "serializer": Text()},
    "all": {"zarr_format": 3, "filters": Turn(), "serializer": Text(), "compressors": XorBytes()},
    "shards": {"zarr_format": 3, "shards": (40, 32), "filters": Turn(), "compressors": XorBytes()},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", ["f4", ">f4", "i2"])
def test_both_ways_beside_zarr_python(tmp_path, case, dtype):
    data = DATA.astype(dtype)
    options = {"shape": data.shape, "chunks": CHUNKS, "dtype": data.dtype, **CASES[case]}
    theirs = zarr.create_array(tmp_path / "theirs", **options)
    theirs[...] = data
    array = hr.open_array(tmp_path / "theirs")
    assert_same(array[...], data)
    assert_same(array[5:25, ::-3], data[5:25, ::-3])
    assert_same(array.vindex[[0, 30, 7], [1, 20, 1]], data[[0, 30, 7], [1, 20, 1]])
    ours = hr.create_array(tmp_path / "ours", **options)
    ours[...] = data
    ours[3:7, 2:20] = data[3:7, 2:20] + 1
    data[3:7, 2:20] += 1
    assert_same(zarr.open_array(tmp_path / "ours")[...], data)
    assert_same(hr.open_array(tmp_path / "ours")[...], data)


@pytest.mark.parametrize("dtype", ["f4", "f8", "u8", "i4", "i2"])
@pytest.mark.parametrize("shards", [None, (40, 32)])
def test_pcodec_both_ways(tmp_path, dtype, shards):
    data = smooth(dtype, (33, 21))
    options = {"shape": data.shape, "chunks": CHUNKS, "shards": shards, "dtype": dtype}
    for codec in (pcodec(), pcodec(level=4, delta_encoding_order=2, equal_pages_up_to=1000)):
        options |= {"serializer": codec, "compressors": None, "overwrite": True}
        theirs = zarr.create_array(tmp_path / "theirs", **options)
        theirs[...] = data
        ours = hr.create_array(tmp_path / "ours", **options)
        ours[...] = data
        assert_same(hr.open_array(tmp_path / "theirs")[...], data)
        assert_same(zarr.open_array(tmp_path / "ours")[...], data)


def test_pcodec_of_v2(tmp_path):
    codec = {"id": "pcodec", "level": 5}
    pytest.importorskip("pcodec")
    options = {"shape": DATA.shape, "chunks": CHUNKS, "dtype": "f4", "compressors": codec}
    ours = hr.create_array(tmp_path / "ours", zarr_format=2, **options)
    ours[...] = DATA
    theirs = zarr.open_array(tmp_path / "ours")
    assert theirs.compressors[0].codec_id == "pcodec"
    assert_same(theirs[...], DATA)
    assert_same(hr.open_array(tmp_path / "ours")[...], DATA)


def test_a_filter_that_changes_the_type(tmp_path):
    data = DATA.astype("f2").astype("f4")
    options = {"shape": data.shape, "chunks": CHUNKS, "dtype": "f4", "zarr_format": 2}
    options |= {"filters": Halves(), "compressors": numcodecs.Zlib()}
    for create, reopen in ((zarr.create_array, hr.open_array), (hr.create_array, zarr.open_array)):
        path = tmp_path / create.__module__
        create(path, **options)[...] = data
        assert_same(reopen(path)[...], data)


def test_codecs_of_shard_indices(tmp_path):
    sharding = zarr.codecs.ShardingCodec(
        chunk_shape=(10, 8),
        codecs=[zarr.codecs.BytesCodec(), XorBytes()],
        index_codecs=[zarr.codecs.BytesCodec(), XorBytes(9)],
    )
    options = {"shape": DATA.shape, "chunks": CHUNKS, "dtype": "f4"}
    theirs = zarr.create_array(tmp_path / "x", serializer=sharding, compressors=None, **options)
    theirs[...] = DATA
    assert_same(hr.open_array(tmp_path / "x")[4:, 3:], DATA[4:, 3:])


def test_strings_behind_a_codec(tmp_path):
    words = np.array(["", "a", "\u4e2d\u6587", "x" * 300] * 5, dtype=np.dtypes.StringDType())
    options = {"shape": words.shape, "chunks": (7,), "dtype": words.dtype}
    hr.create_array(tmp_path / "x", compressors=XorBytes(), **options)[...] = words
    assert hr.open_array(tmp_path / "x")[...].tolist() == words.tolist()
    assert zarr.open_array(tmp_path / "x")[...].tolist() == words.tolist()
    with pytest.raises(NotImplementedError, match=r"test\.turn: .*variable length"):
        hr.create_array(tmp_path / "y", filters=Turn(), **options)


@pytest.mark.parametrize("device", DEVICES)
def test_results_on_a_device(tmp_path, device):
    for name, codecs in {"bytes": {"compressors": XorBytes()}, "all": CASES["all"]}.items():
        options = {"shape": DATA.shape, "chunks": CHUNKS, "dtype": "f4", "device": device}
        array = hr.create_array(tmp_path / name, **options, **codecs)
        array[...] = DATA
        assert_same(array[3:30, ::2].to_numpy(), DATA[3:30, ::2])
        array[:20] = array[:20]
        assert_same(hr.open_array(tmp_path / name)[...], DATA)


def test_batches_of_buffers():
    plain = [b"abc" * 100, b"", bytes(range(256))]
    encoded = hr.codecs.encode_batch(Xor(), plain)
    assert [as_bytes(x) for x in encoded] == [bytes(b ^ 0x5A for b in x) for x in plain]
    decoded = hr.codecs.decode_batch(Xor(), encoded, out_nbytes=[300, 0, 256])
    assert [as_bytes(x) for x in decoded] == plain
    assert [as_bytes(x) for x in hr.codecs.encode_batch(XorBytes(), plain)] == [
        *map(as_bytes, encoded)
    ]
    with pytest.raises(hr.CorruptError, match="input 1: codec test-xor: expected 3 bytes, got 2"):
        hr.codecs.decode_batch(Xor(), [b"xyz", b"xy"], out_nbytes=[3, 3])


# Codecs that do wrong.


def of_xor(path, fault, **options):
    options = {"zarr_format": 2, "filters": None} | options
    codec = Xor(fault) if fault else Xor()
    return hr.create_array(
        path, shape=(6,), chunks=(4,), dtype="i4", compressors=codec, overwrite=True, **options
    )


@pytest.mark.parametrize(
    ("fault", "error", "text"),
    [
        ("short", hr.CorruptError, "expected 16 bytes, got 15"),
        ("long", hr.CorruptError, "expected 16 bytes, got 17"),
        ("strided", hr.CorruptError, "ValueError: an array with contiguous memory is required"),
        ("nothing", hr.CorruptError, "TypeError: .*NoneType"),
        ("decode raises", hr.CorruptError, "RuntimeError: not today"),
        ("no memory", MemoryError, "MemoryError: all gone"),
    ],
)
def test_decoders_that_do_wrong(tmp_path, fault, error, text):
    hr.create_group(tmp_path, zarr_format=2)
    of_xor(tmp_path / "x", fault)[...] = np.arange(6)
    with pytest.raises(error, match=rf"x chunk [01]: codec test-xor: {text}"):
        hr.open_group(tmp_path)["x"][...]
    behind = {"filters": Xor(), "compressors": Xor(fault)}
    array = hr.create_array(
        tmp_path / "y", shape=(4,), chunks=(4,), dtype="i4", zarr_format=2, **behind
    )
    array[...] = np.arange(4)
    with pytest.raises(error, match="y chunk 0: codec test-xor: "):
        array[...]


@pytest.mark.parametrize(
    ("fault", "text"),
    [("encode raises", "RuntimeError: not today"), ("encode gives text", "TypeError")],
)
def test_encoders_that_do_wrong(tmp_path, fault, text):
    array = of_xor(tmp_path / "x", None)
    array[...] = np.arange(6)
    wrong = of_xor(tmp_path / "y", fault)
    with pytest.raises(ValueError, match=rf"chunk [01]: codec test-xor: {text}"):
        wrong[...] = np.arange(6)
    assert wrong.nchunks_initialized == 0


def test_a_wrong_shape_is_named(tmp_path):
    options = {"shape": DATA.shape, "chunks": CHUNKS, "dtype": "f4"}
    array = hr.create_array(tmp_path / "x", filters=Turn(1), **options)
    array[...] = DATA
    with pytest.raises(
        hr.CorruptError,
        match=r"chunk c/\d/\d: codec test.turn: .*of shape \(20, 16\), got float32 of shape \(19",
    ):
        array[...]


def test_memory_is_the_codecs_own(tmp_path):
    Xor.seen.clear()
    data = np.arange(6, dtype="i4")
    array = of_xor(tmp_path / "x", "writes")
    array[...] = data
    kept = {bytes(seen) for seen in Xor.seen}
    del data
    assert kept == {np.arange(4, dtype="i4").tobytes(), np.array([4, 5, 0, 0], "i4").tobytes()}
    for _ in range(3):
        assert_same(array[...], np.arange(6, dtype="i4"))


@pytest.mark.parametrize("codec", [{"id": "test-xor", "no_such": 1}, {"id": "test-nobody"}])
def test_configurations_and_names_are_checked(tmp_path, codec):
    wanted = (ValueError, "test-xor: TypeError.*no_such")
    if codec["id"] == "test-nobody":
        wanted = (NotImplementedError, "test-nobody is not known")
    with pytest.raises(wanted[0], match=wanted[1]):
        hr.create_array(tmp_path / "x", shape=4, dtype="i4", compressors=codec, zarr_format=2)


def test_pickle_stays_refused(tmp_path):
    for options in ({"dtype": object}, {"dtype": "u1"}):
        with pytest.raises(NotImplementedError, match="runs code"):
            hr.create_array(
                tmp_path / "x",
                shape=4,
                filters=numcodecs.Pickle(),
                compressors=None,
                zarr_format=2,
                **options,
            )


# Threads and processes.


class Barrier(Xor):
    """Decodes when two threads are in it."""

    codec_id = "test-barrier"
    barrier = threading.Barrier(2, timeout=20)

    def decode(self, buf, out=None):
        self.barrier.wait()
        return super().decode(buf)


numcodecs.register_codec(Barrier)


def test_threads_are_in_it_together(tmp_path):
    array = hr.create_array(
        tmp_path / "x", shape=(8,), chunks=(4,), dtype="i4", compressors=Barrier(), zarr_format=2
    )
    array[...] = np.arange(8)
    with hr.config.set({"threads": 2}):
        assert_same(array[...], np.arange(8, dtype="i4"))


def test_layouts_come_and_go_in_many_threads(tmp_path):
    # Codecs are dropped by threads that do not have the GIL.
    array = hr.create_array(
        tmp_path / "x",
        shape=(40,),
        chunks=[[3, 5, 7, 1, 4] * 2],
        dtype="i4",
        compressors=[hr.codecs.Zstd(), XorBytes()],
    )
    array[...] = np.arange(40)

    def read(k):
        name = "libzstd" if k % 2 else None
        chosen = {"zstd": name} if name else None
        for _ in range(10):
            assert_same(array.read(implementations=chosen), np.arange(40, dtype="i4"))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(read, range(8)))


@pytest.mark.parametrize("case", ["numcodecs", "all"])
def test_after_a_fork(tmp_path, case):
    options = {"shape": DATA.shape, "chunks": CHUNKS, "dtype": "f4", **CASES[case]}
    array = hr.create_array(tmp_path / "x", **options)
    array[...] = DATA
    stop = threading.Event()

    def keep_reading():
        while not stop.is_set():
            array[...]

    thread = threading.Thread(target=keep_reading)
    thread.start()
    try:
        child = os.fork()
        if child == 0:
            ok = (array[...] == DATA).all()
            os._exit(0 if ok else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        thread.join()


def test_nothing_is_imported_before_it_is_needed(tmp_path):
    hr.create_array(tmp_path / "x", shape=4, dtype="i4", zarr_format=2)[...] = 1
    python(
        "import sys, headrace; headrace.open(sys.argv[1])[...];"
        "assert not {'numcodecs', 'zarr'} & set(sys.modules)",
        tmp_path / "x",
    )
    of_xor(tmp_path / "y", None)[...] = np.arange(6)
    code = """
import sys, headrace
try:
    headrace.open(sys.argv[1])[...]
except NotImplementedError as error:
    assert "test-xor is not known" in str(error)
else:
    raise SystemExit(1)
assert "numcodecs" in sys.modules
"""
    python(code, tmp_path / "y")


# Where else.


def test_the_table_names_them():
    rows = {row["codec"]: row for row in hr.codecs.table()}
    assert rows["test-xor"]["implementation"] == "numcodecs"
    assert rows["test.text"]["implementation"] == "zarr-python"
    assert rows["test.text"]["device"] == "cpu"
    assert rows["base64"]["available"]
    assert "pickle" not in rows
    assert not {"endian", "numcodecs.zlib"} & set(rows)
    assert rows["zstd"]["implementation"] != "numcodecs"


def test_what_headrace_serves_to_zarr_python_is_not_asked_for(tmp_path):
    # zarr-python's "zfp" is headrace's. Without libzfp each asked the other, without end.
    code = """
import sys
import headrace, headrace.zarr.codecs, numpy, zarr.registry

class Lacked(headrace.zarr.codecs.Zfp):
    codec_name = "lacked"

zarr.registry.register_codec("lacked", Lacked)
lacked = {"name": "lacked", "configuration": {"mode": "reversible"}}
for write in (headrace.create_array, zarr.create_array):
    try:
        array = write(sys.argv[1], shape=(8,), dtype="f4", serializer=lacked)
        array[...] = numpy.ones(8)
    except NotImplementedError as error:
        assert "lacked is not known" in str(error), error
    else:
        raise SystemExit(f"{write} wrote it")
"""
    python(code, tmp_path / "x")
    assert ("zfp", "zarr-python") not in _python_codecs.known()


def test_the_pipeline_leaves_them_to_zarr_python(tmp_path):
    for name in ("numcodecs", "all"):
        options = {"shape": DATA.shape, "chunks": CHUNKS, "dtype": "f4", **CASES[name]}
        with zarr.config.set({"codec_pipeline.path": "headrace.zarr.CodecPipeline"}):
            array = zarr.create_array(tmp_path / name, **options)
            array[...] = DATA
            assert_same(array[...], DATA)
            assert_same(zarr.open_array(tmp_path / name)[...], DATA)
    with _python_codecs.left_out(), pytest.raises(NotImplementedError, match=r"test\.turn"):
        hr.open_array(tmp_path / "all")[...]
