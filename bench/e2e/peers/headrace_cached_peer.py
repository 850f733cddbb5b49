"""headrace through a cache in memory that has been read from before."""

import headrace as hr
from e2e.peers.headrace_peer import MEMORY, read, versions  # noqa: F401


def open_array(path: str):
    return hr.open_array(hr.cached(path), mode="r", device="cpu")
