"""Elements of variable length: strings, bytes, and the objects of Zarr 2, beside zarr-python."""

import asyncio
import base64
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
from helpers import GOLDEN, python
from hypothesis import given
from hypothesis import strategies as st

CASES = [
    pytest.param(case, id=f"{path.stem} {case['name']}")
    for path in sorted((GOLDEN / "vlen").glob("*.json"))
    for case in json.loads(path.read_text())
]
STRING = np.dtypes.StringDType()
WORDS = ["", "a", "\u4e2d\u6587", "x" * 300, "\u00fc", "nul\0within", "\U0001f600", "tail\n"]


def objects(values, shape=None):
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array.reshape(shape or len(values))


def plain(values):
    """Elements as Python objects, nested as the array."""
    return np.asarray(values).tolist()


def dtype_of(kind):
    return {"string": STRING, "fixed": np.dtype("<U3")}.get(kind, np.dtype(object))


# Golden data.


def wanted_of(case, shape):
    elements = case["elements"]
    if case["kind"] == "bytes":
        elements = [base64.b64decode(element) for element in elements]
    if case["kind"] == "array":
        elements = [np.array(element, dtype="i4") for element in elements]
    return objects(elements, shape)


def assert_elements(got, wanted):
    assert got.shape == wanted.shape
    for left, right in zip(got.ravel().tolist(), wanted.ravel().tolist(), strict=True):
        assert type(left) is type(right)
        if isinstance(left, np.ndarray):
            assert left.dtype == right.dtype
            assert left.tolist() == right.tolist()
        else:
            assert left == right


def unpack(case, folder):
    for key, value in case["files"].items():
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(value))


@pytest.mark.parametrize("case", CASES)
def test_golden(case, tmp_path):
    unpack(case, tmp_path)
    array = hr.open_array(tmp_path)
    wanted = wanted_of(case, array.shape)
    assert array.dtype == dtype_of(case["kind"])
    assert array[...].dtype == array.dtype
    assert_elements(array[...], wanted)
    assert_elements(array[::-2], wanted[::-2])
    rows = [array.shape[0] - 1, 0, 0]
    assert_elements(array.oindex[rows], wanted[rows])
    points = tuple([0, -1] for _ in array.shape)
    assert_elements(array.vindex[points], wanted[points])
    assert array.verify() == []


@pytest.mark.parametrize("case", CASES)
def test_golden_data_written_again(case, tmp_path):
    unpack(case, tmp_path / "a")
    source = hr.open_array(tmp_path / "a")
    copied = hr.copy(source, tmp_path / "b")
    wanted = wanted_of(case, source.shape)
    assert_elements(copied[...], wanted)
    if case["kind"] in ("string", "bytes") and "categorize" not in case["name"]:
        assert_elements(np.asarray(zarr.open_array(tmp_path / "b", mode="r")[...]), wanted)
        if source.shards is None:
            moved = hr.copy(source, tmp_path / "c", zarr_format=5 - source.zarr_format)
            assert_elements(moved[...], wanted)
            if not (moved.zarr_format == 2 and case["kind"] == "bytes"):
                other = zarr.open_array(tmp_path / "c", mode="r")
                assert_elements(np.asarray(other[...]), wanted)


@pytest.mark.parametrize("codec", [numcodecs.JSON(), numcodecs.MsgPack()], ids=lambda c: c.codec_id)
def test_what_is_written_numcodecs_decodes(codec, store):
    values = objects(["a", 1, None, -2.5, {"k": [1, None]}, "\u00fc"])
    array = hr.create_array(
        store, shape=6, chunks=4, dtype=object, filters=codec, compressors=None, zarr_format=2
    )
    array[...] = values
    assert_elements(array[...], values)
    decoded = codec.decode((Path(store) / "0").read_bytes())
    assert decoded.tolist() == values[:4].tolist()
    assert array[5] == "\u00fc"


def test_ragged_arrays(store):
    filters = [numcodecs.VLenArray("<f4")]
    array = hr.create_array(store, shape=5, chunks=2, dtype=object, filters=filters, zarr_format=2)
    ragged = objects([np.arange(n, dtype="f4") for n in (3, 0, 1, 7)] + [np.zeros(0, "f4")])
    array[:4] = ragged[:4]
    assert_elements(array[...], ragged)
    assert_elements(hr.copy(array, "memory://ragged", overwrite=True)[...], ragged)
    with pytest.raises(ValueError, match="one dimension"):
        array[0] = objects([np.zeros((2, 2), "f4")])[0:1]


def test_pickle_is_refused(store):
    with pytest.raises(NotImplementedError, match="runs code"):
        hr.create_array(store, shape=3, dtype=object, filters=numcodecs.Pickle(), zarr_format=2)


# Against zarr-python.

TEXT = st.text(max_size=20)
LAYOUTS = [
    {"chunks": (3, 4)},
    {"chunks": (2, 2), "shards": (4, 8)},
    {"chunks": (3, 4), "zarr_format": 2},
    {"chunks": (3, 4), "fill_value": "fill \u00fc"},
    {"chunks": (5, 3), "compressors": None},
]
SHAPE = (7, 9)


def selections():
    rows = st.one_of(st.integers(-7, 6), st.slices(7), st.lists(st.integers(-7, 6), min_size=1))
    return st.tuples(rows, st.one_of(st.integers(-9, 8), st.slices(9)))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@given(data=st.data())
def test_selections_are_those_of_zarr_python(data, layout):
    store = zarr.storage.MemoryStore()
    theirs = zarr.create_array(store, shape=SHAPE, dtype=str, **layout)
    ours = hr.open_array(store, mode="r+")
    model = np.full(SHAPE, layout.get("fill_value", ""), dtype=STRING)
    for array in (theirs, ours):
        where = data.draw(selections())
        words = data.draw(st.lists(TEXT, min_size=1, max_size=8))
        model[where] = objects([words[i % len(words)] for i in range(63)], SHAPE)[where]
        # zarr-python takes no steps backwards: it writes the whole.
        array[...] = model
        array.oindex[0] = model[0]
    ours.oindex[where] = model[where]
    assert plain(ours[...]) == plain(theirs[...]) == plain(model)
    where = data.draw(selections())
    assert plain(ours.oindex[where]) == plain(model[where])


@given(values=st.lists(st.binary(max_size=20), min_size=1, max_size=30), chunk=st.integers(1, 8))
def test_bytes_are_those_of_zarr_python(values, chunk):
    wanted = objects(values)
    files = {}
    theirs = zarr.create_array(
        files, shape=len(values), chunks=chunk, dtype="variable_length_bytes"
    )
    theirs[:] = wanted
    ours = hr.open_array(zarr.storage.MemoryStore(files))
    assert ours.dtype == theirs.dtype == object
    assert_elements(ours[...], wanted)
    made = hr.create_array(
        "memory://bytes", shape=len(values), chunks=chunk, dtype=bytes, overwrite=True
    )
    made[...] = wanted
    assert_elements(made[...], wanted)


@pytest.mark.parametrize("dtype", ["string", "bytes"])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_zarr_python_reads_what_is_created(store, dtype, zarr_format):
    values = objects(WORDS if dtype == "string" else [word.encode() for word in WORDS])
    compressors = hr.codecs.Blosc()
    array = hr.create_array(
        store, shape=8, chunks=3, dtype=dtype, zarr_format=zarr_format, compressors=compressors
    )
    array[...] = values
    assert_elements(np.asarray(zarr.open_array(store, mode="r")[...]), values)
    assert array.fill_value == zarr.open_array(store, mode="r").fill_value


@pytest.mark.parametrize("fill", [0, "", None, "\u00fc"])
def test_fill_values_of_version_2(tmp_path, fill):
    document = {
        "zarr_format": 2, "shape": [3], "chunks": [2], "dtype": "|O", "order": "C",
        "fill_value": fill, "compressor": None, "filters": [{"id": "vlen-utf8"}],
    }  # fmt: skip
    (tmp_path / ".zarray").write_text(json.dumps(document))
    theirs = zarr.open_array(tmp_path, mode="r")
    assert plain(hr.open_array(tmp_path)[...]) == plain(theirs[...])


# What is written.


@pytest.mark.parametrize(
    "values",
    [
        np.array(WORDS, dtype=STRING),
        objects(WORDS),
        np.array(WORDS),
        WORDS,
        np.array(WORDS * 2, dtype=STRING)[::2],
        np.array([*WORDS, *WORDS], dtype=STRING).reshape(2, 8).T[:, 0],
    ],
    ids=["StringDType", "objects", "fixed", "list", "strided", "column"],
)
def test_strings_of_every_kind_are_taken(store, values):
    array = hr.create_array(store, shape=8, chunks=3, dtype=str)
    array[:] = values
    assert array[:].dtype == STRING
    assert plain(array[:]) == plain(np.asarray(values, dtype=STRING))


def test_one_string_is_broadcast(store):
    array = hr.create_array(store, shape=(4, 5), chunks=(3, 2), dtype=str)
    array[1:3] = "row"
    array[0, 0] = "\u00fc"
    assert plain(array[:2, :2]) == [["\u00fc", ""], ["row", "row"]]
    assert array[0, 0] == "\u00fc"
    assert array.nchunks_initialized == 3
    array[...] = ""
    assert array.nchunks_initialized == 0


def test_append_resize_attributes_and_pickle(store):
    import pickle

    array = hr.create_array(store, shape=3, chunks=2, dtype=str)
    array[...] = ["a", "b", "c"]
    assert array.append(np.array(["d", "e"])) == (5,)
    assert plain(array[...]) == ["a", "b", "c", "d", "e"]
    array.resize(2)
    assert plain(pickle.loads(pickle.dumps(array))[...]) == ["a", "b"]
    assert list(array) == ["a", "b"]
    assert array.nbytes == array[...].nbytes
    assert plain(array.lazy[::-1].read()) == ["b", "a"]


def test_out_async_and_read_many(store):
    array = hr.create_array(store, shape=8, chunks=3, dtype=str)
    array[...] = WORDS
    numbers = hr.create_array("memory://numbers", shape=4, dtype="i4", overwrite=True)
    for dtype in (STRING, object):
        out = np.empty((2, 8), dtype=dtype)
        assert array.read(out=out[1]).base is out
        assert plain(out[1]) == WORDS
    assert plain(array.read_async().result()) == WORDS
    assert plain(array.read_async(out=out[0]).result()) == WORDS
    array.write_async(slice(0, 2), ["p", "q"]).result()
    texts, zeros, again = hr.read_many([(array,), (numbers,), (array, slice(2))])
    assert plain(texts) == ["p", "q", *WORDS[2:]]
    assert zeros.tolist() == [0] * 4
    assert plain(again) == ["p", "q"]
    with pytest.raises(ValueError, match="expected dtype"):
        array.read(out=np.empty(8, dtype="U3"))
    with pytest.raises(ValueError, match="shape"):
        array.read(out=np.empty(7, dtype=STRING))
    with pytest.raises(TypeError, match="ndarray"):
        array.read(out=bytearray(8))


def test_wrong_values_are_refused(store):
    strings = hr.create_array(store, "s", shape=2, dtype=str)
    raw = hr.create_array(store, "b", shape=2, dtype=bytes)
    with pytest.raises(TypeError, match="bytes"):
        raw[...] = ["a", "b"]
    with pytest.raises(UnicodeEncodeError):
        strings[...] = objects(["\ud800", "b"])
    with pytest.raises(ValueError, match="objects"):
        hr.create_array(store, "o", shape=2, dtype=object)
    with pytest.raises(NotImplementedError, match="v3"):
        hr.create_array(store, "j", shape=2, dtype=object, filters=[{"name": "numcodecs.json2"}])


def test_devices_and_dlpack_refuse_strings(store):
    array = hr.create_array(store, shape=2, dtype=str)
    with pytest.raises(NotImplementedError, match='device "cpu"'):
        array.to("simt")[...]
    assert plain(array.to("simt").read(device="cpu")) == ["", ""]
    array.to("simt")[0] = "written from the host"
    assert array[0] == "written from the host"
    with pytest.raises(BufferError):
        np.from_dlpack(array)


def test_save_load_and_verify(store):
    hr.save(store, s=objects(WORDS), b=objects([b"\0", b""]), f=np.array(WORDS))
    loaded = hr.load(store)
    assert plain(loaded["s"]) == WORDS
    assert loaded["b"].tolist() == [b"\0", b""]
    with pytest.raises(TypeError, match="objects"):
        hr.save(store, objects(["a", b"b"]))


# Hostile bytes, threads, the command line.


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
        with pytest.raises(hr.CorruptError, match="c/0"):
            array[...]
        assert [key for key, _ in array.verify()] == ["c/0"]


def test_threads(store):
    array = hr.create_array(store, shape=4000, chunks=64, shards=1024, dtype=str)
    wanted = np.array([f"{i}" * (i % 7) for i in range(4000)], dtype=STRING)
    array[...] = wanted
    wrong = []

    def work(seed):
        indices = np.random.default_rng(seed).integers(0, 4000, 500)
        for _ in range(5):
            if (array.vindex[indices] != wanted[indices]).any() or (array[...] != wanted).any():
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_awaited(store):
    array = hr.create_array(store, shape=2, dtype=str)
    array[...] = ["a", "b"]

    async def read():
        return await array.read_async()

    assert plain(asyncio.run(read())) == ["a", "b"]


def run(*args, status=0):
    command = Path(sys.executable).parent / "headrace"
    done = subprocess.run([command, *map(str, args)], capture_output=True, timeout=120)
    assert done.returncode == status, (done.stdout, done.stderr)
    return done.stdout.decode() or done.stderr.decode()


def test_command_line(store, tmp_path):
    array = hr.create_array(store, "s", shape=(2, 2), chunks=(1, 2), dtype=str)
    array[...] = [["a", "\u00fc"], ['"', ""]]
    filters = numcodecs.VLenArray("<i4")
    ragged = hr.create_array(tmp_path / "r", shape=2, dtype=object, filters=filters, zarr_format=2)
    ragged[...] = objects([np.array([1, 2], "i4"), np.array([], "i4")])
    assert run("read", f"{store}/s") == '"a" "\u00fc"\n"\\"" ""\n'
    assert run("read", tmp_path / "r") == "0x0100000002000000 0x\n"
    assert "string" in run("info", f"{store}/s")
    run("verify", store)
    for form in ("npy", "raw", "stats"):
        message = run("read", f"{store}/s", "--format", form, "-o", tmp_path / "x", status=1)
        assert "string" in message


STRINGS = """
import sys, threading
import headrace as hr
for _ in range(10):
    array = hr.open_array(sys.argv[1])
    threads = [threading.Thread(target=lambda: array[:]) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
"""


def test_threads_read_one_array_of_strings(tmp_path):
    """NumPy waits for a lock of its strings with the GIL: who has it must not wait for that."""
    texts = np.array([f"{i}" + "x" * 20 for i in range(100_000)], object)
    hr.create_array(tmp_path / "s", shape=100_000, dtype=str, chunks=25_000)[:] = texts
    python(STRINGS, tmp_path / "s", timeout=60)
