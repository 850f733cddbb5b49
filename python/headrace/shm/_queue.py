"""The interface of arenas and channels where there is no shared memory: pickles in a queue."""

from __future__ import annotations

import multiprocessing
import pickle
import queue
from multiprocessing.reduction import ForkingPickler
from typing import Any, Literal

import numpy as np

from ._arena import Arena
from ._span import Array


class QueueArena(Arena):
    """`Arena` with ``backing="none"``: arrays are ordinary ones."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._in_band = 0

    def channel(self, capacity: int = 64) -> Any:
        return QueueChannel(capacity)

    def empty(
        self,
        shape: int | tuple[int, ...],
        dtype: Any = float,
        order: Literal["C", "F"] = "C",
        *,
        timeout: float | None = None,
    ) -> Array:
        return np.empty(shape, dtype, order)

    def stats(self) -> dict[str, Any]:
        counts = dict.fromkeys(
            ("nbytes", "used_nbytes", "blocks", "in_transit", "orphans", "processes"), 0
        )
        return {**counts, "huge_pages": False, "backing": "none", "in_band": self._in_band}

    def reclaim(self, *, orphans: bool = False, sent: bool = False) -> int:
        return 0

    def pin(self) -> None:
        """Nothing is shared, and so nothing is locked."""

    def __reduce__(self) -> tuple[Any, ...]:
        return QueueArena, ()


Arena._without_memory = QueueArena


class QueueChannel:
    """`Channel` over a `multiprocessing.Queue`, which any start method can hand over."""

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"[channel] capacity: expected at least 1, got {capacity}")
        self._queue = multiprocessing.get_context("spawn").Queue(capacity)

    def put(self, obj: Any, timeout: float | None = None) -> None:
        # Pickled here: the thread of the queue would only print an error.
        message = bytes(ForkingPickler.dumps(obj))
        try:
            self._queue.put(message, timeout=timeout)
        except queue.Full:
            raise TimeoutError(f"[put] the channel was full for {timeout} s") from None

    def get(self, timeout: float | None = None, copy: bool = False) -> Any:
        try:
            return pickle.loads(self._queue.get(timeout=timeout))
        except queue.Empty:
            raise TimeoutError(f"[get] the channel was empty for {timeout} s") from None

    def qsize(self) -> int:
        return self._queue.qsize()

    def empty(self) -> bool:
        return self._queue.empty()

    def full(self) -> bool:
        return self._queue.full()
