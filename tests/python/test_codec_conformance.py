"""Chunks that other programs wrote with codecs used beside their usual types, and levels that no
library has: read as numcodecs and zarr-python read them.
"""

import base64
import json
import subprocess
import sys
from pathlib import Path

import headrace as hr
import numcodecs
import numpy as np
import pytest
import zarr
from helpers import assert_same, smooth
from hypothesis import given
from hypothesis import strategies as st


def put_v2(path, dtype, chunks, shape, filters=(), compressor=None, order="C", fill_value=0):
    """An array of Zarr v2 whose chunks are these bytes, by key."""
    path = Path(path)
    path.mkdir(parents=True)
    config = [f if isinstance(f, dict) else f.get_config() for f in filters]
    if compressor is not None and not isinstance(compressor, dict):
        compressor = compressor.get_config()
    zarray = {
        "zarr_format": 2,
        "shape": list(shape),
        "chunks": list(shape),
        "dtype": np.dtype(dtype).str,
        "order": order,
        "fill_value": fill_value,
        "filters": config or None,
        "compressor": compressor,
    }
    (path / ".zarray").write_text(json.dumps(zarray))
    for key, data in chunks.items():
        (path / key).write_bytes(bytes(data))
    return str(path)


def put_v3(path, data_type, shape, chunk, codecs, fill_value=0):
    path = Path(path)
    (path / "c").mkdir(parents=True)
    metadata = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(shape)}},
        "chunk_key_encoding": {"name": "default"},
        "fill_value": fill_value,
        "codecs": codecs,
    }
    (path / "zarr.json").write_text(json.dumps(metadata))
    if chunk is not None:
        key = "/".join(["c", *["0"] * len(shape)])
        (path / key).parent.mkdir(parents=True, exist_ok=True)
        (path / key).write_bytes(bytes(chunk))
    return str(path)


def key_of(shape):
    return ".".join("0" * len(shape)) or "0"


LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
KINDS = ["?", "i1", "u1", "<i2", "<u4", "<i8", "<f2", "<f4", "<f8", "<c8", "<c16"]
TIMES = ["<M8[s]", "<M8[ns]", "<m8[ms]", "<m8[D]"]
V3_NAMES = {"?": "bool", "i1": "int8", "u1": "uint8", "<i2": "int16", "<u4": "uint32"}
V3_NAMES |= {"<i8": "int64", "<f2": "float16", "<f4": "float32", "<f8": "float64"}
V3_NAMES |= {"<c8": "complex64", "<c16": "complex128"}


def v3_type(dtype):
    if dtype in V3_NAMES:
        return V3_NAMES[dtype]
    name = "numpy.datetime64" if np.dtype(dtype).kind == "M" else "numpy.timedelta64"
    unit = np.datetime_data(dtype)[0]
    return {"name": name, "configuration": {"unit": unit, "scale_factor": 1}}


def numbers(dtype, n=24):
    data = smooth("f8", (n,)) * 7
    if np.dtype(dtype).kind in "Mm":
        return data.astype("i8").view(dtype)
    if dtype == "?":
        return data.astype("i8") % 3 == 0
    return data.astype(dtype)


# bitround: nothing to undo


@pytest.mark.parametrize("dtype", [*KINDS, *TIMES, ">i4", ">f4", ">c8", "S5", "<U3"])
def test_bitround_of_any_type_reads_in_v2(tmp_path, dtype):
    data = numbers("<i4").astype(dtype) if dtype[0] in "S" or "U" in dtype else numbers(dtype)
    codec = numcodecs.BitRound(3)
    path = put_v2(
        tmp_path / "a", dtype, {"0": data.tobytes()}, data.shape, [codec], fill_value=None
    )
    assert_same(hr.open_array(path)[:], data)
    assert_same(hr.open_array(path)[5:9], data[5:9])
    with zarr.config.set({"async.concurrency": 1}):
        if dtype not in ("S5", "<U3"):
            assert_same(np.asarray(zarr.open_array(path)[:]), data)


@pytest.mark.parametrize("name", ["bitround", "numcodecs.bitround"])
@pytest.mark.parametrize("dtype", [*KINDS, *TIMES])
def test_bitround_of_any_type_reads_in_v3(tmp_path, name, dtype):
    data = numbers(dtype)
    codecs = [{"name": name, "configuration": {"keepbits": 5}}, LITTLE, {"name": "crc32c"}]
    import google_crc32c

    chunk = data.tobytes()
    chunk += google_crc32c.value(chunk).to_bytes(4, "little")
    path = put_v3(tmp_path / "a", v3_type(dtype), data.shape, chunk, codecs)
    assert_same(hr.open_array(path)[:], data)


def test_bitround_rounds_what_it_can_only(tmp_path):
    path = put_v2(tmp_path / "a", "<i4", {}, (4,), [numcodecs.BitRound(3)])
    array = hr.open_array(path, mode="r+")
    with pytest.raises(NotImplementedError, match="rounds floating-point numbers"):
        array[:] = 1
    with pytest.raises(NotImplementedError, match="rounds floating-point numbers"):
        hr.create_array(
            str(tmp_path / "b"), shape=4, dtype="i4", filters=[numcodecs.BitRound(3)], zarr_format=2
        )
    data = smooth("f4", (50,))
    theirs = zarr.create_array(
        tmp_path / "t", data=data, filters=[numcodecs.BitRound(7)], zarr_format=2, compressors=None
    )
    ours = hr.open_array(str(tmp_path / "t"), mode="r+")
    before = (tmp_path / "t/0").read_bytes()
    ours[:] = data
    assert (tmp_path / "t/0").read_bytes() == before
    assert_same(theirs[:], hr.open_array(str(tmp_path / "t"))[:])


# packbits


@pytest.mark.parametrize("dtype", [*KINDS, *TIMES, ">i4"])
def test_packbits_of_any_type_reads_as_numcodecs_in_v2(tmp_path, dtype):
    data = numbers(dtype)
    packed = numcodecs.PackBits().encode(data)
    chunks = {"0": packed.tobytes()}
    path = put_v2(
        tmp_path / "a", dtype, chunks, data.shape, [numcodecs.PackBits()], fill_value=None
    )
    expected = numcodecs.PackBits().decode(packed).view(dtype)
    assert_same(hr.open_array(path)[:], expected)
    assert_same(np.asarray(zarr.open_array(path)[:]), expected)
    if np.dtype(dtype).itemsize > 1:
        with pytest.raises(NotImplementedError, match="packs booleans"):
            hr.open_array(path, mode="r+")[:] = data


@pytest.mark.parametrize("dtype", TIMES)
@pytest.mark.parametrize("bits", [{}, {"last_bit": 40}, {"first_bit": 3, "last_bit": 50}])
def test_packbits_of_times_is_that_of_integers(tmp_path, dtype, bits):
    """The registry's codec, as zarrs has it: 64 bits of a signed integer."""
    ticks = np.arange(-30, 30, dtype="i8") * 8
    codecs = [{"name": "packbits", "configuration": bits}]
    how = {"shape": 60, "chunks": (60,), "serializer": codecs[0], "compressors": None}
    integers = hr.create_array(str(tmp_path / "i"), dtype="i8", **how)
    integers[:] = ticks
    chunk = (tmp_path / "i/c/0").read_bytes()
    path = put_v3(tmp_path / "t", v3_type(dtype), (60,), chunk, codecs)
    assert_same(hr.open_array(path)[:], ticks.view(dtype))
    ours = hr.create_array(str(tmp_path / "o"), dtype=dtype, **how)
    ours[:] = ticks.view(dtype)
    assert (tmp_path / "o/c/0").read_bytes() == chunk


# Levels


LEVELS = {
    "zstd": ("level", numcodecs.Zstd),
    "gzip": ("level", numcodecs.GZip),
    "zlib": ("level", numcodecs.Zlib),
    "bz2": ("level", numcodecs.BZ2),
    "lz4": ("acceleration", numcodecs.LZ4),
    "blosc": ("clevel", numcodecs.Blosc),
}
CLAMPED = {"zstd", "lz4"}


@pytest.mark.parametrize("level", [-200_000, -3, 10, 23, 100, 2**31, 2**63, 2**70, 1.5, "9"])
@pytest.mark.parametrize("name", LEVELS)
def test_a_level_is_no_matter_for_a_reader(tmp_path, name, level):
    field, codec = LEVELS[name]
    data = smooth("f4", (60,))
    config = codec().get_config() | {field: level}
    chunk = codec().encode(data)
    path = put_v2(tmp_path / "v2", "<f4", {"0": chunk}, data.shape, compressor=config)
    assert_same(hr.open_array(path)[:], data)
    config.pop("id")
    prefix = "" if name in ("zstd", "gzip", "blosc") else "numcodecs."
    if name == "blosc":
        config |= {"shuffle": "shuffle", "typesize": 4}
    codecs = [LITTLE, {"name": prefix + name, "configuration": config}]
    path = put_v3(tmp_path / "v3", "float32", data.shape, chunk, codecs)
    assert_same(hr.open_array(path)[:], data)
    array = hr.open_array(path, mode="r+")
    if name in CLAMPED and isinstance(level, int) and level < 2**64:
        array[:] = data * 2
        assert_same(hr.open_array(path)[:], data * 2)
    elif not (name == "zlib" and level == -1):
        with pytest.raises(ValueError, match=field) as raised:
            array[:] = data * 2
        assert str(raised.value).count("codec ") == 1, raised.value
        assert_same(hr.open_array(path)[:], data)  # what was there stays


@pytest.mark.parametrize(("level", "nearest"), [(23, 22), (1000, 22), (-200_000, -131072)])
def test_levels_of_zstd_are_clamped_as_numcodecs_does(level, nearest):
    data = smooth("f4", (3000,)).tobytes()

    def ours(level):
        spec = {"name": "zstd", "configuration": {"level": level}}
        return bytes(hr.codecs.encode_batch(spec, [data])[0])

    assert numcodecs.Zstd(level=level).encode(data) == numcodecs.Zstd(level=nearest).encode(data)
    assert ours(level) == ours(nearest) != ours(1)
    assert numcodecs.Zstd().decode(ours(level)) == data


def test_a_new_array_has_a_level_that_there_is(tmp_path):
    for name, level in (("gzip", 10), ("blosc", 10), ("numcodecs.bz2", 0)):
        field = "clevel" if name == "blosc" else "level"
        spec = {"name": name, "configuration": {field: level}}
        with pytest.raises(ValueError, match=field) as made:
            hr.create_array(str(tmp_path / "a"), shape=4, dtype="i4", compressors=[spec])
        assert not (tmp_path / "a/zarr.json").exists()
        with pytest.raises(ValueError, match=field) as encoded:
            hr.codecs.encode_batch(spec, [b"1234"])
        for raised in (made, encoded):
            assert str(raised.value).count("codec ") == 1, raised.value


def test_what_is_read_only_names_its_codec_once():
    with pytest.raises(NotImplementedError) as raised:
        hr.codecs.encode_batch({"name": "imagecodecs_lzf"}, [b"1234"])
    assert str(raised.value).startswith("input 0: codec lzf: is read only")


# Fill values


@pytest.mark.parametrize("name", ["bytes", "variable_length_bytes"])
@pytest.mark.parametrize("fill", [[], [1, 2, 255], "", "AQL/", 0])
def test_fill_values_of_bytes(tmp_path, name, fill):
    codecs = [{"name": "vlen-bytes"}]
    path = put_v3(tmp_path / "a", name, (3,), None, codecs, fill)
    expected = bytes(fill) if isinstance(fill, list) else base64.b64decode(fill) if fill else b""
    array = hr.open_array(path)
    assert list(array[:]) == [expected] * 3
    for bad in ([256], [-1], ["a"], [[]], {}):
        path = put_v3(tmp_path / f"bad{bad}", name, (3,), None, codecs, bad)
        with pytest.raises(hr.CorruptError, match="fill"):
            hr.open_array(path)


# base64


WITHOUT_NUMCODECS = """
import sys
sys.modules["numcodecs"] = None
sys.modules["zarr"] = None
import headrace as hr
print(hr.open_array(sys.argv[1])[:].tolist())
"""


@pytest.mark.parametrize("place", ["filter", "compressor", "v3"])
def test_base64_needs_no_numcodecs(tmp_path, place):
    data = np.arange(7, dtype="<i2")
    chunk = numcodecs.Base64().encode(data)
    codec = numcodecs.Base64()
    if place == "v3":
        codecs = [LITTLE, {"name": "numcodecs.base64"}]
        path = put_v3(tmp_path / "a", "int16", data.shape, chunk, codecs)
    else:
        how = {"filters": [codec]} if place == "filter" else {"compressor": codec}
        path = put_v2(tmp_path / "a", "<i2", {"0": chunk}, data.shape, **how)
        assert_same(np.asarray(zarr.open_array(path)[:]), data)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_NUMCODECS, path], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == data.tolist()
    array = hr.open_array(path, mode="r+")
    array[:] = data[::-1]
    stored = Path(path, "c/0" if place == "v3" else "0").read_bytes()
    assert stored == base64.b64encode(data[::-1].tobytes())


@given(
    data=st.binary(max_size=60),
    noise=st.lists(
        st.tuples(st.integers(0, 90), st.sampled_from(list(b"\n \r!-_\x00\xff="))), max_size=4
    ),
    cut=st.integers(0, 3),
)
def test_base64_decodes_as_python_does(data, noise, cut):
    text = bytearray(base64.b64encode(data))
    del text[len(text) - cut :]
    for at, letter in noise:
        text.insert(min(at, len(text)), letter)
    try:
        expected = base64.b64decode(bytes(text))
    except ValueError:
        with pytest.raises(hr.CorruptError):
            hr.codecs.decode_batch("numcodecs.base64", [bytes(text)], out_nbytes=[len(data)])
        return
    (ours,) = hr.codecs.decode_batch("numcodecs.base64", [bytes(text)], out_nbytes=[len(expected)])
    assert bytes(ours) == expected
    with pytest.raises(hr.CorruptError):
        hr.codecs.decode_batch("numcodecs.base64", [bytes(text)], out_nbytes=[len(expected) + 1])


# json2 and msgpack2 of typed arrays

TYPED = ["?", "i1", "u1", "<i2", ">i2", "<u8", "<i8", "<f2", "<f4", ">f4", "<f8", "<U4", ">U4"]
TYPED += ["<M8[ns]", "<m8[ns]"]
LISTS = {"json2": numcodecs.JSON(), "msgpack2": numcodecs.MsgPack()}


def values(dtype, shape):
    n = int(np.prod(shape))
    kind = np.dtype(dtype).kind
    if kind == "U":
        words = ["\u00e9\u6e29x"[i % 3] + str(i) for i in range(n)]
        return np.array(words, dtype).reshape(shape)
    data = numbers("<i8" if kind in "Mm" else dtype, n)
    if kind == "f":
        data[:3] = np.nan, np.inf, -np.inf
    if kind in "iu":
        data[:2] = np.iinfo(dtype).min, np.iinfo(dtype).max
    return data.view(dtype).reshape(shape) if kind in "Mm" else data.astype(dtype).reshape(shape)


@pytest.mark.parametrize("codec", LISTS)
@pytest.mark.parametrize("dtype", TYPED)
@pytest.mark.parametrize("shape", [(12,), (3, 4)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_lists_of_typed_elements_as_numcodecs(tmp_path, codec, dtype, shape, order):
    data = values(dtype, shape)
    fill = "" if "U" in dtype else 0
    chunk = LISTS[codec].encode(np.asfortranarray(data) if order == "F" else data)
    key = key_of(shape)
    path = put_v2(tmp_path / "a", dtype, {key: chunk}, shape, [LISTS[codec]], None, order, fill)
    native = data.dtype.newbyteorder("=")

    def theirs(chunk):
        """As zarr-python 2 goes on with what a filter gives."""
        flat = LISTS[codec].decode(chunk).view(dtype).reshape(-1, order="A")
        return flat.reshape(shape, order=order).astype(native)

    assert_same(hr.open_array(path)[:], theirs(chunk))
    if order == "C":
        assert_same(theirs(chunk), data.astype(native))
    array = hr.open_array(path, mode="r+")
    array[:] = data.astype(native)
    assert_same(hr.open_array(path)[:], data.astype(native))
    assert_same(theirs((tmp_path / "a" / key).read_bytes()), data.astype(native))


@pytest.mark.parametrize("codec", LISTS)
def test_lists_behind_filters_and_before_compressors(tmp_path, codec):
    data = np.arange(100, 120, dtype="<i4")
    filters = [numcodecs.Delta("<i4", "<i2"), LISTS[codec]]
    chunk = data
    for f in (*filters, numcodecs.Zstd()):
        chunk = f.encode(chunk)
    path = put_v2(tmp_path / "a", "<i4", {"0": chunk}, data.shape, filters, numcodecs.Zstd())
    assert_same(hr.open_array(path)[:], data)


def test_msgpack_of_byte_strings(tmp_path):
    data = np.array([b"", b"a", b"abc", b"\xff\x00\xfe"], "S3")
    path = put_v2(
        tmp_path / "a", "S3", {"0": numcodecs.MsgPack().encode(data)}, (4,), [LISTS["msgpack2"]],
        fill_value="",
    )  # fmt: skip
    assert hr.open_array(path)[:].tolist() == data.tolist()


@pytest.mark.parametrize(
    "document",
    [
        "",
        "[",
        "{}",
        "[]",
        "[1]",
        '["<i4",[0]',
        '[1,"<i4",[2]]',
        '[1,2,3,"<i4",[2]]',
        '[1,2,"<i2",[2]]',
        '[1,2,"<i4",[2,2]]',
        '[1,2,"<i4",[-2]]',
        '[1,2,"<i4",["2"]]',
        '[1,null,"<i4",[2]]',
        '[1,"x","<i4",[2]]',
        '[1,4294967296,"<i4",[2]]',
        '[1,2,"|V4",[2]]',
        '[1,2,"nonsense",[2]]',
        "[1,2,3,[2]]",
        '[[1,2],"<i4",[9223372036854775807,9223372036854775807]]',
    ],
)
def test_lists_that_are_wrong_are_corrupt(tmp_path, document):
    path = put_v2(tmp_path / "a", "<i4", {"0": document.encode()}, (2,), [LISTS["json2"]])
    with pytest.raises(hr.CorruptError):
        hr.open_array(path)[:]


# delta of booleans


@pytest.mark.parametrize("astype", ["?", "u1", "i1", "<i4", "<f4"])
def test_delta_of_booleans_reads_as_numcodecs(tmp_path, astype):
    codec = numcodecs.Delta("?", astype)
    random = np.random.default_rng(1)
    for n in range(6):
        if n < 3:
            encoded = codec.encode(random.integers(0, 2, 40).astype(bool))
        else:  # by whoever
            encoded = random.integers(0, 2 if astype == "?" else 3, 40).astype(astype)
            encoded[7] = 1
            if astype in ("i1", "<i4", "<f4"):
                encoded[8] = -encoded[:8].sum()
        path = put_v2(
            tmp_path / str(n), "?", {"0": encoded.tobytes()}, (40,), [codec], fill_value=False
        )
        expected = codec.decode(encoded)
        assert_same(hr.open_array(path)[:], expected)
        assert_same(np.asarray(zarr.open_array(path)[:]), expected)
    with pytest.raises(NotImplementedError, match="booleans"):
        hr.open_array(path, mode="r+")[:] = True


def test_delta_of_numbers_from_booleans(tmp_path):
    codec = numcodecs.Delta("u1", "?")
    data = np.array([1, 0, 1, 1, 0, 1], "u1")
    encoded = codec.encode(data)
    path = put_v2(tmp_path / "a", "u1", {"0": encoded.tobytes()}, (6,), [codec])
    assert_same(hr.open_array(path)[:], codec.decode(encoded))
