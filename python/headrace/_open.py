"""Opening stores and nodes."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

from . import _check, _core
from .group import Group

_MODES = ("r", "r+", "a", "w", "w-")
_OWN_SCHEMES = ("file", "memory", "zip")
_SCHEME = re.compile(r"([a-z][a-z0-9+.:-]*)://", re.IGNORECASE)
_ZIP_AND_PATH = re.compile(r"(?:zip://)?(.+?\.zip)/(.+)", re.IGNORECASE)


# Those that are still open then will never appear, and say so in time.
atexit.register(_core._warn_of_open_archives)


def _check_mode(mode: str) -> None:
    _check.text("mode", mode, f"one of {', '.join(_MODES)}")
    if mode not in _MODES:
        raise ValueError(f"mode: expected one of {', '.join(_MODES)}, got {mode!r}")


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


def _join(base: str, path: str | None) -> str:
    _check.path("path", path)
    return "/".join(part.strip("/") for part in (base, path or "") if part.strip("/"))


def resolve_store(
    store: Any, mode: str, storage_options: dict[str, Any] | None = None
) -> tuple[_core.Store, str]:
    """The store that `store` names, and the path within it."""
    _check.mapping("storage_options", storage_options)
    if isinstance(store, _core.Store | Group):
        if storage_options:
            raise ValueError("storage_options: the store is open already")
        return (store.store, store.path) if isinstance(store, Group) else (store, "")
    if isinstance(store, str | os.PathLike):
        url, base = os.fspath(store), ""
        if isinstance(url, bytes):
            url = os.fsdecode(url)
        _check.text("store", url)
        scheme = _SCHEME.match(url)
        if scheme and scheme[1].lower() not in _OWN_SCHEMES:
            return _open_remote(url, mode, storage_options), ""
        archive = _ZIP_AND_PATH.fullmatch(url)
        if archive and os.path.isfile(archive[1]):
            url, base = archive[1], archive[2]
        elif url.startswith("memory://"):
            name, _, base = url.removeprefix("memory://").partition("/")
            url = "memory://" + name
    else:
        _check.place(store)
        return _resolve_object(store, mode, storage_options)
    return _core.open_store(url, mode, storage_options), base


def _resolve_object(
    store: Any, mode: str, storage_options: dict[str, Any] | None
) -> tuple[_core.Store, str]:
    """The same of a store object of zarr-python or obstore."""
    package = {cls.__module__.partition(".")[0] for cls in type(store).__mro__}
    if not package & {"zarr", "obstore"}:
        raise NotImplementedError(
            f"store: {type(store).__module__}.{type(store).__qualname__} is not supported; "
            "expected a path, a URL, a headrace.Store or a store of zarr-python or obstore"
        )
    if storage_options:
        raise ValueError("storage_options: the store is open already")
    from .zarr._native import resolve

    return resolve(store, mode)


@contextlib.contextmanager
def discarding(given: Any, handle: _core.Store) -> Iterator[None]:
    """Drops the zip archive that was begun for a call that fails; not one that was given to it."""
    try:
        yield
    except BaseException:
        if not isinstance(given, _core.Store | Group):
            handle.discard()
        raise


def _open_remote(url: str, mode: str, storage_options: dict[str, Any] | None) -> _core.Store:
    """A store that fsspec reaches."""
    try:
        from .zarr._remote import open_url
    except ImportError as error:
        raise NotImplementedError(
            f"store {url}: needs zarr and fsspec (pip install 'headrace[remote]')"
        ) from error
    return open_url(url, mode, storage_options)


def _store_mode(mode: str) -> str:
    # "w" and "w-" are about the node: its neighbours in the store stay.
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
        A path (a folder or a ``.zip`` file) or a URL: ``file://``, ``zip://``, ``memory://NAME``,
        and what fsspec knows (``https://``, ``s3://``, ``gs://``, ``reference://``, ...), with
        ``headrace[remote]`` and fsspec's package for it.
    mode
        ``"r"`` and ``"r+"``: must exist; ``"a"``: made when missing; ``"w-"``: must not exist;
        ``"w"``: emptied first.
    storage_options
        For files ``io`` ("pread", or "uring": small chunks in batches, faster from a cold disk),
        ``direct`` (O_DIRECT, a boolean) and ``fsync``: what a power cut cannot take away when a
        write has returned. ``"none"``; ``"metadata"``, the default, the documents that describe
        arrays and groups; ``"all"``, chunks too. Of a zip archive it is said of `Store.close`: but
        for ``"none"`` all of it is on the disk. For what fsspec opens, its options.

    Raises
    ------
    FileNotFoundError
        The mode wants it to exist and it does not.
    NotImplementedError
        A scheme whose package is not installed.

    Examples
    --------
    >>> store = hr.open_store("era5.zarr", storage_options={"io": "uring"})
    >>> hr.open_array(store, "t2m")
    """
    _check_mode(mode)
    if isinstance(store, _core.Store):
        return store
    return resolve_store(store, mode, storage_options)[0]


def _missing(kind: str, store: _core.Store, path: str) -> FileNotFoundError:
    return FileNotFoundError(f"no {kind} at /{path} in {store.url}")


def _refuse_creation_arguments(mode: str, create: dict[str, Any]) -> None:
    if create:
        raise TypeError(f"{', '.join(sorted(create))}: only for a mode that creates, got {mode!r}")


@overload
def open(
    store: Any,
    path: str | None = None,
    *,
    mode: str,
    shape: int | Sequence[int],
    dtype: Any,
    zarr_format: int | None = None,
    device: str | None = None,
    implementations: dict[str, str] | None = None,
    storage_options: dict[str, Any] | None = None,
    **create: Any,
) -> _core.Array: ...


@overload
def open(
    store: Any,
    path: str | None = None,
    *,
    mode: str = "r",
    zarr_format: int | None = None,
    device: str | None = None,
    implementations: dict[str, str] | None = None,
    storage_options: dict[str, Any] | None = None,
    **create: Any,
) -> _core.Array | Group: ...


def open(
    store: Any,
    path: str | None = None,
    *,
    mode: str = "r",
    zarr_format: int | None = None,
    device: str | None = None,
    implementations: dict[str, str] | None = None,
    storage_options: dict[str, Any] | None = None,
    **create: Any,
) -> _core.Array | Group:
    """Open the array or group at `path`.

    Parameters
    ----------
    store
        A path or URL, a `Store`, or a store object of zarr-python, Icechunk or obstore.
    path
        Path within the store; the root when left away.
    mode
        ``"r"`` reads only, ``"r+"`` reads and writes what exists, ``"a"`` creates what is missing,
        ``"w"`` replaces what is there, ``"w-"`` creates and fails when something is there.
    zarr_format
        2 or 3; None detects.
    device
        Where results go: ``"cpu"``, ``"cuda:0"``, ``"auto"``; the configured default when None.
    implementations
        Which implementation serves a codec, for example ``{"zstd": "libzstd"}``.
    storage_options
        Options of the store, see `open_store`.
    **create
        Arguments of `create_array` for the modes that create: with ``shape`` a missing node is
        created as an array, without it as a group.

    Returns
    -------
    Array or Group

    Raises
    ------
    FileNotFoundError
        There is neither store nor node.
    headrace.CorruptError
        Its metadata is malformed.

    Examples
    --------
    >>> hr.open("era5.zarr/t2m")
    >>> hr.open("era5.zarr")["t2m"]
    """
    _check_mode(mode)
    _check.zarr_format(zarr_format)
    _core.check_device(device)
    if "shape" in create or mode in ("w", "w-"):
        opener: Callable[..., _core.Array | Group] = open_group
        if "shape" in create:
            opener = open_array
        return opener(
            store,
            path,
            mode=mode,
            zarr_format=zarr_format,
            device=device,
            implementations=implementations,
            storage_options=storage_options,
            **create,
        )
    handle, base = resolve_store(store, _store_mode(mode), storage_options)
    where = _join(base, path)
    is_group = _core.node_is_group(handle, where, zarr_format)
    if is_group is None and mode == "a":
        return open_group(handle, where, mode=mode, zarr_format=zarr_format, **create)
    if is_group is None:
        raise _missing("array or group", handle, where)
    _refuse_creation_arguments(mode, create)
    read_only = mode == "r"
    if is_group:
        return Group(
            _core.open_group(handle, where, zarr_format, read_only), device, implementations
        )
    return _core.open_array(handle, where, device, zarr_format, read_only, implementations)


def open_array(
    store: Any,
    path: str | None = None,
    *,
    mode: str = "r",
    zarr_format: int | None = None,
    device: str | None = None,
    implementations: dict[str, str] | None = None,
    storage_options: dict[str, Any] | None = None,
    **create: Any,
) -> _core.Array:
    """Open an array, or create it; see `open` for the parameters.

    Examples
    --------
    >>> hr.open_array("era5.zarr", "t2m")
    >>> hr.open_array("new.zarr", mode="w", shape=(100, 100), dtype="float32")
    """
    from ._create import create_array

    _check_mode(mode)
    _check.zarr_format(zarr_format)
    _core.check_device(device)
    if mode in ("r", "r+"):
        _refuse_creation_arguments(mode, create)
    if mode not in ("w", "w-"):
        handle, base = resolve_store(store, _store_mode(mode), storage_options)
        where = _join(base, path)
        with discarding(store, handle):
            if mode != "a" or _core.node_is_group(handle, where, zarr_format) is not None:
                return _core.open_array(
                    handle, where, device, zarr_format, mode == "r", implementations
                )
            if "shape" not in create:
                raise _missing("array", handle, where)
            array = create_array(
                handle, where, zarr_format=zarr_format or 3, device=device, **create
            )
        return array.with_implementations(implementations) if implementations else array
    array = create_array(
        store,
        path,
        zarr_format=zarr_format or 3,
        overwrite=mode == "w",
        device=device,
        storage_options=storage_options,
        **create,
    )
    return array.with_implementations(implementations) if implementations else array


def open_group(
    store: Any,
    path: str | None = None,
    *,
    mode: str = "r",
    zarr_format: int | None = None,
    device: str | None = None,
    implementations: dict[str, str] | None = None,
    storage_options: dict[str, Any] | None = None,
    attributes: dict[str, Any] | None = None,
    use_consolidated: bool | None = None,
) -> Group:
    """Open a group, or create it; see `open` for the parameters.

    ``device`` and ``implementations`` are those of the arrays that are opened through it.
    Consolidated metadata are used when there are any; with ``use_consolidated=False`` each member's
    own are read, and with True it is a `ValueError` when there are none.

    Examples
    --------
    >>> group = hr.open_group("era5.zarr")
    >>> list(group)
    ['t2m', 'u10', 'v10']
    """
    from ._create import create_group

    _check_mode(mode)
    _check.zarr_format(zarr_format)
    _core.check_device(device)
    if mode not in ("w", "w-"):
        handle, base = resolve_store(store, _store_mode(mode), storage_options)
        where = _join(base, path)
        if mode != "a" or _core.node_is_group(handle, where, zarr_format) is not None:
            found = _core.open_group(
                handle, where, zarr_format, mode == "r", use_consolidated is not False
            )
            if use_consolidated and not found.consolidated:
                raise ValueError(
                    f"use_consolidated: /{where} in {handle.url} has no consolidated metadata"
                )
            return Group(found, device, implementations, use_consolidated is not False)
        store, path, storage_options = handle, where, None
    group = create_group(
        store,
        path,
        attributes=attributes,
        zarr_format=zarr_format or 3,
        overwrite=mode == "w",
        storage_options=storage_options,
    )
    return Group(group._handle, device, implementations)


def consolidate_metadata(
    store: Any, path: str | None = None, *, storage_options: dict[str, Any] | None = None
) -> Group:
    """Gather the metadata of everything under `path` into its group's own metadata.

    Returns
    -------
    Group
        The group, opened with the consolidated metadata.

    Examples
    --------
    >>> hr.consolidate_metadata("era5.zarr")
    """
    handle, base = resolve_store(store, "r+", storage_options)
    where = _join(base, path)
    _core.consolidate_metadata(handle, where)
    return Group(_core.open_group(handle, where))
