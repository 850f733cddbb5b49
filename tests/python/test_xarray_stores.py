"""xarray's engine on stores of zarr-python, opened in place."""

import numpy as np
import pytest

xr = pytest.importorskip("xarray")
zarr = pytest.importorskip("zarr", minversion="3.1.6")


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_store_that_never_has_consolidated_metadata(zarr_format):
    class Store(zarr.storage.WrapperStore):
        supports_consolidated_metadata = False  # as Icechunk's

        def with_read_only(self, read_only=False):
            return type(self)(self._store.with_read_only(read_only))

    store = Store(zarr.storage.MemoryStore())
    ds = xr.Dataset({"t": (("y", "x"), np.arange(12.0).reshape(3, 4))}, {"x": [1, 2, 3, 4]})
    ds.to_zarr(store, zarr_format=zarr_format)
    for consolidated in (True, False, None):
        for engine in ("zarr", "headrace"):
            with xr.open_dataset(store, engine=engine, consolidated=consolidated) as got:
                xr.testing.assert_identical(got, ds)
        tree = xr.open_datatree(store, engine="headrace", consolidated=consolidated)
        xr.testing.assert_identical(tree.to_dataset(), ds)
