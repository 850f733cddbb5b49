"""What is known of `headrace.zarr.Store` below it."""

from __future__ import annotations

from zarr.abc.store import Store as ZarrStore

from .. import _core


class OwnStore(ZarrStore):
    """A store of zarr-python that is one of headrace's."""

    @property
    def handle(self) -> _core.Store:
        """The `headrace.Store` behind it."""
        raise NotImplementedError
