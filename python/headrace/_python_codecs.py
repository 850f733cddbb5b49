"""Codecs that headrace lacks and numcodecs or zarr-python has.

The engine asks `make` when an array's metadata name such a codec, and calls the objects that it
gives from its own threads, with memory that is theirs to keep (see ``headrace/custom_codec.h``).
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from contextvars import ContextVar
from importlib import metadata
from typing import Any, Literal, NamedTuple

import numpy as np

from . import _json

_PREFIX = "numcodecs."
# Codecs of numcodecs that make bytes of an array in Zarr v3, for where zarr-python is not there to
# say so.
_ARRAY_TO_BYTES = ("pcodec", "zfpy")

_left_out: ContextVar[bool] = ContextVar("headrace.python_codecs.left_out", default=False)

Kind = Literal["array_to_array", "array_to_bytes", "bytes_to_bytes"]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class Elements(NamedTuple):
    """The elements of a chunk."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fill_value: bytes  # one element; empty: zeros

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize


def make(
    name: str,
    configuration: str,
    is_array: bool,
    elements: tuple[Any, ...],
    chunk: tuple[Any, ...],
) -> Numcodec | ZarrCodec | None:
    """The codec of a name in Zarr v3 metadata; None when nobody here knows it.

    Parameters
    ----------
    name
        As metadata have it; filters and compressors of v2 have the prefix ``"numcodecs."``.
    configuration
        JSON, may be empty.
    is_array
        The codec stands where the array is not bytes yet.
    elements
        `Elements` that it is given on encode.
    chunk
        `Elements` that the codec is given that makes bytes of the array.
    """
    if _left_out.get():
        return None
    options = _json.loads(configuration) if configuration else {}
    given = Elements(*elements)
    if not name.startswith(_PREFIX):
        return _of_zarr(name, options, given, Elements(*chunk))
    numcodec = _numcodec(name.removeprefix(_PREFIX), options)
    if numcodec is None:
        return None
    kind = _kind_in_v3(name) if is_array else "bytes_to_bytes"
    if kind == "array_to_array":
        return _of_zarr(name, options, given, Elements(*chunk))
    _check_elements(kind, given)
    return Numcodec(numcodec, kind, given)


def _check_elements(kind: Kind, elements: Elements) -> None:
    if kind != "bytes_to_bytes" and elements.dtype.hasobject:
        raise NotImplementedError("takes no elements of variable length")


@contextlib.contextmanager
def left_out() -> Iterator[None]:
    """Within it arrays that need these codecs are not supported."""
    token = _left_out.set(True)
    try:
        yield
    finally:
        _left_out.reset(token)


def known() -> Iterator[tuple[str, str]]:
    """Name and package of every codec that `make` knows."""
    registry = _optional("numcodecs.registry")
    names = {*registry.codec_registry, *registry.entries} if registry else set()
    yield from ((name, "numcodecs") for name in sorted(names))
    registry = _optional("zarr.registry")
    if registry:
        # There is no public list of them; the name of this one has changed with zarr 3.2.
        codecs = vars(registry).get("_codec_registries") or vars(registry)["__codec_registries"]
        of_zarr = {name for name in list(codecs) if not name.startswith(_PREFIX)}
        points = metadata.entry_points(group="zarr.codecs")
        of_zarr -= {point.name for point in points if point.value.startswith(f"{__package__}.")}
        yield from ((name, "zarr-python") for name in sorted(of_zarr - names))


def _optional(module: str) -> Any:
    """The module, None when its package is not installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        return None


# numcodecs.


def _numcodec(codec_id: str, options: dict[str, Any]) -> Any:
    registry = _optional("numcodecs.registry")
    if registry is None or not {codec_id} & {*registry.codec_registry, *registry.entries}:
        return None
    return registry.get_codec({"id": codec_id, **options})


def _kind_in_v3(name: str) -> Kind:
    cls = _zarr_class(name)
    if cls is not None:
        return _kind_of(cls)
    return "array_to_bytes" if name.removeprefix(_PREFIX) in _ARRAY_TO_BYTES else "bytes_to_bytes"


class Numcodec:
    """An object with numcodecs' ``encode`` and ``decode``.

    It is given arrays of the chunk's type and shape where headrace knows them, as numcodecs' own
    users give them.
    """

    implementation = "numcodecs"
    has_fixed_size = False

    def __init__(self, codec: Any, kind: Kind, elements: Elements) -> None:
        self.kind = kind
        self._codec = codec
        self._elements = elements

    def encode(self, data: Bytes) -> Bytes:
        if data.nbytes == self._elements.nbytes:
            data = _view(data, self._elements)
        return _as_bytes(self._codec.encode(data))

    def decode(self, data: Bytes) -> Bytes:
        return _as_bytes(self._codec.decode(data))


def _view(data: Bytes, elements: Elements) -> np.ndarray[Any, Any]:
    return data.view(elements.dtype).reshape(elements.shape)


def _as_bytes(result: Any) -> Bytes:
    """Bytes in the order in which they lie in memory; ValueError where they lie apart."""
    from numcodecs.compat import ensure_contiguous_ndarray

    return ensure_contiguous_ndarray(result).view(np.uint8)


# zarr-python.


def _zarr_class(name: str) -> Any:
    registry = _optional("zarr.registry")
    if registry is None:
        return None
    importlib.import_module("zarr.codecs")  # registers zarr-python's own
    try:
        cls = registry.get_codec_class(name)
    except (KeyError, *_unknown_codec_error()):  # type: ignore[misc]
        return None
    # headrace's own would ask headrace, which would ask for it again.
    return None if getattr(cls, "asks_headrace", False) else cls


def _unknown_codec_error() -> tuple[type[Exception], ...]:
    """What zarr 3.2 and newer raise."""
    error = getattr(importlib.import_module("zarr.errors"), "UnknownCodecError", None)
    return () if error is None else (error,)


def _kind_of(cls: type) -> Kind:
    from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec

    if issubclass(cls, ArrayArrayCodec):
        return "array_to_array"
    return "array_to_bytes" if issubclass(cls, ArrayBytesCodec) else "bytes_to_bytes"


def _of_zarr(
    name: str, options: dict[str, Any], elements: Elements, chunk: Elements
) -> ZarrCodec | None:
    cls = _zarr_class(name)
    if cls is None:
        return None
    kind = _kind_of(cls)
    _check_elements(kind, elements)
    codec = cls.from_dict({"name": name, "configuration": options} if options else {"name": name})
    return ZarrCodec(codec, kind, chunk if kind == "bytes_to_bytes" else elements)


def _array_spec(elements: Elements) -> Any:
    from zarr.core.array_spec import ArrayConfig, ArraySpec
    from zarr.core.buffer import cpu
    from zarr.dtype import parse_dtype

    try:
        dtype = parse_dtype(elements.dtype, zarr_format=3)
    except (TypeError, ValueError) as error:
        raise NotImplementedError(f"zarr-python has no data type {elements.dtype}") from error
    fill_value = dtype.default_scalar()
    if elements.fill_value and not elements.dtype.hasobject:
        fill_value = np.frombuffer(elements.fill_value, elements.dtype)[0]
    config = ArrayConfig.from_dict({"order": "C"})
    return ArraySpec(elements.shape, dtype, fill_value, config, cpu.buffer_prototype)


class ZarrCodec:
    """A codec of zarr-python. Its coroutines run on zarr-python's loop."""

    implementation = "zarr-python"

    def __init__(self, codec: Any, kind: Kind, elements: Elements) -> None:
        self.kind = kind
        self._spec = _array_spec(elements)
        self._codec = codec.evolve_from_array_spec(self._spec)
        self._decoded = elements
        self._encoded = elements
        self.has_fixed_size = kind != "array_to_array" and bool(self._codec.is_fixed_size)
        if kind == "array_to_array":
            self._encoded = _elements_of(self._codec.resolve_metadata(self._spec))
            if self._encoded.dtype.hasobject:
                raise NotImplementedError("makes elements of variable length")

    @property
    def encoded(self) -> Elements:
        return self._encoded

    def encoded_nbytes(self, nbytes: int) -> int:
        return int(self._codec.compute_encoded_size(nbytes, self._spec))

    def encode(self, data: Bytes) -> Bytes:
        to_array = self.kind == "array_to_array"
        given = _bytes_buffer(data) if self._takes_bytes else _array_buffer(data, self._decoded)
        result = self._run(self._codec.encode, given)
        return _elements_as_bytes(result, self._encoded) if to_array else _buffer_as_bytes(result)

    def decode(self, data: Bytes) -> Bytes:
        from_array = self.kind == "array_to_array"
        given = _array_buffer(data, self._encoded) if from_array else _bytes_buffer(data)
        result = self._run(self._codec.decode, given)
        if self._takes_bytes:
            return _buffer_as_bytes(result)
        return _elements_as_bytes(result, self._decoded)

    @property
    def _takes_bytes(self) -> bool:
        return self.kind == "bytes_to_bytes"

    def _run(self, method: Any, given: Any) -> Any:
        from zarr.core.sync import sync

        (result,) = sync(method([(given, self._spec)]))
        if result is None:
            raise ValueError("the codec gave nothing")
        return result


def _elements_of(spec: Any) -> Elements:
    dtype = spec.dtype.to_native_dtype()
    return Elements(dtype, spec.shape, np.asarray(spec.fill_value, dtype).tobytes())


def _bytes_buffer(data: Bytes) -> Any:
    from zarr.core.buffer import cpu

    return cpu.Buffer.from_array_like(data)


def _array_buffer(data: Bytes, elements: Elements) -> Any:
    from zarr.core.buffer import cpu

    if data.nbytes != elements.nbytes:
        raise ValueError(f"expected {elements.nbytes} bytes, got {data.nbytes}")
    return cpu.NDBuffer.from_ndarray_like(_view(data, elements))


def _buffer_as_bytes(result: Any) -> Bytes:
    return np.ascontiguousarray(result.as_numpy_array()).view(np.uint8)


def _elements_as_bytes(result: Any, elements: Elements) -> Bytes:
    """The elements in C order, however they lie in memory."""
    array = result.as_numpy_array()
    if array.shape != elements.shape or array.dtype.newbyteorder("=") != elements.dtype:
        raise ValueError(
            f"expected {elements.dtype} of shape {elements.shape}, "
            f"got {array.dtype} of shape {array.shape}"
        )
    native = np.ascontiguousarray(array, dtype=elements.dtype)
    return native.reshape(-1).view(np.uint8)
