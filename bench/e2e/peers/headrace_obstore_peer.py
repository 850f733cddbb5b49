"""headrace over obstore, for those who have such a store already."""

import headrace as hr
from e2e.peers.headrace_peer import read  # noqa: F401
from e2e.peers.zarr_obstore_peer import store_at, versions  # noqa: F401

MEMORY = False


def open_array(url: str):
    return hr.open_array(store_at(url), mode="r", device="cpu")
