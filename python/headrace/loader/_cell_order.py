"""Which cells come when: a pure function of seed, epoch and position.

Everything random is SplitMix64 (Steele, Lea and Flood 2014) of a key and a counter, so that it is
the same for all versions of NumPy, and can be worked out at any place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np

Rows = np.ndarray[Any, np.dtype[np.int64]]

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


@dataclass(eq=False)
class PlannedWindow:
    """What is read together: runs of consecutive cells, in order and disjoint."""

    starts: Rows
    stops: Rows
    data: Any = field(default=None, repr=False)  # once it is read, or is being read

    def positions(self, rows: Rows) -> Rows:
        """Where these cells are in the window, whose runs lie one after another."""
        lengths = self.stops - self.starts
        firsts = np.cumsum(lengths) - lengths
        run = np.searchsorted(self.starts, rows, side="right") - 1
        return rows - self.starts[run] + firsts[run]


@dataclass(frozen=True)
class PlannedBatch:
    """The cells of a batch, from one window after another, and how far the epoch is behind it."""

    pieces: list[tuple[PlannedWindow, Rows]]
    position: int


class Order(Protocol):
    """What a `CellLoader` asks of it. A position counts what all ranks together were given."""

    unit: str  # of a position

    @property
    def order_id(self) -> str: ...

    def batches(
        self, epoch: int, position: int, rank: int, world_size: int
    ) -> Iterator[PlannedBatch]: ...
    def count(self, world_size: int) -> int: ...
    def check(self, position: int) -> None: ...


def window_of(rows: Rows, starts: Rows, stops: Rows) -> PlannedWindow:
    """The runs [starts, stops) that hold some of these cells, joined where they meet."""
    order = np.argsort(starts, kind="stable")
    starts, stops = _joined(starts[order], np.maximum.accumulate(stops[order]), touching=False)
    used = np.bincount(np.searchsorted(starts, rows, side="right") - 1, minlength=len(starts)) > 0
    return PlannedWindow(*_joined(starts[used], stops[used], touching=True))


def _joined(starts: Rows, stops: Rows, *, touching: bool) -> tuple[Rows, Rows]:
    """Runs in order, those that overlap as one, and those that touch."""
    apart = starts[1:] > stops[:-1] if touching else starts[1:] >= stops[:-1]
    begins = np.flatnonzero(np.concatenate([[True], apart]))
    return starts[begins], stops[np.append(begins[1:], len(stops)) - 1]


def runs_of(rows: Rows) -> tuple[Rows, Rows]:
    """These cells alone, as runs."""
    unique = np.unique(rows)
    return unique, unique + 1


def _mixed(values: Any) -> Any:
    values = (values ^ (values >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    values = (values ^ (values >> 27)) * 0x94D049BB133111EB & _MASK
    return values ^ (values >> 31)


def _key(*numbers: int) -> int:
    key = 0
    for number in numbers:
        key = _mixed((key + _GOLDEN ^ number) & _MASK)
    return int(key)


def _hashes(key: int, count: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    counters = np.arange(1, count + 1, dtype=np.uint64)
    values = np.uint64(key) + counters * np.uint64(_GOLDEN)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        values = (values ^ (values >> np.uint64(shift))) * np.uint64(factor)
    return values ^ (values >> np.uint64(31))


def _uniform(key: int, count: int) -> np.ndarray[Any, Any]:
    """float64 in [0, 1)."""
    return (_hashes(key, count) >> np.uint64(11)) * 2.0**-53


def shuffled(count: int, key: int) -> Rows:
    """The numbers below `count` in the order of their hashes."""
    return np.argsort(_hashes(key, count), kind="stable")


class _Permutation:
    """A bijection of [0, size), at any points at once: a Feistel network (Luby and Rackoff 1988),
    walked until it comes back into the range (Black and Rogaway 2002)."""

    _ROUNDS = 6

    def __init__(self, size: int, key: int) -> None:
        self._size = np.uint64(size)
        self._half = np.uint64(max(1, -(-max(size - 1, 1).bit_length() // 2)))
        self._low = (np.uint64(1) << self._half) - np.uint64(1)
        self._keys = [np.uint64(_key(key, round)) for round in range(self._ROUNDS)]

    def __call__(self, numbers: Rows) -> Rows:
        values = self._forward(numbers.astype(np.uint64))
        while (outside := values >= self._size).any():
            values[outside] = self._forward(values[outside])
        return values.astype(np.int64)

    def _forward(self, values: Any) -> Any:
        left, right = values >> self._half, values & self._low
        for key in self._keys:
            mixed = right ^ key
            for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
                mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
            left, right = right, left ^ ((mixed ^ (mixed >> np.uint64(31))) & self._low)
        return left << self._half | right


class WindowOrder:
    """Runs of cells in random order, some at a time mixed.

    The samples of a window are dealt to lanes: sample p is of lane p % lanes, and each lane has
    runs of its own. So ranks of a world size that divides the lanes read different runs. The last
    window, of what makes no whole one, is one lane.

    With weights a window draws its runs by the weight of their cells, and of each run cells by
    their weights: each draw is a cell by its weight.
    """

    unit = "samples"

    def __init__(
        self,
        n_obs: int,
        batch_size: int,
        window: tuple[int, int],
        *,
        lanes: int,
        shuffle: bool,
        seed: int,
        drop_last: bool,
        weights: np.ndarray[Any, np.dtype[np.float64]] | None,
        samples: int,
    ) -> None:
        self._n_obs, self._batch_size, self._samples = n_obs, batch_size, samples
        self._rows, self._runs = window
        self._lanes, self._shuffle, self._seed = lanes, shuffle, seed
        self._drop_last = drop_last
        self._size = self._rows * self._runs  # samples of a window
        self._sums = None if weights is None else np.concatenate([[0.0], np.cumsum(weights)])
        # Of the runs. Drawing alone takes them: those of a cell each are as many as cells.
        runs = np.arange(0, n_obs, self._rows) if weights is not None else np.empty(0, np.int64)
        self._edges = np.append(runs, n_obs)
        mixing = f"{self._rows}x{self._runs}/{lanes}" if shuffle else "none"
        weighted = "" if weights is None else f"-{blake2b(weights.tobytes()).hexdigest()[:16]}"
        self.order_id = f"cells-1-{n_obs}-{samples}-{seed}-{mixing}{weighted}"

    def count(self, world_size: int) -> int:
        step = self._batch_size * world_size
        return self._samples // step if self._drop_last else -(-self._samples // step)

    def check(self, position: int) -> None:
        if not 0 <= position <= self._samples:
            raise ValueError(f"samples: expected 0 to {self._samples}, got {position}")

    def batches(
        self, epoch: int, position: int, rank: int, world_size: int
    ) -> Iterator[PlannedBatch]:
        step = self._batch_size * world_size
        first, number = position, -1
        rows, window = np.empty(0, np.int64), None
        while position < self._samples:
            end = min(position + step, self._samples)
            if self._drop_last and end < position + step:
                return
            own = np.arange(position + rank, end, world_size)
            pieces = []
            for wanted in np.unique(own // self._size).tolist():
                begin = wanted * self._size
                if wanted != number:
                    rows, starts, stops = self._window(epoch, wanted)
                    # What this rank takes of the window, in whichever batch.
                    from_here = (rank + first - max(first, begin)) % world_size
                    taken = rows[max(first, begin) - begin + from_here :: world_size]
                    window, number = window_of(taken, starts, stops), wanted
                assert window is not None
                inside = own[(own >= begin) & (own < begin + self._size)] - begin
                pieces.append((window, rows[inside]))
            yield PlannedBatch(pieces, end)
            position = end

    def _window(self, epoch: int, number: int) -> tuple[Rows, Rows, Rows]:
        """The cells of a window in their order, and the runs they are of."""
        begin = number * self._size
        end = min(begin + self._size, self._samples)
        key = _key(self._seed, epoch, number)
        if self._sums is not None:
            rows, starts, stops = self._drawn(self._sums, key)
            return rows[: end - begin], starts, stops
        if not self._shuffle:
            return np.arange(begin, end), np.array([begin]), np.array([end])
        whole = self._n_obs // self._rows
        runs = np.arange(number * self._runs, min((number + 1) * self._runs, whole))
        starts = _Permutation(whole, _key(self._seed, epoch))(runs) * self._rows
        stops = starts + self._rows
        if len(runs) == self._runs:
            return self._dealt(starts[:, None] + np.arange(self._rows), key), starts, stops
        if whole * self._rows < self._n_obs:  # the run that is shorter than others
            starts, stops = np.append(starts, whole * self._rows), np.append(stops, self._n_obs)
        ranges = [np.arange(a, b) for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
        rows = np.concatenate(ranges)
        return rows[shuffled(len(rows), key)], starts, stops

    def _dealt(self, runs: Rows, key: int) -> Rows:
        """Each lane has every lanes-th run, and mixes their cells."""
        lanes = [runs[lane :: self._lanes].ravel() for lane in range(self._lanes)]
        mixed = [rows[shuffled(len(rows), _key(key, lane))] for lane, rows in enumerate(lanes)]
        return np.stack(mixed, axis=1).ravel()

    def _drawn(self, sums: np.ndarray[Any, Any], key: int) -> tuple[Rows, Rows, Rows]:
        edges, by_run = self._edges, sums[self._edges]
        below = np.nextafter(sums[-1], 0)  # rounding must not lead behind the last weight
        drawn = np.minimum(_uniform(_key(key, 0), self._runs) * sums[-1], below)
        runs = np.searchsorted(by_run, drawn, side="right") - 1
        starts, stops = edges[runs], edges[runs + 1]
        low, high = by_run[runs][:, None], by_run[runs + 1][:, None]
        places = _uniform(_key(key, 1), self._size).reshape(self._runs, self._rows)
        drawn = np.minimum(low + places * (high - low), np.nextafter(high, 0))
        rows = np.searchsorted(sums, drawn.ravel(), side="right") - 1
        return self._dealt(rows.reshape(self._runs, self._rows), _key(key, 2)), starts, stops
