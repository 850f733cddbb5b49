"""Processes that save together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Ranks:
    """This process alone, or one of those of a process group."""

    def __init__(self, together: bool, group: Any = None) -> None:
        self._together = together
        self._group = group
        self.rank, self.size = 0, 1
        if together:
            import torch.distributed as dist

            self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def each(self, work: Callable[[], T]) -> list[T]:
        """What `work` gives in each process; where it fails in one, it fails in all.

        Waits until every process has done it.
        """
        if not self._together:
            return [work()]
        import torch.distributed as dist

        error: Exception | None = None
        result: Any = None
        try:
            result = work()
        except Exception as caught:
            error = caught
        failure = None if error is None else f"{type(error).__name__}: {error}"
        outcomes: list[Any] = [None] * self.size
        dist.all_gather_object(outcomes, (result, failure), self._group)
        if error is not None:
            raise error
        for rank, (_, text) in enumerate(outcomes):
            if text is not None:
                raise RuntimeError(f"rank {rank} failed: {text}")
        return [outcome for outcome, _ in outcomes]

    def first(self, work: Callable[[], T]) -> None:
        """As `each`, in the first process only."""
        self.each(lambda: None if self.rank else (work(), None)[1])

    def in_turn(self, work: Callable[[], Any]) -> None:
        """As `each`, one process after the other."""
        for turn in range(self.size):
            self.each(work if turn == self.rank else lambda: None)
