"""The codecs' own C libraries through ctypes, into reused buffers: the limit of a row.

A context per codec and thread, no allocation in a call. Where a library is not installed only the
codec of numcodecs or zlib is timed, which is slower by a copy; `implementation` says which one it
was, `comparable` whether it encodes at the level of the rows.
"""

import ctypes
import ctypes.util
import zlib
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p

import numcodecs
import numcodecs.blosc
import numpy as np


def _library(name: str):
    found = ctypes.util.find_library(name)
    return ctypes.CDLL(found) if found else None


def _function(library, name: str, result, *arguments):
    f = getattr(library, name)
    f.restype, f.argtypes = result, arguments
    return f


class Zstd:
    comparable = True

    def __init__(self, level: int = 3):
        lib = _library("zstd")
        if lib is None:
            raise ImportError("libzstd")
        version = _function(lib, "ZSTD_versionString", c_char_p)().decode()
        self.implementation = f"libzstd {version}"
        self._level = level
        self._decoder = _function(lib, "ZSTD_createDCtx", c_void_p)()
        self._encoder = _function(lib, "ZSTD_createCCtx", c_void_p)()
        buffers = (c_void_p, c_void_p, c_size_t, c_void_p, c_size_t)
        self._decode = _function(lib, "ZSTD_decompressDCtx", c_size_t, *buffers)
        self._encode = _function(lib, "ZSTD_compressCCtx", c_size_t, *buffers, c_int)

    def decode(self, source: int, source_size: int, out: int, out_size: int) -> int:
        return self._decode(self._decoder, out, out_size, source, source_size)

    def encode(self, source: int, source_size: int, out: int, out_size: int) -> int:
        return self._encode(self._encoder, out, out_size, source, source_size, self._level)


class Blosc:
    comparable = True

    def __init__(self):
        lib = _library("blosc")
        if lib is None:
            raise ImportError("libblosc")
        version = _function(lib, "blosc_get_version_string", c_char_p)().decode()
        self.implementation = f"c-blosc {version}"
        self._decode = _function(
            lib, "blosc_decompress_ctx", c_int, c_void_p, c_void_p, c_size_t, c_int
        )
        self._encode = _function(
            lib,
            "blosc_compress_ctx",
            c_int,
            *(c_int, c_int, c_size_t, c_size_t, c_void_p, c_void_p, c_size_t, c_char_p),
            *(c_size_t, c_int),
        )

    def decode(self, source: int, source_size: int, out: int, out_size: int) -> int:
        return self._decode(source, out, out_size, 1)

    def encode(self, source: int, source_size: int, out: int, out_size: int) -> int:
        return self._encode(5, 1, 4, source_size, source, out, out_size, b"lz4", 0, 1)


class Deflate:
    comparable = True

    def __init__(self, level: int = 5):
        lib = _library("deflate")
        if lib is None:
            raise ImportError("libdeflate")
        self.implementation = "libdeflate"
        self._decoder = _function(lib, "libdeflate_alloc_decompressor", c_void_p)()
        self._encoder = _function(lib, "libdeflate_alloc_compressor", c_void_p, c_int)(level)
        buffers = (c_void_p, c_void_p, c_size_t, c_void_p, c_size_t)
        self._decode = _function(lib, "libdeflate_gzip_decompress", c_int, *buffers, c_void_p)
        self._encode = _function(lib, "libdeflate_gzip_compress", c_size_t, *buffers)
        self._size = c_size_t()

    def decode(self, source: int, source_size: int, out: int, out_size: int) -> int:
        status = self._decode(self._decoder, source, source_size, out, out_size, byref(self._size))
        return self._size.value if status == 0 else 0

    def encode(self, source: int, source_size: int, out: int, out_size: int) -> int:
        return self._encode(self._encoder, source, source_size, out, out_size)


class Python:
    """A codec whose encode(array) and decode(buffer) allocate, behind the same four arguments."""

    def __init__(self, implementation: str, encode, decode, comparable: bool = True):
        self.implementation = implementation
        self.comparable = comparable
        self._encode_bytes, self._decode_bytes = encode, decode

    def _run(self, work, dtype, source: int, source_size: int, out: int, out_size: int) -> int:
        result = work(np.frombuffer((ctypes.c_char * source_size).from_address(source), dtype))
        size = len(result)
        if size > out_size:
            return 0
        ctypes.memmove(out, bytes(result), size)
        return size

    def decode(self, *buffers) -> int:
        return self._run(self._decode_bytes, np.uint8, *buffers)

    def encode(self, *buffers) -> int:
        return self._run(self._encode_bytes, np.float32, *buffers)


def _isal():
    from isal import igzip

    # Its highest level, 3, compresses less than level 5 of the rows: no limit for writing them.
    return Python("isal", lambda b: igzip.compress(b, 3), igzip.decompress, comparable=False)


def _zlib():
    def encode(data):
        deflate = zlib.compressobj(5, wbits=31)
        return deflate.compress(data) + deflate.flush()

    version = zlib.ZLIB_RUNTIME_VERSION
    return Python(f"zlib {version}", encode, lambda b: zlib.decompress(b, wbits=31))


def _numcodecs(codec):
    numcodecs.blosc.use_threads = False
    return Python(f"numcodecs {codec.codec_id}", codec.encode, codec.decode)


def candidates(codec: str) -> list:
    """Makers of the implementations to time for a codec."""
    if codec == "zstd":
        return [Zstd, lambda: _numcodecs(numcodecs.Zstd(level=3))]
    if codec == "blosc":
        return [Blosc, lambda: _numcodecs(numcodecs.Blosc("lz4", 5, numcodecs.Blosc.SHUFFLE))]
    if codec == "gzip":
        return [Deflate, _isal, _zlib]
    raise ValueError(f"no codec library for {codec!r}")
