"""What adapters of a `Loader` ask of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

Batch = dict[str, Any]


class Batches(Protocol):
    """The batches of an epoch; each iteration goes on where the one before stopped."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Batch]: ...
    @property
    def epoch(self) -> int: ...
    def share(self, number: int, count: int) -> Batches: ...
    def _seek(self, epoch: int, samples: int) -> None: ...
