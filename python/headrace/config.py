"""Process-wide settings.

``threads`` (0: the processors this process may use), ``memory_budget`` (scratch bytes of one
request; 0: 32 MiB a thread, 64 MiB at least), ``coalesce_gap`` and ``coalesce_run`` (bytes; which
neighbours in a shard are read together), ``io_depth`` and ``io_nbytes`` (of one read of a store
across a network: requests under way at a time, at most twice as many as the store sends at once,
and the bytes that are asked for and not decoded yet, within half of ``memory_budget`` where that is
set), ``lock_timeout`` (seconds that a change of metadata, as ``append`` and ``resize`` are, waits
for another process that holds the lock of the folder, 600; then it raises `ConflictError`),
``implementations`` (codec name to implementation name), ``device`` (of handles that name
none), ``device_min_decode_nbytes`` (a device decodes batches of at least so many decoded bytes, the
host's threads smaller ones; None, the default: whichever takes less time by the rates of
``device_rates``; writes from a device of fewer bytes, 1 MiB by default, are encoded by the host's
threads), ``device_rates`` ("measured", the default: of this machine, by some 60 ms before the first
choice that depends on them, kept in a file below ``XDG_CACHE_HOME``; "built-in": of one H200 and
its host), ``device_slab_nbytes`` (decoded bytes on their way through a device at a time, four
times), ``device_zstd_block_nbytes`` (1 KiB to 128 KiB; blocks of the zstd frames that devices
encode: smaller ones are decoded sooner by devices, and take more space) and ``gds`` (GPUDirect
Storage: files with chunks that are not compressed go to the GPU past the host's memory; "off", the
default; "auto": where it is native; "on": a read to a device that cannot go that way raises
NotImplementedError and says why), ``device_mapped`` ("on": files in memory, of tmpfs or hugetlbfs,
stay mapped and their pages locked, and a GPU copies encoded bytes from where they lie: for what is
read again and again; "off", the default, lets go of all of them) with ``device_mapped_nbytes``
(what is kept so at most; 0: a quarter of the host's memory) and ``fallback`` (what a batch does
that `headrace.zarr` leaves to zarr-python's own pipeline: "silent", the default, "warn" or
"raise"). A request takes the settings that hold when it starts.

Examples
--------
>>> headrace.config.set({"threads": 4})
>>> with headrace.config.set({"implementations": {"zstd": "libzstd"}}):
...     a[:]
"""

from __future__ import annotations

import os
import re
import threading
import weakref
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from . import _check, _core
from ._suggest import did_you_mean

__all__ = ["get", "set"]

_UNITS = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3, "KI": 2**10, "MI": 2**20, "GI": 2**30}
_SIZES = (
    "memory_budget",
    "coalesce_gap",
    "coalesce_run",
    "io_nbytes",
    "device_min_decode_nbytes",
    "device_slab_nbytes",
    "device_zstd_block_nbytes",
    "device_mapped_nbytes",
)
_MAY_BE_NONE = ("device_min_decode_nbytes",)
# What the engine knows nothing of, with what it may be; the first is the default.
_CHOICES = {
    # What a batch does that `headrace.zarr` leaves to zarr-python's own pipeline.
    "fallback": ("silent", "warn", "raise"),
}


def _nbytes(name: str, value: Any) -> int:
    if isinstance(value, str):
        found = re.fullmatch(r"\s*(\d+)\s*([KMG]?I?)B?\s*", value.upper())
        if not found or found[2] not in _UNITS:
            raise ValueError(f"{name}: expected bytes such as 1048576 or '64MiB', got {value!r}")
        return int(found[1]) * _UNITS[found[2]]
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}: expected a number of bytes, got {value!r}")
    if not 0 <= value < 1 << 63:
        raise ValueError(f"{name}: expected a number of bytes, got {value}")
    return value


class _Layer(dict[str, Any]):
    """Settings by name, and of each the last write that another may have been made over."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        self.last: dict[str, _Write] = {}


class _Write:
    """One setting, over what another write or nobody set. It can be undone whichever came after."""

    def __init__(self, layer: _Layer, name: str, value: Any) -> None:
        self._layer = layer
        self._name = name
        self._before = layer[name]
        self._above: _Write | None = None
        below = layer.last.get(name)
        self._below = None if below is None else weakref.ref(below)
        if below is not None:
            below._above = self
        layer.last[name] = self
        layer[name] = value

    def undo(self) -> None:
        below = None if self._below is None else self._below()
        if self._above is not None:
            self._above._before = self._before
            self._above._below = self._below
        else:
            self._layer[self._name] = self._before
            del self._layer.last[self._name]
            if below is not None:
                self._layer.last[self._name] = below
        if below is not None:
            below._above = self._above


class _State:
    """The settings that stay, and above them those of ``with`` blocks, the later above the earlier.

    All are of the process, so that blocks of several threads may end in any order: what holds is
    computed from those that are left.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        defaults = {name: choices[0] for name, choices in _CHOICES.items()}
        self.chosen = defaults
        self.stay = _Layer({**_core.get_config(), **defaults})
        self.blocks: list[_Layer] = []

    def in_force(self) -> dict[str, Any]:
        settings = dict(self.stay)
        for block in self.blocks:
            settings.update(block)
        return settings

    def layer_of(self, name: str) -> _Layer:
        """Where the value is that holds."""
        return next((block for block in reversed(self.blocks) if name in block), self.stay)

    def install(self, settings: Mapping[str, Any]) -> None:
        chosen = {name: settings[name] for name in _CHOICES}
        for name, value in chosen.items():
            if not isinstance(value, str) or value not in _CHOICES[name]:
                raise ValueError(f"{name}: expected one of {_CHOICES[name]}, got {value!r}")
        _core.set_config({name: settings[name] for name in settings if name not in _CHOICES})
        self.chosen = chosen


_state = _State()


def _renew_lock() -> None:
    _state.lock = threading.RLock()  # a thread that a fork left behind may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


class _Restore:
    """Takes back what was set, and nothing else, at the end of a ``with`` block."""

    def __init__(self, values: dict[str, Any], writes: list[_Write]) -> None:
        self._values = _Layer(values)
        self._writes = writes

    def __repr__(self) -> str:
        what = ", ".join(f"{name}={value!r}" for name, value in self._values.items())
        return f"<headrace.config: {what or 'nothing'} set; in a with block, for the block>"

    def __enter__(self) -> None:
        with _state.lock:
            for write in self._writes:
                write.undo()
            self._writes = []
            _state.blocks.append(self._values)
            _state.install(_state.in_force())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with _state.lock:
            for at in reversed(range(len(_state.blocks))):
                if _state.blocks[at] is self._values:
                    del _state.blocks[at]
                    break
            _state.install(_state.in_force())


def get(name: str | None = None, default: Any = None) -> Any:
    """The setting `name`, `default` when there is no such setting; all as a dict without a name.

    Examples
    --------
    >>> hr.config.get("device")
    'cpu'
    """
    if name is not None:
        _check.text("name", name)
    settings = {**_core.get_config(), **_state.chosen}
    return settings if name is None else settings.get(name, default)


def set(settings: Mapping[str, Any] | None = None, **kwargs: Any) -> _Restore:
    """Change settings, for good or for a ``with`` block.

    A block takes back what it set, also where blocks of other threads began or ended meanwhile;
    what others set for good in it stays.

    Raises
    ------
    ValueError
        An unknown setting, or a value it cannot have; nothing is changed then.
    TypeError
        A value of a type it cannot have; likewise.

    Examples
    --------
    >>> hr.config.set(threads=4, memory_budget="512MiB")
    >>> with hr.config.set({"implementations": {"zstd": "libzstd"}}):
    ...     a[:]
    """
    if settings is not None and not isinstance(settings, Mapping):
        raise TypeError(f"settings: expected a mapping of settings, got {settings!r}")
    known = get()
    values = {}
    for name, value in {**(settings or {}), **kwargs}.items():
        if name not in known:
            hint = did_you_mean(name, known) if isinstance(name, str) else ""
            there_are = f"; there are {', '.join(sorted(known))}"
            raise ValueError(f"no setting {name!r}{hint or there_are}")
        if name in _SIZES and not (name in _MAY_BE_NONE and value is None):
            value = _nbytes(name, value)
        if name == "threads" and isinstance(value, bool):
            raise TypeError(f"threads: expected a number of threads, got {value!r}")
        if isinstance(value, str):
            _check.text(name, value)
        values[name] = dict(value) if isinstance(value, dict) else value
    with _state.lock:
        _state.install({**_state.in_force(), **values})
        writes = [_Write(_state.layer_of(name), name, value) for name, value in values.items()]
    return _Restore(values, writes)


def __dir__() -> list[str]:
    return __all__
