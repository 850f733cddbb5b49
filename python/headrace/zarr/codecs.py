"""Codecs of the registry of extensions that zarr-python lacks, served by headrace.

They are known to zarr-python by entry points: an array written with them opens in any process in
which headrace is installed. Their configurations are those of the classes of the same names in
`headrace.codecs`. Where zarr-python has a class for one (`ScaleOffset` and `CastValue`, from zarr
3.2 on), the name stands for that.

Examples
--------
>>> import headrace.zarr.codecs
>>> bits = headrace.zarr.codecs.PackBits()
>>> zarr.create_array("mask.zarr", shape=8, dtype="bool", serializer=bits)
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
import zarr.codecs
from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import Buffer, NDBuffer
from zarr.dtype import parse_dtype

from .. import _core
from .._create import create_array

__all__ = ["CastValue", "PackBits", "Reshape", "ScaleOffset", "Zfp"]

_Array = np.ndarray[Any, Any]
_CHUNK = "0"  # of an array with one chunk


def _one_chunk(
    shape: tuple[int, ...], dtype: np.dtype[Any], chain: dict[str, Any]
) -> tuple[_core.Array, _core.Store, str]:
    """An array in memory of one chunk, its store and the key of the chunk."""
    store = _core.memory_store()
    array = create_array(
        store,
        shape=shape,
        chunks=shape,
        dtype=dtype.newbyteorder("="),
        compressors=None,
        write_empty_chunks=True,
        device="cpu",
        **chain,
    )
    return array, store, "/".join(["c", *(_CHUNK for _ in shape)])


def _encode(chain: dict[str, Any], elements: _Array) -> bytes:
    array, store, key = _one_chunk(elements.shape, elements.dtype, chain)
    array[...] = elements
    encoded = store._get(key)
    assert encoded is not None
    return encoded


def _decode(chain: dict[str, Any], encoded: Any, spec: ArraySpec) -> _Array:
    dtype = spec.dtype.to_native_dtype()
    array, store, key = _one_chunk(spec.shape, dtype, chain)
    store._set(key, encoded)
    elements: _Array = np.asarray(array[...])
    return elements.astype(dtype, copy=False)


@dataclass(frozen=True)
class _Codec:
    """What the classes share: a name, and a configuration that headrace checks."""

    asks_headrace: ClassVar[bool] = True  # which does not ask for it, where it has no such codec
    codec_name: ClassVar[str]
    configuration: dict[str, Any] = field(default_factory=dict)

    def __init__(self, **configuration: Any) -> None:
        object.__setattr__(self, "configuration", configuration)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        return cls(**data.get("configuration") or {})

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.codec_name, "configuration": self.configuration}


class _ArrayArray(_Codec, ArrayArrayCodec):
    is_fixed_size = True

    def _chain(self) -> dict[str, Any]:
        return {"filters": self.to_dict()}

    def _encode_elements(self, elements: _Array, encoded: ArraySpec) -> _Array:
        dtype = encoded.dtype.to_native_dtype()
        # headrace writes little-endian bytes.
        flat = np.frombuffer(_encode(self._chain(), elements), dtype.newbyteorder("<"))
        return flat.astype(dtype, copy=False).reshape(encoded.shape)

    def _decode_elements(self, elements: _Array, spec: ArraySpec) -> _Array:
        little = np.ascontiguousarray(elements, elements.dtype.newbyteorder("<"))
        return _decode(self._chain(), little.tobytes(), spec)

    async def _encode_single(self, chunk_data: NDBuffer, chunk_spec: ArraySpec) -> NDBuffer:
        elements = chunk_data.as_numpy_array()
        encoded = self.resolve_metadata(chunk_spec)
        result = await asyncio.to_thread(self._encode_elements, elements, encoded)
        return chunk_spec.prototype.nd_buffer.from_numpy_array(result)

    async def _decode_single(self, chunk_data: NDBuffer, chunk_spec: ArraySpec) -> NDBuffer:
        elements = chunk_data.as_numpy_array()
        result = await asyncio.to_thread(self._decode_elements, elements, chunk_spec)
        return chunk_spec.prototype.nd_buffer.from_numpy_array(result)

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        encoded = self.resolve_metadata(chunk_spec).dtype.to_native_dtype().itemsize
        return input_byte_length // chunk_spec.dtype.to_native_dtype().itemsize * encoded

    def _encoded_fill_value(self, chunk_spec: ArraySpec, dtype: Any) -> Any:
        fill = np.asarray(chunk_spec.fill_value, chunk_spec.dtype.to_native_dtype())
        one = replace(chunk_spec, shape=(), dtype=dtype)
        return self._encode_elements(fill, one)[()]


class _ArrayBytes(_Codec, ArrayBytesCodec):
    is_fixed_size = False

    def _chain(self) -> dict[str, Any]:
        return {"serializer": self.to_dict()}

    async def _encode_single(self, chunk_data: NDBuffer, chunk_spec: ArraySpec) -> Buffer:
        elements = chunk_data.as_numpy_array()
        encoded = await asyncio.to_thread(_encode, self._chain(), elements)
        return chunk_spec.prototype.buffer.from_bytes(encoded)

    async def _decode_single(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        encoded = chunk_data.to_bytes()
        elements = await asyncio.to_thread(_decode, self._chain(), encoded, chunk_spec)
        return chunk_spec.prototype.nd_buffer.from_numpy_array(elements)

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        raise NotImplementedError(f"the size after {self.codec_name} depends on the elements")


class PackBits(_ArrayBytes):
    """Of each element some bits, without gaps; see `headrace.codecs.PackBits`."""

    codec_name = "packbits"


class Zfp(_ArrayBytes):
    """zfp; see `headrace.codecs.Zfp`. Needs a build with libzfp."""

    codec_name = "zfp"


class Reshape(_ArrayArray):
    """Another shape for the same elements; see `headrace.codecs.Reshape`."""

    codec_name = "reshape"

    def resolve_metadata(self, chunk_spec: ArraySpec) -> ArraySpec:
        shape = [
            extent if isinstance(extent, int) else math.prod(chunk_spec.shape[d] for d in extent)
            for extent in self.configuration["shape"]
        ]
        rest = math.prod(extent for extent in shape if extent != -1)
        whole = math.prod(chunk_spec.shape)
        shape = [whole // max(rest, 1) if extent == -1 else extent for extent in shape]
        return replace(chunk_spec, shape=tuple(shape))


class _ScaleOffset(_ArrayArray):
    """``(x - offset) * scale``; see `headrace.codecs.ScaleOffset`."""

    codec_name = "scale_offset"

    def resolve_metadata(self, chunk_spec: ArraySpec) -> ArraySpec:
        fill_value = self._encoded_fill_value(chunk_spec, chunk_spec.dtype)
        return replace(chunk_spec, fill_value=fill_value)


class _CastValue(_ArrayArray):
    """Values in another type; see `headrace.codecs.CastValue`."""

    codec_name = "cast_value"

    def resolve_metadata(self, chunk_spec: ArraySpec) -> ArraySpec:
        dtype = parse_dtype(self.configuration["data_type"], zarr_format=3)
        fill_value = self._encoded_fill_value(chunk_spec, dtype)
        return replace(chunk_spec, dtype=dtype, fill_value=fill_value)


ScaleOffset = getattr(zarr.codecs, "ScaleOffset", _ScaleOffset)
CastValue = getattr(zarr.codecs, "CastValue", _CastValue)
