"""The arrays of the matrix: each data type with each codec, and each of both with each layout.

Needs NumPy alone, and ml_dtypes for the types that NumPy lacks, so that every library's environment
can import it.
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "golden" / "generate"))

from formula import values

# Zarr's name of a data type -> NumPy's. What follows has a name of its own in v3 only, or none.
NUMPY_TYPES = {
    "bool": "|b1",
    "int8": "|i1",
    "int16": "<i2",
    "int32": "<i4",
    "int64": "<i8",
    "uint8": "|u1",
    "uint16": "<u2",
    "uint32": "<u4",
    "uint64": "<u8",
    "float16": "<f2",
    "float32": "<f4",
    "float64": "<f8",
    "complex64": "<c8",
    "complex128": "<c16",
    "datetime64": "<M8[ns]",
    "timedelta64": "<m8[us]",
    "fixed_bytes": "|S7",
    "fixed_text": "<U4",
    "raw": "|V6",
}
ML_TYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "int4")  # Zarr v3 alone
VARIABLE_TYPES = ("string", "bytes")
TYPES = {2: (*NUMPY_TYPES, *VARIABLE_TYPES), 3: (*NUMPY_TYPES, *ML_TYPES, *VARIABLE_TYPES)}
BYTE_ORDER_MATTERS = ("float32", "int16", "complex64", "datetime64", "fixed_text")

# Filters and compressor in the dialect of v2; ITEMSIZE and DTYPE stand for those of the array.
ITEMSIZE, DTYPE = "itemsize", "dtype"
CODECS_V2 = {
    "none": ([], None),
    "zlib": ([], {"id": "zlib", "level": 1}),
    "gzip": ([], {"id": "gzip", "level": 1}),
    "zstd": ([], {"id": "zstd", "level": 3}),
    "lz4": ([], {"id": "lz4", "acceleration": 1}),
    "bz2": ([], {"id": "bz2", "level": 1}),
    "lzma": ([], {"id": "lzma", "format": 1, "check": -1, "preset": None, "filters": None}),
    "blosc-lz4": (
        [],
        {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0},
    ),
    "blosc-zstd": (
        [],
        {"id": "blosc", "cname": "zstd", "clevel": 3, "shuffle": 2, "blocksize": 0},
    ),
    "delta": ([{"id": "delta", "dtype": DTYPE}], {"id": "zlib", "level": 1}),
    "shuffle": ([{"id": "shuffle", "elementsize": ITEMSIZE}], {"id": "zlib", "level": 1}),
}


def _v3(name, **configuration):
    return {"name": name, "configuration": configuration} if configuration else {"name": name}


def _blosc(cname, clevel, shuffle):
    options = {"cname": cname, "clevel": clevel, "shuffle": shuffle, "blocksize": 0}
    return _v3("blosc", typesize=ITEMSIZE, **options)


# Array -> array codecs and bytes -> bytes codecs of v3.
CODECS_V3 = {
    "none": ([], []),
    "gzip": ([], [_v3("gzip", level=1)]),
    "zstd": ([], [_v3("zstd", level=3, checksum=False)]),
    "zstd-checksum": ([], [_v3("zstd", level=3, checksum=True)]),
    "crc32c": ([], [_v3("crc32c")]),
    "gzip-crc32c": ([], [_v3("gzip", level=1), _v3("crc32c")]),
    "blosc-lz4": ([], [_blosc("lz4", 5, "shuffle")]),
    "blosc-zstd": ([], [_blosc("zstd", 3, "bitshuffle")]),
    "numcodecs.zlib": ([], [_v3("numcodecs.zlib", level=1)]),
    "numcodecs.lz4": ([], [_v3("numcodecs.lz4", acceleration=1)]),
    "numcodecs.bz2": ([], [_v3("numcodecs.bz2", level=1)]),
    "numcodecs.lzma": ([], [_v3("numcodecs.lzma", preset=1)]),
    "numcodecs.delta": ([_v3("numcodecs.delta", dtype=DTYPE)], [_v3("gzip", level=1)]),
    "numcodecs.shuffle": (
        [],
        [_v3("numcodecs.shuffle", elementsize=ITEMSIZE), _v3("gzip", level=1)],
    ),
}
CODECS = {2: CODECS_V2, 3: CODECS_V3}
USUAL_CODEC = {2: "zlib", 3: "zstd"}
ARITHMETIC = ("delta", "numcodecs.delta")  # for integers: of floats they lose bits
OF_ITEMS = ("shuffle", "numcodecs.shuffle")  # for elements of one size


@dataclass(frozen=True)
class Layout:
    """How an array is cut, ordered and named in its store. Edge chunks: shape 23 x 7 by 10 x 4."""

    shape: tuple[int, ...] = (23, 7)
    chunks: tuple = (10, 4)  # for a rectilinear grid, a tuple of edges a dimension
    shards: tuple[int, ...] | None = None
    index_at_start: bool = False
    column_order: bool = False  # order "F"; in v3, a transpose
    big_endian: bool = False
    keys: tuple[str, str] | None = None  # encoding and separator, where not the default
    written: tuple[tuple[slice, ...], ...] | None = None  # all else is left to the fill value

    @property
    def rectilinear(self) -> bool:
        return any(isinstance(extent, tuple) for extent in self.chunks)


_SOME = ((slice(0, 10), slice(4, 7)), (slice(20, 23), slice(0, 4)))
LAYOUTS_OF_BOTH = {
    "plain": Layout(),
    "big-endian": Layout(big_endian=True),
    "column-order": Layout(column_order=True),
    "missing-chunks": Layout(written=_SOME),
    "one-chunk": Layout(chunks=(100, 50)),
    "scalar": Layout(shape=(), chunks=()),
    "empty": Layout(shape=(5, 0), chunks=(2, 3)),
    "vector": Layout(shape=(101,), chunks=(10,)),
    "five-d": Layout(shape=(2, 3, 2, 3, 2), chunks=(1, 2, 2, 2, 1)),
}
LAYOUTS = {
    2: {**LAYOUTS_OF_BOTH, "slash-keys": Layout(keys=("v2", "/"))},
    3: {
        **LAYOUTS_OF_BOTH,
        "dot-keys": Layout(keys=("default", ".")),
        "v2-keys": Layout(keys=("v2", ".")),
        "sharded": Layout(shards=(20, 8)),
        "sharded-index-first": Layout(shards=(20, 4), index_at_start=True),
        "sharded-missing": Layout(shards=(20, 8), written=((slice(10, 20), slice(0, 4)),)),
        "rectilinear": Layout(chunks=((10, 3, 10), (1, 6))),
    },
}


@dataclass(frozen=True)
class Case:
    zarr_format: int
    type: str
    codec: str
    layout_name: str

    @property
    def id(self) -> str:
        return f"v{self.zarr_format}/{self.type}/{self.codec}/{self.layout_name}"

    @property
    def layout(self) -> Layout:
        return LAYOUTS[self.zarr_format][self.layout_name]

    @property
    def numpy_type(self) -> np.dtype:
        """Of the elements; object for those of variable length."""
        if self.type in VARIABLE_TYPES:
            return np.dtype(object)
        if self.type in ML_TYPES:
            import ml_dtypes

            return np.dtype(getattr(ml_dtypes, self.type))
        dtype = np.dtype(NUMPY_TYPES[self.type])
        return dtype.newbyteorder(">") if self.layout.big_endian else dtype

    @cached_property
    def data(self) -> np.ndarray:
        """What is written where anything is."""
        shape = self.layout.shape
        n = int(np.prod(shape, dtype=int))
        if self.type == "string":
            words = ["", "a", "\u4e2d\u6587", "x" * 300]
            return np.array([words[i % 4] for i in range(n)], object).reshape(shape)
        if self.type == "bytes":
            words = [b"", b"\x00", b"ab\xff", b"x" * 300]
            return np.array([words[i % 4] for i in range(n)], object).reshape(shape)
        if self.type in ML_TYPES:
            low = np.arange(n) % 16 - 8  # exact in all of them
            return low.astype("f4").astype(self.numpy_type).reshape(shape)
        return values(self.numpy_type, shape, seed=len(self.type))

    @property
    def fill(self):
        """The fill value as a Python or NumPy scalar; zero where all chunks are written."""
        if self.layout.written is None:
            empty = {"string": "", "bytes": b"", "fixed_text": "", "fixed_bytes": b""}
            return empty.get(self.type, np.zeros((), self.numpy_type)[()])
        if self.type in ML_TYPES:
            return self.numpy_type.type(-2)
        special = {
            "bool": True,
            "string": "fill",
            "bytes": b"fill",
            "fixed_text": "\u00e9",
            "fixed_bytes": b"ab",
            "raw": np.void(b"\x01\x00\xff\x02\x03\x04"),
            "datetime64": np.datetime64("2001-02-03", "ns"),
            "timedelta64": np.timedelta64(-7, "us"),
        }
        if self.type in special:
            return special[self.type]
        kind = self.numpy_type.kind
        return self.numpy_type.type({"f": np.nan, "c": 1.5 - 2j}.get(kind, 42))

    @property
    def regions(self) -> tuple:
        return (...,) if self.layout.written is None else self.layout.written

    @property
    def expected(self) -> np.ndarray:
        if self.layout.written is None:
            return self.data
        out = np.empty(self.layout.shape, self.numpy_type)
        out[...] = self.fill
        for region in self.regions:
            out[region] = self.data[region]
        return out

    def _resolved(self, codec):
        """A codec with the item size and the data type of this array put in."""
        if codec is None:
            return None
        itemsize = self.numpy_type.itemsize
        dtype = self.numpy_type
        if self.zarr_format == 3:
            dtype = dtype.newbyteorder("=")  # filters come before the bytes
        known = {ITEMSIZE: itemsize, DTYPE: dtype.str}
        out = {}
        for key, value in codec.items():
            if isinstance(value, dict):
                out[key] = self._resolved(value)
            else:
                out[key] = known.get(value, value) if isinstance(value, str) else value
        return out

    @property
    def filters_v2(self) -> list[dict]:
        filters = [self._resolved(codec) for codec in CODECS_V2[self.codec][0]]
        if self.type in VARIABLE_TYPES:
            filters.insert(0, {"id": {"string": "vlen-utf8", "bytes": "vlen-bytes"}[self.type]})
        return filters

    @property
    def compressor_v2(self) -> dict | None:
        return self._resolved(CODECS_V2[self.codec][1])

    @property
    def filters_v3(self) -> list[dict]:
        filters = [self._resolved(codec) for codec in CODECS_V3[self.codec][0]]
        ndim = len(self.layout.shape)
        if self.layout.column_order:
            order = list(range(ndim))[::-1]
            filters.insert(0, {"name": "transpose", "configuration": {"order": order}})
        return filters

    @property
    def compressors_v3(self) -> list[dict]:
        return [self._resolved(codec) for codec in CODECS_V3[self.codec][1]]

    @property
    def serializer_v3(self) -> dict:
        if self.type in VARIABLE_TYPES:
            return {"name": {"string": "vlen-utf8", "bytes": "vlen-bytes"}[self.type]}
        endian = "big" if self.layout.big_endian else "little"
        return {"name": "bytes", "configuration": {"endian": endian}}


def cases(zarr_format: int) -> list[Case]:
    """Data type x codec in the plain layout, then both x layout with a usual codec or type."""
    types, codecs, layouts = TYPES[zarr_format], CODECS[zarr_format], LAYOUTS[zarr_format]
    usual = USUAL_CODEC[zarr_format]
    wanted = [(t, c, "plain") for t in types for c in codecs]
    wanted += [(t, usual, name) for t in types for name in layouts]
    wanted += [(t, c, name) for t in ("float32", "int16") for c in codecs for name in layouts]
    return [Case(zarr_format, *w) for w in dict.fromkeys(wanted) if _is_case(*w)]


def _is_case(type_: str, codec: str, layout: str) -> bool:
    if layout == "big-endian" and type_ not in BYTE_ORDER_MATTERS:
        return False
    if codec in ARITHMETIC:
        return type_.startswith(("int", "uint")) and type_ not in ML_TYPES
    return type_ not in VARIABLE_TYPES or codec not in OF_ITEMS


def all_cases() -> list[Case]:
    return cases(2) + cases(3)


def digest(array: np.ndarray) -> str:
    """sha256 of shape and native bytes in C order; of objects, of each one's kind and bytes."""
    sha = hashlib.sha256(repr(array.shape).encode())
    if array.dtype == object or array.dtype.kind == "T":
        for item in array.ravel().tolist():
            raw = item.encode() if isinstance(item, str) else bytes(item)
            sha.update(f"{type(item).__name__}{len(raw)}:".encode() + raw)
    else:
        if array.dtype.name == "int4":
            array = array.astype("i1")  # half of the byte in memory means nothing
        native = array.astype(array.dtype.newbyteorder("="), copy=False)
        sha.update(native.tobytes())
    return sha.hexdigest()
