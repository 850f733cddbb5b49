"""Results of zarr-python in the memory of a device, without CuPy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np
from zarr.core.buffer import BufferPrototype, core, cpu

from .. import _core, config

Order = Literal["C", "F"]


class NDBuffer(core.NDBuffer):
    """An array in the memory of the configured device, for `CodecPipeline` to fill.

    What zarr-python returns is then a `headrace.DeviceArray`, which any framework takes by DLPack.
    Results are in C order. Values to be written may lie on the host or on a device.

    Examples
    --------
    >>> zarr.config.set({"codec_pipeline.path": "headrace.zarr.CodecPipeline"})
    >>> zarr.config.set({"ndbuffer": "headrace.zarr.NDBuffer"})
    >>> with headrace.config.set({"device": "cuda:0"}):
    ...     x = torch.from_dlpack(zarr.open_array("era5.zarr/t2m")[0:10])
    """

    def __init__(self, array: Any) -> None:
        self._data = array
        self.device: Any = None

    @classmethod
    def empty(cls, shape: tuple[int, ...], dtype: Any, order: Order = "C") -> NDBuffer:
        if 0 in shape:  # which nobody fills
            return cls.from_numpy_array(np.empty(shape, dtype))
        # Nothing is allocated: the read brings the memory.
        buffer = cls(_Unfilled(tuple(shape), np.dtype(dtype)))
        buffer.device = config.get("device")
        return buffer

    @classmethod
    def create(
        cls, *, shape: Iterable[int], dtype: Any, order: Order = "C", fill_value: Any | None = None
    ) -> NDBuffer:
        return cls.from_numpy_array(
            np.full(tuple(shape), 0 if fill_value is None else fill_value, dtype=dtype)
        )

    @classmethod
    def from_numpy_array(cls, array_like: Any) -> NDBuffer:
        return cls(_core.to_device(np.asarray(array_like), config.get("device")))

    @property
    def is_unfilled(self) -> bool:
        """It has no memory yet."""
        return isinstance(self._data, _Unfilled)

    def fill(self, fill: Callable[..., None]) -> None:
        """Have `fill(memory, device=)` write parts of the memory, in place where there is some."""
        if self.is_unfilled:
            self._data = _core.empty_on_device(self._data.shape, self._data.dtype, self.device)
        if isinstance(self._data, np.ndarray):
            fill(self._data)
        elif isinstance(self._data, _core.DeviceArray):
            fill(self._data, device=self._data.device)
        else:
            fill(self._data, device=self.device)

    def read(self, read: Callable[..., Any], selection: Any) -> None:
        """Become what an array's method `read` gives for the selection."""
        self.adopt(read(selection, device=self.device))

    def adopt(self, array: Any) -> None:
        """Become `array`: a `headrace.DeviceArray`, or an ndarray that is copied to the device."""
        if isinstance(array, np.ndarray):
            array = _core.to_device(array, self.device)
        self._data = array

    def as_numpy_array(self) -> np.ndarray[Any, Any]:
        if isinstance(self._data, _core.DeviceArray):
            return self._data.to_numpy()
        if hasattr(self._data, "__dlpack__") and not isinstance(self._data, np.ndarray):
            return np.from_dlpack(self._data, device="cpu")
        return np.asarray(self._data)

    def __getitem__(self, key: Any) -> NDBuffer:
        return type(self)(self._data[key])

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(self._data, np.ndarray):  # a chunk that one of zarr-python's codecs decoded
            self._data[key] = _on_host(value)
            return
        raise NotImplementedError(
            "headrace.zarr.NDBuffer is filled whole: use it with "
            'zarr.config.set({"codec_pipeline.path": "headrace.zarr.CodecPipeline"})'
        )


def _on_host(value: Any) -> Any:
    return value.as_numpy_array() if isinstance(value, core.NDBuffer) else value


class HostBuffer(cpu.NDBuffer):
    """Host memory that takes chunks of any kind of buffer: codecs make those of the configured."""

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, _on_host(value))


class _Unfilled:
    """The shape and type of a result that is not read yet."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape = shape
        self.dtype = dtype


buffer_prototype = BufferPrototype(buffer=cpu.Buffer, nd_buffer=NDBuffer)
