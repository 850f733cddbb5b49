"""Codecs of numcodecs, beside numcodecs itself and zarr-python's `numcodecs.*` names."""

import lzma
import zipfile

import headrace as hr
import numcodecs
import numpy as np
import pytest
import zarr
import zarr.codecs.numcodecs as nc
from helpers import GOLDEN, as_bytes, assert_same, smooth
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.filterwarnings("ignore:(?s).*not part of the Zarr format 3 specification")


@st.composite
def lzma_options(draw):
    format = draw(st.sampled_from((lzma.FORMAT_XZ, lzma.FORMAT_ALONE, lzma.FORMAT_RAW)))
    if format != lzma.FORMAT_RAW:
        checks = (-1, lzma.CHECK_NONE, lzma.CHECK_CRC32, lzma.CHECK_SHA256)
        check = draw(st.sampled_from(checks)) if format == lzma.FORMAT_XZ else -1
        return {"format": format, "check": check, "preset": draw(st.sampled_from((None, 0, 3, 6)))}
    last = {"id": draw(st.sampled_from((lzma.FILTER_LZMA1, lzma.FILTER_LZMA2))), "preset": 1}
    last |= draw(st.fixed_dictionaries({}, optional={"lc": st.integers(0, 2), "pb": st.just(0)}))
    before = draw(
        st.lists(
            st.one_of(
                st.builds(
                    lambda n: {"id": lzma.FILTER_DELTA, "dist": n}, st.sampled_from((1, 4, 256))
                ),
                st.just({"id": lzma.FILTER_X86}),
                st.just({"id": lzma.FILTER_ARM, "start_offset": 8}),
            ),
            max_size=2,
        )
    )
    return {"format": format, "filters": [*before, last]}


STREAMS = st.one_of(
    st.builds(numcodecs.BZ2, st.integers(1, 9)),
    st.builds(lambda options: numcodecs.LZMA(**options), lzma_options()),
)
BYTES = st.one_of(
    st.binary(max_size=400),
    st.builds(lambda n: smooth("f4", (n,)).tobytes(), st.sampled_from((1, 500, 40_000))),
    st.builds(lambda n, b: bytes([b]) * n, st.integers(0, 300_000), st.integers(0, 255)),
)


@given(codec=STREAMS, data=BYTES)
def test_streams_are_those_of_numcodecs(codec, data):
    theirs = codec.encode(data)
    (ours,) = hr.codecs.encode_batch(codec, [data])
    assert ours == theirs  # the same libraries
    (decoded,) = hr.codecs.decode_batch(codec, [theirs], out_nbytes=[len(data)])
    assert as_bytes(decoded) == data
    for n in (len(data) - 1, len(data) + 1):
        if n >= 0:
            with pytest.raises(hr.CorruptError):
                hr.codecs.decode_batch(codec, [theirs], out_nbytes=[n])


def test_streams_one_after_the_other():
    parts = [smooth("f4", (300,)).tobytes(), b"", b"abc" * 99]
    formats = {
        "bz2": numcodecs.BZ2().encode,
        "lzma": numcodecs.LZMA(lzma.FORMAT_XZ).encode,
    }
    for name, encode in formats.items():
        padding = b"" if name == "bz2" else bytes(8)  # by fours, as the format of xz allows it
        encoded = padding.join(encode(part) for part in parts)
        whole = b"".join(parts)
        (decoded,) = hr.codecs.decode_batch(name, [encoded], out_nbytes=[len(whole)])
        assert as_bytes(decoded) == whole
        with pytest.raises(hr.CorruptError):
            hr.codecs.decode_batch(name, [encoded + b"x"], out_nbytes=[len(whole)])


def test_an_lzma_dictionary_may_not_take_all_memory():
    with pytest.raises(NotImplementedError, match="1 GiB"):
        huge = {"format": lzma.FORMAT_RAW, "filters": [{"id": 33, "dict_size": 2**32 - 1}]}
        hr.codecs.encode_batch(hr.codecs.LZMA(**huge), [b"x"])
    stream = bytearray(lzma.compress(b"x" * 100, format=lzma.FORMAT_ALONE))
    stream[1:5] = (2**32 - 1).to_bytes(4, "little")
    with pytest.raises(NotImplementedError, match="1 GiB"):
        hr.codecs.decode_batch(hr.codecs.LZMA(format=2), [bytes(stream)], out_nbytes=[100])


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"format": 4}, "format"),
        ({"format": 3}, "filters"),
        ({"format": 2, "check": 4}, "check"),
        ({"check": 7}, "check"),
        ({"preset": 10}, "preset"),
        ({"preset": 1, "filters": [{"id": 33}]}, "preset"),
        ({"format": 2, "filters": [{"id": 33}]}, "filters"),
        ({"format": 3, "filters": [{"id": 99}]}, "id"),
        ({"format": 3, "filters": [{"id": 33, "depth": -1}]}, "depth"),
        ({"format": 3, "filters": [{"id": 3, "dict_size": 4096}, {"id": 33}]}, "dict_size"),
        ({"format": 3, "filters": [{"id": 33}] * 5}, "filters"),
        ({"format": 3, "filters": [{"id": 3}]}, "filters"),
    ],
)
def test_options_of_lzma_are_checked(options, field):
    with pytest.raises(ValueError, match=f"field '{field}'"):
        hr.codecs.encode_batch(hr.codecs.LZMA(**options), [b"x"])


FLOATS, INTEGERS = smooth("f4", (33, 21)), smooth("i4", (33, 21))
AS_ZARR_WRITES = {
    "bz2": (FLOATS, None, nc.BZ2(level=2)),
    "lzma": (FLOATS, None, nc.LZMA(preset=1)),
    "zlib": (FLOATS, None, nc.Zlib(level=2)),
    "gzip": (FLOATS, None, nc.GZip(level=2)),
    "lz4": (FLOATS, None, nc.LZ4(acceleration=2)),
    "zstd": (FLOATS, None, nc.Zstd(level=2)),
    "blosc": (FLOATS, None, nc.Blosc(cname="zstd", clevel=3, shuffle=2)),
    "shuffle": (FLOATS, None, [nc.Shuffle(elementsize=4), nc.BZ2()]),
    "crc32": (FLOATS, None, nc.CRC32()),
    "crc32c": (FLOATS, None, nc.CRC32C(location="start")),
    "adler32": (FLOATS, None, nc.Adler32(location="end")),
    "fletcher32": (FLOATS, None, nc.Fletcher32()),
    "jenkins_lookup3": (FLOATS, None, nc.JenkinsLookup3(initval=3)),
    "delta": (INTEGERS, nc.Delta(dtype="<i4", astype="<i4"), nc.LZMA()),
    "bitround": (FLOATS, nc.BitRound(keepbits=9), nc.BZ2()),
    "fixedscaleoffset": (
        FLOATS,
        nc.FixedScaleOffset(offset=250, scale=4, dtype="<f4", astype="<i2"),
        nc.BZ2(),
    ),
    "quantize": (FLOATS, nc.Quantize(digits=1, dtype="<f4"), nc.BZ2()),
    "packbits": (INTEGERS % 3 == 0, nc.PackBits(), nc.BZ2()),
    "astype": (INTEGERS, nc.AsType(encode_dtype="<i2", decode_dtype="<i4"), nc.BZ2()),
}


@pytest.mark.parametrize("name", AS_ZARR_WRITES)
def test_names_of_zarr_python_both_ways(tmp_path, name):
    data, filters, compressors = AS_ZARR_WRITES[name]
    how = {"shape": data.shape, "chunks": (20, 16), "dtype": data.dtype}
    how |= {"filters": filters, "compressors": compressors}
    theirs = zarr.create_array(tmp_path / "theirs", **how)
    theirs[...] = data
    ours = hr.create_array(tmp_path / "ours", **how)
    ours[...] = data
    wanted = theirs[...]
    assert_same(hr.open_array(tmp_path / "theirs")[...], wanted)
    assert_same(zarr.open_array(tmp_path / "ours")[...], wanted)
    assert f"numcodecs.{name}" in (tmp_path / "theirs" / "zarr.json").read_text()


HAS_ZFP = any(row["codec"] == "zfp" for row in hr.codecs.table())


@pytest.mark.skipif(not HAS_ZFP, reason="a build without libzfp")
@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("accuracy", {"mode": 4, "tolerance": 0.01}),
        ("rate", {"mode": 2, "rate": 12.5}),
        ("precision", {"mode": 3, "precision": 20}),
        ("reversible", {"mode": 4}),
    ],
)
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_zfp_is_that_of_zfpy(tmp_path, mode, options, zarr_format):
    stored = "v2/" if zarr_format == 2 else ""
    for dtype, shape in (("f4", (20, 16)), ("f8", (7, 9, 5))):
        codec = {"id": "zfpy", **options}
        array = hr.create_array(
            tmp_path / dtype,
            shape=shape,
            chunks=shape,
            dtype=dtype,
            zarr_format=zarr_format,
            compressors=codec,
        )
        array[...] = smooth(dtype, shape)
        key = "/".join("0" * len(shape)) if zarr_format == 3 else ".".join("0" * len(shape))
        key = f"c/{key}" if zarr_format == 3 else key
        with zipfile.ZipFile(GOLDEN / "stores" / "codecs34-zfp.zip") as golden:
            assert (tmp_path / dtype / key).read_bytes() == golden.read(
                f"{stored}{mode}/{dtype}/{key}"
            )


@pytest.mark.skipif(not HAS_ZFP, reason="a build without libzfp")
def test_zfp_without_a_header(tmp_path):
    data = smooth("f8", (40, 30))
    codecs = hr.codecs
    for codec, error in (
        (codecs.Zfp(), 0),
        (codecs.Zfp("fixed_accuracy", tolerance=0.01), 0.01),
        (codecs.Zfp("fixed_rate", rate=30), 1e-3),
    ):
        array = hr.create_array(
            tmp_path / codec.mode,
            shape=data.shape,
            dtype="f8",
            chunks=(10, 7),
            shards=(20, 14),
            serializer=codec,
            compressors=codecs.Crc32c(),
        )
        array[...] = data
        assert codec.to_dict() in array.codecs[0].codecs
        assert np.abs(array[3:35, 5:] - data[3:35, 5:]).max() <= error
        there = hr.open_array(tmp_path / codec.mode, device="simt")[3:35, 5:]
        assert_same(there.to_numpy(), array[3:35, 5:])


def test_the_two_formats_called_packbits(tmp_path):
    mask = np.arange(21) % 3 == 0
    for name, codecs, nbytes in (
        ("numcodecs", {"filters": numcodecs.PackBits()}, 4),
        ("registry", {"serializer": hr.codecs.PackBits()}, 3),
    ):
        array = hr.create_array(
            tmp_path / name, shape=21, chunks=21, dtype="bool", compressors=None, **codecs
        )
        array[...] = mask
        assert_same(hr.open_array(tmp_path / name)[...], mask)
        assert (tmp_path / name / "c" / "0").stat().st_size == nbytes
        kind = hr.codecs.PackBits if name == "registry" else hr.codecs.Generic
        assert kind in [type(codec) for codec in array.codecs]


def test_scaled_and_cast_in_shards(tmp_path):
    data = smooth("f8", (40, 30))
    array = hr.create_array(
        tmp_path / "x",
        shape=data.shape,
        dtype="f8",
        chunks=(5, 10),
        shards=(20, 30),
        fill_value=251.25,
        filters=[hr.codecs.ScaleOffset(250.0, 4.0), hr.codecs.CastValue("int16")],
        compressors=hr.codecs.BZ2(),
    )
    array[:17] = data[:17]
    wanted = np.where(np.arange(40)[:, None] < 17, data, 251.25)
    assert_same(array[...], wanted)
    assert_same(hr.open_array(tmp_path / "x", device="simt")[3:19, 4:].to_numpy(), wanted[3:19, 4:])
    with pytest.raises(ValueError, match=r"1e\+06 is out of range|is out of range of int16"):
        array[0, 0] = 1e6
    assert_same(array[...], wanted)


def test_reshaped_in_front_of_shards(tmp_path):
    data = smooth("i4", (12, 10, 4))
    array = hr.create_array(
        tmp_path / "x",
        shape=data.shape,
        dtype="i4",
        chunks=(6, 5, 4),
        filters=hr.codecs.Reshape([[0, 1], 4]),
        serializer=hr.codecs.Sharding(chunk_shape=(10, 2)),
        compressors=None,
    )
    array[...] = data
    assert_same(array[5:9, ::-2, 1:3], data[5:9, ::-2, 1:3])
    assert hr.codecs.Reshape([[0, 1], 4]) in array.codecs


@pytest.mark.parametrize(
    "filter",
    [numcodecs.Delta("<c16"), numcodecs.AsType("<c8", "<c16"), numcodecs.Delta("<c16", "<c8")],
    ids=["delta", "astype", "narrowing-delta"],
)
def test_filters_of_complex_numbers_are_those_of_numcodecs(tmp_path, filter):
    data = np.array([1, 2 + 1j, 3, 4 - 2j])
    of_zarr = zarr.create_array(
        tmp_path / "a.zarr", shape=4, chunks=4, dtype="c16", filters=[filter], zarr_format=2
    )
    of_zarr[:] = data
    array = hr.open_array(tmp_path / "a.zarr", mode="r+")
    assert_same(array[:], of_zarr[:])
    array[:] = data[::-1]
    assert_same(of_zarr[:], data[::-1])


@pytest.mark.parametrize("device", ["cpu", "simt"])
def test_delta_of_durations_with_nat(tmp_path, device):
    data = np.array([1, 2, "NaT", 4, 5, 6], "<m8[s]")
    lossy = zarr.create_array(
        tmp_path / "a.zarr",
        shape=6,
        chunks=6,
        dtype=data.dtype,
        filters=[numcodecs.Delta("<m8[s]")],
        compressors=None,
        zarr_format=2,
    )
    lossy[:] = data

    def read():
        found = hr.open_array(tmp_path / "a.zarr", device=device)[:]
        return found if device == "cpu" else found.to_numpy()

    assert_same(read(), lossy[:])
    own = hr.open_array(tmp_path / "a.zarr", mode="r+")
    with pytest.raises(NotImplementedError, match="follows NaT"):
        own[:] = data
    ends = np.array([7, 9, 3, "NaT", "NaT", "NaT"], data.dtype)
    own[:] = ends
    assert_same(read(), ends)
    assert_same(zarr.open_array(tmp_path / "a.zarr", mode="r")[:], ends)
