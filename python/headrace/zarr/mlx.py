"""Results of zarr-python in memory of MLX, which its CPU and GPU share.

Examples
--------
>>> import headrace.zarr.mlx
>>> zarr.config.set({"codec_pipeline.path": "headrace.zarr.CodecPipeline"})
>>> zarr.config.set({"ndbuffer": "headrace.zarr.mlx.NDBuffer"})
>>> zarr.open_array("era5.zarr/t2m")[0:10].mean(axis=0)  # of an mlx.core.array
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
from zarr.core.buffer import BufferPrototype, cpu
from zarr.registry import register_ndbuffer

from ..mlx import empty, mlx_dtype
from ._buffer import NDBuffer as _NDBuffer

__all__ = ["NDBuffer", "buffer_prototype"]


class NDBuffer(_NDBuffer):
    """An `mlx.core.array` for `headrace.zarr.CodecPipeline` to fill in place.

    Results of types that MLX has not raise `TypeError`.
    """

    @classmethod
    def from_numpy_array(cls, array_like: Any) -> NDBuffer:
        return cls(_of_mlx(np.asarray(array_like)))

    def read(self, read: Callable[..., Any], selection: Any) -> None:
        out = empty(self._data.shape, self._data.dtype)
        read(selection, out=out, device="cpu")
        self._data = out

    def fill(self, fill: Callable[..., None]) -> None:
        # Views of it cannot be written: they are copies.
        host = np.array(self._data) if not self.is_unfilled else None
        if host is None:
            host = np.empty(self._data.shape, self._data.dtype)
        fill(host)
        self._data = _of_mlx(host)

    def adopt(self, array: np.ndarray[Any, Any]) -> None:
        self._data = _of_mlx(array)


def _of_mlx(array: np.ndarray[Any, Any]) -> mx.array:
    return mx.array(array, mlx_dtype(array.dtype))


buffer_prototype = BufferPrototype(buffer=cpu.Buffer, nd_buffer=NDBuffer)
register_ndbuffer(NDBuffer)
