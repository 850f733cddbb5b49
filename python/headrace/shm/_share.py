"""Objects whose arrays are moved to an arena before anybody sends them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from .. import _check
from . import _torch
from ._arena import Arena
from ._install import current_arena
from ._pickle import dumps, loads
from ._queue import QueueArena

_default: Arena | None = None


def default_arena() -> Arena:
    """That of `install`, or one of 1 GiB of this process and its later children."""
    global _default
    if (installed := current_arena()) is not None:
        return installed
    if _default is None:
        _default = Arena()
    return _default


def share(obj: Any, *, arena: Arena | None = None) -> Any:
    """A copy of an object whose arrays lie in the arena, whatever the types around them.

    Sending it copies nothing. Arrays of 2 KiB and more are moved, as `Channel.put` describes them,
    and may be written to; the rest of the object is copied by pickle.

    Parameters
    ----------
    arena
        That of `install` when None; without, one of 1 GiB, made on first use.

    Raises
    ------
    MemoryError
        The arena has no room now.

    Examples
    --------
    >>> dataset = headrace.shm.share(dataset)
    """
    arena = default_arena() if arena is None else arena
    if isinstance(arena, QueueArena):
        return obj
    if not isinstance(arena, Arena):
        raise _check.wrong_type("arena", "an Arena or None", arena)
    stream, *buffers = dumps(obj, arena)
    return loads([stream, *(_moved(buffer, arena) for buffer in buffers)])


def _moved(buffer: memoryview, arena: Arena) -> Any:
    source = np.frombuffer(buffer, np.uint8)
    start = source.__array_interface__["data"][0]
    if arena._between(start, start + source.size) is not None:
        return buffer
    target = arena._empty_now((source.size,), source.dtype)
    if target is None:
        raise MemoryError(f"[share] the arena has no room for {source.size} bytes")
    np.copyto(target, source)
    return target


def collate(batch: Any, *, arena: Arena | None = None) -> Any:
    """As `torch.utils.data.default_collate`, into the arena.

    A sample is copied once, into the batch, and sending the batch copies nothing; it goes to
    ordinary memory when the arena has no room. In the workers of a `DataLoader` `default_collate`
    itself does this once `install` was called.

    Parameters
    ----------
    arena
        As in `share`.

    Examples
    --------
    >>> channel.put(headrace.shm.collate([dataset[i] for i in indices], arena=arena))
    """
    import torch
    from torch.utils.data._utils.collate import collate

    arena = default_arena() if arena is None else arena
    if not isinstance(arena, QueueArena | Arena):
        raise _check.wrong_type("arena", "an Arena or None", arena)
    stack = partial(_torch.stack, arena)
    return collate(batch, collate_fn_map={**_torch.collate_functions(), torch.Tensor: stack})
