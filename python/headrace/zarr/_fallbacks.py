"""What is left to zarr-python's own pipeline, and why."""

from __future__ import annotations

import os
import threading
import warnings
from collections import Counter

from .. import config


class FallbackWarning(RuntimeWarning):
    """A batch went to zarr-python's own pipeline: given where ``fallback`` is "warn"."""


class Unserved(Exception):
    """This batch is zarr-python's."""

    def __init__(self, reason: str, detail: object = "") -> None:
        super().__init__(reason, detail)
        self.reason = reason  # one of few, to count by
        self.detail = str(detail)


_lock = threading.Lock()
_counts: Counter[str] = Counter()


def _renew_lock() -> None:
    global _lock
    _lock = threading.Lock()  # a thread that a fork left behind may have held it


os.register_at_fork(after_in_child=_renew_lock)


def count_fallback(unserved: Unserved) -> None:
    """Counts it, and tells as ``fallback`` of `headrace.config` says."""
    with _lock:
        _counts[unserved.reason] += 1
    how = config.get("fallback")
    if how == "silent":
        return
    detail = f": {unserved.detail}" if unserved.detail else ""
    message = f"[zarr] left to zarr-python's own pipeline: {unserved.reason}{detail}"
    if how == "raise":
        raise NotImplementedError(message) from unserved
    # The frames above are zarr-python's event loop, not the program's call.
    warnings.warn(message, FallbackWarning, stacklevel=1)


def fallbacks(*, reset: bool = False) -> dict[str, int]:
    """How many batches went to zarr-python's own pipeline, by reason.

    A batch is what one selection reads or writes of one array. The counts are of the process, since
    its start or the last reset.

    Parameters
    ----------
    reset
        Whether to begin anew; what is returned was counted before, and nothing is lost between.

    Examples
    --------
    >>> headrace.zarr.fallbacks(reset=True)
    >>> array[:]
    >>> headrace.zarr.fallbacks()
    {'codecs that headrace lacks': 1}
    """
    with _lock:
        counts = dict(_counts)
        if reset:
            _counts.clear()
    return counts
