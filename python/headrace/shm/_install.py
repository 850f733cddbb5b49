"""multiprocessing's own queues, pipes and pools with arrays in shared memory.

All of them pickle by `ForkingPickler`. With its reducers replaced each large array becomes a
message of its own in the arena, and the pickle holds the message's descriptor.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from multiprocessing import reduction, util
from multiprocessing.context import get_spawning_popen
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np

from .. import _check
from . import _torch
from ._arena import Address, Arena, address_of, arena_at
from ._pickle import IN_BAND_PROTOCOL, Reduced, Reducer, array_reducers, goes_in_band, type_of
from ._queue import QueueArena
from ._span import Array, span

# Below it a pickle through a pipe takes less time.
MIN_NBYTES = 32 * 1024

# What it keeps for itself, its reducers and its method, is what is replaced here.
ForkingPickler: Any = reduction.ForkingPickler
_plain_dump = ForkingPickler.dump


class _Installation:
    """The reducers of one arena, and those that they stand in for."""

    def __init__(self, arena: Arena, min_nbytes: int) -> None:
        self.arena = arena
        self.min_nbytes = min_nbytes
        self._replaced: dict[type, Reducer | None] = {}
        self._collate: Callable[..., Any] | None = None

    def begin(self) -> None:
        for cls, reducer in array_reducers(partial(_reduce_array, self)).items():
            self._replace(cls, reducer)
        self.replace_torch()
        ForkingPickler.dump = _dump

    def end(self) -> None:
        del ForkingPickler.dump
        for cls, reducer in self._replaced.items():
            if reducer is None:
                del ForkingPickler._extra_reducers[cls]
            else:
                ForkingPickler.register(cls, reducer)
        if self._collate is not None:
            _torch.collate_functions()[_torch.loaded().Tensor] = self._collate

    def replace_torch(self) -> bool:
        """Whether there was something to do: torch registers reducers of its own when it is
        imported, be it before or after `begin`."""
        torch = _torch.loaded()
        if self._collate is not None or torch is None:
            return False
        for cls in (torch.Tensor, torch.nn.Parameter):
            own = ForkingPickler._extra_reducers.get(cls)
            self._replace(cls, partial(_reduce_tensor, own))
        functions = _torch.collate_functions()
        self._collate = functions[torch.Tensor]
        functions[torch.Tensor] = partial(_torch.stack_in_worker, self.arena, self._collate)
        return True

    def _replace(self, cls: type, reducer: Reducer) -> None:
        self._replaced[cls] = ForkingPickler._extra_reducers.get(cls)
        ForkingPickler.register(cls, reducer)

    def __reduce__(self) -> Reduced:
        return _install, (self.arena, self.min_nbytes)


_installation: _Installation | None = None


def install(
    arena: Arena | None = None, nbytes: int | str = "1GiB", *, min_nbytes: int = MIN_NBYTES
) -> Arena:
    """Let multiprocessing send large arrays by shared memory.

    Queues, pipes, pools and executors of `multiprocessing` and `concurrent.futures`, and torch's
    `DataLoader`, are used unchanged. Arrays of NumPy (not its subclasses, masked arrays excepted)
    and tensors of PyTorch on the CPU travel by the arena, wherever in an object they are; they
    arrive as read-only views. Children that are started afterwards, in any way, have it installed
    too. When the arena has no room, arrays are pickled as ever; ``arena.stats()`` counts these.

    Parameters
    ----------
    arena
        A new one of ``nbytes`` when None.
    min_nbytes
        Smaller arrays are pickled.

    Returns
    -------
    Arena
        The one that is used from now on.

    Examples
    --------
    >>> headrace.shm.install(nbytes="4GiB")
    >>> loader = DataLoader(dataset, batch_size=8, num_workers=4)
    """
    arena = Arena(nbytes) if arena is None else arena
    if not isinstance(arena, Arena | QueueArena):
        raise _check.wrong_type("arena", "an Arena or None", arena)
    _check.integer("min_nbytes", min_nbytes)
    _install(arena, min_nbytes)
    return arena


def uninstall() -> None:
    """multiprocessing as it was; what is on its way still arrives."""
    global _installation
    if _installation is not None:
        _installation.end()
        _installation = None


def current_arena() -> Arena | None:
    """That of `install`."""
    return None if _installation is None else _installation.arena


def _install(arena: Arena, min_nbytes: int) -> None:
    global _installation
    uninstall()
    if not isinstance(arena, QueueArena):
        _installation = _Installation(arena, min_nbytes)
        _installation.begin()


def _replace_torch() -> None:
    if _installation is not None:
        _installation.replace_torch()


# Workers that are forked do not pickle before they make their first batch.
os.register_at_fork(before=_replace_torch)


def _uninstall_at_exit(_: Any = None) -> None:
    """After the threads of queues, which pickle what is left to send, at -5.

    Torch's tables live longer than modules, and hold the arena.
    """
    util.Finalize(None, uninstall, exitpriority=-10)


_uninstall_at_exit()
# Processes forget what they were to do at their end when they begin, spawned ones included.
util.register_after_fork(_uninstall_at_exit, _uninstall_at_exit)


class _Sent(threading.local):
    """Messages in the pickle that this thread is making."""

    messages: list[tuple[Arena, bytes]] | None = None


_sent = _Sent()


def _dump(self: Any, obj: Any) -> None:
    """`ForkingPickler.dump`; one that fails leaves nothing in the arena."""
    installation = _installation
    if installation is not None:
        if installation.replace_torch():
            self.dispatch_table.update(ForkingPickler._extra_reducers)
        if isinstance(obj, BaseProcess) and get_spawning_popen() is not None:
            obj = _Carrier(installation, obj)
    process = os.getpid()
    outer, _sent.messages = _sent.messages, []
    try:
        _plain_dump(self, obj)
    except BaseException:
        if process == os.getpid():  # else they are the parent's, who goes on
            for arena, descriptor in _sent.messages:
                arena._take_back([descriptor])
        raise
    finally:
        _sent.messages = outer


class _Carrier:
    """A process that is spawned, and what is to be installed there before it is read."""

    def __init__(self, installation: _Installation, process: BaseProcess) -> None:
        self._parts = installation, process

    def __reduce__(self) -> Reduced:
        return _carried, self._parts


def _carried(_: None, process: BaseProcess) -> BaseProcess:
    _replace_torch()
    return process


def _reduce_array(installation: _Installation, array: Array) -> Reduced:
    if goes_in_band(array, installation.min_nbytes):
        return array.__reduce_ex__(IN_BAND_PROTOCOL)
    arena = installation.arena
    buffer, offset, strides = span(array, arena)
    descriptor = arena._send_now(buffer)
    if descriptor is None:
        arena._in_band += 1
        return array.__reduce_ex__(IN_BAND_PROTOCOL)
    if _sent.messages is not None:
        _sent.messages.append((arena, descriptor))
    dtype = type_of(array.dtype)
    return _receive, (address_of(arena), descriptor, array.shape, dtype, offset, strides)


def _receive(
    address: Address,
    descriptor: bytes,
    shape: tuple[int, ...],
    dtype: str | np.dtype[Any],
    offset: int,
    strides: tuple[int, ...] | None,
) -> Array:
    block: Any
    (block,) = arena_at(address)._core.receive(descriptor)
    return np.ndarray(shape, dtype, block, offset, strides)


def _reduce_tensor(own: Reducer | None, tensor: Any) -> Reduced:
    """By torch's own reducer what has no plain memory, and what lies in torch's shared memory: it
    was put there to go on being shared with the sender."""
    tensor = _torch.resolved(tensor)  # torch's own forgets that a tensor is conjugated
    # In this order: sparse tensors have no storage that is_shared could look at, and raise.
    if own is not None and (not _torch.is_plain(tensor) or tensor.is_shared()):
        return own(tensor)
    return _torch.reduce_tensor(tensor)
