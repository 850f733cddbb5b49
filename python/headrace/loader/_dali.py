"""The batches of a `Loader` as a source of DALI's pipelines."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from ._batches import Batches


class DaliBatches:
    """Tuples of tensors for ``fn.external_source``; each iteration is an epoch."""

    def __init__(self, loader: Batches, prefetch_queue_depth: int) -> None:
        self._loader = loader
        # A pipeline that copies nothing reads a batch until its output is let go, which is after
        # the call for the batch `prefetch_queue_depth` further on. DALI's own references end when
        # its work on a GPU is submitted.
        self._in_use: deque[tuple[Any, ...]] = deque(maxlen=prefetch_queue_depth + 1)

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for batch in self._loader:
            for name, values in batch.items():
                if values.dtype.kind not in "biuf":
                    raise TypeError(f"dali: {name} is {values.dtype}, which DALI does not have")
            outputs = tuple(batch.values())
            self._in_use.append(outputs)
            yield outputs
