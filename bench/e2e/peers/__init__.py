"""One file a peer. A peer opens, reads, creates and writes in its library's plainest way."""

import importlib

PEERS = ("headrace", "zarr", "zarrs", "tensorstore")


def load(name: str):
    """The module of a peer; raises ImportError, with the library's reason, where it cannot run."""
    return importlib.import_module(f"e2e.peers.{name}_peer")
