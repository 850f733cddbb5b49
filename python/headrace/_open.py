"""Opening arrays and groups."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

from . import _check, _core
from ._create import CREATION_ARGUMENTS, create_array, creation_store
from ._paths import join
from ._stores import check_mode, discarding, resolve_store, store_mode
from ._suggest import checks_names, did_you_mean, unknown_argument
from .group import Group, create_group

_LOOKED_AT = 100  # members of a folder, for a message


def _missing(
    kind: str, store: _core.Store, path: str, zarr_format: int | None = None
) -> FileNotFoundError:
    if zarr_format and _core.node_is_group(store, path) is not None:
        kind = f"{kind} of zarr_format {zarr_format}"
        hint = f": it has zarr_format {5 - zarr_format}"
    else:
        hint = _core.printable(_what_is_there(store, path))
    return FileNotFoundError(f"no {kind} at /{path} in {store.url}{hint}")


def _what_is_there(store: _core.Store, path: str) -> str:
    """For the message about a place without a node: nodes below it, or beside it."""
    try:
        if _lists_at_once(store):
            inside = _nodes(store, path)
            if inside:
                there = path or ("the archive" if store.url.startswith("zip:") else "the folder")
                shown = ", ".join(repr(join(path, name)) for name in inside[:3])
                return f"; {there} has {shown}: pass path={join(path, inside[0])!r}"
            above, _, name = path.rpartition("/")
            beside = _nodes(store, above) if path else []
            if beside:
                return did_you_mean(name, beside, "there are")
        return f": {_core.what_is_there(store, path)}{_named_beside(store, path)}"
    except (OSError, ValueError, NotImplementedError):
        return ""


def _named_beside(store: _core.Store, path: str) -> str:
    """What a web server, which lists nothing, has there by consolidated metadata."""
    try:
        if store._python_store is None and store.url.startswith("http"):
            url = store.url
            if not path:
                url, _, path = url.rpartition("/")
                if url.endswith("/"):  # the host's root
                    return ""
            # A server that has no answer to this lets nobody wait for the error.
            store = _core.open_store(url, "r", {**store.storage_options, "max_retries": "0"})
        names = _core.consolidated_names_beside(store, path)
    except (OSError, ValueError, NotImplementedError):
        return ""
    return _core.printable(did_you_mean(path.rpartition("/")[2], names, "there are"))


@contextlib.contextmanager
def _naming_others(store: _core.Store, path: str) -> Iterator[None]:
    """Says of a node that there is not which others there are."""
    try:
        yield
    except FileNotFoundError as error:
        others = _named_beside(store, path)
        if not others or not error.args:  # as a store of Python's may have raised it
            raise
        *errno, text = error.args
        raise FileNotFoundError(*errno, f"{text}{others}") from None


def _lists_at_once(store: _core.Store) -> bool:
    return store._python_store is None and store.url.startswith(("file:", "zip:", "memory:"))


def _nodes(store: _core.Store, path: str) -> list[str]:
    names = store._list_dir(path)[:_LOOKED_AT]
    return [name for name in names if _core.node_is_group(store, join(path, name)) is not None]


def _refuse_creation_arguments(mode: str, create: dict[str, Any]) -> None:
    if not create:
        return
    for name in create:
        if name not in CREATION_ARGUMENTS:
            raise unknown_argument("open", name, [*_ARGUMENTS, *sorted(CREATION_ARGUMENTS)])
    raise TypeError(f"{', '.join(sorted(create))}: only for a mode that creates, got {mode!r}")


def _makes_array(create: dict[str, Any]) -> bool:
    return "shape" in create or create.get("data") is not None


def _node_place(
    store: Any, path: str | None, mode: str, storage_options: dict[str, Any] | None
) -> tuple[_core.Store, str]:
    """The store as `mode` of the node opens it, and the node's path in it."""
    if mode in ("w", "w-"):
        handle, base = creation_store(store, not path, mode == "w", storage_options)
    else:
        handle, base = resolve_store(store, store_mode(mode), storage_options)
    if mode in ("r+", "a") and handle.read_only:
        raise PermissionError(f"{_core.printable(handle.url)} is open for reading only: mode='r'")
    return handle, join(base, path)


def _as_given(
    store: Any, device: str | None, implementations: dict[str, str] | None
) -> tuple[str | None, dict[str, str] | None]:
    """Device and implementations of what is opened: where nothing is said, those of the handle."""
    if isinstance(store, _core.Array):
        own: tuple[str | None, dict[str, str] | None] = store.device, store._implementations
    elif isinstance(store, Group):
        own = store._device, store._implementations
    else:
        own = None, None
    return (
        own[0] if device is None else device,
        own[1] if implementations is None else implementations,
    )


def _is_opened(handle: _core.Store, where: str, mode: str, zarr_format: int | None) -> bool:
    """Whether a node is opened, and not made."""
    if mode == "a":
        return _core.node_is_group(handle, where, zarr_format) is not None
    return mode in ("r", "r+")


def _format_of_group_above(store: _core.Store, path: str) -> int:
    """What a node is made as where nothing is said."""
    while path:
        path = path.rpartition("/")[0]
        for zarr_format in (3, 2):
            if _core.node_is_group(store, path, zarr_format):
                return zarr_format
    return 3


_ARGUMENTS = ("path", "mode", "zarr_format", "device", "implementations", "storage_options")


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
        A path or URL (``~`` is the home folder), a `Store`, a store object of zarr-python, Icechunk
        or obstore, a mapping of fsspec, or a dict of bytes. Of an `Array` or `Group`, or one of
        zarr-python: the node itself, opened anew as ``mode`` says.
    path
        Path within the store; the root when left away.
    mode
        ``"r"`` reads only, ``"r+"`` reads and writes what exists, ``"a"`` creates what is missing,
        ``"w"`` replaces what is there, ``"w-"`` creates and fails when something is there.
    zarr_format
        2 or 3; None detects, and makes what the group above is.
    device
        Where results go: ``"cpu"``, ``"cuda:0"``, ``"auto"``; when None that of the `Array` or
        `Group` that is given, else the configured default.
    implementations
        Which implementation serves a codec, for example ``{"zstd": "libzstd"}``; when None those of
        the `Array` or `Group` that is given.
    storage_options
        Options of the store, see `open_store`.
    **create
        Arguments of `create_array` for the modes that create: with ``shape`` or ``data`` a missing
        node is created as an array, without them as a group. What ``"a"`` finds is opened as it is.

    Returns
    -------
    Array or Group

    Raises
    ------
    FileNotFoundError
        There is neither store nor node.
    PermissionError
        The mode writes, and the store is open for reading only.
    headrace.CorruptError
        Its metadata is malformed.

    Examples
    --------
    >>> hr.open("era5.zarr/t2m")
    >>> hr.open("era5.zarr")["t2m"]
    """
    check_mode(mode)
    _check.zarr_format(zarr_format)
    _core.check_device(device)
    device, implementations = _as_given(store, device, implementations)
    if _makes_array(create) or mode in ("w", "w-"):
        opener: Callable[..., _core.Array | Group] = open_group
        if _makes_array(create):
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
    handle, where = _node_place(store, path, mode, storage_options)
    with discarding(store, handle):
        is_group = _core.node_is_group(handle, where, zarr_format)
        if is_group is None and mode == "a":
            return open_group(handle, where, mode=mode, zarr_format=zarr_format, **create)
    if is_group is None:
        raise _missing("array or group", handle, where, zarr_format)
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
    check_mode(mode)
    _check.zarr_format(zarr_format)
    _core.check_device(device)
    device, implementations = _as_given(store, device, implementations)
    if mode in ("r", "r+"):
        _refuse_creation_arguments(mode, create)
    handle, where = _node_place(store, path, mode, storage_options)
    with discarding(store, handle):
        if _is_opened(handle, where, mode, zarr_format):
            with _naming_others(handle, where):
                return _core.open_array(
                    handle, where, device, zarr_format, mode == "r", implementations
                )
        if mode == "a" and not _makes_array(create):
            raise _missing("array", handle, where)
        array = create_array(
            handle,
            where,
            zarr_format=zarr_format or _format_of_group_above(handle, where),
            overwrite=mode == "w",
            device=device,
            **create,
        )
    return array.with_implementations(implementations) if implementations else array


@checks_names
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
    check_mode(mode)
    _check.zarr_format(zarr_format)
    if use_consolidated is not None:
        _check.flag("use_consolidated", use_consolidated)
    _core.check_device(device)
    device, implementations = _as_given(store, device, implementations)
    handle, where = _node_place(store, path, mode, storage_options)
    with discarding(store, handle):
        if _is_opened(handle, where, mode, zarr_format):
            with _naming_others(handle, where):
                found = _core.open_group(
                    handle, where, zarr_format, mode == "r", use_consolidated is not False
                )
            if use_consolidated and not found.consolidated:
                raise ValueError(
                    f"use_consolidated: /{where} in {handle.url} has no consolidated metadata"
                )
            return Group(found, device, implementations, use_consolidated is not False)
        group = create_group(
            handle,
            where,
            attributes=attributes,
            zarr_format=zarr_format or _format_of_group_above(handle, where),
            overwrite=mode == "w",
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
    where = join(base, path)
    _core.consolidate_metadata(handle, where)
    return Group(_core.open_group(handle, where))
