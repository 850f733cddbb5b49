"""The order that a sampler of annbatch gives."""

from __future__ import annotations

import copy
import hashlib
import itertools
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from .._check import described
from ._cell_order import PlannedBatch, PlannedWindow, Rows, runs_of, window_of


class SamplerOrder:
    """Batches of a sampler's load requests; ranks take turns of them.

    A pass of a sampler changes it, as by its random numbers. Passes run on copies, so that epoch e
    is always the pass after e others, wherever it is begun.
    """

    unit = "batches"

    def __init__(self, sampler: Any, n_obs: int, drop_last: bool) -> None:
        self._n_obs, self._drop_last = n_obs, drop_last
        self._first = copy.deepcopy(sampler)
        self._latest = (0, self._first)  # (epoch, the sampler as it is before that epoch's pass)

    @cached_property
    def order_id(self) -> str:
        """Another one of another sampler, as far as its first request tells."""
        digest = hashlib.blake2b(digest_size=8)
        for request in itertools.islice(copy.deepcopy(self._first).sample(self._n_obs), 1):
            rows, _, _ = self._rows(request["requests"])
            splits = [rows[np.asarray(split)] for split in request["splits"]]
            for part in (rows, [len(split) for split in splits], *splits):
                digest.update(np.asarray(part, np.int64).tobytes())
        name = type(self._first).__name__
        return f"sampler-2-{name}-{self._n_obs}-{self.count(1)}-{digest.hexdigest()}"

    def count(self, world_size: int) -> int:
        batches = int(self._first.n_batches(self._n_obs))
        return batches // world_size if self._drop_last else -(-batches // world_size)

    def check(self, position: int) -> None:
        batches = int(self._first.n_batches(self._n_obs))
        if not 0 <= position <= batches:
            raise ValueError(f"batches: expected 0 to {batches}, got {position}")

    def batches(
        self, epoch: int, position: int, rank: int, world_size: int
    ) -> Iterator[PlannedBatch]:
        own: tuple[PlannedWindow, Rows] | None = None  # of the turn that is not over
        turn = 0
        for number, (window, rows) in enumerate(self._pass(epoch, position, rank, world_size)):
            if number < position:
                continue
            if (number - position) % world_size == rank:
                assert window is not None
                own = (window, rows)
            turn += 1
            if turn == world_size:
                assert own is not None
                yield PlannedBatch([own], number + 1)
                own, turn = None, 0
        if turn > 0 and not self._drop_last:
            yield PlannedBatch([own] if own else [], number + 1)

    def _pass(
        self, epoch: int, position: int, rank: int, world_size: int
    ) -> Iterator[tuple[PlannedWindow | None, Rows]]:
        """The batches of an epoch, from `position` on with windows of what the rank takes."""
        sampler = self._before(epoch)
        number = 0
        for request in sampler.sample(self._n_obs):
            rows, starts, stops = self._rows(request["requests"])
            splits = [rows[np.asarray(split)] for split in request["splits"]]
            taken = [
                split
                for at, split in enumerate(splits, number)
                if at >= position and (at - position) % world_size == rank
            ]
            window = None
            if taken:
                wanted = np.concatenate(taken)
                window = window_of(
                    wanted, *(runs_of(wanted) if starts is None else (starts, stops))
                )
            for split in splits:
                yield window, split
            number += len(splits)
        self._latest = (epoch + 1, sampler)

    def _before(self, epoch: int) -> Any:
        """A copy of the sampler after the passes of the epochs before."""
        done, sampler = self._latest if self._latest[0] <= epoch else (0, self._first)
        sampler = copy.deepcopy(sampler)
        for _ in range(done, epoch):
            for _ in sampler.sample(self._n_obs):
                pass
        self._latest = (epoch, copy.deepcopy(sampler))
        return sampler

    def _rows(self, requests: Any) -> tuple[Rows, Any, Any]:
        """The cells of a request one after another, and the runs where it names them."""
        # annbatch's own have slices in lists and in arrays of objects.
        if isinstance(requests, np.ndarray) and requests.dtype.kind in "iu":
            rows, starts, stops = requests.astype(np.int64), None, None
        else:
            starts = np.array([part.start for part in requests], np.int64)
            stops = np.array([part.stop for part in requests], np.int64)
            rows = np.concatenate([np.arange(part.start, part.stop) for part in requests])
        if rows.size and not (rows.min() >= 0 and rows.max() < self._n_obs):
            raise ValueError(f"sampler: it asked for cells outside of the {self._n_obs}")
        return rows, starts, stops


def check_sampler(sampler: Any, world_size: int) -> None:
    """TypeError for what is no sampler; ValueError where the sampler has ranks of its own too."""
    if not (callable(getattr(sampler, "sample", None)) and hasattr(sampler, "n_batches")):
        raise TypeError(
            f"sampler: expected one of annbatch's, with sample() and n_batches(), "
            f"got {described(sampler)}"
        )
    if world_size > 1 and hasattr(sampler, "_world_size"):
        raise ValueError(
            f"sampler: {type(sampler).__name__} deals cells to ranks itself; pass rank=0, "
            "world_size=1"
        )
