"""How a tensor is cut into chunks and shards."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    """Sizes to aim at, in bytes before compression."""

    chunk_nbytes: int
    shard_nbytes: int

    def whole(
        self, shape: tuple[int, ...], itemsize: int
    ) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
        """Chunks and shards of a tensor that one process writes."""
        chunks, axis = self._chunks(shape, itemsize, divide=False)
        fit = max(1, self.shard_nbytes // (math.prod(chunks) * itemsize))
        return chunks, _shards(shape, chunks, axis, fit)

    def part(
        self, shape: tuple[int, ...], itemsize: int
    ) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
        """Those of a part that a process writes among others: a whole number of each fits in it."""
        chunks, axis = self._chunks(shape, itemsize, divide=True)
        if math.prod(chunks) * itemsize * 4 < min(self.chunk_nbytes, math.prod(shape) * itemsize):
            return tuple(max(1, extent) for extent in shape), None  # nothing near divides it
        fit = max(1, self.shard_nbytes // (math.prod(chunks) * itemsize))
        count = shape[axis] // chunks[axis] if shape else 1
        return chunks, _shards(shape, chunks, axis, _divisor(count, fit))

    def _chunks(
        self, shape: tuple[int, ...], itemsize: int, divide: bool
    ) -> tuple[tuple[int, ...], int]:
        """Whole trailing dimensions first; and the axis that is cut."""
        chunks = [max(1, extent) for extent in shape]
        for axis in range(len(chunks)):
            below = itemsize * math.prod(chunks[axis + 1 :])
            fit = max(1, self.chunk_nbytes // below)
            if fit < chunks[axis]:
                chunks[axis] = _divisor(chunks[axis], fit) if divide else fit
            if below <= self.chunk_nbytes:
                return tuple(chunks), axis
        return tuple(chunks), 0


def _divisor(number: int, most: int) -> int:
    """The largest divisor of `number` that is not above `most`."""
    return next(n for n in range(min(number, most), 0, -1) if number % n == 0)


def _shards(
    shape: tuple[int, ...], chunks: tuple[int, ...], axis: int, count: int
) -> tuple[int, ...] | None:
    """Shards of `count` chunks along the axis; None for one."""
    if not shape:
        return None
    count = min(count, math.ceil(shape[axis] / chunks[axis]))
    if count <= 1:
        return None
    return (*chunks[:axis], count * chunks[axis], *chunks[axis + 1 :])
