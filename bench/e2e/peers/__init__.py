"""One file a peer. A peer opens, reads, creates and writes in its library's plainest way."""

import importlib

PEERS = ("headrace", "zarr", "zarrs", "tensorstore")


def load(name: str):
    """The module of a peer; raises ImportError, with the library's reason, where it cannot run."""
    if name not in PEERS:
        raise ValueError(f"unknown peer {name!r}, expected one of {', '.join(PEERS)}")
    return importlib.import_module(f"peers.{name}_peer")
