"""Codecs: what arrays are created with, and batches of buffers without an array.

Wherever a codec is accepted, so are a metadata dict of the Zarr specification, a zarr-python codec
and a numcodecs object.

Examples
--------
>>> headrace.create_array("a.zarr", shape=(100,), dtype="f4", compressors=headrace.codecs.Zstd(5))
"""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from . import _check, _core, _json
from ._suggest import checks_names, did_you_mean

__all__ = [
    "BZ2",
    "LZ4",
    "LZMA",
    "BitRound",
    "Bitshuffle",
    "Blosc",
    "Bytes",
    "CastValue",
    "Codec",
    "Crc32c",
    "Delta",
    "FixedScaleOffset",
    "Generic",
    "Gzip",
    "PackBits",
    "Quantize",
    "QueuedBatch",
    "Reshape",
    "ScaleOffset",
    "Sharding",
    "Shuffle",
    "Transpose",
    "Zfp",
    "Zlib",
    "Zstd",
    "decode_batch",
    "encode_batch",
    "parse",
    "table",
]


@dataclass(frozen=True)
class Codec:
    """What all codecs have: a name and a configuration. Codecs are compared by value.

    Examples
    --------
    >>> hr.codecs.Zstd(level=5).to_dict()
    {'name': 'zstd', 'configuration': {'level': 5, 'checksum': False}}
    """

    codec_name: ClassVar[str]

    @property
    def name(self) -> str:
        """The name in Zarr v3 metadata."""
        return self.codec_name

    def configuration(self) -> dict[str, Any]:
        """The configuration in Zarr v3 metadata."""
        return {
            field.name: value
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) is not None
        }

    def to_dict(self) -> dict[str, Any]:
        """The codec as Zarr v3 metadata."""
        configuration = self.configuration()
        if not configuration:
            return {"name": self.name}
        return {"name": self.name, "configuration": configuration}

    def to_spec(self) -> tuple[str, str]:
        """The name, and the configuration as JSON text; empty where there is none."""
        configuration = self.configuration()
        return self.name, _json.dumps(configuration) if configuration else ""

    def for_itemsize(self, itemsize: int) -> Codec:
        """The codec with what was left open settled for elements of `itemsize` bytes."""
        return self


@dataclass(frozen=True)
class Generic(Codec):
    """A codec that has no class of its own: its name, and its configuration as metadata have it."""

    codec_name: ClassVar[str] = ""
    generic_name: str
    generic_configuration: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        _check.text("generic_name", self.generic_name, "the name of a codec")
        _check.mapping("generic_configuration", self.generic_configuration)

    @property
    def name(self) -> str:
        return self.generic_name

    def configuration(self) -> dict[str, Any]:
        return dict(self.generic_configuration or {})


@dataclass(frozen=True)
class Bytes(Codec):
    """Elements as bytes; `endian` is "little" or "big", None for one-byte elements."""

    codec_name: ClassVar[str] = "bytes"
    endian: str | None = "little"


@dataclass(frozen=True)
class Transpose(Codec):
    """Dimensions in another order: ``order[i]`` is the dimension that becomes the i-th."""

    codec_name: ClassVar[str] = "transpose"
    order: Sequence[int]

    def configuration(self) -> dict[str, Any]:
        return {"order": _check.listed("order", self.order, "a number for each dimension")}


@dataclass(frozen=True)
class Zstd(Codec):
    """Zstandard ([RFC 8878](https://datatracker.ietf.org/doc/html/rfc8878)): the default.

    Parameters
    ----------
    level
        -131072 to 22. Higher ones are smaller and slower to write, and read as fast.
    checksum
        Whether each frame ends with a checksum of its content, which every read compares.
    """

    codec_name: ClassVar[str] = "zstd"
    level: int = 3
    checksum: bool = False


@dataclass(frozen=True)
class Gzip(Codec):
    """Deflate in gzip framing; `level` is 0 to 9."""

    codec_name: ClassVar[str] = "gzip"
    level: int = 5


@dataclass(frozen=True)
class Blosc(Codec):
    """Blosc 1: blocks, shuffled, compressed by `cname`. Reads decode only blocks that are wanted.

    Parameters
    ----------
    cname
        "lz4", "lz4hc", "zstd", "zlib", "blosclz" or "snappy".
    clevel
        0 to 9; 0 does not compress.
    shuffle
        "shuffle" (bytes of equal significance together), "bitshuffle" or "noshuffle".
    typesize
        Bytes of what is shuffled; None is the item size of the array.
    blocksize
        Bytes of a block; 0 leaves it to c-blosc.

    Examples
    --------
    >>> a = hr.create_array(
    ...     "b.zarr", shape=8, dtype="f4", compressors=hr.codecs.Blosc("zstd", shuffle="bitshuffle")
    ... )
    """

    codec_name: ClassVar[str] = "blosc"
    cname: str = "lz4"
    clevel: int = 5
    shuffle: str = "shuffle"
    typesize: int | None = None
    blocksize: int = 0

    def for_itemsize(self, itemsize: int) -> Codec:
        if self.typesize is None:
            return dataclasses.replace(self, typesize=max(itemsize, 1))
        return self


@dataclass(frozen=True)
class Crc32c(Codec):
    """A checksum of four bytes at the end."""

    codec_name: ClassVar[str] = "crc32c"


# Codecs of the registry of extensions: https://github.com/zarr-developers/zarr-extensions.


@dataclass(frozen=True)
class Reshape(Codec):
    """Another shape for the same elements in the same order.

    `shape` has, for each new dimension, its extent, -1 for what is left over, or a list of the
    dimensions that it joins: ``[[0, 1], -1]``.
    """

    codec_name: ClassVar[str] = "reshape"
    shape: Sequence[int | Sequence[int]]

    def configuration(self) -> dict[str, Any]:
        wanted = "extents, -1 or lists of dimensions"
        shape = _check.listed("shape", self.shape, wanted)
        return {
            "shape": [x if isinstance(x, int) else _check.listed("shape", x, wanted) for x in shape]
        }


@dataclass(frozen=True)
class ScaleOffset(Codec):
    """``(x - offset) * scale`` in the array's own type; decoded as ``x / scale + offset``.

    Follow it by `CastValue` for a narrower type.
    """

    codec_name: ClassVar[str] = "scale_offset"
    offset: float | str = 0
    scale: float | str = 1

    def configuration(self) -> dict[str, Any]:
        for name, value in (("offset", self.offset), ("scale", self.scale)):
            if not isinstance(value, str | numbers.Number):
                raise _check.wrong_type(name, "a number", value)
        defaults = {"offset": 0, "scale": 1}
        return {k: v for k, v in super().configuration().items() if v != defaults[k]}


@dataclass(frozen=True)
class CastValue(Codec):
    """Values in another type of numbers, by its name in Zarr v3.

    `rounding` is "nearest-even", "towards-zero", "towards-positive", "towards-negative" or
    "nearest-away"; `out_of_range` is None (an error), "clamp" or "wrap"; `scalar_map` has pairs for
    "encode" and "decode" that go before all else.
    """

    codec_name: ClassVar[str] = "cast_value"
    data_type: str
    rounding: str | None = None
    out_of_range: str | None = None
    scalar_map: Mapping[str, Sequence[tuple[Any, Any]]] | None = None


@dataclass(frozen=True)
class PackBits(Codec):
    """Of each element bits `first_bit` to `last_bit`, without gaps. In place of `Bytes`.

    `padding_encoding` says where the number of bits that fill up the last byte stands: "none",
    "first_byte" or "last_byte".
    """

    codec_name: ClassVar[str] = "packbits"
    padding_encoding: str = "none"
    first_bit: int | None = None
    last_bit: int | None = None


@dataclass(frozen=True)
class Sharding(Codec):
    """Many inner chunks and their index in one stored object.

    `create_array(shards=...)` makes one by itself. `codecs` are those of the inner chunks of shape
    `chunk_shape`, `index_codecs` those of the index, which stands at the "start" or the "end".

    Examples
    --------
    >>> a = hr.create_array("s.zarr", shape=(64, 64), dtype="f4", chunks=(8, 8), shards=(64, 64))
    """

    codec_name: ClassVar[str] = "sharding_indexed"
    chunk_shape: Sequence[int]
    codecs: Sequence[Any] = (Bytes(), Zstd())
    index_codecs: Sequence[Any] = (Bytes(), Crc32c())
    index_location: str = "end"

    def configuration(self) -> dict[str, Any]:
        shape = _check.listed("chunk_shape", self.chunk_shape, "an extent for each dimension")
        return {
            "chunk_shape": shape,
            "codecs": [codec.to_dict() for codec in _parsed("codecs", self.codecs)],
            "index_codecs": [
                codec.to_dict() for codec in _parsed("index_codecs", self.index_codecs)
            ],
            "index_location": self.index_location,
        }

    def for_itemsize(self, itemsize: int) -> Codec:
        inner = tuple(codec.for_itemsize(itemsize) for codec in _parsed("codecs", self.codecs))
        return dataclasses.replace(self, codecs=inner)


@dataclass(frozen=True)
class Zfp(Codec):
    """zfp, for 1 to 4 dimensions of int32, int64, float32 or float64. In place of `Bytes`.

    `mode` is "reversible", "fixed_accuracy" (with `tolerance`, an absolute error), "fixed_rate"
    (with `rate`, bits an element), "fixed_precision" (with `precision`, bit planes) or "expert".
    Needs a build with libzfp.
    """

    codec_name: ClassVar[str] = "zfp"
    mode: str = "reversible"
    tolerance: float | None = None
    rate: float | None = None
    precision: int | None = None
    minbits: int | None = None
    maxbits: int | None = None
    maxprec: int | None = None
    minexp: int | None = None


# The codecs of numcodecs: https://numcodecs.readthedocs.io. Their v3 names carry its prefix.


@dataclass(frozen=True)
class Zlib(Codec):
    """Deflate in zlib framing; `level` is 0 to 9."""

    codec_name: ClassVar[str] = "numcodecs.zlib"
    level: int = 1


@dataclass(frozen=True)
class LZ4(Codec):
    """One LZ4 block after its size, as numcodecs frames it; more `acceleration`, less small."""

    codec_name: ClassVar[str] = "numcodecs.lz4"
    acceleration: int = 1


@dataclass(frozen=True)
class BZ2(Codec):
    """bzip2. `level`, 1 to 9, is the size of its blocks in units of 100,000 bytes."""

    codec_name: ClassVar[str] = "numcodecs.bz2"
    level: int = 1


@dataclass(frozen=True)
class LZMA(Codec):
    """LZMA. The numbers are those of Python's `lzma` module.

    `format` is xz (1), alone (2) or raw (3); `check` -1 is the format's own. Either `preset` (None:
    6) or `filters`, a list of dicts, says how to compress; raw streams need `filters`.
    """

    codec_name: ClassVar[str] = "numcodecs.lzma"
    format: int = 1
    check: int = -1
    preset: int | None = None
    filters: Sequence[Mapping[str, Any]] | None = None


@dataclass(frozen=True)
class Shuffle(Codec):
    """Bytes of equal significance together; `elementsize` None is the item size of the array."""

    codec_name: ClassVar[str] = "numcodecs.shuffle"
    elementsize: int | None = None

    def for_itemsize(self, itemsize: int) -> Codec:
        if self.elementsize is None:
            return dataclasses.replace(self, elementsize=max(itemsize, 1))
        return self


@dataclass(frozen=True)
class Bitshuffle(Codec):
    """Bits of equal significance together, as the bitshuffle library has them.

    `itemsize` None is that of the array, `blocksize` 0 the library's choice (elements a block).
    """

    codec_name: ClassVar[str] = "numcodecs.imagecodecs_bitshuffle"
    itemsize: int | None = None
    blocksize: int = 0

    def for_itemsize(self, itemsize: int) -> Codec:
        if self.itemsize is None:
            return dataclasses.replace(self, itemsize=max(itemsize, 1))
        return self


@dataclass(frozen=True)
class _Typed(Codec):
    """A codec whose configuration names NumPy data types."""

    def configuration(self) -> dict[str, Any]:
        import numpy as np

        configuration = super().configuration()
        for key in ("dtype", "astype"):
            if key in configuration:
                configuration[key] = np.dtype(configuration[key]).str
        return configuration


@dataclass(frozen=True)
class Delta(_Typed):
    """Differences of neighbours; `dtype` and `astype` are NumPy data types."""

    codec_name: ClassVar[str] = "numcodecs.delta"
    dtype: str
    astype: str | None = None


@dataclass(frozen=True)
class FixedScaleOffset(_Typed):
    """``round((x - offset) * scale)``; decoded as ``x / scale + offset``.

    Examples
    --------
    >>> packed = hr.codecs.FixedScaleOffset(offset=273.15, scale=100, dtype="f4", astype="i2")
    """

    codec_name: ClassVar[str] = "numcodecs.fixedscaleoffset"
    offset: float
    scale: float
    dtype: str
    astype: str | None = None


@dataclass(frozen=True)
class Quantize(_Typed):
    """Floating-point numbers of `dtype` rounded to `digits` decimal digits, kept as `astype`."""

    codec_name: ClassVar[str] = "numcodecs.quantize"
    digits: int
    dtype: str
    astype: str | None = None


@dataclass(frozen=True)
class BitRound(Codec):
    """Floating-point numbers rounded to `keepbits` bits of mantissa; the rest is zeros."""

    codec_name: ClassVar[str] = "numcodecs.bitround"
    keepbits: int


_PREFIX = "numcodecs."
_CLASSES: dict[str, type[Codec]] = {
    cls.codec_name.removeprefix(_PREFIX): cls
    for cls in (*Codec.__subclasses__(), *_Typed.__subclasses__())
    if cls not in (Generic, _Typed)
}
_OTHER_FORMATS = ("numcodecs.packbits",)  # not what the registry calls "packbits"
# Codecs of numcodecs that the Zarr v3 specification or its registry name by themselves.
_V3_NAMES = ("zstd", "gzip", "blosc", "crc32c", "vlen-utf8", "vlen-bytes", "vlen-array")
_BLOSC_SHUFFLES = {0: "noshuffle", 1: "shuffle", 2: "bitshuffle"}


def _from_metadata(name: str, configuration: Mapping[str, Any]) -> Codec:
    if name == "numcodecs.blosc":  # counts shuffles and has no typesize
        return _from_numcodecs({"id": "blosc", **configuration})
    cls = _CLASSES.get(name.removeprefix(_PREFIX))
    if cls is not None and name not in _OTHER_FORMATS:
        fields = {field.name for field in dataclasses.fields(cls)}
        if set(configuration) <= fields:
            try:
                return cls(**configuration)
            except TypeError:  # a required field is missing: the core says which
                pass
    return Generic(name, configuration)


def _from_numcodecs(config: Mapping[str, Any]) -> Codec:
    configuration = {key: value for key, value in config.items() if key != "id"}
    name = str(config["id"])
    if name == "blosc":
        shuffle = configuration.get("shuffle", 1)
        if shuffle == -1:  # AUTOSHUFFLE, which depends on the item size
            return _AutoShuffleBlosc(
                configuration.get("cname", "lz4"),
                configuration.get("clevel", 5),
                blocksize=configuration.get("blocksize", 0),
            )
        if shuffle in _BLOSC_SHUFFLES:
            configuration["shuffle"] = _BLOSC_SHUFFLES[shuffle]
    return _from_metadata(name if name in _V3_NAMES else _PREFIX + name, configuration)


@dataclass(frozen=True)
class _AutoShuffleBlosc(Blosc):
    def for_itemsize(self, itemsize: int) -> Codec:
        shuffle = "bitshuffle" if itemsize == 1 else "shuffle"
        return Blosc(self.cname, self.clevel, shuffle, max(itemsize, 1), self.blocksize)


def _parsed(argument: str, chain: Any) -> list[Codec]:
    with _check.argument(argument, "codec"):
        return [parse(codec) for codec in _check.listed(argument, chain, "a list of codecs")]


def parse(codec: Any) -> Codec:
    """A codec object of whatever names a codec.

    Parameters
    ----------
    codec
        A codec of this module, a name, a metadata dict (``{"name": ..., "configuration": ...}`` or
        ``{"id": ...}``), a zarr-python codec or a numcodecs codec.

    Examples
    --------
    >>> headrace.codecs.parse({"name": "zstd", "configuration": {"level": 5}})
    Zstd(level=5, checksum=False)
    """
    if isinstance(codec, Codec):
        return codec
    if isinstance(codec, str):
        _check.text("codec", codec)
        return _from_metadata(codec, {})
    if isinstance(codec, Mapping):
        if "name" in codec:
            return _from_metadata(str(codec["name"]), codec.get("configuration") or {})
        if "id" in codec:
            return _from_numcodecs(codec)
    elif hasattr(codec, "to_dict"):
        return parse(codec.to_dict())
    elif hasattr(codec, "get_config"):
        return _from_numcodecs(codec.get_config())
    raise _check.wrong_type("codec", "a codec, its name or its metadata", codec)


def of_array(array: _core.Array) -> list[Codec]:
    """The chain of an array, as objects."""
    return [
        _from_metadata(name, _json.loads(configuration) if configuration else {})
        for name, configuration in array._codec_specs
    ]


def table() -> list[dict[str, Any]]:
    """All implementations of all codecs, in order of preference.

    Returns
    -------
    list of dict
        ``codec``, ``implementation``, ``device``, ``available``, ``why_not`` and ``used``: for what
        the row is used to decode when nobody asks for it. Whether the host or a GPU decodes a batch
        is chosen by measured rates, for as many threads as are configured. ``encodes``: whether it
        encodes too, and ``used_to_encode``, for what; empty when it only decodes.

        The last rows are what only the user's Python has: ``implementation`` is ``"numcodecs"`` or
        ``"zarr-python"`` there. Both are imported for it where they are installed.

    Examples
    --------
    >>> [row["implementation"] for row in headrace.codecs.table() if row["codec"] == "gzip"]
    ['isa-l', 'libdeflate', 'headrace-cuda', 'headrace-simt', 'nvcomp']
    """
    return _core.codec_table()


class QueuedBatch(list[Any]):
    """What `decode_batch` gives for a stream: a list of the results, whose work is queued.

    A failure that nobody asks for, by `result` or by using a `DeviceArray` of the list, is reported
    by ``sys.unraisablehook``. It can be awaited.

    Examples
    --------
    >>> batch = headrace.codecs.decode_batch("zstd", frames, out=tensors, stream=stream)
    >>> batch.result(timeout=5)
    """

    __slots__ = ("_work",)
    __hash__ = object.__hash__  # type: ignore[assignment]  # asyncio.gather asks for it

    def __init__(self, results: list[Any], work: _core.Future[None]) -> None:
        super().__init__(results)
        self._work = work

    def result(self, timeout: float | None = None) -> list[Any]:
        """Wait for the work and return the list; raise what it found wrong.

        `TimeoutError` after ``timeout`` seconds.
        """
        self._work.result(timeout)
        return self

    def done(self) -> bool:
        """Whether the work has ended, well or not."""
        return self._work.done()

    def __await__(self) -> Generator[Any, None, list[Any]]:
        yield from self._work.__await__()
        return self


def _offsets(offsets: Any) -> Any:
    if offsets is None:
        return None
    import numpy as np

    found = np.asarray(offsets)
    if found.ndim != 1 or found.size == 0 or found.dtype.kind not in "iu":
        raise _check.wrong_type("offsets", "a list of n + 1 sizes in bytes", offsets)
    if found.dtype.kind == "u" and found.max() > np.iinfo(np.int64).max:
        raise ValueError(f"offsets: expected sizes in bytes, got {found.max()}")
    return np.ascontiguousarray(found, dtype=np.int64)


def _check_batch(inputs: Any, out: Any, out_nbytes: Any, implementation: Any) -> None:
    for name, given in (("inputs", inputs), ("out", () if out is None else out)):
        several = isinstance(given, Iterable) or hasattr(given, "shape")
        if isinstance(given, str | Mapping) or not several:
            raise _check.wrong_type(name, "a list of buffers, or one array", given)
    if out_nbytes is not None and not isinstance(out_nbytes, Iterable):
        raise _check.wrong_type("out_nbytes", "a list of sizes", out_nbytes)
    if implementation is not None:
        _check.text("implementation", implementation)


def decode_batch(
    codec: Any,
    inputs: Iterable[Any],
    *,
    offsets: Sequence[int] | None = None,
    out: Sequence[Any] | None = None,
    out_nbytes: Sequence[int] | None = None,
    device: str | None = None,
    stream: Any = None,
    implementation: str | None = None,
) -> list[Any]:
    """Decode buffers that one codec encoded.

    The buffers are contiguous, in host memory or on one device, in any mix: buffers of Python,
    DLPack objects, arrays with ``__cuda_array_interface__``, `DeviceArray`. Their bytes count,
    whatever shape and dtype they have. Without `stream`, everything is done, and every error
    raised, when the call returns.

    With `stream`, what a device decodes is only queued when it returns: behind all that the stream
    was given before, and before all that it is given later, without the host waiting. Inputs and
    outputs are kept until it is done. Errors of the decode are raised by ``result()`` of the list,
    and by what uses its arrays; sizes that cannot be right, and what is found while the call waits,
    at once. A consumer that takes an array by DLPack earlier gets bytes of which nobody knows yet
    whether they are good: call ``result()`` before you trust what was made of them. Done when it
    returns is, nevertheless, what the host decodes and what goes to memory of the host. The call
    waits for the device where a batch is larger than three slabs (``device_slab_nbytes``), and to
    read headers of inputs that lie there, of zstd, blosc and lz4; before it writes over an array
    that an earlier call with a stream still decodes into, for that one.

    Parameters
    ----------
    codec
        What `parse` takes.
    inputs
        The encoded buffers; or one array whose rows they are; or, with `offsets`, one buffer that
        has them all.
    offsets
        In bytes, one more than there are inputs: the i-th lies from ``offsets[i]`` to
        ``offsets[i + 1]``, as in Arrow's lists.
    out
        Writable buffers of exactly the decoded sizes; or one C-contiguous array whose rows they
        are. To take thousands of arrays one by one costs as much as to decode them: half a
        microsecond and more each.
    out_nbytes
        Instead of `out`: the decoded size of each input. New ``uint8`` arrays are returned:
        ``numpy.ndarray`` for the CPU, `DeviceArray` for a device.
    device
        Where to decode. None: where the buffers lie that are not on the host, else the configured
        device. ``"cpu"`` decodes by the host's threads wherever the buffers lie.
    stream
        A raw handle or a stream of PyTorch or CuPy, for work to be queued as said above. None: what
        the device's default stream was given before comes first.
    implementation
        A row of `table`. None: as configured, else the one that takes less time; for small batches
        that may be the host's, though `device` is a GPU.

    Returns
    -------
    list
        `out`, or the new arrays; a `QueuedBatch` where `stream` is given. Of an `out` that is one
        array, that array alone.

    Raises
    ------
    headrace.CorruptError
        Names the index of a bad input. What `out` holds then is unspecified.
    NotImplementedError
        The implementation that is asked for cannot decode this, or `stream` is being captured into
        a CUDA graph.

    Examples
    --------
    >>> frames = headrace.codecs.encode_batch("zstd", [b"abc" * 100])
    >>> bytes(headrace.codecs.decode_batch("zstd", frames, out_nbytes=[300])[0][:3])
    b'abc'
    """
    _check_batch(inputs, out, out_nbytes, implementation)
    name, configuration = parse(codec).to_spec()
    decoded = _core.decode_batch(
        name,
        configuration,
        inputs,
        offsets=_offsets(offsets),
        out=out,
        out_nbytes=out_nbytes,
        device=device,
        stream=stream,
        implementation=implementation or "",
    )
    return decoded if stream is None else QueuedBatch(*decoded)


def encode_batch(
    codec: Any,
    inputs: Iterable[Any],
    *,
    offsets: Sequence[int] | None = None,
    device: str | None = None,
    stream: Any = None,
    implementation: str | None = None,
) -> list[Any]:
    """Encode contiguous buffers, each by itself; buffers as of `decode_batch`.

    A device encodes buffers that all lie there to zstd up to level 3, lz4, blosc with lz4, blosc
    with zstd up to clevel 2, shuffle and bitshuffle, when they have ``device_min_decode_nbytes``
    (where not configured, 1 MiB) together: to standard frames, about as small as zstd's level 1 and
    LZ4's default make them. The host's threads encode everything else.

    Parameters
    ----------
    codec, inputs, offsets, stream
        As of `decode_batch`.
    device
        Where to encode, and where the results lie. None: where the buffers lie that are not on the
        host, else the configured device. ``"cpu"`` encodes by the host's threads wherever the
        buffers lie.
    implementation
        A row of `table` that encodes; it does so wherever the buffers lie, at any level. None: as
        configured for the device, else as said above.

    Returns
    -------
    list
        ``bytes`` for the CPU, ``uint8`` `DeviceArray` for a device.

    Raises
    ------
    NotImplementedError
        The implementation that is asked for cannot encode this; ``"nvcomp"`` only decodes here.
    ValueError
        The implementation that is asked for is for another device.

    Examples
    --------
    >>> headrace.codecs.encode_batch(headrace.codecs.Crc32c(), [b"1234"])
    """
    _check_batch(inputs, None, None, implementation)
    name, configuration = parse(codec).to_spec()
    return _core.encode_batch(
        name,
        configuration,
        inputs,
        offsets=_offsets(offsets),
        device=device,
        stream=stream,
        implementation=implementation or "",
    )


for _codec in list(vars().values()):
    if isinstance(_codec, type) and issubclass(_codec, Codec):
        setattr(_codec, "__init__", checks_names(_codec.__init__))  # noqa: B010


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    known = () if name.startswith("_") else __all__
    raise AttributeError(
        f"module 'headrace.codecs' has no attribute {name!r}{did_you_mean(name, known)}"
    )
