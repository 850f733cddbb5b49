"""Arrays of Arrow in memory of a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ._core import DeviceArray, arrow_device_array

if TYPE_CHECKING:
    import pyarrow


class DeviceArrowArray:
    """An array of Arrow in memory of a device, as `Array.to_arrow` reads it there.

    Libraries take it without a copy by the Arrow PyCapsule interface for devices
    (``__arrow_c_device_array__``): cuDF by ``pylibcudf.Column.from_arrow``, pyarrow by
    ``pyarrow.array`` where it is built for the device. What it is made of is filled already: a
    consumer waits for no event.

    Examples
    --------
    >>> import pyarrow
    >>> names = headrace.create_array("names.zarr", shape=2, dtype=str, fill_value="Oslo")
    >>> there = names.to_arrow(device="simt")
    >>> there
    <headrace.DeviceArrowArray 2 of large_string on simt:0>
    >>> pyarrow.array(there).to_pylist()
    ['Oslo', 'Oslo']
    """

    def __init__(
        self,
        type: pyarrow.DataType,
        length: int,
        buffers: Sequence[DeviceArray | None],
        children: Sequence[DeviceArrowArray] = (),
    ) -> None:
        self._type = type
        self._length = length
        self._parts: tuple[int, Any, Any] = (length, buffers, [c._parts for c in children])
        devices = {part.device for part in (*buffers, *children) if part is not None}
        (self._device,) = devices  # all lie on one

    @property
    def type(self) -> pyarrow.DataType:
        """Arrow's type of the elements."""
        return self._type

    @property
    def device(self) -> str:
        """``"cuda:0"``."""
        return self._device

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"<headrace.DeviceArrowArray {len(self)} of {self._type} on {self._device}>"

    def __arrow_c_schema__(self) -> Any:
        return self._type.__arrow_c_schema__()

    def __arrow_c_device_array__(
        self, requested_schema: Any = None, **kwargs: Any
    ) -> tuple[Any, Any]:
        """Capsules of the schema and of the array, whatever schema is requested."""
        wanted = [name for name, value in kwargs.items() if value is not None]
        if wanted:
            raise NotImplementedError(f"__arrow_c_device_array__: {', '.join(wanted)}")
        return self.__arrow_c_schema__(), arrow_device_array(self._parts, self._device)
