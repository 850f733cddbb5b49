"""The Python layer: pickling, iteration, fields, codec objects, settings, import, Ctrl-C."""

import copy
import pickle
import signal
import subprocess
import sys

import headrace as hr
import numcodecs
import numpy as np
import pytest
import zarr
import zarr.codecs as zc
from helpers import (
    assert_same,
    cpu_seconds,
    read_zarr,
    smooth,
    values,
    wait_until,
    write_zarr,
)

RECORD = np.dtype([("a", "<i4"), ("b", ">f8", (2,)), ("c", [("x", "u1"), ("y", "S3")])])


@pytest.fixture
def pair(store):
    data = smooth("f4", (20, 15))
    write_zarr(store, data, chunks=(8, 8), attributes={"units": "K"})
    return hr.open_array(store), data


def test_handles_are_pickled_by_url_and_options(store):
    group = hr.create_group(store)
    group.create_array("x", shape=(3,), dtype="i4")[...] = 7
    options = {"fsync": True}
    opened = hr.open_array(store, "x", mode="r+", storage_options=options)
    chosen = opened.with_implementations({"zstd": "libzstd"})
    again = pickle.loads(pickle.dumps(chosen))
    assert_same(again[...], np.full(3, 7, "i4"))
    assert (again.path, again.read_only) == ("x", False)
    assert again.store.storage_options == {"fsync": "true"}
    assert again._implementations == {"zstd": "libzstd"}
    assert pickle.loads(pickle.dumps(hr.open_array(store, "x"))).read_only
    assert list(pickle.loads(pickle.dumps(hr.open_group(store)))) == ["x"]
    assert pickle.loads(pickle.dumps(opened.store)).url == opened.store.url


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("again", [copy.copy, lambda a: pickle.loads(pickle.dumps(a))])
def test_a_handle_elsewhere_is_like_this_one(store, again, zarr_format):
    array = hr.create_array(
        store,
        data=np.arange(6),
        chunks=3,
        write_empty_chunks=True,
        zarr_format=zarr_format,
        attributes={"units": "K"},
    )
    other = hr.open_array(store, mode="r+")
    array.append(np.arange(3))
    first, second = again(other), again(array)
    assert (first.shape, second.shape) == ((6,), (9,))
    assert dict(first.attrs) == {"units": "K"}
    assert_same(first[...], np.arange(6))
    first.append(np.full(3, 5))  # behind what the store has
    assert first.shape == (12,)
    assert_same(hr.open_array(store)[6:], np.array([0, 1, 2, 5, 5, 5]))
    second[...] = 0  # chunks of the fill value are kept
    now = hr.open_array(store)
    assert_same(now[...], np.array([0] * 9 + [5] * 3))
    assert now.nchunks_initialized == 4


@pytest.mark.parametrize("make", [hr.memory_store, lambda: hr.open_store("memory://p", mode="a")])
def test_memory_is_not_pickled(make):
    array = hr.create_array(make(), "x", shape=(3,), dtype="i4", overwrite=True)
    for handle in (array, array.store):
        with pytest.raises(TypeError, match="memory"):
            pickle.dumps(handle)


def test_iteration_gives_the_rows(pair):
    array, data = pair
    rows = list(array)
    assert len(rows) == len(array) == 20
    assert_same(np.stack(rows), data)
    assert next(iter(array)).shape == (15,)


def test_no_dimensions(store):
    write_zarr(store, np.array(5, "i2"), chunks=())
    array = hr.open_array(store)
    assert array[()] == 5 and isinstance(array[()], np.int16)
    assert array[...].shape == () and isinstance(array[...], np.ndarray)
    assert isinstance(array.read(), np.ndarray)
    for wrong in (len, iter):
        with pytest.raises(TypeError):
            wrong(array)


def test_scalars_only_where_numpy_gives_them(pair):
    array, data = pair
    assert isinstance(array[3, 4], np.float32)
    assert isinstance(array[3, 4, ...], np.ndarray)
    assert isinstance(array.oindex[3, 4], np.float32)
    assert isinstance(array.read((3, 4)), np.ndarray)
    assert array[3, 4] == data[3, 4]


def test_several_index_arrays_beside_slices_are_refused(store):
    write_zarr(store, values("i4", (4, 5, 6)))
    array = hr.open_array(store)
    with pytest.raises(IndexError, match="oindex"):
        array[[0, 1], [1, 2], :]
    assert array[[0, 1], 2, 1:3].shape == (2, 2)
    for wrong in (True, (0, np.bool_(False)), 1.0, [0.5], "a"):
        with pytest.raises(IndexError):
            array[wrong]


@pytest.fixture
def records(store):
    data = np.zeros((7,), RECORD)
    data["a"], data["b"] = np.arange(7), np.arange(14).reshape(7, 2) / 3
    data["c"]["x"], data["c"]["y"] = 9, b"abc"
    hr.create_array(store, shape=(7,), dtype=RECORD, chunks=(3,), zarr_format=2)[...] = data
    return hr.open_array(store, mode="r+"), data


def test_fields(records, store):
    array, data = records
    assert array.dtype == RECORD
    assert_same(array[...], data)
    for key in ("a", "b", "c"):
        assert_same(array[key], data[key])
    assert_same(array["a", 2:5], data["a"][2:5])
    assert array[["a", "c"]].dtype.names == ("a", "c")
    assert array["a", 3] == 3
    for wrong in ("x", ("a", "b"), ["a", "z"]):
        with pytest.raises(IndexError):
            array[wrong]
    array["a", 1:3] = 50
    data["a"][1:3] = 50
    assert_same(hr.open_array(store)[...], data)


def test_fill_values_are_numpy_scalars(tmp_path):
    cases = [
        ("i2", -3),
        ("f4", np.nan),
        ("M8[ns]", np.datetime64("2020-01-01", "ns")),
        ("S3", b"xyz"),
    ]
    for number, (dtype, value) in enumerate(cases):
        where = str(tmp_path / str(number))
        array = hr.create_array(where, shape=(2,), dtype=dtype, zarr_format=2, fill_value=value)
        got = hr.open_array(where).fill_value
        assert type(got) is np.dtype(dtype).type
        assert_same(got, np.asarray(value, dtype))
        assert_same(array[...], np.full(2, value, dtype))
    dates = hr.create_array(str(tmp_path / "dates"), shape=(1,), dtype="M8[s]")
    assert np.isnat(dates.fill_value)


def test_attributes_write_through(pair, store):
    array = hr.open_array(store, mode="r+")
    array.attrs.update({"a": np.float32(1.5)}, b=np.arange(3))
    assert array.attrs.asdict() == {"units": "K", "a": 1.5, "b": [0, 1, 2]}
    array.attrs.put({"only": 1})
    assert dict(zarr.open_array(store, mode="r").attrs) == {"only": 1}
    array.attrs.clear()
    assert len(array.attrs) == 0 and "only" not in array.attrs
    with pytest.raises(KeyError):
        array.attrs["only"]
    with pytest.raises(TypeError):
        array.attrs["bad"] = object()


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("zstd", hr.codecs.Zstd()),
        (zc.ZstdCodec(level=5), hr.codecs.Zstd(level=5)),
        (numcodecs.Zstd(level=5), hr.codecs.Zstd(level=5)),
        ({"id": "zlib", "level": 2}, hr.codecs.Zlib(level=2)),
        ({"name": "numcodecs.zlib", "configuration": {"level": 2}}, hr.codecs.Zlib(level=2)),
        (numcodecs.Delta("<i4"), hr.codecs.Delta("<i4", "<i4")),
        (zc.TransposeCodec(order=(1, 0)), hr.codecs.Transpose((1, 0))),
        (zc.Crc32cCodec(), hr.codecs.Crc32c()),
        (numcodecs.Blosc("zstd", 3, shuffle=2), hr.codecs.Blosc("zstd", 3, "bitshuffle")),
        (numcodecs.Blosc(shuffle=-1), hr.codecs.Blosc(shuffle="shuffle", typesize=4)),
    ],
    ids=lambda value: str(value)[:40],
)
def test_codecs_of_others_are_understood(given, wanted):
    parsed = hr.codecs.parse(given).for_itemsize(4).to_dict()
    assert parsed == wanted.for_itemsize(4).to_dict()


def test_what_names_no_codec_is_refused():
    for wrong in (3, None, {"level": 3}):
        with pytest.raises(TypeError):
            hr.codecs.parse(wrong)


def test_codecs_of_an_array_are_objects(store):
    wanted = [hr.codecs.Transpose([1, 0]), hr.codecs.Bytes(), hr.codecs.Blosc("zstd", typesize=8)]
    array = hr.create_array(
        store, shape=(4, 6), dtype="f8", filters=wanted[0], compressors=hr.codecs.Blosc("zstd")
    )
    assert [codec.to_dict() for codec in array.codecs] == [codec.to_dict() for codec in wanted]
    array[...] = smooth("f8", (4, 6))
    assert_same(read_zarr(store), smooth("f8", (4, 6)))


def test_settings(pair):
    array, data = pair
    before = hr.config.get()
    with hr.config.set({"threads": 1, "memory_budget": "8MiB"}):
        assert hr.config.get("threads") == 1
        assert hr.config.get("memory_budget") == 8 << 20
        assert_same(array[...], data)
    assert hr.config.get() == before
    for wrong in ({"thread": 1}, {"memory_budget": "much"}, {"threads": -1}, {"device": "x"}):
        with pytest.raises(ValueError):
            hr.config.set(wrong)
    assert hr.config.get() == before
    assert hr.config.get("nothing", 3) == 3


def test_save_and_load_of_several(tmp_path):
    one, two = smooth("f4", (5, 4)), values("i2", (7,))
    where = str(tmp_path / "several.zip")
    hr.save(where, one, named=two)
    loaded = hr.load(where)
    assert sorted(loaded) == ["arr_0", "named"]
    assert_same(loaded["arr_0"], one)
    assert_same(loaded["named"], two)
    assert_same(hr.open(f"{where}/named")[...], two)


def test_copy_of_a_tree_keeps_all_metadata(store, tmp_path):
    root = zarr.create_group(store, attributes={"title": "x"})
    root.create_array(
        "g/sharded",
        data=values("i4", (20, 20)),
        chunks=(4, 4),
        shards=(8, 8),
        fill_value=-1,
        dimension_names=["y", "x"],
        attributes={"units": "m"},
    )
    root.create_array("plain", data=values("f8", (9,)), chunks=(4,), compressors=None)
    copied = hr.copy(store, str(tmp_path / "copy.zarr"))
    assert isinstance(copied, hr.Group)
    source = hr.open_group(store)
    for name in ("g/sharded", "plain"):
        left, right = source[name].metadata, copied[name].metadata
        assert {**left, "storage_transformers": []} == {**right, "storage_transformers": []}
        assert_same(copied[name][...], source[name][...])
        assert_same(read_zarr(str(tmp_path / "copy.zarr"), name), source[name][...])
    assert dict(copied.attrs) == {"title": "x"}
    with pytest.raises(ValueError):
        hr.copy(store, str(tmp_path / "copy.zarr"))


def test_require(store):
    group = hr.create_group(store)
    first = group.require_array("a", shape=(3,), dtype="i4")
    assert group.require_array("a", shape=3, dtype="i4").path == first.path
    with pytest.raises(ValueError):
        group.require_array("a", shape=(4,))
    with pytest.raises(TypeError):
        group.require_array("a", shape=(3,), dtype="f4")
    assert group.require_group("b").path == group.require_group("b").path == "b"
    with pytest.raises(ValueError):
        group.require_group("a")
    assert group.array_keys() == ["a"] and group.group_keys() == ["b"]


def test_batches_round_trip():
    buffers = [b"", b"a", bytes(1000), smooth("f4", (50, 50))]
    frames = hr.codecs.encode_batch(hr.codecs.Zstd(level=1), buffers)
    sizes = [0, 1, 1000, 10000]
    decoded = hr.codecs.decode_batch("zstd", frames, out_nbytes=sizes)
    for got, buffer in zip(decoded, buffers, strict=True):
        assert got.tobytes() == bytes(buffer)
    out = [bytearray(size) for size in sizes]
    assert hr.codecs.decode_batch("zstd", frames, out=out)[2] is out[2]
    assert out[2] == bytes(1000) and out[1] == b"a"
    assert bytes(numcodecs.Zstd().decode(frames[2])) == bytes(1000)
    with pytest.raises(hr.CorruptError, match="1"):
        hr.codecs.decode_batch("zstd", [frames[2], b"nonsense"], out_nbytes=[1000, 5])
    for wrong in ({}, {"out": out, "out_nbytes": sizes}, {"out_nbytes": [1]}):
        with pytest.raises(ValueError):
            hr.codecs.decode_batch("zstd", frames, **wrong)
    with pytest.raises(BufferError):
        hr.codecs.decode_batch("zstd", frames[:1], out=[b""])


def test_control_c_stops_a_read(store):
    """It is within a read nearly always: there is nothing else in the loop."""
    data = np.add.outer(np.arange(2048) % 97, np.arange(8192) * 31 % 101).astype("f4")
    write_zarr(store, data, chunks=(512, 512), compressors=zc.ZstdCodec(level=3))
    code = """
import signal, sys, headrace as hr
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it
a = hr.open_array(sys.argv[1])
print("ready", flush=True)
try:
    while True:
        a[...]
except KeyboardInterrupt:
    print("stopped", flush=True)
a[0]
print("usable", flush=True)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code, store], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    # It computes nothing but reads from here on.
    begin = cpu_seconds(process.pid)
    wait_until(lambda: cpu_seconds(process.pid) > begin + 0.1)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30)[0] == "stopped\nusable\n"


def test_os_errors_keep_their_errno(store):
    with pytest.raises(FileNotFoundError) as missing:
        hr.open_array("/nonexistent/headrace")
    assert missing.value.errno == 2
    with pytest.raises(KeyError):
        hr.create_group(store)["nothing"]
