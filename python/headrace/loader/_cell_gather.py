"""Matrices of batches gathered from windows: in memory of the host, or of a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from .. import _core
from . import _cell_output
from ._cell_options import BatchMatrix
from ._cell_order import Rows
from ._cell_windows import Memory

Pieces = Sequence[tuple[_core.CellWindow, Rows]]  # windows, and which of their rows


class Gather(Protocol):
    """Who makes batches."""

    def matrix(self, item: BatchMatrix, pieces: Pieces, count: int) -> Any:
        """The matrix of a batch of so many cells."""

    def finished(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The batch with columns as its matrices are."""


def gather_on(device: str, matrices: Sequence[BatchMatrix]) -> Gather:
    if device == "cpu":
        return HostGather(matrices)
    return DeviceGather(device, matrices)


def _counted(pieces: Pieces, count: int) -> Rows:
    """Where each row of a CSR batch begins, ``(count + 1,)`` int64."""
    offsets = np.zeros(count + 1, np.int64)
    at = 0
    for window, positions in pieces:
        window.count(positions, offsets[at : at + len(positions) + 1])
        at += len(positions)
    return offsets


def _write_csr(item: BatchMatrix, pieces: Pieces, offsets: Rows, data: Any, indices: Any) -> None:
    at = 0
    for window, positions in pieces:
        own = offsets[at : at + len(positions) + 1]
        window.gather_csr(positions, own, item.transform, data, indices, item.dtype.itemsize)
        at += len(positions)


class HostGather:
    """Into memory that is used again."""

    def __init__(self, matrices: Sequence[BatchMatrix]) -> None:
        self._memory = Memory(2 * len(matrices))
        self._outputs = {item.selected.name: item.output for item in matrices}

    def matrix(self, item: BatchMatrix, pieces: Pieces, count: int) -> Any:
        shape = (count, item.selected.columns)
        itemsize = item.dtype.itemsize
        if item.output.endswith("csr"):
            offsets = _counted(pieces, count)
            nnz = int(offsets[-1])
            data, indices = self._memory.take(nnz * itemsize), self._memory.take(nnz * 4)
            _write_csr(item, pieces, offsets, data, indices)
            parts = data.view(item.dtype), indices.view(np.int32), offsets
            return _cell_output.csr(*parts, shape, item.output)
        row_nbytes = item.selected.columns * itemsize
        data = self._memory.take(count * row_nbytes)
        at = 0
        for window, positions in pieces:
            end = at + len(positions) * row_nbytes
            window.gather_dense(positions, item.transform, data[at:end], itemsize)
            at = end
        return data.view(item.dtype).reshape(shape)

    def finished(self, batch: dict[str, Any]) -> dict[str, Any]:
        return _cell_output.as_torch(batch, self._outputs)


class DeviceGather:
    """Into memory of a device that is each batch's own.

    It comes from the device's pool and goes back there in the order of the default stream: were it
    used again here, a stream could still be reading what was dropped.
    """

    def __init__(self, device: str, matrices: Sequence[BatchMatrix]) -> None:
        self._device = device
        libraries = {_cell_output.library_of(item.output, device) for item in matrices}
        # Columns are those of the most particular library of the matrices.
        self._library = next(
            (name for name in ("torch", "cupy", "numpy") if name in libraries), None
        )

    def matrix(self, item: BatchMatrix, pieces: Pieces, count: int) -> Any:
        shape = (count, item.selected.columns)
        if item.output.endswith("csr"):
            offsets = _counted(pieces, count)
            nnz = int(offsets[-1])
            data = _core.empty_on_device((nnz,), item.dtype, self._device)
            indices = _core.empty_on_device((nnz,), np.int32, self._device)
            _write_csr(item, pieces, offsets, data, indices)
            return _cell_output.csr_on_device(data, indices, offsets, shape, item.output)
        data = _core.empty_on_device(shape, item.dtype, self._device)
        row_nbytes = item.selected.columns * item.dtype.itemsize
        at = 0
        for window, positions in pieces:
            own = _core.view_on_device(
                data, at * row_nbytes, (len(positions) * row_nbytes,), np.uint8
            )
            window.gather_dense(positions, item.transform, own, item.dtype.itemsize)
            at += len(positions)
        return _cell_output.exported(data, _cell_output.library_of(item.output, self._device))

    def finished(self, batch: dict[str, Any]) -> dict[str, Any]:
        columns = {
            name: _cell_output.column_on_device(values, self._device, self._library)
            for name, values in batch["obs"].items()
        }
        index = batch["index"]
        if self._library == "torch":
            import torch

            index = torch.from_numpy(index)
        return {**batch, "obs": columns, "index": index}
