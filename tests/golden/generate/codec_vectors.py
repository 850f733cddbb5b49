"""Writes tests/golden/codec_vectors/*.json: bytes that numcodecs and zstandard encode.

And seeds for the fuzz targets of the decoders: two bytes that pick a range, then an encoded chunk.

    pip install numpy numcodecs zstandard crc32c imagecodecs cast-value-rs zfpy
    python tests/golden/generate/codec_vectors.py

Each case holds the codec as Zarr v3 metadata would name it, the type of the elements (a NumPy type
string), what went in, what came out, and, for lossy filters, what numcodecs decodes that to.
"""

import itertools
import json
import lzma
import struct
from pathlib import Path
from unittest import mock

import numcodecs
import numpy as np
import zstandard
from cast_value_rs import cast_array
from imagecodecs import numcodecs as imagecodecs

OUT = Path(__file__).resolve().parent.parent / "codec_vectors"
FUZZ_CORPUS = OUT.parent.parent / "fuzz" / "corpus"


def smooth(n, dtype="<f4"):
    x = np.arange(n)
    values = 280 + 10 * np.sin(x * 0.01) + (x * 7919 % 13) * 0.001
    return values.astype(dtype)


def flat(value):
    """The bytes of what a codec gives: bytes, a memoryview or an array."""
    return np.ascontiguousarray(value).tobytes() if isinstance(value, np.ndarray) else bytes(value)


def case(codec, data, decoded=None, exact=False):
    """One vector made by a numcodecs codec. exact: another encoder must give the same bytes."""
    config = dict(codec.get_config())
    name = "numcodecs." + config.pop("id")
    encoded = flat(codec.encode(data))
    decoded = flat(data if decoded is None else decoded)
    assert flat(codec.decode(encoded)) == decoded, name
    return {
        "codec": name,
        "configuration": json.dumps(config),
        "dtype": data.dtype.str,
        "data": data.tobytes().hex(),
        "encoded": encoded.hex(),
        "decoded": decoded.hex(),
        "exact": exact,
    }


def lossy(codec, data):
    decoded = np.asarray(codec.decode(codec.encode(data)))
    return case(codec, data, decoded, exact=True)


def blosc_cases():
    for cname in ("lz4", "lz4hc", "blosclz", "zstd", "zlib"):
        for shuffle in (0, 1, 2):
            yield case(numcodecs.Blosc(cname, 5, shuffle), smooth(403))
    for dtype in ("|u1", "<i2", "<f8", "<c16", "|S3", "|S17"):
        source = smooth(200, "<f8").tobytes()
        itemsize = np.dtype(dtype).itemsize
        data = np.frombuffer(source[: len(source) // itemsize * itemsize], dtype)
        for shuffle in (-1, 1, 2):
            yield case(numcodecs.Blosc("lz4", 9, shuffle, blocksize=512), data)
    yield case(numcodecs.Blosc("lz4", 0, 1), smooth(100))


def compressor_cases():
    yield case(numcodecs.Zstd(level=1), smooth(700))
    yield case(numcodecs.Zstd(level=5, checksum=True), smooth(700))
    yield case(numcodecs.GZip(level=6), smooth(700))
    yield case(numcodecs.Zlib(level=1), smooth(700))
    yield case(numcodecs.Zlib(level=9), smooth(0))
    yield case(numcodecs.LZ4(), np.arange(700, dtype="<i4") // 9)
    yield case(numcodecs.LZ4(acceleration=10), smooth(300))
    yield case(numcodecs.BZ2(level=1), smooth(700))
    yield case(numcodecs.BZ2(level=9), smooth(0))
    for kwargs in lzma_options():
        yield case(numcodecs.LZMA(**kwargs), smooth(700))
    data = smooth(700)
    for kwargs in ({"write_content_size": False}, {"write_checksum": True}, {"level": 19}):
        encoded = zstandard.ZstdCompressor(**kwargs).compress(data.tobytes())
        yield raw("zstd", data, encoded)
    halves = data.tobytes()[:1001], data.tobytes()[1001:]
    skippable = struct.pack("<II", 0x184D2A50, 3) + b"abc"
    frames = [zstandard.ZstdCompressor().compress(half) for half in halves]
    yield raw("zstd", data, frames[0] + skippable + frames[1])


def lzma_options():
    yield {}
    yield {"preset": 9 | lzma.PRESET_EXTREME, "check": lzma.CHECK_SHA256}
    yield {"preset": 0, "check": lzma.CHECK_NONE}
    yield {"format": lzma.FORMAT_ALONE, "preset": 1}
    lzma2 = {"id": lzma.FILTER_LZMA2, "dict_size": 4096, "lc": 0, "lp": 2, "nice_len": 32}
    yield {"format": lzma.FORMAT_RAW, "filters": [lzma2]}
    lzma1 = {"id": lzma.FILTER_LZMA1, "preset": 3}
    for first in ({"id": lzma.FILTER_DELTA, "dist": 4}, {"id": lzma.FILTER_X86}):
        yield {"format": lzma.FORMAT_RAW, "filters": [first, lzma1]}


def raw(name, data, encoded):
    return {
        "codec": name,
        "configuration": "{}",
        "dtype": data.dtype.str,
        "data": data.tobytes().hex(),
        "encoded": encoded.hex(),
        "decoded": data.tobytes().hex(),
        "exact": False,
    }


def checksum_cases():
    for n in (0, 1, 3, 4, 11, 12, 13, 25, 721):
        data = smooth(n // 4 + 1).view("u1")[:n].copy()
        for codec in (
            numcodecs.CRC32(),
            numcodecs.CRC32(location="end"),
            numcodecs.CRC32C(),
            numcodecs.CRC32C(location="start"),
            numcodecs.Adler32(),
            numcodecs.Adler32(location="end"),
        ):
            yield case(codec, data, exact=True)
        if n > 0:
            yield case(numcodecs.Fletcher32(), data, exact=True)
            yield case(numcodecs.JenkinsLookup3(), data, exact=True)
            prefixed = numcodecs.JenkinsLookup3(initval=7, prefix=b"\x01\x02\xff")
            vector = raw("numcodecs.jenkins_lookup3", data, bytes(prefixed.encode(data)))
            vector["configuration"] = json.dumps({"initval": 7, "prefix": [1, 2, 255]})
            vector["exact"] = True
            yield vector


def filter_cases():
    for elementsize in (0, 2, 4, 8):
        yield case(numcodecs.Shuffle(elementsize), smooth(40), exact=True)
    for itemsize, blocksize in ((1, 0), (4, 0), (4, 16), (3, 8), (8, 24)):
        codec = imagecodecs.Bitshuffle(itemsize=itemsize, blocksize=blocksize)
        data = np.arange(24 * 7, dtype="u1") * np.uint8(37)
        # Of an array it takes the array's item size: bytes.
        vector = raw("numcodecs.imagecodecs_bitshuffle", data, codec.encode(data.tobytes()))
        vector["configuration"] = json.dumps({"itemsize": itemsize, "blocksize": blocksize})
        vector["exact"] = True
        yield vector
    ints = (np.arange(60) * 37 % 101 - 50).astype("<i4")
    yield case(numcodecs.Delta("<i4"), ints, exact=True)
    yield case(numcodecs.Delta("<i4", "<i2"), ints, exact=True)
    yield case(numcodecs.Delta(">i4", ">i2"), ints.astype(">i4"), exact=True)
    yield case(numcodecs.Delta("|u1"), (ints * 5).astype("u1"), exact=True)
    yield case(numcodecs.Delta("<u8", "<i8"), ints.astype("<u8") + np.uint64(50), exact=True)
    yield lossy(numcodecs.Delta("<f8"), smooth(50, "<f8"))
    yield lossy(numcodecs.Delta("<f4"), smooth(50))
    yield lossy(numcodecs.Delta("<f2"), smooth(50, "<f2"))
    for dtype in ("<f8", "<f4", "<f2", ">f4", "<i4"):
        for astype in ("<i2", "|u1", "<f4", ">i4"):
            if dtype == "<f2" and astype == "<f4":
                continue
            yield lossy(
                numcodecs.FixedScaleOffset(offset=279.5, scale=10, dtype=dtype, astype=astype),
                smooth(50, dtype),
            )
    yield lossy(numcodecs.FixedScaleOffset(offset=0, scale=0.25, dtype="<f4"), smooth(50))
    for digits in (0, 1, 3, -1):
        for dtype, astype in (("<f8", None), ("<f8", "<f4"), ("<f4", None), (">f8", "<f4")):
            yield lossy(numcodecs.Quantize(digits, dtype, astype), smooth(50, dtype))
    yield lossy(numcodecs.Quantize(1, "<f2"), smooth(50, "<f2"))
    for dtype, keep in (("<f2", 4), ("<f4", 0), ("<f4", 9), ("<f4", 23), ("<f8", 20)):
        codec = numcodecs.BitRound(keep)
        data = smooth(50, dtype)
        encoded = np.ascontiguousarray(codec.encode(data)).view(dtype)
        yield bit_round(codec, data, encoded)
    wide = np.array([0, 1, -1, 0.5, 1e-8, 65504, 65520, 1e6, 3e-5, 6e-8, 2.5, 2049], "<f8")
    yield lossy(numcodecs.AsType("<f2", "<f8"), wide)
    yield lossy(numcodecs.AsType("<f4", "<f8"), wide)
    yield lossy(numcodecs.AsType(">f4", "<f8"), wide)
    yield lossy(numcodecs.AsType("<i8", "<f4"), smooth(50))
    yield lossy(numcodecs.AsType("<i2", "<i8"), np.arange(-50000, 50000, 3001, dtype="<i8"))
    yield lossy(numcodecs.AsType("|b1", "<i4"), np.arange(-3, 3, dtype="<i4"))
    yield lossy(numcodecs.AsType("<f8", "<u8"), np.array([0, 2**63 + 4096, 2**53], "<u8"))
    for n in (0, 1, 7, 8, 9, 100):
        yield case(numcodecs.PackBits(), np.arange(n) % 3 == 0, exact=True)


def edge_values(dtype):
    """The ends of the range of all types of numbers, their neighbours, and ties."""
    ends = [2.0**k for k in (0, 1, 7, 8, 11, 15, 16, 24, 31, 32, 53, 63, 64, 128)]
    ends += [65504.0, 65519.0, 65520.0, 3.4028235677973366e38, 1e300, 5e-324, 2.0**-25, 3e-8, 1e-45]
    ends += [0.0, 0.5, 1.5, 2.5, 0.1, 254.5, 255.5, 1 + 2.0**-24, 1 + 3 * 2.0**-24, 2049.0, 2051.0]
    floats = [s * x for v in ends for x in (v, np.nextafter(v, 0), v - 1, v + 1) for s in (1, -1)]
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return np.unique(np.array([*floats, np.inf, -np.inf], dtype))
    powers = [2**k for k in (0, 1, 7, 8, 11, 12, 15, 16, 24, 25, 31, 32, 53, 54, 63, 64)]
    powers.append(2**60 + 2**36)  # half between two float32, if rounded to float64 before
    integers = [s * v + d for v in powers for d in (-3, -1, 0, 1, 3) for s in (1, -1)]
    info = np.iinfo(dtype)
    return np.unique(np.array([v for v in integers if info.min <= v <= info.max], dtype))


def castable(values, target, how):
    """The values that can be cast, and what they become."""
    pairs = []
    for value in values:
        try:
            cast = cast_array(np.array([value], values.dtype), target_dtype=target, **how)
        except ValueError:
            continue
        pairs.append((value, cast[0]))
    return np.array([v for v, _ in pairs], values.dtype), np.array([c for _, c in pairs], target)


ROUNDINGS = (
    "nearest-even",
    "towards-zero",
    "towards-positive",
    "towards-negative",
    "nearest-away",
)


def cast_cases():
    types = ("i1", "i8", "u8", "f2", "f4", "f8")
    for source, target in itertools.product(types, types):
        to_float = target[0] == "f"
        for rounding in ROUNDINGS if to_float or source[0] == "f" else ROUNDINGS[:1]:
            for mode in (None, "clamp") if to_float else (None, "clamp", "wrap"):
                if mode != "wrap" or rounding == "nearest-even":
                    yield cast_case(np.dtype(source), np.dtype(target), rounding, mode)


def cast_case(source, target, rounding, mode):
    how = {"rounding_mode": rounding, "out_of_range_mode": mode}
    data = edge_values(source)
    if (source, target) == ("f8", "f2"):
        data = data[data == data.astype("f4")]  # cast-value-rs rounds to float32 first
    data, encoded = castable(data, target, how)
    back, decoded = castable(encoded, source, how)
    if len(back) < len(encoded):  # only those that can be cast back too
        data, encoded = data[np.isin(encoded, back)], back
    vector = raw("cast_value", data, encoded.tobytes())
    configuration = {"data_type": target.name, "rounding": rounding}
    vector["configuration"] = json.dumps(configuration | ({"out_of_range": mode} if mode else {}))
    vector["decoded"] = decoded.tobytes().hex()
    vector["exact"] = True
    return vector


def bit_round(codec, data, encoded):
    vector = raw("numcodecs.bitround", data, encoded.tobytes())
    vector["configuration"] = json.dumps({"keepbits": codec.keepbits})
    vector["decoded"] = vector["encoded"]
    vector["exact"] = True
    return vector


def write(name, cases):
    """JSON with the byte strings that several cases share written once."""
    strings = {}
    vectors = []
    for vector in cases:
        for field in ("data", "encoded", "decoded"):
            vector[field] = strings.setdefault(vector[field], len(strings))
        vectors.append(json.dumps(vector))
    lines = ",\n".join(vectors)
    table = ",\n".join(json.dumps(string) for string in strings)
    (OUT / f"{name}.json").write_text(f'{{"strings": [\n{table}\n],\n"cases": [\n{lines}\n]}}\n')


def write_seeds():
    data = smooth(96)
    numbers = np.arange(40, dtype="<i4") // 3
    codecs = {
        "codec_zstd_fuzz": [numcodecs.Zstd(3), numcodecs.Zstd(1, checksum=True)],
        "codec_gzip_fuzz": [numcodecs.GZip(6), numcodecs.Zlib(6), numcodecs.GZip(0)],
        "codec_lz4_fuzz": [numcodecs.LZ4()],
        "codec_streams_fuzz": [
            numcodecs.BZ2(1),
            *(numcodecs.LZMA(**kwargs) for kwargs in lzma_options()),
        ],
        "codec_zfp_fuzz": [numcodecs.ZFPY(), numcodecs.ZFPY(mode=3, precision=9)],
        "codec_blosc_fuzz": [
            numcodecs.Blosc(cname, 5, shuffle, blocksize=256)
            for cname in ("lz4", "blosclz", "zlib", "zstd")
            for shuffle in (0, 1, 2)
        ],
        "codec_filters_fuzz": [numcodecs.CRC32C(), numcodecs.Adler32(location="end")],
    }
    for target, made_by in codecs.items():
        folder = FUZZ_CORPUS / target
        folder.mkdir(parents=True, exist_ok=True)
        for i, codec in enumerate(made_by):
            for name, source in (("floats", data), ("repeats", np.tile(numbers, 4))):
                seed = bytes([40, 90 + i]) + flat(codec.encode(source))
                (folder / f"{name}_{i}").write_bytes(seed)


def main():
    OUT.mkdir(exist_ok=True)
    write_seeds()
    write("blosc", blosc_cases())
    write("compressors", compressor_cases())
    write("checksums", checksum_cases())
    write("filters", filter_cases())
    write("casts", cast_cases())


if __name__ == "__main__":
    with mock.patch("time.time", return_value=0.0):  # gzip writes it into its header
        main()
