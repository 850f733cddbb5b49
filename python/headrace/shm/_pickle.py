"""Objects as messages: a pickle and, beside it, the buffers of large arrays.

https://docs.python.org/3/library/pickle.html#out-of-band-buffers
"""

from __future__ import annotations

import copyreg
import io
import pickle
from collections.abc import Callable
from functools import partial
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np

from .. import _core
from ..errors import CorruptError
from . import _torch
from ._span import Array, Room, span

# Smaller buffers are part of the pickle: a copy of so much takes less time than its bookkeeping.
INLINE_NBYTES = 2048
# Of what NumPy pickles by itself, as in multiprocessing.
IN_BAND_PROTOCOL = 4

Reduced = str | tuple[Any, ...]
Reducer = Callable[[Any], Reduced]


def dumps(obj: Any, arena: Room | None) -> list[Any]:
    """The parts of the message: buffers in the arena are its memory, not copies."""
    buffers: list[Any] = []

    def stays_in_pickle(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < INLINE_NBYTES:
            return True
        buffers.append(raw)
        return False

    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, 5, buffer_callback=stays_in_pickle)
    pickler.dispatch_table = _reducers(partial(_reduce_array, arena))
    pickler.dump(obj)
    return [stream.getbuffer(), *buffers]


def loads(parts: list[Any], copy: bool = False) -> Any:
    """The object; its large arrays are views of the parts, or have memory of their own."""
    if not parts:
        raise CorruptError("[shm] the message has no parts: its memory was written over")
    buffers = parts[1:]
    if copy:
        buffers = [np.frombuffer(buffer, np.uint8).copy() for buffer in buffers]
    return pickle.loads(parts[0], buffers=buffers)


def _reducers(reduce_array: Reducer) -> dict[type, Reducer]:
    """By exact class: subclasses pickle themselves. What multiprocessing can hand over goes too."""
    return {
        **copyreg.dispatch_table,
        **ForkingPickler._extra_reducers,  # type: ignore[attr-defined]
        **array_reducers(reduce_array),
        **_torch.reducers(),
    }


def array_reducers(reduce_array: Reducer) -> dict[type, Reducer]:
    """Of the classes of NumPy, given that of plain arrays."""
    return {np.ndarray: reduce_array, np.ma.MaskedArray: _reduce_masked}


def goes_in_band(array: Array, limit: int) -> bool:
    """Whether an array is left to NumPy's own pickle."""
    return array.nbytes < limit or array.dtype.hasobject


def _reduce_array(arena: Room | None, array: Array) -> Reduced:
    if goes_in_band(array, INLINE_NBYTES):
        return array.__reduce_ex__(IN_BAND_PROTOCOL)
    buffer, offset, strides = span(array, arena)
    # Pickle would make the receiver's copy of a read-only array read-only, too.
    memory: Any = buffer if buffer.flags.writeable else _core.shm_writable(buffer)
    dtype = type_of(array.dtype)
    return np.ndarray, (array.shape, dtype, pickle.PickleBuffer(memory), offset, strides)


def type_of(dtype: np.dtype[Any]) -> str | np.dtype[Any]:
    """What takes the least time to pickle and gives this dtype again."""
    return dtype.str if dtype.isbuiltin == 1 and dtype.metadata is None else dtype


def _reduce_masked(array: np.ma.MaskedArray[Any, Any]) -> Reduced:
    if type(array.data) is not np.ndarray or array.dtype.hasobject:
        return array.__reduce_ex__(IN_BAND_PROTOCOL)
    state: Any = array  # NumPy has no other words for some of it
    return _masked, (array.data, array.mask, state._fill_value, array.hardmask, state._optinfo)


def _masked(data: Array, mask: Any, fill_value: Any, hard: bool, info: dict[str, Any]) -> Any:
    found: Any = np.ma.MaskedArray(data, mask=mask, hard_mask=hard, copy=False)
    found._fill_value = fill_value  # as it is: of texts it may be longer than the elements
    found._optinfo = info
    return found
