"""zarr-python over fsspec, with default settings; arrays at a URL."""

import importlib.metadata

import zarr
from e2e.peers.zarr_peer import read  # noqa: F401
from e2e.peers.zarr_peer import versions as zarr_versions

MEMORY = False


def versions() -> dict:
    return {**zarr_versions(), "fsspec": importlib.metadata.version("fsspec")}


def open_array(url: str):
    return zarr.open_array(url, mode="r")
