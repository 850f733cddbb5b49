"""Where nodes lie, whatever names lead there: what is written must not be what is read."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import unquote

from . import _core
from ._paths import SCHEME, ZIP_AND_PATH, expanded, join, place_of, real_path
from ._stores import resolve_store


def overlap(store: _core.Store, path: str, other: Any, other_path: str | None = None) -> bool:
    """Whether one of a node and what `other` names is within the other, or is the other.

    `other` and `other_path` are what functions that write take: nothing is made or emptied there.
    """
    place = place_of(store, path)
    if isinstance(other, str | os.PathLike):
        named = _named(other)
        if named is not None:
            return _within(place, _below(named, other_path))
    opened, base = resolve_store(other, "a")
    base = join(base, other_path)
    if _core.nodes_overlap(store, path, opened, base):
        return True
    return _within(place, place_of(opened, base))


def _within(one: str | None, other: str | None) -> bool:
    if one is None or other is None:
        return False
    return one == other or one.startswith(other + "/") or other.startswith(one + "/")


def _below(place: str, path: str | None) -> str:
    if not path or place.startswith("memory:"):
        return place if not path else f"{place}/{path.strip('/')}"
    return real_path(place, path.strip("/"))


def _named(other: str | os.PathLike[str]) -> str | None:
    """The place of a path or of a URL of headrace's own stores."""
    url = os.fspath(other)
    if isinstance(url, bytes):
        url = os.fsdecode(url)
    url = expanded(url)
    scheme = SCHEME.match(url)
    if scheme is None:
        return real_path(url)
    kind, rest = scheme[1].lower(), url[scheme.end() :]
    if kind == "memory":
        parts = [part for part in rest.split("/") if part]
        return "memory://" + "/".join(parts) if parts else None
    if kind == "zip":
        archive = ZIP_AND_PATH.fullmatch(url)
        if archive and os.path.isfile(unquote(archive[1])):
            return real_path(unquote(archive[1]), archive[2])
    return real_path(unquote(rest)) if kind in ("file", "zip") else None
