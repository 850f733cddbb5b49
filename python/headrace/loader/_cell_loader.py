"""`CellLoader`: batches of cells."""

from __future__ import annotations

import itertools
import os
import threading
import time
import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from operator import index
from typing import Any, NoReturn

import numpy as np

from .. import _check, _core
from .._cells import Cells
from .._info import counted
from .._suggest import checks_names
from ..config import _nbytes
from . import _cell_options, _options
from ._cell_gather import gather_on
from ._cell_options import Transform
from ._cell_order import Order, PlannedBatch, PlannedWindow
from ._cell_sampler import SamplerOrder, check_sampler
from ._cell_windows import WindowReader, let_go

Batch = dict[str, Any]


class _Turn:
    """Of the thread that uses a loader; the handler of a signal may have one within it."""

    def __init__(self, in_use: threading.RLock) -> None:
        self._in_use = in_use

    def __enter__(self) -> None:
        if not self._in_use.acquire(blocking=False):
            raise ValueError("[loader] another thread is using the loader")

    def __exit__(self, *failure: object) -> None:
        self._in_use.release()


class CellLoader:
    """Batches of cells in a shuffled order that is known.

    An iterator over an epoch. It goes on where it stopped: after a ``break``, after
    `load_state_dict`. The end of an epoch ends the iteration, and the next iteration is the next
    epoch. A batch is a dict: the matrix "X" (or each by its name) of shape ``(cells, variables)``;
    "obs", a dict of the columns, ``(cells,)``; and "index", ``(cells,)`` int64, the number of each
    cell in `Cells`.

    Cells are read in windows: runs of consecutive ones, by one `read_many`, to the host or to a
    device, into memory that is used again. While batches of a window are gathered a thread reads
    the next one. One thread at a time may use a loader. It goes on in a child after a fork, and
    pickles where its stores do.

    Parameters
    ----------
    cells
        What `headrace.cells` gave.
    batch_size
        Cells in a batch of this rank. None with a ``sampler``, whose batches are taken as they are.
    window
        ``(rows, runs)``: consecutive cells of a run, and runs that are mixed at a time. ``(1, n)``
        is a random order of all cells, and reads a chunk for each.
    shuffle
        False: the cells in their order.
    lanes
        Parts of the order that are read side by side; it divides ``runs``. Ranks read different
        runs where the world size divides it. None: 8, or the largest divisor of both.
    sampler
        An object of annbatch's ``Sampler`` protocol: it says what is read and what is a batch, and
        ``window``, ``shuffle``, ``lanes``, ``seed`` and ``weights`` are left to it.
    weights
        A weight for each cell, 0 or more: each draw, with replacement, is a cell by its weight.
        Or the name of a categorical column: its classes come equally often, cells without a class
        never. Runs are drawn, then cells of each: short runs repeat rare cells less.
    samples_per_epoch
        With weights; None is the number of cells.
    rank, world_size
        This process among all; those of torchrun's environment when None. The order does not
        depend on them: rank r takes every world_size-th cell, or batch of a sampler, from the r-th.
    output
        "csr", a ``scipy.sparse.csr_matrix`` with indices of int32; "dense", an ndarray;
        "torch_csr", "torch_dense": tensors of that memory, the columns too. "jax", a BCOO matrix
        whose last elements may be padding, "jax_dense": JAX's arrays. Strings stay NumPy's. For all
        matrices, or by name. On a GPU "csr" is CuPy's, "dense" a `DeviceArray`, and the
        columns are arrays there of the same library; "index" stays on the host.
    device
        Where batches are made: "cpu", "cuda:0"; None is the configured default. Windows are decoded
        in the memory of the device and kernels gather from them. A batch is done when it is given,
        for any stream; work on it of other streams than the default one has to be done before the
        last reference to it goes.
    dtype
        "float16", "bfloat16", "float32" or "float64", for all or by the name of a matrix. None: as
        in the stores; of what is transformed float32, or float64 where the store has that.
    transforms
        A `Transform`, or one by the name of a matrix.
    seed, epoch
        Of the order.
    drop_last
        Leave out what makes no whole batch on all ranks. Kept, it is a smaller last batch, which
        for some ranks may be empty.
    memory_budget
        Bytes, or as in "4GiB": of the windows in memory, that of the device, two where it has room
        for the one that is read ahead. Batches are beside it: those that the caller holds, and on
        the host one that is kept to be used again, and the positions of the rows of stores up to 16
        million cells, 8 bytes each, in host memory.

    Raises
    ------
    ValueError
        Arguments that do not fit together.
    TypeError
        An argument of a type that it cannot have.
    ImportError
        The library of ``output`` is not there.
    MemoryError
        By the iteration: ``memory_budget`` has no room for the windows of a batch.
    headrace.CorruptError
        By the iteration: a chunk, positions or columns that are corrupt, with the store and the
        row. The next iteration tries the same batch again.

    Examples
    --------
    >>> data = hr.cells("atlas/*.zarr", obs=["cell_type"])
    >>> loader = CellLoader(data, 4096, window=(256, 64), transforms=Transform(1e4, log1p=True))
    >>> batch = next(loader)
    >>> batch["X"].shape, batch["obs"]["cell_type"].shape
    ((4096, 62710), (4096,))
    """

    @checks_names
    def __init__(
        self,
        cells: Cells,
        batch_size: int | None = None,
        *,
        window: tuple[int, int] = (256, 64),
        shuffle: bool = True,
        lanes: int | None = None,
        sampler: Any = None,
        weights: Any = None,
        samples_per_epoch: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        output: str | Mapping[str, str] = "csr",
        device: str | None = None,
        dtype: Any = None,
        transforms: Transform | Mapping[str, Transform] | None = None,
        seed: int = 0,
        epoch: int = 0,
        drop_last: bool = True,
        memory_budget: int | str = "4GiB",
    ) -> None:
        if not isinstance(cells, Cells):
            raise _check.wrong_type("cells", "what headrace.cells gave", cells)
        rank, world_size = _options.ranks(rank, world_size)
        _options.check_numbers(seed=seed, epoch=epoch)
        if not 0 <= rank < world_size:
            raise ValueError(f"rank: expected 0 to {world_size - 1}, got {rank}")
        if seed < 0:
            raise ValueError(f"seed: expected 0 or more, got {seed}")
        if epoch < 0:
            raise ValueError(f"epoch: expected 0 or more, got {epoch}")
        _check.flag("shuffle", shuffle)
        _check.flag("drop_last", drop_last)
        for option, given in (("output", output), ("dtype", dtype), ("transforms", transforms)):
            _cell_options.check_names(option, given, cells.names)
        self._cells = cells
        self._rank, self._world_size = rank, world_size
        self._epoch, self._position = epoch, 0
        self._budget = _nbytes("memory_budget", memory_budget)
        # Its whole name: "cuda:0" of "auto", and of None the configured one.
        named = _core.get_config()["device"] if device is None else device
        self._device = cells.matrices(cells.names[0])[0].data.to(named).device
        self._matrices = [
            _cell_options.batch_matrix(cells, name, output, dtype, transforms, self._device)
            for name in cells.names
        ]
        self._order: Order
        if sampler is None:
            self._order = _cell_options.own_order(
                cells,
                batch_size,
                window,
                shuffle=bool(shuffle),
                lanes=lanes,
                seed=seed,
                drop_last=bool(drop_last),
                weights=weights,
                samples_per_epoch=samples_per_epoch,
            )
        else:
            taken = {
                "batch_size": batch_size,
                "weights": weights,
                "lanes": lanes,
                "samples_per_epoch": samples_per_epoch,
            }
            if given := [name for name, value in taken.items() if value is not None]:
                raise ValueError(f"{given[0]}: the sampler says it")
            check_sampler(sampler, world_size)
            self._order = SamplerOrder(sampler, cells.n_obs, bool(drop_last))
        self._in_use = threading.RLock()
        self._start()
        if len(self) == 0:
            warnings.warn(
                f"an epoch has no batch: {counted(cells.n_obs, 'cell')}, "
                f"batch_size={batch_size}, world_size={world_size}, drop_last={drop_last}",
                stacklevel=3,
            )

    def _start(self) -> None:
        self._reader = WindowReader(
            self._cells, [item.selected for item in self._matrices], self._budget, self._device
        )
        self._gather = gather_on(self._device, self._matrices)
        self._stats = {"batches": 0, "cells": 0, "windows": 0, "read_bytes": 0}
        self._times = {"wait_s": 0.0, "gather_s": 0.0}
        self._process = os.getpid()
        self._thread: ThreadPoolExecutor | None = None
        self._forget()

    def _forget(self) -> None:
        """Nothing is planned or being read."""
        self._coming: Iterator[PlannedBatch] | None = None
        self._planned: deque[PlannedBatch] = deque()

    def __getstate__(self) -> dict[str, Any]:
        beside = (
            "_reader",
            "_gather",
            "_in_use",
            "_thread",
            "_coming",
            "_planned",
            "_stats",
            "_times",
        )
        return {name: value for name, value in self.__dict__.items() if name not in beside}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._in_use = threading.RLock()
        self._start()

    def _rows(self) -> list[tuple[str, str]]:
        """What it makes, for those who look at it."""
        size = getattr(self._order, "batch_size", None)
        rows = [
            ("matrices", ", ".join(self._cells.names)),
            ("cells", str(self._cells.n_obs)),
            ("batches", f"{len(self)}{'' if size is None else f' of {size}'}"),
            ("epoch", str(self.epoch)),
        ]
        if self._world_size != 1:
            rows.append(("rank", f"{self._rank} of {self._world_size}"))
        return rows

    def __repr__(self) -> str:
        text = "; ".join(f"{name}: {value}" for name, value in self._rows())
        return f"<headrace.loader.CellLoader {_core.printable(text)}>"

    def _repr_html_(self) -> str:
        from .._html import loader_card

        return loader_card(self._rows(), "headrace.loader.CellLoader")

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __getitem__(self, index: Any) -> NoReturn:
        """Raises: what takes cells by number is told what to use."""
        raise TypeError(
            "a CellLoader gives batches in its own order, none by number: iterate over it, without "
            'a DataLoader; output="torch_csr" makes tensors'
        )

    def __len__(self) -> int:
        """Batches of a whole epoch, for this rank."""
        return self._order.count(self._world_size)

    def __next__(self) -> Batch:
        with self._turn():
            return self._next()

    def _turn(self) -> _Turn:
        if self._process != os.getpid():
            # Neither the parent's thread is here, nor whoever had a turn there.
            self._in_use = threading.RLock()
            self._start()
        return _Turn(self._in_use)

    def _next(self) -> Batch:
        planned = None
        try:
            planned = self._next_planned()
            if planned is None:
                self._seek(self._epoch + 1, 0)
                raise StopIteration
            batch = self._made(planned)
        except StopIteration:
            raise
        except BaseException as error:
            planned = None
            self._forget()
            let_go(error)
            raise
        self._position = planned.position
        return batch

    def _next_planned(self) -> PlannedBatch | None:
        if self._coming is None:
            self._coming = self._order.batches(
                self._epoch, self._position, self._rank, self._world_size
            )
        return self._planned.popleft() if self._planned else next(self._coming, None)

    def _made(self, planned: PlannedBatch) -> Batch:
        windows = [(self._read(window), window, rows) for window, rows in planned.pieces]
        self._read_ahead([window for _, window, _ in windows])
        began = time.perf_counter()
        rows = np.concatenate([np.empty(0, np.int64), *(rows for _, rows in planned.pieces)])
        pieces = [(read, window.positions(rows)) for read, window, rows in windows]
        batch: Batch = {}
        for item in self._matrices:
            own = [(read[item.selected.name], positions) for read, positions in pieces]
            batch[item.selected.name] = self._gather.matrix(item, own, len(rows))
        columns = {name: column.take(rows) for name, column in self._cells.obs.items()}
        batch["obs"], batch["index"] = columns, rows
        self._stats["batches"] += 1
        self._stats["cells"] += len(rows)
        self._times["gather_s"] += time.perf_counter() - began
        return self._gather.finished(batch)

    def _read(self, window: PlannedWindow) -> dict[str, Any]:
        """The window in memory; waits for it."""
        began = time.perf_counter()
        if window.data is None and not self._begin(window) and not self._begin_alone(window):
            raise MemoryError(
                f"memory_budget: {self._budget} bytes have no room for the windows of a batch; "
                "more, or a window of fewer or shorter runs, makes it fit"
            )
        read = window.data.result()
        self._times["wait_s"] += time.perf_counter() - began
        return read

    def _begin(self, window: PlannedWindow) -> bool:
        """Has the thread read a window; False where the budget has no room for it."""
        plan = self._reader.plan(window)
        if plan is None:
            return False
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "headrace-cells")
        self._stats["windows"] += 1
        self._stats["read_bytes"] += plan.nbytes
        # Of the loader the thread knows nothing, so that one that is dropped ends it.
        window.data = self._thread.submit(self._reader.read, plan)
        return True

    def _begin_alone(self, window: PlannedWindow) -> bool:
        """The same once nothing is being read any more, as for batches that nobody wants now."""
        if self._thread is not None:
            self._thread.submit(int).result()
        return self._begin(window)

    def _read_ahead(self, current: Sequence[PlannedWindow]) -> None:
        """Begin to read the next window that batches need."""
        for planned in itertools.chain(list(self._planned), self._planned_further()):
            for window in (window for window, _ in planned.pieces if window not in current):
                if window.data is None:
                    try:
                        self._begin(window)
                    except Exception as error:  # that of the batch which needs the window
                        window.data = Future()
                        window.data.set_exception(error)
                return

    def _planned_further(self) -> Iterator[PlannedBatch]:
        assert self._coming is not None
        for planned in self._coming:
            self._planned.append(planned)
            yield planned

    @property
    def epoch(self) -> int:
        """The epoch that the next batch is of."""
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch; nothing when it is this one already, so that a resumed one goes on."""
        _options.check_numbers(epoch=epoch)
        if epoch < 0:
            raise ValueError(f"epoch: expected 0 or more, got {epoch}")
        with self._turn():
            if epoch != self._epoch:
                self._seek(index(epoch), 0)

    def _seek(self, epoch: int, position: int) -> None:
        self._epoch, self._position = epoch, position
        self._forget()

    def state_dict(self) -> dict[str, Any]:
        """How far the epoch has been delivered, by all ranks: a small dict that JSON takes.

        Equal on all ranks after the same number of batches. `load_state_dict` takes it in a loader
        with another world size, and without a sampler with another batch size too. With a sampler
        it needs one that is made the same way, with the same seed.
        """
        return {
            "version": 1,
            "epoch": self._epoch,
            self._order.unit: self._position,
            "order": self._order.order_id,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the batch after those that were delivered.

        Raises
        ------
        ValueError
            The state is none of `state_dict`, or of a loader with another order: other cells, seed,
            window, lanes, weights or sampler.
        """
        if not isinstance(state, Mapping):
            raise _check.wrong_type("load_state_dict", "what state_dict gave", state)
        keys = ("version", "epoch", self._order.unit, "order")
        if lacking := [key for key in keys if key not in state]:
            raise ValueError(
                f"load_state_dict: expected what state_dict gave, without {lacking[0]!r}"
            )
        if state["version"] != 1 or state["order"] != self._order.order_id:
            raise ValueError(
                f"load_state_dict: expected the order {self._order.order_id}, got "
                f"{state['order']}: cells, seed, window, lanes, weights and sampler must be those"
            )
        epoch, position = state["epoch"], state[self._order.unit]
        _options.check_numbers(epoch=epoch, position=position)
        if epoch < 0:
            raise ValueError(f"load_state_dict: epoch: expected 0 or more, got {epoch}")
        self._order.check(index(position))
        with self._turn():
            self._seek(index(epoch), index(position))

    def stats(self) -> dict[str, Any]:
        """What was done so far.

        ``batches`` and ``cells`` that were delivered; ``windows`` and ``read_bytes``, decoded, that
        were begun to be read; ``wait_s``: seconds that batches waited for windows; ``gather_s``:
        that it took to gather them.
        """
        return {**self._stats, **self._times}

    def close(self) -> None:
        """End the thread and let go of memory; iterating starts anew.

        Waits for a batch that another thread is about to be given.
        """
        with self._in_use if self._process == os.getpid() else self._turn():
            if self._thread is not None:
                self._thread.shutdown()
            stats, times = self._stats, self._times
            self._start()
            self._stats, self._times = stats, times
