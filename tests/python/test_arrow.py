"""Array.to_arrow and Array.read_ragged, beside zarr-python, numcodecs and pyarrow."""

import base64
import ctypes
import functools
import itertools
import json
import subprocess
import sys
import threading
from pathlib import Path

import headrace as hr
import numcodecs
import numpy as np
import pytest
import zarr
from helpers import GOLDEN
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

WORDS = ["", "a", "\u4e2d\u6587", "x" * 300, "\u00fc", "nul\0within", "\U0001f600", "tail\n"]
GOLDEN_CASES = [
    pytest.param(case, id=f"{path.stem} {case['name']}")
    for path in sorted((GOLDEN / "vlen").glob("*.json"))
    for case in json.loads(path.read_text())
]


def objects(values, shape=None):
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array.reshape(shape or len(values))


def plain(values):
    """Elements as Python objects, nested as the array; arrays as lists."""
    if isinstance(values, np.ndarray):
        return [plain(value) for value in values] if values.ndim else plain(values[()])
    return values.item() if isinstance(values, np.generic) else values


def assert_arrow(got, wanted, type_=None):
    """That Arrow holds what `wanted` holds, and finds nothing wrong with itself."""
    got.validate(full=True)
    assert got.null_count == 0
    wanted = np.asarray(wanted)
    for extent in reversed(wanted.shape[1:]):
        type_ = type_ and pa.list_(type_, extent)
    if type_ is not None:
        assert got.type == type_
    values = plain(wanted)
    assert got.to_pylist() == (values if wanted.ndim else [values])


def joined(values, offsets, text=True):
    raw = values.tobytes()
    parts = [raw[a:b] for a, b in itertools.pairwise(offsets)]
    return [part.decode() for part in parts] if text else parts


# Variable length, beside zarr-python.

LAYOUTS = [
    {"chunks": (3, 4)},
    {"chunks": (2, 2), "shards": (4, 8)},
    {"chunks": (3, 4), "zarr_format": 2},
    {"chunks": (3, 4), "fill_value": "fill \u00fc"},
    {"chunks": (5, 3), "compressors": None},
]
SHAPE = (7, 9)


def indices(n):
    return st.one_of(
        st.integers(-n, n - 1),
        st.slices(n),
        st.lists(st.integers(-n, n - 1), min_size=1, max_size=12),
        st.lists(st.booleans(), min_size=n, max_size=n).map(np.array),
    )


@functools.cache
def arrays_of(layout):
    """An array of zarr-python with missing chunks, and the same in headrace."""
    layout = dict(layout)
    store = zarr.storage.MemoryStore()
    theirs = zarr.create_array(store, shape=SHAPE, dtype=str, **layout)
    theirs[:5, 1:8] = objects([WORDS[i % 8] + str(i % 5) for i in range(35)], (5, 7))
    return theirs, hr.open_array(store)


@pytest.mark.parametrize("layout", [tuple(layout.items()) for layout in LAYOUTS], ids=str)
@given(data=st.data())
def test_every_kind_of_selection(data, layout):
    theirs, ours = arrays_of(layout)
    rows, columns = data.draw(indices(7)), data.draw(indices(9))
    whole = np.asarray(theirs[...])
    # Orthogonal: zarr-python takes no steps backwards, NumPy does.
    model = whole[rows] if not isinstance(rows, int) else whole[rows : rows + 1 or None]
    model = model[:, columns] if not isinstance(rows, int) else model[0][columns]
    if np.ndim(model) == 0:
        model = objects([model], (1,)).reshape(())
    assert_arrow(ours.oindex.to_arrow((rows, columns)), model, pa.large_string())
    basic = tuple(x if isinstance(x, slice | int) else slice(None) for x in (rows, columns))
    model = whole[basic]
    model = model if isinstance(model, np.ndarray) else objects([model], (1,)).reshape(())
    assert_arrow(ours.to_arrow(basic), model, pa.large_string())
    assert_arrow(ours.lazy[basic].to_arrow(), model, pa.large_string())
    values, offsets = ours.lazy[basic].read_ragged()
    assert joined(values, offsets) == model.ravel().tolist()
    points = data.draw(st.lists(st.tuples(st.integers(-7, 6), st.integers(-9, 8)), min_size=1))
    key = tuple(map(list, zip(*points, strict=True)))
    assert_arrow(ours.vindex.to_arrow(key), np.asarray(theirs.vindex[key]), pa.large_string())
    mask = data.draw(st.integers(0, 2**63 - 1))
    mask = np.array([mask >> i & 1 for i in range(63)], bool).reshape(SHAPE)
    assert_arrow(ours.vindex.to_arrow(mask), whole[mask], pa.large_string())
    assert_arrow(ours.to_arrow(mask), whole[mask], pa.large_string())
    block = (data.draw(st.integers(0, 1)), slice(0, 2))
    assert_arrow(ours.blocks.to_arrow(block), np.asarray(ours.blocks[block]), pa.large_string())


def test_selection_by_dimension_and_new_axes(store):
    array = hr.create_array(
        store, shape=(2, 3), chunks=(1, 2), dtype=str, dimension_names=("y", "x")
    )
    array[...] = objects(list("abcdef"), (2, 3))
    assert array.to_arrow({"x": [2, 0]}).to_pylist() == [["c", "a"], ["f", "d"]]
    assert array.to_arrow((0, None)).to_pylist() == [["a", "b", "c"]]
    assert array.to_arrow((1, 2)).to_pylist() == ["f"]
    assert array.to_arrow(np.s_[::-1, 1]).to_pylist() == ["e", "b"]
    with pytest.raises(IndexError):
        array.to_arrow(2)
    with pytest.raises(IndexError):
        array.to_arrow("name")
    with pytest.raises(TypeError, match="device"):
        array.to_arrow(devise="cpu")


def unpack(case, folder):
    for key, value in case["files"].items():
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(value))


@pytest.mark.parametrize("case", GOLDEN_CASES)
def test_golden(case, tmp_path):
    unpack(case, tmp_path)
    array = hr.open_array(tmp_path)
    kind, elements = case["kind"], case["elements"]
    if kind == "fixed":
        return assert_arrow(array.to_arrow(), objects(elements, array.shape), pa.large_string())
    got = array.to_arrow()
    for _ in array.shape[1:]:
        got = got.flatten()
    got.validate(full=True)
    assert got.null_count == 0
    if kind == "bytes":
        assert got.type == pa.large_binary()
        assert got.to_pylist() == [base64.b64decode(element) for element in elements]
    elif kind == "array":
        assert got.type == pa.large_list(pa.int32())
        assert got.to_pylist() == elements
    elif kind == "string":
        assert got.type == pa.large_string()
        assert got.to_pylist() == elements
    else:
        assert got.type == pa.json_(pa.large_string())
        assert [json.loads(text) for text in got.storage.to_pylist()] == elements


@given(values=st.lists(st.binary(max_size=20), max_size=30), chunk=st.integers(1, 8))
def test_bytes_of_zarr_python(values, chunk):
    store = zarr.storage.MemoryStore()
    theirs = zarr.create_array(
        store, shape=len(values), chunks=chunk, dtype="variable_length_bytes"
    )
    if values:
        theirs[:] = objects(values)
    ours = hr.open_array(store)
    assert_arrow(ours.to_arrow(), objects(values), pa.large_binary())
    assert joined(*ours.read_ragged(), text=False) == values


@pytest.mark.parametrize("item", ["<f4", "<i8", ">i2", "|u1", "|b1"])
def test_ragged_arrays_of_numcodecs(tmp_path, item):
    """The files are numcodecs' own; the last chunk is missing."""
    lengths = (3, 0, 1, 7, 0, 2)
    ragged = [np.arange(n).astype(item) for n in lengths]
    codec = numcodecs.VLenArray(item)
    document = {
        "zarr_format": 2, "shape": [8], "chunks": [3], "dtype": "|O", "order": "C",
        "fill_value": 0, "compressor": None, "filters": [codec.get_config()],
    }  # fmt: skip
    (tmp_path / ".zarray").write_text(json.dumps(document))
    for chunk in (0, 1):
        (tmp_path / str(chunk)).write_bytes(codec.encode(objects(ragged[3 * chunk :][:3])))
    array = hr.open_array(tmp_path)
    native = np.dtype(item).newbyteorder("=")
    got = array.to_arrow()
    got.validate(full=True)
    assert got.type == pa.large_list(pa.array(np.zeros(1, native)).type)
    assert got.to_pylist() == [pa.array(a.astype(native)).to_pylist() for a in ragged] + [[], []]
    values, offsets = array.read_ragged(np.s_[::-1])
    assert values.dtype == native
    assert offsets.tolist() == [0, 0, 0, 2, 2, 9, 10, 10, 13]
    assert values.tolist() == np.concatenate(ragged[::-1]).astype(native).tolist()


def test_jagged_tensors_of_torch(store):
    torch = pytest.importorskip("torch")
    filters = [numcodecs.VLenArray("<f4")]
    array = hr.create_array(store, shape=4, chunks=3, dtype=object, filters=filters, zarr_format=2)
    ragged = [np.arange(n, dtype="f4") for n in (3, 1, 5, 2)]
    array[...] = objects(ragged)
    values, offsets = map(torch.from_dlpack, array.read_ragged())
    nested = torch.nested.nested_tensor_from_jagged(values, offsets)
    assert [part.tolist() for part in nested.unbind()] == [part.tolist() for part in ragged]


@pytest.mark.parametrize("codec", [numcodecs.JSON(), numcodecs.MsgPack()], ids=lambda c: c.codec_id)
def test_json_values(store, codec):
    values = ["a", 1, None, -2.5, {"k": [1, None]}, "\u00fc"]
    array = hr.create_array(
        store, shape=8, chunks=4, dtype=object, filters=codec, zarr_format=2, fill_value=None
    )
    array[:6] = objects(values)
    got = array.to_arrow()
    assert got.type == pa.json_(pa.large_string())
    assert [json.loads(text) for text in got.storage.to_pylist()[:6]] == values
    assert [json.loads(text) for text in got.storage.to_pylist()[6:]] == array[6:].tolist()
    nested = array.to_arrow(np.s_[:4, None])
    nested.validate(full=True)
    assert nested.type == pa.list_(got.type, 1)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3), (2, 0, 4), (), (1, 1, 1)], ids=str)
def test_shapes_without_elements_and_without_dimensions(store, shape):
    for dtype in (str, bytes, "f4", "M8[ns]", "S3", "V2"):
        chunks = (1,) * len(shape)
        array = hr.create_array(store, shape=shape, chunks=chunks, dtype=dtype, overwrite=True)
        got = array.to_arrow()
        got.validate(full=True)
        assert len(got) == (shape[0] if shape else 1)
        for extent in shape[1:]:
            assert got.type.list_size == extent
            got = got.flatten()
        assert len(got) == array.size
        # Dates that are missing are NaT.
        assert got.null_count == (array.size if dtype == "M8[ns]" else 0)
        if dtype in (str, bytes):
            values, offsets = array.read_ragged()
            assert values.tolist() == []
            assert offsets.tolist() == [0] * (array.size + 1)


def test_one_string_without_dimensions(store):
    array = hr.create_array(store, shape=(), dtype=str)
    array[...] = "\u00fc"
    assert array.to_arrow().to_pylist() == ["\u00fc"]
    assert array.to_arrow(None).equals(array.to_arrow(()))


# One length, beside pyarrow's own conversion.


@pytest.mark.parametrize(
    "dtype",
    ["i1", "u1", "<i2", ">i2", "u4", "<i8", ">u8", "<f2", ">f4", "f8", "?", "<M8[s]", "M8[D]",
     "M8[ms]", ">M8[us]", "m8[ns]", "S5", "<U3", ">U2"],
)  # fmt: skip
@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 3, 2)])
def test_elements_of_one_length(store, dtype, shape):
    size = int(np.prod(shape))
    data = (np.arange(size) % 100).astype(dtype).reshape(shape)
    theirs = zarr.create_array(store, shape=shape, chunks=(2,) * len(shape), dtype=dtype)
    theirs[...] = data
    ours = hr.open_array(store)
    native = data.astype(np.dtype(dtype).newbyteorder("="))
    got = ours.to_arrow()
    type_ = {"S": pa.large_binary(), "U": pa.large_string()}.get(native.dtype.kind)
    wanted = pa.array(native.ravel(), type_)
    got.validate(full=True)
    assert len(got) == shape[0]
    for extent in shape[1:]:
        assert got.type.list_size == extent
        got = got.flatten()
    assert got.equals(wanted)
    part = ours.oindex.to_arrow([-1, 0])
    assert len(part) == 2
    assert part[1].as_py() == ours.to_arrow()[0].as_py()


RECORD = np.dtype([("a", "<i4"), ("b", ">f8", (2,)), ("c", [("x", "u1"), ("y", "S3")])])


def test_structures_and_raw_bytes(store):
    data = np.array([(1, (2.5, 3), (4, b"p")), (5, (6, 7), (8, b"qrs"))], RECORD)
    array = hr.create_array(f"{store}/s", shape=2, dtype=RECORD, zarr_format=2)
    array[...] = data
    wanted = [
        {"a": 1, "b": [2.5, 3.0], "c": {"x": 4, "y": b"p"}},
        {"a": 5, "b": [6.0, 7.0], "c": {"x": 8, "y": b"qrs"}},
    ]
    got = array.to_arrow()
    got.validate(full=True)
    assert got.to_pylist() == wanted
    assert array.to_arrow(("b", slice(1, 2))).to_pylist() == [[6.0, 7.0]]
    assert array.to_arrow(["a", "c"]).to_pylist() == [
        {key: row[key] for key in "ac"} for row in wanted
    ]
    raw = hr.create_array(f"{store}/r", shape=(2, 2), dtype="V3")
    raw[...] = np.frombuffer(b"abcdefghijkl", "V3").reshape(2, 2)
    assert raw.to_arrow().type == pa.list_(pa.binary(3), 2)
    assert raw.to_arrow().to_pylist() == [[b"abc", b"def"], [b"ghi", b"jkl"]]


def test_what_arrow_has_no_type_for(store):
    """Refused before anything is read: the chunk is corrupt."""
    for dtype in ("c8", "bfloat16", "float8_e5m2", "int4", "M8[25s]", "M8[h]", "m8[D]"):
        array = hr.create_array(store, shape=2, dtype=dtype, overwrite=True)
        (Path(store) / "c").mkdir(parents=True)
        (Path(store) / "c" / "0").write_bytes(b"bad")
        with pytest.raises(NotImplementedError, match="no type for elements of"):
            array.to_arrow()
    record = np.dtype([("a", "i4"), ("t", "M8[25s]")])
    array = hr.create_array(store, shape=2, dtype=record, overwrite=True, zarr_format=2)
    with pytest.raises(NotImplementedError, match="no type"):
        array.to_arrow()
    assert array.to_arrow("a").to_pylist() == [0, 0]


def test_nat_is_the_one_null(store):
    array = hr.create_array(store, shape=3, dtype="M8[s]")
    array[...] = np.array(["2020-01-01", "NaT", "1970-01-01"], "M8[s]")
    assert array.to_arrow().is_null().to_pylist() == [False, True, False]


def test_days(store):
    """pyarrow's conversion to date32 wraps around."""
    array = hr.create_array(store, shape=3, dtype="M8[D]")
    days = np.array([-(2**31), 2**31 - 1, -(2**63)], "i8").view("M8[D]")
    array[...] = days
    got = array.to_arrow()
    assert got.type == pa.date32()
    assert got.cast(pa.int32()).to_pylist() == [-(2**31), 2**31 - 1, None]
    for day in (2**31, -(2**31) - 1, 2**40):
        array[1] = np.datetime64(day, "D")
        with pytest.raises(ValueError, match="date32"):
            array.to_arrow()


# Memory.


def address(array):
    return array.__array_interface__["data"][0]


def test_memory_is_handed_over(store):
    """Arrow's buffers outlive array and store; what was read into is what Arrow has."""
    array = hr.create_array(store, shape=1000, chunks=300, dtype=str)
    words = [f"{i}" * (i % 7) for i in range(1000)]
    array[...] = words
    arrow = array.to_arrow()
    del array
    assert arrow.buffers()[0] is None
    assert arrow.slice(3, 5).to_pylist() == words[3:8]
    from headrace._arrow import fixed, ragged

    values, offsets = np.arange(4, dtype="u1"), np.array([0, 1, 4])
    buffers = ragged("bytes", values, offsets, (2,)).buffers()
    assert [buffer.address for buffer in buffers[1:]] == [address(offsets), address(values)]
    for dtype in ("i2", "u8", "f2", "f8", "M8[ns]", "m8[s]", "V4"):
        numbers = np.zeros((5, 2), dtype)
        assert fixed(numbers).flatten().buffers()[1].address == address(numbers)
    view = memoryview(arrow.buffers()[2])
    del arrow
    assert bytes(view[:30]).decode() == "".join(words)[:30]


def test_values_can_be_written_to(store):
    array = hr.create_array(store, shape=3, dtype=str, fill_value="abc")
    values, offsets = array.read_ragged()
    values[:] += 1
    assert joined(values, offsets) == ["bcd"] * 3
    assert offsets.dtype == np.int64
    assert np.from_dlpack(values).tolist() == values.tolist()


# In memory of a device.


class DeviceArray(ctypes.Structure):
    """ArrowDeviceArray, with the ArrowArray that it begins with."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("length", "null_count", "offset", "n_buffers")),
        ("n_children", ctypes.c_int64),
        ("buffers", ctypes.POINTER(ctypes.c_void_p)),
        ("children", ctypes.c_void_p),
        ("dictionary", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
        ("device_id", ctypes.c_int64),
        ("device_type", ctypes.c_int32),
        ("sync_event", ctypes.c_void_p),
        ("reserved", ctypes.c_int64 * 3),
    )


def exported(array):
    """The structure, and the capsule that it lives in."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule = array.__arrow_c_device_array__()[1]
    return DeviceArray.from_address(pointer(capsule, b"arrow_device_array")), capsule


@pytest.mark.parametrize("dtype", [str, bytes, "i2", "u8", "f2", "f4", "f8"])
@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 3, 2), (), (0,), (2, 0)], ids=str)
def test_what_lies_on_a_device_is_what_lies_on_the_host(store, dtype, shape):
    chunks = tuple(min(2, n) or 1 for n in shape)
    array = hr.create_array(store, shape=shape, chunks=chunks, dtype=dtype)
    words = itertools.islice(itertools.cycle(WORDS), array.size)
    values = objects([word.encode() if dtype is bytes else word for word in words])
    if dtype not in (str, bytes):
        values = np.arange(array.size, dtype=dtype)
    array[...] = values.reshape(shape)
    there = array.to_arrow(device="simt")
    assert isinstance(there, hr.DeviceArrowArray)
    assert len(there) == (shape[0] if shape else 1)
    assert there.device == "simt"
    assert pa.DataType._import_from_c_capsule(there.__arrow_c_schema__()) == there.type
    got = pa.array(there)  # whose memory goes back when `got` does
    del there
    got.validate(full=True)
    assert got.equals(array.to_arrow())
    if shape and shape[0] > 1 and np.prod(shape):
        assert pa.array(array.to("simt").oindex.to_arrow([1, 0])).equals(
            array.oindex.to_arrow([1, 0])
        )


@pytest.mark.parametrize("codec", [numcodecs.JSON(), numcodecs.VLenArray("<f4")], ids=repr)
def test_nested_elements_on_a_device(store, codec):
    array = hr.create_array(store, shape=3, chunks=2, dtype=object, filters=codec, zarr_format=2)
    lists = [[1.0, 2.0], [], [3.0]]
    array[...] = objects(lists if codec.codec_id == "json2" else [np.float32(v) for v in lists])
    there, here = array.to_arrow(device="simt"), array.to_arrow()
    assert there.type == here.type
    assert pa.array(there).equals(here)


# By no one else: implementations that are asked for decode, or the read is an error.
@pytest.mark.parametrize(
    "compressor", [numcodecs.Zstd(), numcodecs.Blosc(), numcodecs.LZ4()], ids=repr
)
@pytest.mark.parametrize(
    "filter", [numcodecs.VLenUTF8(), numcodecs.VLenBytes(), numcodecs.VLenArray("<i2")], ids=repr
)
def test_a_device_decodes_elements(store, filter, compressor):
    words = [word * n for word in WORDS for n in (0, 1, 3, 1000)] * 10
    elements = {
        "vlen-utf8": words,
        "vlen-bytes": [word.encode() for word in words],
        "vlen-array": [np.arange(len(word), dtype="i2") for word in words],
    }[filter.codec_id]
    shape = (20, len(words) // 20)
    options = {"dtype": object, "filters": filter, "zarr_format": 2}
    array = hr.create_array(
        store, "a", shape=shape, chunks=(7, 5), compressors=compressor, **options
    )
    array[:18] = objects(elements, shape)[:18]
    forced = {filter.codec_id: "headrace-simt"}
    for selection in (None, np.s_[3:19:5, ::-1], np.s_[17:, 2], np.s_[4:4], np.s_[:, 3:2]):
        there = pa.array(array.to_arrow(selection, device="simt", implementations=forced))
        assert there.equals(array.to_arrow(selection))
    plain = hr.create_array(store, "b", shape=2, compressors=None, **options)
    with pytest.raises(NotImplementedError, match="headrace-simt cannot decode"):
        plain.to_arrow(device="simt", implementations=forced)
    many = hr.create_array(store, "c", shape=2**31 + 1, chunks=1 << 20, **options)
    with pytest.raises(NotImplementedError, match="of which a device packs at most 2147483648"):
        many.to_arrow(device="simt", implementations=forced)


@pytest.mark.parametrize("shards", [None, 2000])
@pytest.mark.parametrize("length", [0, 4000])
def test_long_elements_are_decoded_on_the_device(store, tmp_path, length, shards):
    """The choice goes by what a chunk has stored, not by its number of elements."""
    random = np.random.default_rng(0)
    words = [random.integers(97, 123, length, "u1").tobytes().decode() for _ in range(2000)]
    array = hr.create_array(store, shape=2000, chunks=500, shards=shards, dtype=str)
    array[...] = words
    trace = tmp_path / "trace.json"
    for selection in (None, np.s_[1700:]):
        with hr.trace(trace):
            there = array.to_arrow(selection, device="simt")
        assert pa.array(there).equals(array.to_arrow(selection))
        spans = json.loads(trace.read_text())["traceEvents"]
        by_device = any(e["name"] == "wait" for e in spans)
        assert by_device == (length > 0)


def test_capsules_of_a_device_keep_its_memory(store, device):
    array = hr.create_array(store, shape=3, dtype=str, fill_value="abc")
    there = array.to_arrow(device=device)
    structure, capsule = exported(there)
    assert (structure.device_type, structure.device_id) == ((2, 0) if device == "cuda" else (1, -1))
    assert (structure.length, structure.n_buffers, structure.n_children) == (3, 3, 0)
    assert structure.sync_event is None
    assert list(structure.reserved) == [0, 0, 0]
    nulls, *buffers = structure.buffers[:3]
    assert nulls is None
    values, offsets = array.to(device).read_ragged()
    assert {type(values), type(offsets)} == {hr.DeviceArray}
    assert offsets.to_numpy().tolist() == [0, 3, 6, 9]
    assert bytes(values.to_numpy()) == b"abc" * 3
    if device != "cuda":
        del there  # the capsule has what it needs
        assert ctypes.string_at(buffers[1], 9) == b"abc" * 3
    with pytest.raises(NotImplementedError, match="flavour"):
        array.to_arrow(device=device).__arrow_c_device_array__(flavour="mint", nothing=None)
    del capsule


def test_jagged_tensors_on_a_device(store, device):
    torch = pytest.importorskip("torch")
    filters = [numcodecs.VLenArray("<f4")]
    array = hr.create_array(store, shape=4, chunks=3, dtype=object, filters=filters, zarr_format=2)
    ragged = [np.arange(n, dtype="f4") for n in (3, 1, 5, 2)]
    array[...] = objects(ragged)
    values, offsets = map(torch.from_dlpack, array.to(device).read_ragged())
    assert {values.device.type, offsets.device.type} == {"cuda" if device == "cuda" else "cpu"}
    nested = torch.nested.nested_tensor_from_jagged(values, offsets)
    assert [part.tolist() for part in nested.unbind()] == [part.tolist() for part in ragged]


def test_what_is_converted_is_not_made_on_a_device(store):
    for dtype in ("?", "S3", "U2", "M8[s]", "V4", "c8"):
        array = hr.create_array(store, shape=2, dtype=dtype, overwrite=True)
        with pytest.raises(NotImplementedError, match="to_arrow"):
            array.to_arrow(device="simt")
        if dtype != "c8":
            assert len(array.to("simt").to_arrow(device="cpu")) == 2


# What is refused, and hostile bytes.


def test_a_handle_on_a_device_reads_to_the_host(store):
    array = hr.create_array(f"{store}/s", shape=2, dtype=str, fill_value="a")
    numbers = hr.create_array(f"{store}/n", shape=2, dtype="i4")
    assert array.to("simt").to_arrow(device="cpu").to_pylist() == ["a", "a"]
    assert numbers.to("simt").to_arrow(device="cpu").to_pylist() == [0, 0]
    assert joined(*array.to("simt").vindex.read_ragged([1], device="cpu")) == ["a"]
    with pytest.raises(ValueError, match="one length"):
        numbers.read_ragged()


def test_bad_chunks_are_named(store):
    array = hr.create_array(store, shape=(2,), chunks=2, dtype=str, compressors=None)
    good = b"\2\0\0\0\1\0\0\0a\2\0\0\0bc"
    array[...] = ["a", "bc"]
    chunk = Path(store) / "c" / "0"
    assert chunk.read_bytes() == good
    cuts = [good[:n] for n in range(len(good))]
    huge = [good[:4] + b"\xff\xff\xff\xff" + good[8:], b"\xff\xff\xff\xff" + good[4:]]
    for bad in (*cuts, *huge, good + b"x", good[:-1] + b"\xff"):
        chunk.write_bytes(bad)
        for read in (array.to_arrow, array.read_ragged):
            with pytest.raises(hr.CorruptError, match="c/0"):
                read()


@pytest.mark.parametrize("place", ["cpu", "simt"])
def test_a_chunk_that_cannot_be_opened_is_named(store, place):
    """On a device it is looked at before the read, to choose who decodes."""
    array = hr.create_array(store, shape=4, chunks=2, dtype=str)
    array[...] = ["a", "bc", "d", "ef"]
    chunk = Path(store) / "c" / "0"
    chunk.unlink()
    chunk.symlink_to(chunk.name)
    with pytest.raises(OSError, match=r"\[read\] .* chunk c/0: open "):
        array.read_ragged(device=place)


@pytest.mark.parametrize("point", [0x110000, 0xD800, 0xFFFFFFFF])
def test_characters_that_are_none(store, point):
    array = hr.create_array(store, shape=1, dtype="U1")
    array[...] = np.array([point], "u4").view("U1")
    with pytest.raises(hr.CorruptError, match="no Unicode"):
        array.to_arrow()


@pytest.mark.parametrize("fill", ["\\ud800", "\\udc00\\ud800", "a\\ud83dz"])
def test_fill_values_that_are_no_unicode(store, fill):
    """A lone surrogate is no character: Arrow gets the one that stands for such."""
    hr.create_array(store, shape=3, dtype=str, fill_value="FILL")
    document = Path(store) / "zarr.json"
    document.write_text(document.read_text().replace("FILL", fill))
    array = hr.open_array(store)
    assert "\ufffd" in array[0]
    assert_arrow(array.to_arrow(), array[:], pa.large_string())


def test_more_bytes_than_memory(store):
    fill = "x" * (1 << 26)
    array = hr.create_array(store, shape=1 << 22, chunks=1 << 22, dtype=str, fill_value=fill)
    with pytest.raises(MemoryError):
        array.to_arrow()
    with pytest.raises(MemoryError):
        array.read_ragged()
    offsets = array.read_ragged(np.s_[:2])[1]
    assert offsets.tolist() == [0, 1 << 26, 1 << 27]


def test_lists_longer_than_arrow_has(store):
    shape = (0, 1 << 31)
    array = hr.create_array(store, shape=shape, chunks=(1, 1 << 20), dtype="u1")
    with pytest.raises(NotImplementedError, match="fixed_size_list"):
        array.to_arrow()


def test_threads(store):
    array = hr.create_array(store, shape=4000, chunks=64, shards=1024, dtype=str)
    words = [f"{i}" * (i % 7) for i in range(4000)]
    array[...] = words
    wrong = []

    def work(seed):
        chosen = np.random.default_rng(seed).integers(0, 4000, 500)
        for _ in range(5):
            if array.vindex.to_arrow(chosen).to_pylist() != [words[i] for i in chosen]:
                wrong.append(seed)
            if array.to_arrow().to_pylist() != words:
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


WITHOUT = """
import sys
import headrace as hr
assert "pyarrow" not in sys.modules
sys.modules["pyarrow"] = None
array = hr.create_array("memory://n", shape=2, dtype="i4")
for _ in range(2):
    try:
        array.to_arrow()
    except ImportError as error:
        assert "pip install 'headrace[arrow]'" in str(error), error
    else:
        raise SystemExit("no error")
array = hr.create_array("memory://s", shape=2, dtype=str, fill_value="ab", overwrite=True)
assert array.read_ragged()[1].tolist() == [0, 2, 4]
"""


def test_without_pyarrow():
    subprocess.run([sys.executable, "-c", WITHOUT], check=True, timeout=60)
