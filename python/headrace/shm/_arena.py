"""Arenas and channels: memory that processes share, and queues whose messages lie in it."""

from __future__ import annotations

import math
import os
import stat
import weakref
from collections.abc import Iterable
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import DupFd, ForkingPickler
from typing import Any, ClassVar, Literal, NamedTuple, NoReturn

import numpy as np

from .. import _check, _core
from ..config import _nbytes
from ._pickle import dumps, loads
from ._span import Array


class Arena:
    """Memory that processes share.

    It has no name: nothing of it is left when the last process that has it is gone, however it
    went. Children inherit it by fork; as an argument of a process that is spawned, and through
    queues and pipes of `multiprocessing`, it is handed over.

    Parameters
    ----------
    nbytes
        Room for arrays, such as ``"1GiB"``; all of its pages are there from the beginning.
    huge_pages
        ``"auto"``: where the system has some; ``"always"``; ``"never"``.
    backing
        ``"memfd"``; ``"posix"``, which counts towards the size of /dev/shm; ``"none"``: no shared
        memory, the same interface over `multiprocessing.Queue`; ``"auto"``: the first of these that
        the system has.
    pin
        Lock its pages for CUDA in this process, see `pin`.
    interleave
        Pages in turn from all NUMA nodes, not from the creator's.
    max_blocks
        Arrays and messages at once; 0: one for each 64 KiB, 1,024 to 16,384.

    Raises
    ------
    MemoryError
        The system has less memory, or no huge pages with ``"always"``.

    Examples
    --------
    >>> arena = headrace.shm.Arena("256MiB")
    >>> x = arena.empty((721, 1440), "float32")
    """

    _without_memory: ClassVar[type[Arena]]  # the interface over queues: set by _queue.py

    def __new__(cls, nbytes: int | str = "1GiB", *, backing: str = "auto", **options: Any) -> Arena:
        _check.text("backing", backing)
        if cls is Arena and (backing == "none" or (backing == "auto" and os.name != "posix")):
            return super().__new__(cls._without_memory)
        return super().__new__(cls)

    def __init__(
        self,
        nbytes: int | str = "1GiB",
        *,
        huge_pages: str = "auto",
        backing: str = "auto",
        pin: bool = False,
        interleave: bool = False,
        max_blocks: int = 0,
    ) -> None:
        _check.text("huge_pages", huge_pages)
        _check.text("backing", backing)
        _check.flag("interleave", interleave)
        _check.integer("max_blocks", max_blocks)
        core = _core.ShmArena.create(
            _nbytes("nbytes", nbytes),
            huge_pages=huge_pages,
            backing=backing,
            interleave=interleave,
            max_blocks=max_blocks,
        )
        self._adopt(core)
        if pin:
            self.pin()

    def _adopt(self, core: _core.ShmArena) -> None:
        self._core = core
        memory: Any = core.memory()
        self._memory = np.frombuffer(memory, np.uint8)
        self._in_band = 0
        # Messages that this process sent by themselves: the last in each block, so that they are
        # never more than the arena has blocks. Which of them were received is not known here.
        self._sent: dict[bytes, bytes] = {}
        self._pinned: Any = None
        _arenas[core.id] = self

    def channel(self, capacity: int = 64) -> Channel:
        """A new queue of at most ``capacity`` messages that lie in this arena."""
        _check.integer("capacity", capacity)
        if capacity < 1:
            raise ValueError(f"capacity: expected 1 or more, got {capacity}")
        return Channel(self, self._core.channel(capacity))

    def empty(
        self,
        shape: int | tuple[int, ...],
        dtype: Any = float,
        order: Literal["C", "F"] = "C",
        *,
        timeout: float | None = None,
    ) -> Array:
        """An uninitialised array in the arena: sending it, or views of it, copies nothing.

        Its memory is free again when no process has the array, or a view of it, any more.

        Parameters
        ----------
        timeout
            Seconds to wait for room; None: for ever.

        Raises
        ------
        TimeoutError
            There was no room for so long.
        ValueError
            It is larger than the arena.
        """
        shape = _check.shape(shape)
        _check.seconds("timeout", timeout)
        dtype = np.dtype(dtype)
        if dtype.hasobject:
            raise TypeError(f"[empty] dtype: Python objects cannot be shared, got {dtype}")
        nbytes = math.prod(shape if np.iterable(shape) else (shape,)) * dtype.itemsize
        if nbytes <= 0:
            return np.empty(shape, dtype, order)  # an error for negative extents
        if nbytes >= 1 << 63:
            raise ValueError(f"[empty] shape: {nbytes} bytes are outside of 64 bits")
        block: Any = self._core.allocate(nbytes, timeout)
        if block is None:
            raise TimeoutError(f"[empty] the arena had no room for {nbytes} bytes for {timeout} s")
        return np.ndarray(shape, dtype, block, order=order)

    def stats(self) -> dict[str, Any]:
        """What is in the arena.

        Returns
        -------
        dict
            ``nbytes`` that arrays can have in all, ``used_nbytes``, ``blocks``; ``in_transit``:
            messages that nobody has received; ``orphans``: of those the ones whose sender is dead;
            ``processes`` that are alive and have used it; ``huge_pages``; ``backing``; ``in_band``:
            arrays that this process pickled for want of room, see `headrace.shm.install`.
        """
        return {**self._core.stats(), "in_band": self._in_band}

    def reclaim(self, *, orphans: bool = False, sent: bool = False) -> int:
        """Take back what dead processes held; the bytes that this freed.

        Calls that find no room do so by themselves.

        Parameters
        ----------
        orphans
            Also messages of dead processes that lie in queues and pipes of others, which somebody
            might still receive; calls that find no room take these a minute after the sender died.
        sent
            Also all arrays that this process sent by `headrace.shm.install`'s way and that nobody
            has received, as those in queues that were closed unread. Who receives one afterwards
            gets FileNotFoundError: this is for when nothing of this process is still awaited.
        """
        _check.flag("orphans", orphans)
        _check.flag("sent", sent)
        freed = self._core.reclaim(orphans)
        if sent:
            before = self._core.stats()["used_nbytes"]
            self._take_back(self._forget_sent())
            freed += max(0, before - self._core.stats()["used_nbytes"])
        return freed

    def pin(self) -> None:
        """Lock the pages for CUDA in this process, as long as the arena lives: arrays in it are
        copied to devices at full speed, without a copy to pinned memory first.

        Raises
        ------
        headrace.DeviceError
            There is no CUDA device.
        """
        if self._pinned is None:
            self._pinned = self._core.pin()

    def __repr__(self) -> str:
        stats = self.stats()
        return (
            f"<headrace.shm.Arena {stats['used_nbytes']} of {stats['nbytes']} bytes used, "
            f"{stats['blocks']} blocks>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        _refuse_pickle(self)

    def _send_now(self, buffer: Array) -> bytes | None:
        """The bytes as a message by itself, its descriptor; None where there is no room, or never
        can be."""
        try:
            descriptor = self._core.send([buffer], 0)
        except ValueError:  # of a message that is larger than the arena, and of others
            if buffer.nbytes + _MESSAGE_NBYTES <= self._core.stats()["nbytes"]:
                raise
            return None
        if descriptor is not None:
            self._sent[descriptor[_BLOCK]] = descriptor
        return descriptor

    def _forget_sent(self) -> list[bytes]:
        sent, self._sent = self._sent, {}
        return list(sent.values())

    def _take_back(self, descriptors: Iterable[bytes]) -> None:
        """Receive them for nobody."""
        for descriptor in descriptors:
            try:
                self._core.receive(descriptor)
            except FileNotFoundError:  # somebody has it
                continue

    def _empty_now(self, shape: tuple[int, ...], dtype: Any) -> Array | None:
        """As `empty`; None where there is no room."""
        try:
            return self.empty(shape, dtype, timeout=0)
        except (TimeoutError, ValueError):
            return None

    def _between(self, start: int, stop: int) -> Array | None:
        """The bytes between two addresses, when they are in the arena."""
        base = self._core.address
        if not base <= start <= stop <= base + self._memory.size:
            return None
        return self._memory[start - base : stop - base]


class Channel:
    """A queue of objects whose arrays stay in shared memory; made by `Arena.channel`.

    Many producers, many consumers, first in, first out. It is handed to other processes as its
    arena is, and lives as long as a process has it. A message whose producer dies in `put` is not
    sent; one whose consumer dies in `get` is the next consumer's.

    Examples
    --------
    >>> channel = shm.Arena("64MiB").channel(capacity=2)
    >>> channel.put({"step": 1, "t2m": field}, timeout=60)
    >>> channel.get(timeout=60)["step"]
    1
    """

    def __init__(self, arena: Arena, core: _core.ShmChannel) -> None:
        self._arena = arena
        self._core = core

    def put(self, obj: Any, timeout: float | None = None) -> None:
        """Send anything that pickles.

        Arrays of 2 KiB and more are copied into the arena once, those that lie in it not at all:
        what the sender writes to these later, the receiver sees. That goes for arrays of NumPy
        (not its subclasses, masked arrays excepted) and tensors of PyTorch on the CPU, wherever
        they are in the object, and for what exports its buffers by pickle's protocol 5.

        Parameters
        ----------
        timeout
            Seconds to wait for a place in the channel and room in the arena; None: for ever.

        Raises
        ------
        TimeoutError
            It was full for so long.
        ValueError
            The message is larger than the arena.
        BrokenPipeError
            All other processes that had the channel are gone.
        """
        _check.seconds("timeout", timeout)
        if not self._core.put(dumps(obj, self._arena), timeout):
            raise TimeoutError(f"[put] the channel, or its arena, was full for {timeout} s")

    def get(self, timeout: float | None = None, copy: bool = False) -> Any:
        """The oldest object in the channel.

        Parameters
        ----------
        timeout
            Seconds to wait for one; None: for ever.
        copy
            Arrays have memory of their own. Else those of 2 KiB and more are read-only views of the
            arena, which keeps the message until the last of them is gone; tensors cannot be
            read-only, but are not to be written to.

        Raises
        ------
        TimeoutError
            The channel was empty for so long.
        BrokenPipeError
            It is empty, and all other processes that had it are gone.
        """
        _check.seconds("timeout", timeout)
        _check.flag("copy", copy)
        parts = self._core.get(timeout)
        if parts is None:
            raise TimeoutError(f"[get] the channel was empty for {timeout} s")
        return loads(parts, copy)

    def qsize(self) -> int:
        """How many objects are in it now."""
        return self._core.size

    def empty(self) -> bool:
        """Whether there is none now."""
        return self._core.size == 0

    def full(self) -> bool:
        """Whether there is no place for another now."""
        return self._core.size >= self._core.capacity

    def __repr__(self) -> str:
        return f"<headrace.shm.Channel {self._core.size} of {self._core.capacity}>"

    def __reduce__(self) -> NoReturn:
        _refuse_pickle(self)


def _refuse_pickle(shared: Any) -> NoReturn:
    raise TypeError(
        f"{type(shared).__name__} cannot be pickled by itself: hand it to a process as an argument "
        "or through a queue, a pipe or a channel of multiprocessing"
    )


# Of src/shm/layout.h: where a descriptor (Ticket) has its block's index, and what a message of one
# buffer has before it (MessageRecord and PartRecord, rounded up).
_BLOCK = slice(16, 20)
_MESSAGE_NBYTES = 64

# The arenas of this process by id, so that it has each once; and those that it knows only by
# messages, which would otherwise be mapped anew for the next one.
_arenas: weakref.WeakValueDictionary[str, Arena] = weakref.WeakValueDictionary()
_met: dict[str, Arena] = {}


def _forget_what_the_parent_sent() -> None:
    for arena in list(_arenas.values()):
        arena._sent = {}


os.register_at_fork(after_in_child=_forget_what_the_parent_sent)


class Address(NamedTuple):
    """Where a process that does not have an arena finds it, as long as the sender has it."""

    arena_id: str
    pid: int
    fd: int


def address_of(arena: Arena) -> Address:
    return Address(arena._core.id, os.getpid(), arena._core.fd)


def arena_at(address: Address) -> Arena:
    """The arena, mapped when this process does not have it yet.

    Raises
    ------
    FileNotFoundError
        The sender is gone, on another machine, or another user's.
    NotImplementedError
        It is in another PID namespace: another container. Or this system, a Mac, has no /proc.
    """
    found = _arenas.get(address.arena_id)
    if found is not None:
        return found
    if not os.path.isdir("/proc/self/fd"):
        raise NotImplementedError(
            f"[receive] arena {address.arena_id}: this system does not open what another process "
            "has open: hand the arena to the process when it is started, or fork it"
        )
    try:
        arena = _attach(address.arena_id, _open_memory(f"/proc/{address.pid}/fd/{address.fd}"))
    except (OSError, ValueError) as error:
        raise FileNotFoundError(
            f"[receive] arena {address.arena_id}: process {address.pid}, which sent from it, has "
            "it no more or is out of reach, and this process never had it"
        ) from error
    for met in list(_met.values()):
        if met.stats()["processes"] <= 1:
            del _met[met._core.id]
    return _met.setdefault(address.arena_id, arena)


def _open_memory(path: str) -> int:
    """Another process may have the sender's number by now, and anything by that of the descriptor:
    to open a pipe or a device does something to it, so it is looked at first."""
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 0 or found.st_uid != os.geteuid():
        raise ValueError(f"[attach] {path}: expected memory of this user, got something else")
    return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)


def _attach(arena_id: str, fd: int) -> Arena:
    try:
        core = _core.ShmArena.attach(fd)
    finally:
        os.close(fd)
    if core.id != arena_id:
        raise ValueError(f"[attach] expected arena {arena_id}, got {core.id}")
    arena = Arena.__new__(Arena)
    arena._adopt(core)
    return arena


def _reduce_arena(arena: Arena) -> tuple[Any, ...]:
    address = address_of(arena)
    if get_spawning_popen() is None:
        return arena_at, (address,)
    return _inherit, (address, DupFd(address.fd))


def _inherit(address: Address, handle: Any) -> Arena:
    """In a child that was started with the descriptor."""
    found = _arenas.get(address.arena_id)
    return _attach(address.arena_id, handle.detach()) if found is None else found


def _reduce_channel(channel: Channel) -> tuple[Any, ...]:
    return _open_channel, (channel._arena, *channel._core.handle)


def _open_channel(arena: Arena, block: int, generation: int) -> Channel:
    return Channel(arena, arena._core.open(block, generation))


ForkingPickler.register(Arena, _reduce_arena)
ForkingPickler.register(Channel, _reduce_channel)
