"""JSON of attributes and codec configurations."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from . import _check


def plain(value: Any) -> Any:
    """NumPy's scalars and arrays, which xarray puts into attributes, as JSON has them."""
    dtype = getattr(value, "dtype", None)
    # As a list these would be numbers without their unit, no numbers, null, or nameless lists.
    if getattr(dtype, "kind", "") in ("m", "M", "c") or getattr(dtype, "names", None) is not None:
        raise TypeError(f"{dtype} is not a JSON value: {value!r}")
    if _check.is_masked(value):
        raise TypeError(f"a masked value is not a JSON value: {value!r}")
    if getattr(dtype, "char", "") == "g":
        return _doubles(value).tolist()
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not a JSON value: {value!r}")


def _doubles(value: Any) -> Any:
    """Long doubles, whose tolist() gives themselves again."""
    with np.errstate(over="ignore"):
        found = value.astype("f8")
    if not np.array_equal(found, value, equal_nan=True):
        raise TypeError(f"{value.dtype} beyond doubles is not a JSON value: {value!r}")
    return found


def dumps(value: Any) -> str:
    return json.dumps(value, default=plain, separators=(",", ":"))


loads = json.loads
