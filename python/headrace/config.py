"""Process-wide settings.

``threads`` (0: the processors this process may use), ``memory_budget`` (scratch bytes of one
request; 0: 32 MiB a thread, 64 MiB at least), ``coalesce_gap`` and ``coalesce_run`` (bytes; which
neighbours in a shard are read together), ``implementations`` (codec name to implementation name),
``device`` (of handles that name none), ``device_min_decode_nbytes`` (a device decodes batches of at
least so many decoded bytes, the host's threads smaller ones; None, the default: whichever takes
less time by measured rates; writes from a device of fewer bytes, 1 MiB by default, are encoded by
the host's threads), ``device_slab_nbytes`` (decoded bytes on their way through a device at a time,
three times), ``device_zstd_block_nbytes`` (1 KiB to 128 KiB; blocks of the zstd frames that devices
encode: smaller ones are decoded sooner by devices, and take more space) and ``gds`` (GPUDirect
Storage: files with chunks that are not compressed go to the GPU past the host's memory; "off", the
default; "auto": where it is native; "on": a read to a device that cannot go that way raises
NotImplementedError and says why). A request takes the settings that hold when it starts.

>>> headrace.config.set({"threads": 4})
>>> with headrace.config.set({"implementations": {"zstd": "libzstd"}}):
...     a[:]
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from . import _core

_UNITS = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3, "KI": 2**10, "MI": 2**20, "GI": 2**30}
_SIZES = (
    "memory_budget",
    "coalesce_gap",
    "coalesce_run",
    "device_min_decode_nbytes",
    "device_slab_nbytes",
    "device_zstd_block_nbytes",
)
_MAY_BE_NONE = ("device_min_decode_nbytes",)


def _nbytes(name: str, value: Any) -> int:
    if isinstance(value, str):
        found = re.fullmatch(r"\s*(\d+)\s*([KMG]?I?)B?\s*", value.upper())
        if not found or found[2] not in _UNITS:
            raise ValueError(f"{name}: expected bytes such as 1048576 or '64MiB', got {value!r}")
        return int(found[1]) * _UNITS[found[2]]
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}: expected a number of bytes, got {value!r}")
    if value < 0:
        raise ValueError(f"{name}: expected a number of bytes, got {value}")
    return value


class _Restore:
    """Puts the settings back that held before, at the end of a ``with`` block."""

    def __init__(self, before: dict[str, Any]) -> None:
        self._before = before

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _core.set_config(self._before)


def get(name: str | None = None, default: Any = None) -> Any:
    """The setting `name`, `default` when there is no such setting; all as a dict without a name."""
    settings = _core.get_config()
    return settings if name is None else settings.get(name, default)


def set(settings: Mapping[str, Any] | None = None, **kwargs: Any) -> _Restore:
    """Change settings, for good or for a ``with`` block.

    Raises
    ------
    ValueError
        An unknown setting, or a value it cannot have; nothing is changed then.
    """
    before = _core.get_config()
    after = dict(before)
    for name, value in {**(settings or {}), **kwargs}.items():
        if name not in after:
            raise ValueError(f"no setting {name!r}; there are {', '.join(sorted(after))}")
        if name in _SIZES and not (name in _MAY_BE_NONE and value is None):
            value = _nbytes(name, value)
        after[name] = value
    _core.set_config(after)
    return _Restore(before)
