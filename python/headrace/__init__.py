"""Zarr arrays into the memory of any device, fast.

Examples
--------
>>> import headrace as hr
>>> a = hr.open("era5.zarr/t2m")
>>> a[0:10, :, ::2]
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._core import (
    Array,
    DeviceArray,
    Future,
    Store,
    memory_store,
    read_many,
    set_allocator,
    version,
)
from ._create import create_array
from ._open import consolidate_metadata, open, open_array, open_group
from ._stores import open_store
from .errors import CancelledError, ConflictError, CorruptError, DeviceError
from .group import Group, create_group

if TYPE_CHECKING:
    from . import codecs, config, lazy
    from ._cached import cache_stats, cached
    from ._cells import Cells, cells
    from ._doctor import doctor
    from ._ops import copy, load, save
    from ._rechunk import advise, rechunk, rechunk_plan
    from ._references import references
    from ._trace import trace

__version__ = version()

__all__ = [
    "Array",
    "CancelledError",
    "Cells",
    "ConflictError",
    "CorruptError",
    "DeviceArray",
    "DeviceError",
    "Future",
    "Group",
    "Store",
    "advise",
    "cache_stats",
    "cached",
    "cells",
    "codecs",
    "config",
    "consolidate_metadata",
    "copy",
    "create_array",
    "create_group",
    "doctor",
    "lazy",
    "load",
    "memory_store",
    "open",
    "open_array",
    "open_group",
    "open_store",
    "read_many",
    "rechunk",
    "rechunk_plan",
    "references",
    "save",
    "set_allocator",
    "trace",
]

# Imported when first used: `import headrace` stays cheap.
_LAZY = {
    "codecs": ("codecs", None),
    "config": ("config", None),
    "lazy": ("lazy", None),
    "zarr": ("zarr", None),
    "advise": ("_rechunk", "advise"),
    "cache_stats": ("_cached", "cache_stats"),
    "Cells": ("_cells", "Cells"),
    "cached": ("_cached", "cached"),
    "cells": ("_cells", "cells"),
    "copy": ("_ops", "copy"),
    "load": ("_ops", "load"),
    "rechunk": ("_rechunk", "rechunk"),
    "rechunk_plan": ("_rechunk", "rechunk_plan"),
    "references": ("_references", "references"),
    "save": ("_ops", "save"),
    "doctor": ("_doctor", "doctor"),
    "trace": ("_trace", "trace"),
}


def __getattr__(name: str) -> Any:
    try:
        module_name, attribute = _LAZY[name]
    except KeyError:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}") from None
    module = importlib.import_module(f".{module_name}", __name__)
    value = module if attribute is None else getattr(module, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
