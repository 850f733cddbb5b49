"""Tensors from a store: new ones, and those that are there already."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .. import _core
from ._parts import Part, is_distributed
from ._tree import CARRIERS, Leaf, dtype_named

# Tensors that are converted lie in memory twice: this many bytes of them at a time.
_STAGED_NBYTES = 256 << 20


@dataclass(frozen=True)
class Source:
    """A tensor in the store, or a part of it."""

    array: _core.Array
    dtype: torch.dtype
    shape: tuple[int, ...]
    selection: tuple[slice, ...] | None = None

    def part(self, part: Part) -> Source:
        return dataclasses.replace(self, shape=part.extents, selection=part.selection)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class Placement:
    """Where new tensors go, and as what."""

    def __init__(self, device: Any, dtype: torch.dtype | None) -> None:
        self._device, self._dtype = device, dtype

    def device(self, name: str) -> torch.device:
        wanted = self._device(name) if callable(self._device) else self._device
        # "cuda" is the current device, which has a number.
        return torch.empty(0, device="cpu" if wanted is None else wanted).device

    def device_for_meta(self, leaf: Leaf) -> torch.device:
        if self._device is None:
            raise ValueError(f"{leaf.name}: a tensor on the meta device needs device=")
        if is_distributed(leaf.value):
            raise ValueError(f"{leaf.name}: a DTensor on the meta device; call to_empty() first")
        return self.device(leaf.name)

    def dtype(self, stored: torch.dtype) -> torch.dtype:
        if self._dtype is None or not stored.is_floating_point:
            return stored
        return self._dtype


def new_tensors(
    wanted: Iterable[tuple[Source, torch.device]], dtype: Callable[[torch.dtype], torch.dtype]
) -> dict[tuple[Source, torch.device], torch.Tensor]:
    """A tensor for each distinct source and device."""
    distinct = dict.fromkeys(wanted)
    as_stored = [pair for pair in distinct if dtype(pair[0].dtype) == pair[0].dtype]
    converted = [pair for pair in distinct if dtype(pair[0].dtype) != pair[0].dtype]
    result = {}
    for group in [as_stored, *_batches(converted)]:
        for pair, tensor in zip(group, _read_new(group), strict=True):
            result[pair] = tensor.to(dtype(pair[0].dtype))
    return result


def fill(pairs: Sequence[tuple[Source, torch.Tensor]]) -> None:
    """Read each source into its tensor, which may be of another dtype."""
    direct = [pair for pair in pairs if _takes(pair[1], pair[0].dtype)]
    _core.read_many([_request(source, out.device, out) for source, out in direct])
    staged = [pair for pair in pairs if not _takes(pair[1], pair[0].dtype)]
    for group in _batches(staged):
        tensors = _read_new([(source, out.device) for source, out in group])
        for (_, out), tensor in zip(group, tensors, strict=True):
            out.copy_(tensor)


def _takes(out: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether its memory can be read into as it is."""
    overlaps = any(
        stride == 0 and extent > 1 for stride, extent in zip(out.stride(), out.shape, strict=True)
    )
    return (
        out.dtype == dtype
        and out.device.type in ("cpu", "cuda")
        and not (overlaps or out.is_conj() or out.is_neg())
    )


def _read_new(wanted: Sequence[tuple[Source, torch.device]]) -> list[torch.Tensor]:
    """In one plan. Host memory is headrace's, in huge pages; a device's is of torch's allocator."""
    outs = [
        torch.empty(source.shape, dtype=source.dtype, device=device)
        if device.type == "cuda"
        else None
        for source, device in wanted
    ]
    requests = [
        _request(source, device, out) for (source, device), out in zip(wanted, outs, strict=True)
    ]
    results = _core.read_many(requests)
    return [
        as_tensor(result).view(source.dtype).to(device) if out is None else out
        for result, out, (source, device) in zip(results, outs, wanted, strict=True)
    ]


def _request(source: Source, device: torch.device, out: torch.Tensor | None) -> tuple[Any, ...]:
    array = source.array.to(str(device) if device.type == "cuda" else "cpu")
    if out is not None:
        out = out.view(CARRIERS.get(source.dtype, source.dtype))
    return array, source.selection, out


def as_tensor(memory: np.ndarray[Any, Any] | _core.DeviceArray) -> torch.Tensor:
    """What a read gave, without a copy; it keeps the memory."""
    if isinstance(memory, _core.DeviceArray):
        return torch.from_dlpack(memory)
    try:
        dtype = dtype_named(memory.dtype.name)
    except KeyError:
        raise TypeError(f"torch has no data type {memory.dtype}") from None
    # torch takes no arrays of ml_dtypes.
    bits = memory.view(f"u{dtype.itemsize}") if dtype.itemsize < 8 else memory
    return torch.from_numpy(bits).view(dtype)


def _batches(pairs: Sequence[tuple[Source, Any]]) -> Iterator[list[tuple[Source, Any]]]:
    """What is to be converted, a bounded number of bytes at a time."""
    batch: list[tuple[Source, Any]] = []
    total = 0
    for pair in pairs:
        if batch and total + pair[0].nbytes > _STAGED_NBYTES:
            yield batch
            batch, total = [], 0
        batch.append(pair)
        total += pair[0].nbytes
    if batch:
        yield batch
