"""What arguments of a wrong type are told: their name, what is wanted, what was given."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

_LONGEST = 60
_PLAIN = (bool, int, float, str, bytes, tuple, list, dict, type(None))


def described(value: Any) -> str:
    """A value in a few words: itself where that is short, else its type."""
    if isinstance(value, _PLAIN):
        text = repr(value)
        if len(text) <= _LONGEST:
            return text
    cls = type(value)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__name__}"


def wrong_type(name: str, wanted: str, value: Any) -> TypeError:
    return TypeError(f"{name}: expected {wanted}, got {described(value)}")


def text(name: str, value: Any, wanted: str = "a string") -> None:
    if not isinstance(value, str):
        raise wrong_type(name, wanted, value)


def path(name: str, value: Any) -> None:
    """Of a node within its store."""
    if value is not None and not isinstance(value, str):
        raise wrong_type(name, "a path within the store", value)


def integer(name: str, value: Any, wanted: str = "an integer") -> None:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise wrong_type(name, wanted, value)


def flag(name: str, value: Any) -> None:
    if type(value).__name__ not in ("bool", "bool_"):  # NumPy's, too
        raise wrong_type(name, "True or False", value)


def zarr_format(value: Any) -> None:
    if value is not None:
        integer("zarr_format", value, "2, 3 or None")
        if value not in (2, 3):
            raise ValueError(f"zarr_format: expected 2 or 3, got {value!r}")


def mapping(name: str, value: Any, wanted: str = "a mapping") -> None:
    if value is not None and not isinstance(value, Mapping):
        raise wrong_type(name, wanted, value)


def place(store: Any) -> None:
    """What names a store, in the words of those who gave something else."""
    if store is None or isinstance(store, (bool, int, float, bytearray)):
        raise wrong_type("store", "a path, a URL or a store", store)
    if isinstance(store, (str, os.PathLike)) and not os.fspath(store):
        raise ValueError("store: the path is empty")
