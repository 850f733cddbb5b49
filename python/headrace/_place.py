"""Where nodes lie, whatever names lead there: what is written must not be what is read."""

from __future__ import annotations

import json
import os
from typing import Any
from urllib.parse import unquote

from . import _core
from ._paths import SCHEME, archive_and_path, expanded, join, place_of, real_path
from ._stores import resolve_store


def overlap(store: _core.Store, path: str, other: Any, other_path: str | None = None) -> bool:
    """Whether one of a node and what `other` names is within the other, or is the other.

    `other` and `other_path` are what functions that write take: nothing is made or emptied there.
    """
    place = place_of(store, path)
    there = _named(other) if isinstance(other, str | os.PathLike) else None
    if there is not None:
        there = _below(there, other_path)
        # Links below the source may lead into what is there.
        if os.path.isdir(there) and _core.nodes_overlap(
            store, path, resolve_store(there, "r")[0], ""
        ):
            return True
    else:
        opened, base = resolve_store(other, "a")
        base = join(base, other_path)
        if _core.nodes_overlap(store, path, opened, base):
            return True
        there = place_of(opened, base)
    return _within(place, there) or _holds(there, _reached(store))


def place_overlaps(place: str, other: Any, other_path: str | None = None) -> bool:
    """The same of a place, as `place_of` gives it."""
    there = _named(other) if isinstance(other, str | os.PathLike) else None
    if there is not None:
        there = _below(there, other_path)
    else:
        opened, base = resolve_store(other, "a")
        there = place_of(opened, join(base, other_path))
    return _within(place, there)


def _reached(store: _core.Store) -> list[str]:
    """The files that references lead to, and those that they stand in."""
    kind, _, rest = store.url.partition("://")
    if kind != "reference":
        return []
    options = store.storage_options
    allowed = options.get("allow", "")
    places = json.loads(allowed) if allowed.startswith("[") else allowed.split(",")
    fo = options.get("fo", "")
    places += [rest] if fo.lstrip().startswith("{") else [rest, fo]
    found = (_named(place) for place in places if place and place != "*")
    return [place for place in found if place is not None]


def _holds(folder: str | None, files: list[str]) -> bool:
    return folder is not None and any(
        file == folder or file.startswith(folder + "/") for file in files
    )


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
        archive = archive_and_path(url)
        if archive:
            return real_path(*archive)
    return real_path(unquote(rest)) if kind in ("file", "zip") else None
