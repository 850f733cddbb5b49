"""The exceptions that Python has no class for.

Elsewhere headrace raises `ValueError` for a wrong call, `FileNotFoundError` and `KeyError` for what
is not there, `IndexError` for a selection outside the array, `NotImplementedError` for what this
build cannot do, `PermissionError` for a write to what is read-only, `OSError` with its errno, and
`MemoryError`.
"""

from __future__ import annotations


class CorruptError(ValueError):
    """Bytes that were read break their format or fail their checksum.

    The message names array, chunk and codec. `Array.verify` finds all of them.
    """


class DeviceError(RuntimeError):
    """A call to a device failed, or there is no such device: the message says which and why."""


class CancelledError(Exception):
    """The request was cancelled: by `Future.cancel`, or by a fork while it was under way."""


class ConflictError(RuntimeError):
    """Another writer changed the same metadata meanwhile; open the node again, then try again."""


for _cls in (CorruptError, DeviceError, CancelledError, ConflictError):
    _cls.__module__ = "headrace"  # the name that users see and import
