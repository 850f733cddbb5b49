"""Which bytes stand for an array: those of its elements, never of all that it is a view of."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.lib.stride_tricks import as_strided

Array = np.ndarray[Any, Any]


class Room(Protocol):
    """What those who put arrays into an `Arena` ask of it."""

    def _between(self, start: int, stop: int) -> Array | None: ...
    def _empty_now(self, shape: tuple[int, ...], dtype: Any) -> Array | None: ...


class Span(NamedTuple):
    """`numpy.ndarray(shape, dtype, buffer, offset, strides)` is the array again."""

    buffer: Array  # uint8, one dimension
    offset: int
    strides: tuple[int, ...] | None  # None: C order


def span(array: Array, arena: Room | None) -> Span:
    """The bytes of an array that has elements, and no Python objects among them.

    Its memory as it lies, from the first byte to the last, where there is nothing else between or
    it is in the arena, so that nothing is copied; else the elements in C order.
    """
    if array.flags.c_contiguous:
        return Span(_bytes(array), 0, None)
    offset, nbytes = _extent(array)
    if _is_dense(array):
        return Span(_bytes_from(array, nbytes), offset, array.strides)
    if arena is not None:
        start = array.__array_interface__["data"][0] - offset
        if (found := arena._between(start, start + nbytes)) is not None:
            return Span(found, offset, array.strides)
    packed = None if arena is None else arena._empty_now(array.shape, array.dtype)
    if packed is None:
        packed = np.empty(array.shape, array.dtype)
    np.copyto(packed, array)
    return Span(_bytes(packed), 0, None)


def _bytes(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)


def _extent(array: Array) -> tuple[int, int]:
    """How far behind its first byte the first element is, and how long the whole is."""
    steps = [(n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True)]
    offset = -sum(step for step in steps if step < 0)
    return offset, offset + sum(step for step in steps if step > 0) + array.itemsize


def _is_dense(array: Array) -> bool:
    """Whether it is C order but for the order and the direction of its axes."""
    expected = array.itemsize
    for stride, n in sorted(zip(map(abs, array.strides), array.shape, strict=True)):
        if n > 1:
            if stride != expected:
                return False
            expected *= n
    return True


def _bytes_from(array: Array, nbytes: int) -> Array:
    lowest = array[tuple(slice(-1, None) if s < 0 else slice(1) for s in array.strides)]
    return as_strided(_bytes(lowest), (nbytes,), (1,))
