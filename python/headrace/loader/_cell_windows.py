"""Windows of cells in memory: read by one `read_many`, gathered by C++."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _core
from .._cells import Cells
from .._cells._anndata import Matrix
from ..errors import CorruptError
from ._cell_order import PlannedWindow, Rows

_ALIGNMENT = 64
# Positions of rows (indptr) of stores with more rows are read window by window.
_INDPTR_IN_MEMORY = 1 << 24


class Memory:
    """Blocks of bytes that are used again once no array sees them any more.

    One thread takes; blocks come back in whichever thread lets go of them.
    """

    def __init__(self, keep: int, budget: int | None = None, device: str = "cpu") -> None:
        self._keep, self._budget, self._device = keep, budget, device
        self._free: list[Any] = []
        self._returned: deque[Any] = deque()
        self._leased_nbytes = 0

    def take(self, nbytes: int, dtype: Any = np.uint8) -> Any:
        """``(nbytes // itemsize,)`` of a type, not initialised; None where there is no room for it.

        On a device it is a `DeviceBlock`.
        """
        while self._returned:
            block = self._returned.popleft()
            self._leased_nbytes -= block.nbytes
            self._free.append(block)
        self._free = sorted(self._free, key=lambda block: block.nbytes)[-self._keep :]
        at = next((at for at, block in enumerate(self._free) if nbytes <= block.nbytes), None)
        # Windows and batches differ a little: some room makes the next one fit.
        size = nbytes + nbytes // 8 if at is None else self._free[at].nbytes
        if self._budget is not None:
            free_nbytes = sum(block.nbytes for block in self._free) if at is None else 0
            if self._leased_nbytes + free_nbytes + size > self._budget:
                self._free, at, size = [], None, nbytes
            if self._leased_nbytes + size > self._budget:
                return None
        block = self._made(size) if at is None else self._free.pop(at)
        self._leased_nbytes += block.nbytes
        if self._device != "cpu":
            return DeviceBlock(self._returned, block)
        # Of the type from its base on: SciPy counts the elements of that, and copies what it takes
        # for a small part of it.
        whole = np.asarray(_Lease(self._returned, block, dtype))
        return whole[: nbytes // whole.itemsize]

    def _made(self, nbytes: int) -> Any:
        if self._device == "cpu":
            return np.empty(nbytes, np.uint8)
        return _core.empty_on_device((nbytes,), np.uint8, self._device)


class _Lease:
    """A block as NumPy sees it: each array of it keeps this alive."""

    def __init__(self, returned: deque[Any], block: np.ndarray[Any, Any], dtype: Any) -> None:
        self._returned, self._block = returned, block
        itemsize = np.dtype(dtype).itemsize
        typed = block[: block.size // itemsize * itemsize].view(dtype)
        self.__array_interface__ = typed.__array_interface__

    def __del__(self) -> None:
        self._returned.append(self._block)


class DeviceBlock:
    """A block of a device's memory: whoever uses its parts keeps it."""

    def __init__(self, returned: deque[Any], block: _core.DeviceArray) -> None:
        self._returned, self._block = returned, block

    def __del__(self) -> None:
        self._returned.append(self._block)

    def part(self, begin: int, shape: tuple[int, ...], dtype: Any) -> _core.DeviceArray:
        return _core.view_on_device(self._block, begin, shape, dtype)


@dataclass(frozen=True)
class Selected:
    """A matrix of the cells with the columns that batches have."""

    name: str
    matrices: list[Matrix]  # by store
    columns: int
    maps: list[np.ndarray[Any, Any] | None]  # by store

    def described(self) -> list[tuple[Any, ...]]:
        """The matrices as `_core.CellWindow` takes them."""
        return [
            (
                matrix.where,
                matrix.shape[1],
                np.dtype(matrix.data.dtype),
                None if matrix.indices is None else np.dtype(matrix.indices.dtype),
                map,
            )
            for matrix, map in zip(self.matrices, self.maps, strict=True)
        ]


@dataclass(frozen=True)
class _Segment:
    """Consecutive rows of a matrix of one store, and what of data they are."""

    store: int
    begin: int
    end: int
    indptr: Rows | None = None  # of a sparse matrix: (end - begin + 1,)

    @property
    def extent(self) -> tuple[int, int]:
        """Of dimension 0 of data."""
        if self.indptr is None:
            return self.begin, self.end
        return int(self.indptr[0]), int(self.indptr[-1])


class WindowReader:
    """Reads windows of some matrices of cells into memory that is used again."""

    def __init__(
        self, cells: Cells, selected: Sequence[Selected], budget: int, device: str
    ) -> None:
        self._offsets = cells.offsets
        self._selected = selected
        self._device = device
        self._described = {item.name: item.described() for item in selected}
        self._arrays = {
            (item.name, store): [
                array.to(device) for array in (matrix.data, matrix.indices) if array is not None
            ]
            for item in selected
            for store, matrix in enumerate(item.matrices)
        }
        self._memory = Memory(2, budget, device)
        self._indptrs: dict[tuple[str, int], Rows | None] = {}  # by name and store

    def plan(self, window: PlannedWindow) -> WindowPlan | None:
        """What is to be read, by the positions of rows, which are read now where they are not yet.

        None where the budget has no room for it.

        Raises
        ------
        headrace.CorruptError
            Positions that fall, or that lie outside of the data.
        """
        pieces = self._pieces(window)
        segments = {
            item.name: [self._segment(item, *piece) for piece in pieces] for item in self._selected
        }
        plan = WindowPlan(self._selected, segments)
        plan.memory = self._memory.take(plan.nbytes)
        return None if plan.memory is None else plan

    def read(self, plan: WindowPlan) -> dict[str, Any]:
        """The windows of the matrices, as `_core.CellWindow` by name. Any thread may call it."""
        memory, plan.memory = plan.memory, None
        assert memory is not None
        requests: list[tuple[Any, ...]] = []
        runs: dict[str, list[tuple[Any, ...]]] = {}
        at = 0
        for item in self._selected:
            own = runs.setdefault(item.name, [])
            for segment in plan.segments[item.name]:
                begin, end = segment.extent
                outs: list[Any] = []
                for array in self._arrays[item.name, segment.store]:
                    shape = (end - begin, *array.shape[1:])
                    nbytes = _nbytes(array, end - begin)
                    outs.append(_part(memory, at, nbytes, shape, array.dtype))
                    at += _padded(nbytes)
                    if end > begin:
                        requests.append((array, slice(begin, end), outs[-1]))
                if self._device == "cpu":
                    outs = [out.reshape(-1).view(np.uint8) for out in outs]
                data, indices = outs if segment.indptr is not None else (*outs, None)
                rows = segment.end - segment.begin
                own.append((segment.store, segment.begin, rows, data, indices, segment.indptr))
        _core.read_many(requests)
        return {
            item.name: _core.CellWindow(
                self._described[item.name], runs[item.name], item.columns, self._device, memory
            )
            for item in self._selected
        }

    def _pieces(self, window: PlannedWindow) -> list[tuple[int, int, int]]:
        """Store, first row and end there of each run, divided where stores meet."""
        pieces = []
        for start, stop in zip(window.starts.tolist(), window.stops.tolist(), strict=True):
            while start < stop:
                store = int(np.searchsorted(self._offsets, start, side="right")) - 1
                first, end = int(self._offsets[store]), int(self._offsets[store + 1])
                pieces.append((store, start - first, min(stop, end) - first))
                start = min(stop, end)
        return pieces

    def _segment(self, item: Selected, store: int, begin: int, end: int) -> _Segment:
        matrix = item.matrices[store]
        if matrix.indptr is None:
            return _Segment(store, begin, end)
        indptr = self._indptr(item, store, begin, end)
        falls = np.flatnonzero(indptr[1:] < indptr[:-1])
        if falls.size:
            at = int(falls[0])
            raise CorruptError(
                f"{matrix.where} row {begin + at}: indptr falls from {indptr[at]} to "
                f"{indptr[at + 1]}"
            )
        if not 0 <= indptr[0] <= indptr[-1] <= matrix.data.shape[0]:
            raise CorruptError(
                f"{matrix.where} rows {begin} to {end}: indptr from {indptr[0]} to {indptr[-1]}, "
                f"of {matrix.data.shape[0]} elements"
            )
        return _Segment(store, begin, end, indptr)

    def _indptr(self, item: Selected, store: int, begin: int, end: int) -> Rows:
        array = item.matrices[store].indptr
        assert array is not None
        key = (item.name, store)
        if key not in self._indptrs:
            self._indptrs[key] = _whole_indptr(item.matrices[store], array)
        whole = self._indptrs[key]
        if whole is None:
            return _int64s(array.read(slice(begin, end + 1), device="cpu"))
        return whole[begin : end + 1]


class WindowPlan:
    """What a window reads of each matrix, and what memory that takes."""

    def __init__(self, selected: Sequence[Selected], segments: dict[str, list[_Segment]]) -> None:
        self.segments = segments
        self.memory: Any = None  # as Memory.take() gives it
        self.nbytes = 0
        for item in selected:
            for segment in segments[item.name]:
                begin, end = segment.extent
                for array in self.arrays(item, segment):
                    self.nbytes += _padded(_nbytes(array, end - begin))

    @staticmethod
    def arrays(item: Selected, segment: _Segment) -> list[_core.Array]:
        matrix = item.matrices[segment.store]
        return [matrix.data] if matrix.indices is None else [matrix.data, matrix.indices]


def let_go(error: BaseException) -> None:
    """Of windows that the library's own frames hold, so that who keeps the error, as an interactive
    session does, keeps no memory by it, and the next batch finds room."""
    at = error.__traceback__
    while at is not None:
        if str(at.tb_frame.f_globals.get("__name__")).startswith("headrace."):
            with contextlib.suppress(RuntimeError):  # it is running
                at.tb_frame.clear()
        at = at.tb_next


def _nbytes(array: _core.Array, extent: int) -> int:
    columns = array.shape[1] if array.ndim == 2 else 1
    return extent * columns * np.dtype(array.dtype).itemsize


def _part(memory: Any, begin: int, nbytes: int, shape: tuple[int, ...], dtype: Any) -> Any:
    """Elements in a block of memory."""
    if isinstance(memory, DeviceBlock):
        return memory.part(begin, shape, dtype)
    return memory[begin : begin + nbytes].view(dtype).reshape(shape)


def _padded(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


def _whole_indptr(matrix: Matrix, array: _core.Array) -> Rows | None:
    """All positions of rows, None where they are too many to keep.

    Raises
    ------
    headrace.CorruptError
        The rows of the matrix are not all of its elements.
    """
    whole, last = None, array.shape[0] - 1
    if last < _INDPTR_IN_MEMORY:
        whole = _int64s(array.read(device="cpu"))
        ends = whole[[0, last]]
    else:
        parts = [array.read(slice(at, at + 1), device="cpu") for at in (0, last)]
        ends = _int64s(np.concatenate(parts))
    count = matrix.data.shape[0]
    if ends[0] != 0 or ends[1] != count:
        raise CorruptError(
            f"{matrix.where}: expected an indptr from 0 to {count}, the number of its elements, "
            f"got {ends[0]} to {ends[1]}"
        )
    return whole


def _int64s(values: np.ndarray[Any, Any]) -> Rows:
    # What a uint64 above 2^63 becomes is negative, and found to be wrong.
    return np.ascontiguousarray(values, np.int64)
