"""One file a peer. A peer opens, reads, creates and writes in its library's plainest way."""

import importlib

PEERS = ("headrace", "zarr", "zarrs", "tensorstore")
# Of arrays at a URL, besides headrace, zarrs and tensorstore.
NETWORK_PEERS = ("headrace_obstore", "zarr_obstore", "zarr_fsspec")


def load(name: str):
    """The module of a peer; raises ImportError, with the library's reason, where it cannot run."""
    known = PEERS + NETWORK_PEERS
    if name not in known:
        raise ValueError(f"unknown peer {name!r}, expected one of {', '.join(known)}")
    return importlib.import_module(f"peers.{name}_peer")
