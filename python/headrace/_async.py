"""What `Future` does in Python: waiting in an asyncio loop."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from ._core import Future


async def wait(future: Future[Any]) -> Any:
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not waiter.done():
            waiter.set_result(None)

    def notify(_: Future[Any]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(wake)

    future.add_done_callback(notify)
    try:
        await asyncio.shield(waiter)
    except asyncio.CancelledError:
        future.cancel()
        # Until it has ended it uses the caller's memory.
        while not waiter.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(waiter)
        raise
    return future.result(0)
