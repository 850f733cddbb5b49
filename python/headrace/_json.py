"""JSON of attributes and codec configurations."""

from __future__ import annotations

import json
from typing import Any


def _plain(value: Any) -> Any:
    # NumPy scalars and arrays, which xarray puts into attributes.
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not a JSON value: {value!r}")


def dumps(value: Any) -> str:
    return json.dumps(value, default=_plain, separators=(",", ":"))


loads = json.loads
