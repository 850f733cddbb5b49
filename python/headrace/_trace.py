"""What the library's threads do over time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from . import _check, _core
from ._paths import expanded


@contextlib.contextmanager
def trace(path: str | os.PathLike[str]) -> Iterator[None]:
    """Record what the library does inside the block, and write it to `path`.

    The file is in Chrome's trace format: open it in chrome://tracing or Perfetto. Each event is a
    stretch of work of one thread (plan, fetch, gds, map, copy, decode, place, wait, encode, store)
    with the bytes it was about; what is given to a GPU lasts as long as the giving. Nothing is
    written when the block raises. Profilers that understand NVTX (Nsight Systems) see the same
    stretches as ranges of the domain "headrace" once a GPU is used, with or without a trace.

    Raises
    ------
    ValueError
        While another trace is being recorded.
    OSError
        When the file cannot be written.

    Examples
    --------
    >>> with headrace.trace("read.json"):
    ...     a[...]
    """
    if not isinstance(path, str | os.PathLike):
        raise _check.wrong_type("path", "a path", path)
    target = expanded(os.fsdecode(path))
    _check.text("path", target)
    recording = _core.Trace(target)
    try:
        yield
        recording.finish()
    finally:
        del recording
