"""Hand-over of whole arrays: DLPack of Array, __array__.

Decisions, where api.md is silent: a legacy capsule is given unless max_version >= (1, 0); what has
no DLPack type is a BufferError, foreign byte order one too unless it comes out native;
`np.array(a, copy=False)` is a ValueError, since reading makes new memory.
"""

import ctypes

import headrace as hr
import numpy as np
import pytest
from helpers import assert_same, smooth, values, write_zarr

CPU = (1, 0)
DTYPES = ["b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]


@pytest.fixture
def pair(store):
    data = values("f4", (9, 7))
    write_zarr(store, data, chunks=(4, 3))
    return hr.open_array(store), data


def capsule_name(capsule):
    get_name = ctypes.pythonapi.PyCapsule_GetName
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    return get_name(capsule)


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_takes_every_dtype(store, dtype):
    data = values(dtype, (9, 7))
    write_zarr(store, data, chunks=(4, 3))
    assert_same(np.from_dlpack(hr.open_array(store)), data)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (2, 1, 3)])
def test_shapes(store, shape):
    data = values("i4", shape)
    write_zarr(store, data, chunks=tuple(max(1, n) for n in shape))
    assert_same(np.from_dlpack(hr.open_array(store)), data)


def test_device(pair):
    assert tuple(map(int, pair[0].__dlpack_device__())) == CPU


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({}, b"dltensor"),
        ({"max_version": None}, b"dltensor"),
        ({"max_version": (0, 8)}, b"dltensor"),
        ({"max_version": (1, 0)}, b"dltensor_versioned"),
        ({"max_version": (1, 1), "dl_device": CPU}, b"dltensor_versioned"),
        ({"max_version": (2, 0), "copy": True}, b"dltensor_versioned"),
        ({"stream": None}, b"dltensor"),
    ],
)
def test_capsules(pair, arguments, name):
    # The capsule is dropped unused: its memory must go without help.
    assert capsule_name(pair[0].__dlpack__(**arguments)) == name


def test_capsule_is_taken_once(pair):
    class Given:
        def __init__(self, capsule):
            self.capsule = capsule

        def __dlpack__(self, **_):
            return self.capsule

        def __dlpack_device__(self):
            return CPU

    array, data = pair
    given = Given(array.__dlpack__(max_version=(1, 0)))
    assert_same(np.from_dlpack(given), data)
    assert capsule_name(given.capsule) == b"used_dltensor_versioned"
    with pytest.raises((ValueError, BufferError, RuntimeError)):
        np.from_dlpack(given)


def test_result_is_writable_and_its_own(pair):
    array, data = pair
    first, second = np.from_dlpack(array), np.from_dlpack(array)
    assert first.flags.writeable
    first[...] = 0
    assert_same(second, data)
    assert_same(array[...], data)


def test_memory_lives_as_long_as_the_consumer(store):
    data = smooth("f8", (200, 100))
    write_zarr(store, data, chunks=(50, 50))
    taken = np.from_dlpack(hr.open_array(store))
    for _ in range(20):
        np.from_dlpack(hr.open_array(store))
    assert_same(taken, data)


@pytest.mark.parametrize("arguments", [{"dl_device": (8, 0)}, {"dl_device": (1, 7)}, {"stream": 3}])
def test_other_device_or_stream_is_refused(pair, arguments):
    with pytest.raises((BufferError, ValueError, RuntimeError)):
        pair[0].__dlpack__(max_version=(1, 0), **arguments)


@pytest.mark.parametrize(
    "dtype", ["M8[ns]", "m8[s]", "S3", "U2", "V4", [("a", "<i4"), ("b", "<f4")]]
)
def test_dtype_without_a_dlpack_type_is_a_buffer_error(store, dtype):
    data = values(dtype, (4,))
    write_zarr(store, data, zarr_format=2, compressors=None)
    with pytest.raises(BufferError):
        hr.open_array(store).__dlpack__()


@pytest.mark.parametrize("name", ["int2", "int4", "uint4", "float4_e2m1fn", "float6_e2m3fn"])
def test_types_below_a_byte_are_buffer_errors(store, name):
    # DLPack packs them; here, as in ml_dtypes, each takes a byte.
    pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    array = hr.create_array(store, shape=(4,), dtype=name)
    with pytest.raises(BufferError, match=name):
        array.__dlpack__(max_version=(1, 2))


def test_foreign_byte_order_is_native_or_a_buffer_error(store):
    data = smooth(">f4", (6, 5))
    write_zarr(store, data, zarr_format=2, compressors=None)
    array = hr.open_array(store)
    try:
        taken = np.from_dlpack(array)
    except BufferError:
        return
    assert taken.dtype.isnative
    assert_same(taken, data)


def test_dunder_array(pair):
    array, data = pair
    assert_same(np.asarray(array), data)
    assert_same(np.array(array), data)
    assert_same(np.asarray(array, dtype="f8"), data.astype("f8"))
    assert_same(array.__array__(), data)
    assert_same(array.__array__(np.dtype("f8"), copy=True), data.astype("f8"))
    assert_same(np.add(np.nan_to_num(array), 1), np.nan_to_num(data) + 1)
    with pytest.raises(ValueError):
        np.array(array, copy=False)


@pytest.mark.parametrize("dtype", ["M8[ns]", "S3", "U2", [("a", "<i4"), ("b", "<f4")]])
def test_dunder_array_takes_what_dlpack_cannot(store, dtype):
    data = values(dtype, (4,))
    write_zarr(store, data, zarr_format=2, compressors=None)
    assert_same(np.asarray(hr.open_array(store)), data)


def test_torch(pair):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    array, data = pair
    taken = torch.from_dlpack(array)
    assert_same(taken.numpy(), data)
    taken.zero_()
    assert_same(array[...], data)


def test_torch_tensor_as_out(pair):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    array, data = pair
    out = torch.empty((9, 7), dtype=torch.float32)
    array.read(out=out)
    assert_same(out.numpy(), data)
    turned = torch.empty((7, 9), dtype=torch.float32).T
    array.read(out=turned)
    assert_same(turned.numpy(), data)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_ml_dtypes_have_dlpack_types(store, name):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    data = np.arange(16).astype(getattr(ml_dtypes, name))
    array = hr.create_array(store, shape=(16,), dtype=name, chunks=(8,))
    array[...] = data
    assert_same(array[...], data)
    version = (1, 1) if "8_" in name else (1, 0)
    assert capsule_name(array.__dlpack__(max_version=version)) == b"dltensor_versioned"
    torch = pytest.importorskip("torch", reason="torch is not installed")
    taken = torch.from_dlpack(array)
    assert taken.view(torch.uint8).numpy().tobytes() == data.tobytes()


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_EXPORT = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))


class _Table(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("export", _EXPORT),
        ("import_", ctypes.c_void_p),
        ("borrow", ctypes.c_void_p),
        ("current_stream", ctypes.c_void_p),
    )


class Exporter:
    """Arrays of a type that offers the functions of DLPack 1.2, and counts what it is asked."""

    def __init__(self, *, flags=0, code=2, fails=False, versions=(1,)):
        self.array = np.zeros(8, np.float32)
        self.shape = (ctypes.c_int64 * 1)(8)
        self.flags, self.code, self.fails = flags, code, fails
        self.exported, self.freed, self.asked = 0, 0, 0
        self.free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._free)
        self.export = _EXPORT(self._export)
        self.tables = []
        for version in versions:
            before = ctypes.addressof(self.tables[-1]) if self.tables else None
            self.tables.append(_Table(version, 0, before, None, self.export, None, None, None))
        self.name = b"dlpack_exchange_api"
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        capsule = new(ctypes.addressof(self.tables[-1]), self.name, None)
        keeper = self

        class Exported:
            __dlpack_c_exchange_api__ = capsule

            def __dlpack_device__(self):
                return CPU

            def __dlpack__(self, **arguments):
                keeper.asked += 1
                return keeper.array.__dlpack__(**arguments)

        self.type = Exported

    def _free(self, _):
        self.freed += 1

    def _export(self, _, out):
        if self.fails:
            return -1
        self.exported += 1
        self.managed = _Managed(1, 0, None, self.free, self.flags)
        self.managed.tensor = _Tensor(
            self.array.ctypes.data, 1, 0, 1, self.code, 32, 1, ctypes.addressof(self.shape), None, 0
        )
        out[0] = ctypes.addressof(self.managed)
        return 0


@pytest.fixture
def eight(store):
    data = values("f4", (8,))
    write_zarr(store, data, chunks=(3,))
    return hr.open_array(store), data


@pytest.mark.parametrize("versions", [(1,), (1, 2)])
def test_the_table_of_a_type_is_asked_before_its_method(eight, versions):
    array, data = eight
    exporter = Exporter(versions=versions)
    array.read(out=exporter.type())
    assert_same(exporter.array, data)
    assert (exporter.exported, exporter.freed, exporter.asked) == (1, 1, 0)


def test_a_table_of_an_unknown_version_is_not_used(eight):
    array, data = eight
    exporter = Exporter(versions=(2,))
    array.read(out=exporter.type())
    assert_same(exporter.array, data)
    assert (exporter.exported, exporter.asked) == (0, 1)


def test_a_table_that_fails_is_followed_by_the_method(eight):
    array, data = eight
    exporter = Exporter(fails=True)
    array.read(out=exporter.type())
    assert_same(exporter.array, data)
    assert exporter.asked == 1


def test_a_subclass_is_asked_by_its_method(eight):
    array, data = eight
    exporter = Exporter()

    class Derived(exporter.type):
        pass

    array.read(out=Derived())
    assert_same(exporter.array, data)
    assert (exporter.exported, exporter.asked) == (0, 1)


def test_a_table_tells_what_is_read_only(eight):
    exporter = Exporter(flags=1)
    with pytest.raises(ValueError, match="read-only"):
        eight[0].read(out=exporter.type())
    assert exporter.exported == exporter.freed == 1


def test_a_copy_is_not_filled_in_place_of_an_array(eight):
    array, data = eight
    exporter = Exporter(flags=2)
    with pytest.raises(ValueError, match="copy"):
        array.read(out=exporter.type())
    assert exporter.exported == exporter.freed == 1
    frames = hr.codecs.encode_batch("lz4", [data.tobytes()], device="cpu")
    with pytest.raises(ValueError, match="copy"):
        hr.codecs.decode_batch("lz4", frames, out=[exporter.type()], device="cpu")


def test_an_array_in_a_store_is_no_output(eight, tmp_path):
    other = hr.create_array(tmp_path / "other.zarr", shape=(8,), dtype="f4")
    with pytest.raises(ValueError, match="copy"):
        eight[0].read(out=other)


@pytest.mark.parametrize("member", ["data", "shape"])
def test_a_tensor_without_memory_is_refused(eight, member):
    array = eight[0]
    exporter = Exporter()

    def export(_, out):
        exporter._export(_, out)
        setattr(exporter.managed.tensor, member, None)
        return 0

    exporter.tables[-1].export = kept = _EXPORT(export)
    with pytest.raises(BufferError, match=r"\[read\] out: the DLPack tensor has no"):
        array.read(out=exporter.type())
    assert exporter.freed == 1
    assert kept


def test_an_interrupted_table_interrupts(eight):
    exporter = Exporter()

    class Interrupted:
        __dlpack_c_exchange_api__ = exporter.type.__dlpack_c_exchange_api__
        __dlpack__ = exporter.type.__dlpack__
        __dlpack_device__ = exporter.type.__dlpack_device__

        def __bool__(self):
            raise KeyboardInterrupt

    # A function that raises what the object does.
    exporter.tables[-1].export = ctypes.cast(ctypes.pythonapi.PyObject_IsTrue, _EXPORT)
    with pytest.raises(KeyboardInterrupt):
        eight[0].read(out=Interrupted())
    assert exporter.asked == 0


_STREAM = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)
)


@pytest.mark.parametrize("made", ["inputs", "out"])
def test_what_is_made_while_arrays_are_taken_is_waited_for(made):
    """The stream of the call waits once for what the producer's has by then: all that it will."""
    exporter = Exporter()
    events, exported = [], []

    @_STREAM
    def current_stream(_type, _index, out):
        out[0] = 0x1000
        return 0

    def export(_, out):
        exporter._export(_, out)
        exporter.managed.tensor.device_type = 2
        exported.append(exporter.managed)
        return 0

    class OnDevice:
        __dlpack_c_exchange_api__ = exporter.type.__dlpack_c_exchange_api__

        def __dlpack_device__(self):
            return (2, 0)

        def __dlpack__(self, **arguments):
            events.append(arguments["stream"])
            return exporter.array.__dlpack__(max_version=(1, 0))

    def make(n):
        for _ in range(n):
            events.append("made")
            yield OnDevice()

    table = exporter.tables[-1]
    table.export = kept = _EXPORT(export)
    table.current_stream = ctypes.cast(current_stream, ctypes.c_void_p)
    inputs, out = (make(2), []) if made == "inputs" else ([OnDevice()], make(2))
    with pytest.raises(ValueError, match="outputs"):  # before a device is looked for
        hr.codecs.decode_batch("zstd", inputs, out=out, stream=0x2000)
    assert events == ["made", "made", 0x2000]
    assert kept


def test_a_table_gives_the_type(eight):
    exporter = Exporter(code=0)
    with pytest.raises(ValueError, match="float32"):
        eight[0].read(out=exporter.type())
    assert exporter.exported == exporter.freed == 1


def test_torch_refuses_what_its_table_does_not(pair):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    array = pair[0]
    with pytest.raises(BufferError, match="gradient"):
        array.read(out=torch.zeros((9, 7), requires_grad=True))
    with pytest.raises(BufferError, match="gradient"):
        array.read(out=torch.nn.Parameter(torch.zeros((9, 7))))
    with pytest.raises(BufferError, match="strided"):
        array.read(out=torch.zeros((9, 7)).to_sparse())
    frames = hr.codecs.encode_batch("lz4", [bytes(64)], device="cpu")
    with pytest.raises(BufferError, match="conjugate"):
        hr.codecs.decode_batch("lz4", frames, out=[torch.zeros(8, dtype=torch.complex64).conj()])
    out = torch.ones(8, dtype=torch.complex64)
    hr.codecs.decode_batch("lz4", frames, out=[out], device="cpu")
    assert not out.any()


def test_signs_that_torch_has_not_written_yet(store):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    array = hr.create_array(store, shape=(9, 7), dtype="float32", chunks=(4, 3))
    negated = torch.ones((9, 7), dtype=torch.complex64).conj().imag
    assert negated.is_neg()
    with pytest.raises(BufferError, match="resolve_neg"):
        array[...] = negated
    with pytest.raises(BufferError, match="resolve_neg"):
        array.read(out=negated)
    with pytest.raises(BufferError, match="resolve_neg"):
        hr.codecs.encode_batch("zstd", [negated], device="cpu")
    array[...] = torch.full_like(negated.resolve_neg(), -2)
    assert (array[...] == -2).all()
