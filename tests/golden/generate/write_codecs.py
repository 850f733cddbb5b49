"""Codecs of numcodecs and of the registry of extensions: `write_codecs.py WRITER`.

codecs34 is zarr-python 3.4 with cast-value-rs and zfpy; codecs_zarrs is the zarrs pipeline, to
which zarr-python hands codecs that it knows by name alone.
"""

import importlib.metadata
import lzma
import sys
import warnings
from dataclasses import dataclass, field

import numcodecs
import numpy as np
import zarr
import zarr.codecs.numcodecs as nc
from formula import smooth, values
from golden import Golden
from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec
from zarr.codecs import BytesCodec, ShardingCodec, TransposeCodec
from zarr.registry import register_codec
from zarr3_codecs import make

warnings.filterwarnings("ignore", message="(?s).*not in the Zarr version 3 specification")
SHAPE, CHUNKS = (33, 21), (20, 16)


def adder(golden, store):
    def add(path, data, chunks=CHUNKS, **kw):
        make(golden, store, path, data, chunks=chunks, features=[store, path], **kw)

    return add


def streams(golden):
    add = adder(golden, "streams")
    f4 = smooth("<f4", SHAPE)
    lzma2 = {"id": lzma.FILTER_LZMA2, "preset": 1}
    delta = {"id": lzma.FILTER_DELTA, "dist": 4}
    for name, options in {
        "xz": {},
        "sha256": {"preset": 6, "check": lzma.CHECK_SHA256},
        "alone": {"format": lzma.FORMAT_ALONE},
        "raw": {"format": lzma.FORMAT_RAW, "filters": [delta, lzma2]},
    }.items():
        add(f"lzma/{name}", f4, compressors=nc.LZMA(**options))
        add(f"v2/lzma/{name}", f4, compressors=numcodecs.LZMA(**options), zarr_format=2)
    for level in (1, 9):
        add(f"bz2/{level}", f4, compressors=nc.BZ2(level=level))
        add(f"v2/bz2/{level}", f4, compressors=numcodecs.BZ2(level), zarr_format=2)
    add("sharded", f4, (10, 7), shards=(20, 14), compressors=(nc.BZ2(), nc.CRC32()))


def zfp(golden):
    """What is lost is lost by zfpy, of whole chunks: a decoder gives the same bits everywhere."""
    import zfpy

    add = adder(golden, "zfp")
    modes = {
        "accuracy": {"mode": zfpy.mode_fixed_accuracy, "tolerance": 0.01},
        "rate": {"mode": zfpy.mode_fixed_rate, "rate": 12.5},
        "precision": {"mode": zfpy.mode_fixed_precision, "precision": 20},
        "reversible": {"mode": zfpy.mode_fixed_accuracy},
    }
    for name, options in modes.items():
        for dtype, shape in (
            ("f4", (20, 16)),
            ("f8", (7, 9, 5)),
            ("i4", (300,)),
            ("i8", (5, 6, 2, 3)),
        ):
            if name == "accuracy" and dtype[0] == "i":
                continue
            data = smooth(dtype, shape)
            codec = numcodecs.ZFPY(**options)
            expected = codec.decode(codec.encode(data))
            how = {"compressors": None, "expected": expected, "optional": True}
            add(f"{name}/{dtype}", data, shape, serializer=nc.ZFPY(**options), **how)
            how["compressors"] = codec
            add(f"v2/{name}/{dtype}", data, shape, zarr_format=2, **how)
    reversible = nc.ZFPY(mode=zfpy.mode_fixed_accuracy)
    data = values("f8", (33, 21))
    data[~np.isfinite(data)] = 0
    add("chunks", data, serializer=reversible, compressors=nc.CRC32(), optional=True)
    add("sharded", data, (10, 7), shards=(20, 14), serializer=reversible, optional=True)


def scale_offset(golden):
    from zarr.codecs import ScaleOffset

    add = adder(golden, "scale_offset")
    for dtype in ("f2", "f4", "f8"):
        data = smooth(dtype, SHAPE)
        for endian in ("little", "big"):
            codec = ScaleOffset(offset=240, scale=0.25)
            add(f"{endian}/{dtype}", data, filters=codec, serializer=BytesCodec(endian=endian))
    for dtype in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"):
        data = np.arange(33 * 21).reshape(SHAPE) % 37 + 2
        codec = ScaleOffset(offset=2, scale=3)
        add(f"integers/{dtype}", data.astype(dtype), filters=codec, fill_value=2)
    add("negative", values("i1", SHAPE) % 60, filters=ScaleOffset(offset=7, scale=-2))
    add("default", smooth("f4", SHAPE), filters=ScaleOffset())
    strings = ScaleOffset(offset="0x43700000", scale="0x3e800000")
    add("hexadecimal", smooth("f4", SHAPE), filters=strings)
    part = {"fill_value": 250.5, "written": lambda at: (at[0] + at[1]) % 2 == 0}
    codec = ScaleOffset(offset=250, scale=4.0)
    add("fill", smooth("f8", SHAPE), (10, 7), filters=codec, **part)
    add("sharded", smooth("f8", SHAPE), (10, 7), shards=(20, 14), filters=codec, **part)


def cast_value(golden):
    from zarr.codecs import CastValue, ScaleOffset

    add = adder(golden, "cast_value")
    i = np.arange(33 * 21).reshape(SHAPE)
    halves = (i % 41 - 20) / 2
    for rounding, rounded in {
        "nearest-even": np.rint(halves),
        "towards-zero": np.trunc(halves),
        "towards-positive": np.ceil(halves),
        "towards-negative": np.floor(halves),
        "nearest-away": np.copysign(np.floor(np.abs(halves) + 0.5), halves),
    }.items():
        for dtype in ("f4", "f8"):
            codec = CastValue(data_type="int8", rounding=rounding)
            add(
                f"{rounding}/{dtype}",
                halves.astype(dtype),
                filters=codec,
                expected=(rounded + 0.0).astype(dtype),
            )
    wide = (i * 7 - 1500).astype("i4")
    clamp = CastValue(data_type="uint8", out_of_range="clamp")
    wrap = CastValue(data_type="int8", out_of_range="wrap")
    add("clamp/i4", wide, filters=clamp, expected=np.clip(wide, 0, 255))
    add("clamp/f4", wide.astype("f4"), filters=clamp, expected=np.clip(wide, 0, 255).astype("f4"))
    wrapped = (wide + 128) % 256 - 128
    add("wrap/i4", wide, filters=wrap, expected=wrapped)
    add("wrap/f8", wide.astype("f8"), filters=wrap, expected=wrapped.astype("f8"))
    for source, target in (
        ("i2", "float32"),
        ("u1", "float16"),
        ("i4", "float64"),
        ("f4", "float64"),
    ):
        data = (i % 101).astype(source)
        for endian in ("little", "big"):
            add(
                f"wider/{endian}/{source}-{target}",
                data,
                filters=CastValue(data_type=target),
                serializer=BytesCodec(endian=endian),
            )
    add("narrower", smooth("f8", SHAPE), filters=CastValue(data_type="float16"))
    holes = np.where(i % 5 == 0, np.nan, i % 90).astype("f4")
    maps = {"encode": [("NaN", 255)], "decode": [(255, "NaN")]}
    mapped = CastValue(data_type="uint8", scalar_map=maps)
    add("map/whole", holes, filters=mapped)
    part = {"fill_value": np.nan, "written": lambda at: (at[0] + at[1]) % 2 == 0}
    add("map/fill", holes, (10, 7), filters=mapped, **part)
    add("map/sharded", holes, (10, 7), shards=(20, 14), filters=mapped, **part)
    packed = (ScaleOffset(offset=250.0, scale=4.0), CastValue(data_type="int16"))
    part["fill_value"] = 251.25
    add("packed/whole", smooth("f8", SHAPE), filters=packed)
    add("packed/sharded", smooth("f8", SHAPE), (10, 7), shards=(20, 14), filters=packed, **part)
    outer = ShardingCodec(chunk_shape=(10, 7), codecs=[BytesCodec(endian="big"), nc.LZMA()])
    more = {"chunks": None, "shards": None}
    add(
        "packed/in-front",
        smooth("f8", SHAPE),
        (20, 14),
        filters=packed,
        serializer=outer,
        compressors=None,
        more=more,
        **part,
    )


def named_only(kind, codec_name):
    """A class that zarr-python knows the name of, for the zarrs pipeline to encode with."""

    @dataclass(frozen=True)
    class Named(kind):
        configuration: dict = field(default_factory=dict)
        is_fixed_size = True

        @classmethod
        def from_dict(cls, data):
            return cls(data.get("configuration", {}))

        def to_dict(self):
            return {"name": codec_name, "configuration": self.configuration}

        def compute_encoded_size(self, input_byte_length, _spec):
            return input_byte_length

        async def _decode_single(self, *_):
            raise NotImplementedError

        async def _encode_single(self, *_):
            raise NotImplementedError

    register_codec(codec_name, Named)
    return Named


def packbits(golden):
    codec = named_only(ArrayBytesCodec, "packbits")
    add = adder(golden, "packbits")
    i = np.arange(33 * 21).reshape(SHAPE)
    for padding in ("none", "first_byte", "last_byte"):
        packed = codec({"padding_encoding": padding})
        add(f"bool/{padding}", i % 3 == 0, (13, 5), serializer=packed)
        packed = codec({"padding_encoding": padding, "last_bit": 4})
        add(f"five/{padding}", (i % 32).astype("u2"), (13, 5), serializer=packed)
    for dtype in ("u1", "u2", "i4", "u8", "f4", "c8"):
        add(f"whole/{dtype}", values(dtype, SHAPE), serializer=codec())
    add("sharded", i % 7 == 0, (10, 7), shards=(20, 14), serializer=codec())


def reshape(golden):
    codec = named_only(ArrayArrayCodec, "reshape")
    add = adder(golden, "reshape")
    cube = values("<i4", (7, 4, 10))
    for name, shape in {
        "joined": [[0, 1], [2]],
        "flat": [-1],
        "mixed": [[0], 5, -1],
        "ones": [3, 1, -1, 1],
    }.items():
        for endian in ("little", "big"):
            add(
                f"{name}/{endian}",
                cube,
                (3, 2, 5),
                filters=codec({"shape": shape}),
                serializer=BytesCodec(endian=endian),
            )
    turned = (TransposeCodec(order=(2, 0, 1)), codec({"shape": [[0, 1], 2]}))
    add("turned", cube, (3, 2, 5), filters=turned)


if __name__ == "__main__":
    writer = sys.argv[1]
    packages = ["zarr", "numcodecs", "numpy"]
    parts = [streams, scale_offset, cast_value, zfp]
    if writer == "codecs_zarrs":
        packages.append("zarrs")
        zarr.config.set(
            {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline", "codec_pipeline.strict": True}
        )
        parts = [packbits, reshape]
    golden = Golden(writer, {name: importlib.metadata.version(name) for name in packages})
    for part in parts:
        part(golden)
    golden.close()
