"""What this build and machine offer, and what is wrong with a place."""

from __future__ import annotations

import os
from typing import Any

from . import _check, _core, _json, _secrets, _stores
from ._paths import expanded


def doctor(
    store: str | os.PathLike[str] | None = None,
    *,
    storage_options: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Facts about this build and machine: devices, codecs, io_uring, limits; or about a place.

    Parameters
    ----------
    store : str or path, optional
        What to look at: is its server there, does it know us, are there ranges, lists, and
        something of Zarr. Some ten small requests; nothing is written.
    storage_options : dict, optional
        As `headrace.open` takes them.

    Returns
    -------
    dict
        Of a place ``{"url", "good", "findings"}``; each finding has a ``check`` (one word), a
        ``state`` ("good", "note" or "problem") and what it ``says``, which names the remedy and
        no secret.

    Examples
    --------
    >>> headrace.doctor()["version"]
    '0.1.0'
    >>> headrace.doctor("/nowhere/a.zarr")["findings"][0]["check"]
    'store'
    """
    _check.options(storage_options)
    if store is None:
        if storage_options:
            raise ValueError("storage_options: there is no store that they are of")
        facts: dict[str, Any] = _json.loads(_core.doctor_json())
        return facts
    if not isinstance(store, str | os.PathLike):
        raise _check.wrong_type("store", "a path or a URL", store)
    url = expanded(os.fspath(store))
    _check.text("store", url)
    url, storage_options = _secrets.without_secrets(url, storage_options)
    if _stores.is_own(url, storage_options):
        result: dict[str, Any] = _json.loads(_core.doctor_of_place(url, storage_options))
        return result
    return _doctor_of_other(url, storage_options)


def _doctor_of_other(url: str, storage_options: dict[str, Any] | None) -> dict[str, Any]:
    """Of a store that another library reads: whether it opens, and holds something."""
    row = {"check": "store", "state": "good", "says": "something of Zarr lies there"}
    try:
        opened, path = _stores.resolve_store(url, "r", storage_options)
        if not any(opened._exists(f"{path}/{name}".lstrip("/")) for name in _DOCUMENTS):
            row |= {"state": "problem", "says": f"no Zarr array or group: none of {_DOCUMENTS}"}
    except Exception as error:
        says = f"{type(error).__name__}: {error}"
        row |= {"state": "problem", "says": _secrets.scrubbed(says, url, storage_options)}
    shown = _secrets.shown(_secrets.scrubbed(url, url, storage_options))
    return {"url": shown, "good": row["state"] == "good", "findings": [row]}


_DOCUMENTS = ("zarr.json", ".zarray", ".zgroup")
