"""Names of places: of nodes within a store, and of what keeps a store."""

from __future__ import annotations

import os
import re
from typing import Any
from urllib.parse import unquote

from . import _check, _core

SCHEME = re.compile(r"([a-z][a-z0-9+.:-]*)://", re.IGNORECASE)
_ZIP_AND_PATH = re.compile(r"((?:zip|file)://)?(.+?\.zip)/(.+)", re.IGNORECASE)

# What Zarr keeps under a node's path. No node can have such a name.
_DOCUMENTS = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")


def node_path(path: str, name: str = "path") -> str:
    """The path of a node to be made, without slashes that mean nothing; else ValueError."""
    parts = [part for part in path.split("/") if part]
    for part in parts:
        if part in (".", "..") or "\\" in part or "\0" in part:
            raise ValueError(f"{name}: {path!r} has the part {part!r}, which no name may have")
        if part in _DOCUMENTS:
            raise ValueError(f"{name}: {path!r}: {part} is the name of a document of Zarr")
    return "/".join(parts)


def expanded(path: str) -> str:
    """A path with its ``~`` written out, as a shell does; URLs as they are."""
    return os.path.expanduser(path) if path.startswith("~") else path


def archive_and_path(place: str) -> tuple[str, str] | None:
    """The archive that a path or URL goes into, and where in it."""
    found = _ZIP_AND_PATH.fullmatch(place)
    if found is None:
        return None
    archive, path = (unquote(part) if found[1] else part for part in found.group(2, 3))
    return (archive, path) if os.path.isfile(archive) else None


def is_archive(store: Any) -> bool:
    """Whether it names an archive itself, there or still to be made: no folder that is called so,
    and no node in an archive, in memory or in a bucket."""
    if not isinstance(store, str | os.PathLike):
        return False
    place = expanded(os.fsdecode(store))
    scheme = SCHEME.match(place)
    if (scheme and scheme[1].lower() not in ("file", "zip")) or archive_and_path(place):
        return False
    _check.text("store", place)
    return _core.names_archive(place)


def join(base: str, path: str | None) -> str:
    _check.path("path", path)
    return "/".join(part.strip("/") for part in (base, path or "") if part.strip("/"))


def real_path(path: str, inside: str = "") -> str:
    return os.path.realpath(os.path.join(path, inside)).rstrip("/")


def place_of(store: _core.Store, path: str) -> str | None:
    """None for what has no name that others could know it by."""
    if store._python_store is not None:
        root = store._python_store.place()
        return root if not path else f"{root.rstrip('/')}/{path}"
    kind, _, rest = store.url.partition("://")
    if kind in ("file", "zip"):
        return real_path(unquote(rest), path)
    if kind == "icechunk+file":  # the whole repository
        return real_path(unquote(rest.partition("?")[0]))
    return f"memory://{join(rest, path)}" if rest else None
