"""Threads that wait for headrace, so that zarr's loop need not.

They are not those of the loop's own executor: stores run their blocking calls there, and requests
that wait for a store would leave it none.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_MAX_THREADS = min(32, (os.cpu_count() or 1) + 4)

_executor: ThreadPoolExecutor | None = None


def _forget() -> None:
    """In the child of a fork, which has none of the threads."""
    global _executor
    _executor = None


os.register_at_fork(after_in_child=_forget)


async def run_in_thread(function: Callable[[], Any]) -> Any:
    global _executor
    if _executor is None:
        _executor = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="headrace.zarr")
    return await asyncio.get_running_loop().run_in_executor(_executor, function)
