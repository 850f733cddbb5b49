"""What names a store, and the store that it names."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
from collections.abc import Iterator
from typing import Any

from . import _check, _core, _secrets
from ._paths import SCHEME, archive_and_path, expanded
from ._suggest import did_you_mean

_MODES = ("r", "r+", "a", "w", "w-")
_OWN_SCHEMES = re.compile(
    r"file|memory|zip|https?|s3a?|gs|gcs|azure|az|abfss?|reference|icechunk(\+.+)?"
)
_BY_FSSPEC = "fsspec+"
_LOOKED_AT = 1000  # entries of a folder, for a message

# Those that are still open then will never appear, and say so in time.
atexit.register(_core._warn_of_open_archives)


class StorePlace:
    """A place in an open store, which may be given where a store is expected: a group."""

    __slots__ = ()

    @property
    def store(self) -> _core.Store:
        raise NotImplementedError

    @property
    def path(self) -> str:
        raise NotImplementedError


_OPENED = _core.Store | _core.Array | StorePlace


def check_mode(mode: str) -> None:
    _check.text("mode", mode, f"one of {', '.join(_MODES)}")
    if mode not in _MODES:
        raise ValueError(f"mode: expected one of {', '.join(_MODES)}, got {mode!r}")


def resolve_store(
    store: Any, mode: str, storage_options: dict[str, Any] | None = None
) -> tuple[_core.Store, str]:
    """The store that `store` names, and the path within it."""
    _check.options(storage_options)
    if isinstance(store, _OPENED):
        if storage_options:
            raise ValueError("storage_options: the store is open already")
        return (store, "") if isinstance(store, _core.Store) else (store.store, store.path)
    if isinstance(store, str | os.PathLike):
        url = os.fspath(store)
        if isinstance(url, bytes):
            url = os.fsdecode(url)
        _check.text("store", url)
        _check.place(url)
        url = expanded(url)
        scheme = SCHEME.match(url)
        if scheme and not _is_own(scheme[1].lower(), storage_options):
            return _open_remote(url.removeprefix(_BY_FSSPEC), mode, storage_options), ""
        url, storage_options = _secrets.without_secrets(url, storage_options)
        url, base = _store_and_path(url)
    else:
        _check.place(store)
        return _resolve_object(store, mode, storage_options)
    try:
        return _core.open_store(url, mode, storage_options), base
    except FileNotFoundError as error:
        hint = _hint(url)
        if not hint:
            raise
        *errno, text = error.args
        raise FileNotFoundError(*errno, f"{text}{hint}") from None


def _hint(url: str) -> str:
    """What a path that leads nowhere may have meant: what the folder has that it breaks off in."""
    if SCHEME.match(url):
        return ""
    above, name = os.path.split(url.rstrip("/"))
    while above and not os.path.isdir(above):
        if os.path.dirname(above) == above:
            return ""
        above, name = os.path.split(above)
    try:
        with os.scandir(above or ".") as entries:
            found = [entry.name for entry, _ in zip(entries, range(_LOOKED_AT), strict=False)]
    except OSError:
        return ""
    visible = sorted(entry for entry in found if not entry.startswith("."))
    names = [entry for entry in visible if entry != "zarr.json"]
    return _core.printable(did_you_mean(name, names))


def is_own(url: str, storage_options: dict[str, Any] | None) -> bool:
    """Whether headrace reads it without another library."""
    scheme = SCHEME.match(url)
    return not scheme or _is_own(scheme[1].lower(), storage_options)


def _is_own(scheme: str, storage_options: dict[str, Any] | None) -> bool:
    """Whether this library opens it itself, and not fsspec."""
    if scheme != "reference":
        return _OWN_SCHEMES.fullmatch(scheme) is not None
    options = storage_options or {}
    # References that the caller made lie in no folder, so that it would have to be said what they
    # may lead to; file systems of fsspec are its own.
    made_here = not isinstance(options.get("fo", ""), str | os.PathLike) and "allow" not in options
    return not made_here and options.get("fs") is None


def _resolve_object(
    store: Any, mode: str, storage_options: dict[str, Any] | None
) -> tuple[_core.Store, str]:
    """The same of a store object of zarr-python or obstore."""
    package = {cls.__module__.partition(".")[0] for cls in type(store).__mro__}
    is_mapping = isinstance(store, dict) or "fsspec" in package
    if not is_mapping and not package & {"zarr", "obstore"}:
        raise NotImplementedError(
            f"store: {type(store).__module__}.{type(store).__qualname__} is not supported; "
            "expected a path, a URL, a store, array or group of headrace or of zarr-python, a "
            "store of obstore, or a mapping of fsspec"
        )
    if storage_options:
        raise ValueError("storage_options: the store is open already")
    try:
        from ._zarr_stores.native import resolve
    except ModuleNotFoundError as error:
        kind = type(store).__qualname__
        raise NotImplementedError(
            f"store: a {kind} is read through zarr-python (pip install 'headrace[zarr]')"
        ) from error
    return resolve(store, mode)


@contextlib.contextmanager
def discarding(given: Any, handle: _core.Store) -> Iterator[None]:
    """Drops what was begun for a call that fails, a zip archive or folders in which nothing lies;
    not of a store that was given to it."""
    try:
        yield
    except BaseException:
        if not isinstance(given, _OPENED):
            handle.discard()
        raise


def _open_remote(url: str, mode: str, storage_options: dict[str, Any] | None) -> _core.Store:
    """A store that fsspec reaches."""
    try:
        from ._zarr_stores.remote import open_url
    except ImportError as error:
        raise NotImplementedError(
            f"store {_secrets.shown(url)}: needs zarr and fsspec (pip install 'headrace[remote]')"
        ) from error
    return open_url(url, mode, storage_options)


def store_mode(mode: str) -> str:
    """That of the store: "w" and "w-" are about the node, and not about its neighbours."""
    return mode if mode in ("r", "r+") else "a"


def open_store(
    store: str | os.PathLike[str] | _core.Store,
    *,
    mode: str = "r",
    storage_options: dict[str, Any] | None = None,
) -> _core.Store:
    """Open a store without looking into it.

    Parameters
    ----------
    store
        A path (a folder, a ``.zip`` file, an Icechunk repository) or a URL: ``file://``,
        ``zip://``, ``memory://NAME``, ``reference:///data/refs.json``, ``icechunk:///data/repo``,
        ``https://``, ``s3://``, ``gs://``, ``az://`` or ``abfs://``. Others are fsspec's, with
        ``headrace[remote]`` and fsspec's package for it; so are these as ``fsspec+s3://``.
    mode
        ``"r"`` and ``"r+"``: must exist; ``"a"``: made when missing; ``"w-"``: must not exist;
        ``"w"``: emptied first.
    storage_options
        For files ``io`` ("pread", or "uring": small chunks in batches),
        ``direct`` (O_DIRECT, a boolean) and ``fsync``: what a power cut cannot take away when a
        write has returned. ``"none"``; ``"metadata"``, the default, the documents that describe
        arrays and groups; ``"all"``, chunks too. Of a zip archive it is said of `Store.close`: but
        for ``"none"`` all of it is on the disk. For references fsspec's names (``fo``,
        ``remote_protocol``, ``remote_options``, ``target_options``) and ``allow``: prefixes of URLs
        and paths that they may lead to besides their own folder or bucket, a list. For Icechunk
        ``branch``, ``tag`` or ``snapshot``, and ``allow`` for virtual chunks. For web servers and
        clouds those of fsspec and obstore by their names (docs/object_stores.md), and
        ``pickle_credentials``: whether pickles hold secrets, which they do not without it. For what
        fsspec opens, its options, which its pickles hold.

    Raises
    ------
    FileNotFoundError
        The mode wants it to exist and it does not.
    NotImplementedError
        A scheme whose package is not installed.
    ValueError
        It is a place within a store: ``archive.zip/PATH``, ``memory://NAME/PATH``, an `Array` or
        `Group` below the root.

    Examples
    --------
    >>> store = hr.open_store("era5.zarr", storage_options={"io": "uring"})
    >>> hr.open_array(store, "t2m")
    """
    check_mode(mode)
    if isinstance(store, _core.Store):
        return store
    path = _path_within(store)  # asked before anything is made, or made empty
    if path:
        raise ValueError(
            f"open_store: {path!r} is a place within a store: open the store, and give the path to "
            "what opens a node"
        )
    return resolve_store(store, mode, storage_options)[0]


def _path_within(store: Any) -> str:
    """The path of a place that is not a store but within one."""
    if isinstance(store, str | os.PathLike):
        return _store_and_path(expanded(os.fsdecode(store)))[1]
    place = getattr(store, "store_path", store)  # arrays and groups of zarr-python
    is_place = isinstance(place, _core.Array | StorePlace) or type(place).__name__ == "StorePath"
    return place.path if is_place else ""


def _store_and_path(url: str) -> tuple[str, str]:
    """The store that a path or URL of headrace's own names, and the path within it."""
    archive = archive_and_path(url)
    if archive:
        return archive
    if url.startswith("memory://"):
        name, _, path = url.removeprefix("memory://").partition("/")
        return "memory://" + name, path
    return url, ""
