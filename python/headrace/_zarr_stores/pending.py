"""Reads that run on the event loop of a store while the engine does something else."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from .. import _core

_LOOK_S = 0.5  # how often somebody looks whether there still is a loop

# (id, bytes or None, error or None)
Answer = Callable[[int, Any, BaseException | None], None]


def loop_closed() -> RuntimeError:
    return RuntimeError("the event loop of the store was closed before it answered")


class _Read:
    def __init__(self, answer: Answer, loop: asyncio.AbstractEventLoop) -> None:
        self.answer = answer
        self.loop = loop
        self.task: asyncio.Task[None] | None = None  # from when the loop has begun it


def _may_stay_pending(task: asyncio.Task[None]) -> None:
    """Nobody waits for it: where its loop stops first, at the end of a process, that is no news."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]


class PendingReads:
    """Of one store. Each read is answered once: by the loop, or because there is no loop any more.

    A thread looks after the loops for as long as something is pending: an engine that waits for a
    loop that was closed would wait for ever.
    """

    def __init__(self) -> None:
        self.begin_anew()
        _all.add(self)

    def begin_anew(self) -> None:
        """In a child of fork, which has neither the loops nor who waits for them."""
        self._lock = threading.Lock()
        self._reads: dict[int, _Read] = {}
        self._is_watched = False

    def begin(self, ids: list[int], answer: Answer, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            for id in ids:
                self._reads[id] = _Read(answer, loop)
            if self._is_watched:
                return
            self._is_watched = True
        try:
            threading.Thread(target=self._watch, name="headrace-loop-watch", daemon=True).start()
        except BaseException:
            # Nobody watches those that follow either, unless they try.
            with self._lock:
                self._is_watched = False
                for id in ids:
                    self._reads.pop(id, None)
            raise

    def run(self, id: int, task: asyncio.Task[None]) -> None:
        with self._lock:
            read = self._reads.get(id)
            if read is not None:
                read.task = task
        if read is None:  # cancelled meanwhile
            _may_stay_pending(task)
            task.cancel()

    def end(self, id: int, value: Any, error: BaseException | None) -> None:
        with self._lock:
            read = self._reads.pop(id, None)
        if read is not None:
            read.answer(id, value, error)

    def cancel(self, id: int) -> None:
        """The engine does not wait for it any more."""
        with self._lock:
            read = self._reads.pop(id, None)
        if read is not None and read.task is not None and not read.loop.is_closed():
            _may_stay_pending(read.task)
            read.loop.call_soon_threadsafe(read.task.cancel)

    def _watch(self) -> None:
        while True:
            time.sleep(_LOOK_S)
            refused = _core.calls_are_refused()
            with self._lock:
                if not self._reads:
                    self._is_watched = False
                    return
                lost = {
                    id: read for id, read in self._reads.items() if refused or read.loop.is_closed()
                }
            for id, read in lost.items():
                if read.task is not None:
                    _may_stay_pending(read.task)
                self.end(id, None, loop_closed())


_all: weakref.WeakSet[PendingReads] = weakref.WeakSet()


def _begin_anew() -> None:
    for reads in list(_all):
        reads.begin_anew()


os.register_at_fork(after_in_child=_begin_anew)
