"""The part of a tensor that a process holds: all of it, or its share of a `DTensor`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import torch


def is_distributed(tensor: Any) -> bool:
    """Whether it is a `DTensor`; imports nothing."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """The memory that this process has of the tensor."""
    return tensor.to_local() if is_distributed(tensor) else tensor


@dataclass(frozen=True)
class Part:
    """Where the memory of this process lies within the whole tensor."""

    offsets: tuple[int, ...]
    extents: tuple[int, ...]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Part:
        if not is_distributed(tensor):
            return cls((0,) * tensor.ndim, tuple(tensor.shape))
        (chunk,) = tensor.__create_chunk_list__()
        return cls(tuple(chunk.offsets), tuple(chunk.sizes))

    @property
    def empty(self) -> bool:
        return 0 in self.extents

    @property
    def selection(self) -> tuple[slice, ...]:
        return tuple(
            slice(start, start + extent)
            for start, extent in zip(self.offsets, self.extents, strict=True)
        )


def common_grid(parts: list[Part]) -> tuple[int, ...] | None:
    """Extents of the regular grid whose cells the parts are; None where they lie otherwise."""
    held = [part for part in parts if not part.empty]
    if not held:
        return parts[0].extents
    cell = tuple(map(max, zip(*(part.extents for part in held), strict=True)))
    aligned = all(
        start % extent == 0
        for part in held
        for start, extent in zip(part.offsets, cell, strict=True)
    )
    return cell if aligned else None
