"""zarr-python over obstore, with default settings; arrays at a URL."""

import importlib.metadata

import zarr
from e2e.peers.zarr_peer import read  # noqa: F401
from e2e.peers.zarr_peer import versions as zarr_versions
from obstore.store import from_url
from zarr.storage import ObjectStore

MEMORY = False


def versions() -> dict:
    return {**zarr_versions(), "obstore": importlib.metadata.version("obstore")}


def store_at(url: str) -> ObjectStore:
    return ObjectStore(from_url(url, client_options={"allow_http": True}), read_only=True)


def open_array(url: str):
    return zarr.open_array(store_at(url), mode="r")
