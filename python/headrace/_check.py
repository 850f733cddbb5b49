"""What arguments of a wrong type are told: their name, what is wanted, what was given."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from operator import index
from typing import Any

import numpy as np

from . import _core

_LONGEST = 60
_MAX_DEPTH = 64  # of lists within lists: NumPy looks no further
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


@contextlib.contextmanager
def argument(name: str, inner: str | None = None) -> Iterator[None]:
    """Has an error begin with the name of an argument, in place of `inner`, what it is further in.

    Without `inner` errors of NumPy and Python that name nothing.
    """
    try:
        yield
    except (NotImplementedError, TypeError, ValueError) as error:
        told = str(error)
        begins = told.startswith(f"{inner or name}: ")
        if type(error) not in _RENAMED or begins != (inner is not None):
            raise
        told = told.removeprefix(f"{inner}: ")
        raise type(error)(f"{name}: {told}") from None


_RENAMED = (NotImplementedError, TypeError, ValueError)


def text(name: str, value: Any, wanted: str = "a string") -> None:
    if not isinstance(value, str):
        raise wrong_type(name, wanted, value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name}: {value!r} is no text that UTF-8 can write") from None


def path(name: str, value: Any) -> None:
    """Of a node within its store."""
    if value is not None:
        text(name, value, "a path within the store")


def integer(name: str, value: Any, wanted: str = "an integer") -> None:
    try:
        number = index(value)
    except TypeError:
        raise wrong_type(name, wanted, value) from None
    if isinstance(value, bool):
        raise wrong_type(name, wanted, value)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"{name}: {number} is outside of 64 bits")


def positive(name: str, value: Any) -> None:
    """An integer of 1 or more; None where there is none."""
    if value is not None:
        integer(name, value)
        if value < 1:
            raise ValueError(f"{name}: expected 1 or more, got {value}")


def number(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise wrong_type(name, "a number", value)


def seconds(name: str, value: Any) -> None:
    """How long to wait; None is for ever."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise wrong_type(name, "a number of seconds or None", value)
    if value != value:
        raise ValueError(f"{name}: expected a number of seconds, got {value!r}")


def extents(name: str, value: Any) -> None:
    """An integer, or several."""
    if hasattr(type(value), "__index__") and not isinstance(value, np.ndarray):
        return
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise wrong_type(name, "an integer or a sequence of integers", value)


def integers(name: str, value: Any) -> int | tuple[int, ...]:
    """An integer, or several, NumPy's too, as Python's."""
    extents(name, value)
    wanted = "an integer or a sequence of integers"
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, Iterable):
        integer(name, value, wanted)
        return index(value)
    given = tuple(value)
    for each in given:
        integer(name, each, wanted)
    return tuple(index(each) for each in given)


def listed(name: str, value: Any, wanted: str) -> list[Any]:
    """The items of what is no text."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise wrong_type(name, wanted, value)
    return list(value)


def shape(value: Any) -> tuple[int, ...]:
    given = integers("shape", value)
    return (given,) if isinstance(given, int) else given


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


def options(value: Any) -> None:
    """Of a store; what it is that is wrong may be a password."""
    if value is None:
        return
    if not isinstance(value, Mapping):
        raise TypeError(f"storage_options: expected a mapping, got {type(value).__qualname__}")
    for key in value:
        text("storage_options", key, "names that are strings")


def attributes(value: Any) -> None:
    """Values by name: in JSON the number 1 and the text "1" would be one name."""
    mapping("attributes", value, "values of JSON by name")
    for name in value or ():
        text("attributes", name, "names that are strings")


def is_masked(value: Any, depth: int = 0) -> bool:
    """Whether elements of it are masked, in which NumPy keeps something all the same: of an array,
    or of one among the items of a list, a tuple or an array of objects."""
    if isinstance(value, np.ma.MaskedArray) and value.mask is not np.ma.nomask:
        mask = np.ma.flatten_mask(np.ma.getmaskarray(value))
        if mask.any():
            return True
    if isinstance(value, np.ndarray):
        value = [value.tolist()] if value.dtype == object else []
    if not isinstance(value, list | tuple) or depth > _MAX_DEPTH:
        return False
    if not _core._holds_arrays(value):
        return False
    return any(is_masked(item, depth + 1) for item in value)


def array(name: str, value: Any, dtype: Any = None) -> np.ndarray[Any, Any]:
    """An array of NumPy, of elements none of which is masked: Zarr has no mark for such."""
    if not is_masked(value):
        found = np.asanyarray(value, dtype)  # keeps the mask of what __array__() gives
        if found is value or not is_masked(found):
            return np.asarray(found)
    raise TypeError(f"{name}: elements are masked: give {name}.filled(value)")


def elements(name: str, value: Any) -> np.ndarray[Any, Any]:
    """An array of NumPy, of elements that are all there: strings may be missing, too."""
    found = array(name, value)
    missing = getattr(found.dtype, "na_object", "")  # of NumPy's StringDType
    if not isinstance(missing, str) and any(not isinstance(each, str) for each in found.flat):
        raise TypeError(f"{name}: strings are missing ({missing!r}): give others in their place")
    return found


def place(store: Any, name: str = "store") -> None:
    """What names a store, in the words of those who gave something else."""
    if store is None or isinstance(store, (bool, int, float, bytearray)):
        raise wrong_type(name, "a path, a URL or a store", store)
    if isinstance(store, (str, os.PathLike)) and not os.fspath(store):
        raise ValueError(f"{name}: the path is empty")
