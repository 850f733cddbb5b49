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

from ._array import copyable_handles
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
from ._signatures import readable_signatures
from ._stores import open_store
from ._suggest import did_you_mean
from .errors import CancelledError, ConflictError, CorruptError, DeviceError
from .group import Group, create_group

if TYPE_CHECKING:
    from . import codecs, config, errors, lazy, loader, shm
    from ._arrow_device import DeviceArrowArray
    from ._cached import cache_stats, cached
    from ._cells import Cells, cells
    from ._doctor import doctor
    from ._fill import array, empty, full, ones, zeros
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
    "DeviceArrowArray",
    "DeviceError",
    "Future",
    "Group",
    "Store",
    "advise",
    "array",
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
    "empty",
    "errors",
    "full",
    "lazy",
    "load",
    "loader",
    "memory_store",
    "ones",
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
    "shm",
    "trace",
    "zeros",
]

# Imported when first used: `import headrace` stays cheap.
_LAZY = {
    "codecs": ("codecs", None),
    "config": ("config", None),
    "dask": ("dask", None),
    "errors": ("errors", None),
    "jax": ("jax", None),
    "lazy": ("lazy", None),
    "loader": ("loader", None),
    "mlx": ("mlx", None),
    "ray": ("ray", None),
    "shm": ("shm", None),
    "torch": ("torch", None),
    "xarray": ("xarray", None),
    "zarr": ("zarr", None),
    "advise": ("_rechunk", "advise"),
    "array": ("_fill", "array"),
    "cache_stats": ("_cached", "cache_stats"),
    "Cells": ("_cells", "Cells"),
    "DeviceArrowArray": ("_arrow_device", "DeviceArrowArray"),
    "cached": ("_cached", "cached"),
    "cells": ("_cell_stores", "cells"),
    "copy": ("_ops", "copy"),
    "empty": ("_fill", "empty"),
    "full": ("_fill", "full"),
    "load": ("_ops", "load"),
    "ones": ("_fill", "ones"),
    "rechunk": ("_rechunk", "rechunk"),
    "rechunk_plan": ("_rechunk", "rechunk_plan"),
    "references": ("_references", "references"),
    "save": ("_ops", "save"),
    "doctor": ("_doctor", "doctor"),
    "trace": ("_trace", "trace"),
    "zeros": ("_fill", "zeros"),
}
# Modules that want another library: not listed by `from headrace import *`.
_BRIDGES = ("dask", "jax", "mlx", "ray", "torch", "xarray", "zarr")

readable_signatures()
copyable_handles()


def __getattr__(name: str) -> Any:
    try:
        module_name, attribute = _LAZY[name]
    except KeyError:
        # What Python itself looks for, as __path__, is asked often and needs no list.
        known = () if name.startswith("_") else __dir__()
        raise AttributeError(
            f"module 'headrace' has no attribute {name!r}{did_you_mean(name, known)}"
        ) from None
    try:
        module = importlib.import_module(f".{module_name}", __name__)
    except ModuleNotFoundError as error:
        if name not in _BRIDGES or (error.name or "").startswith(__name__):
            raise
        # An AttributeError: so hasattr() says what is the case.
        raise AttributeError(
            f"headrace.{name} needs {error.name}, which is not installed "
            f"(pip install 'headrace[{name}]')"
        ) from error
    value = module if attribute is None else getattr(module, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_BRIDGES, "__version__", "__doc__", "__file__", "__name__"})
