"""One file a peer. A peer opens, reads, creates and writes in its library's plainest way."""

import importlib

PEERS = ("headrace", "zarr", "zarrs", "tensorstore")
# Of arrays at a URL, besides headrace, zarrs and tensorstore.
NETWORK_PEERS = ("headrace_obstore", "zarr_obstore", "zarr_fsspec")


def load(name: str):
    """The module of a peer; raises ImportError, with the library's reason, where it cannot run."""
    return importlib.import_module(f"e2e.peers.{name}_peer")
