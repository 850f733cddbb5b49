"""The URL and options by which headrace opens what another library's store object is of.

Only where that gives the same bytes: an option, a wrapper or a provider of credentials that is not
known here leaves the store to its own library.
"""

from __future__ import annotations

import json
from typing import Any

from zarr.storage import FsspecStore, ObjectStore

Place = tuple[str, dict[str, Any]]

# fsspec's class -> scheme. Others (caches, archives, folders within another) are its own affair.
_FILE_SYSTEMS = {
    ("s3fs.core", "S3FileSystem"): "s3",
    ("gcsfs.core", "GCSFileSystem"): "gs",
    ("adlfs.spec", "AzureBlobFileSystem"): "az",
    ("fsspec.implementations.http", "HTTPFileSystem"): "",
}
# How an instance is made and kept, not what it reaches.
_OF_INSTANCES = {
    "asynchronous",
    "loop",
    "skip_instance_cache",
    "use_listings_cache",
    "listings_expiry_time",
    "max_paths",
    "default_block_size",
    "default_fill_cache",
    "default_cache_type",
    "block_size",
    "cache_type",
    "cache_options",
    "batch_size",
}

# What of its exceptions zarr-python takes for a missing object, unless it is told otherwise.
_MISSING = {FileNotFoundError, IsADirectoryError, NotADirectoryError}

_OBJECT_STORES = {"S3Store": "s3", "GCSStore": "gs", "AzureStore": "az", "HTTPStore": ""}
# Names of what is in the URL.
_BUCKETS = ("bucket", "container_name")


def place_of(store: Any) -> Place | None:
    """None: it is read by its own library.

    Parameters
    ----------
    store
        zarr-python's store.
    """
    place = None
    if type(store) is FsspecStore:
        place = _place_of_fsspec(store)
    elif type(store) is ObjectStore:
        place = _place_of_obstore(store.store)
    return place if place is not None and _is_data(place[1]) else None


def _is_data(options: dict[str, Any]) -> bool:
    """Whether none is an object: a session, a credential that renews itself."""
    try:
        json.dumps(options)
    except (TypeError, ValueError):
        return False
    return True


def _place_of_fsspec(store: FsspecStore) -> Place | None:
    filesystem = store.fs
    scheme = _FILE_SYSTEMS.get((type(filesystem).__module__, type(filesystem).__name__))
    if scheme is None or set(store.allowed_exceptions) != _MISSING:
        return None
    options = {
        name: value
        for name, value in filesystem.storage_options.items()
        if name not in _OF_INSTANCES and value is not None
    }
    path = str(store.path)
    return (f"{scheme}://{path.strip('/')}" if scheme else path), options


def _place_of_obstore(store: Any) -> Place | None:
    cls = type(store)
    scheme = _OBJECT_STORES.get(cls.__name__)
    if scheme is None or cls.__module__.partition(".")[0] != "obstore":
        return None
    if getattr(store, "credential_provider", None) is not None:
        return None  # a function of the application's
    options = {**(getattr(store, "client_options", None) or {})}
    # Their own waits and tries; what comes of them is the same.
    options.pop("timeout", None)
    if not scheme:
        return store.url, options
    config = dict(store.config)
    bucket = next((config.pop(name) for name in _BUCKETS if name in config), None)
    if bucket is None:
        return None
    prefix = (store.prefix or "").strip("/")
    return f"{scheme}://{bucket}/{prefix}".rstrip("/"), {**config, **options}
