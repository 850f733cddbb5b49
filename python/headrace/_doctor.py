"""What this build and machine offer."""

from __future__ import annotations

from typing import Any

from . import _core, _json


def doctor() -> dict[str, Any]:
    """Facts about this build and machine: devices, codecs, io_uring, limits.

    Examples
    --------
    >>> headrace.doctor()["version"]
    '0.1.0'
    """
    result: dict[str, Any] = _json.loads(_core.doctor_json())
    return result
