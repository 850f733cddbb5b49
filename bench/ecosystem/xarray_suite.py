"""xarray's own tests of its engine "zarr", run with headrace in its place.

    python bench/run.py xarray-suite

Each class runs twice: as it is, and with every ``engine="zarr"`` that opens something replaced by
headrace (writes stay zarr-python's). Stores in memory are copied to a folder first, since headrace
opens those of zarr-python by their path only. Needs xarray with its tests, zarr, dask and pytest.
"""

import sys
import tempfile
from pathlib import Path

import harness
from ecosystem import suites

CLASSES = {
    "test_backends.py": [
        "TestZarrDictStore",
        "TestZarrDirectoryStore",
        "TestZarrNoConsolidatedMetadataSupport",
        "TestZarrWriteEmpty",
        "TestZarrRectilinearChunksRead",
        "TestDataArrayToZarr",
        "TestNCZarr",
        "TestZarrRegionAuto",
    ],
    "test_backends_datatree.py": ["TestZarrDatatreeIO"],
}
# Why a test fails with another engine, by a part of its name or of its message.
REASONS = {
    "Expected 'getitem' to have been called": "watches the calls of zarr-python's AsyncArray",
    "builtins.dict is not supported": "a dict as a store in memory, which headrace does not open",
    "has no consolidated metadata": "consolidated=True for a store that says it never has any: "
    "xarray passes over the argument then; a copy in a folder cannot say so",
    "No warnings of type": "expects a warning about slow opening without consolidated metadata",
    "test_non_existent_store": "FileNotFoundError in other words",
    "test_zarr_fill_value_setting": "use_zarr_fill_value_as_mask=False: xarray's engine takes it "
    "and does not look at it, headrace does",
}


def pytest_configure(config):
    """As a plug-in of pytest: let headrace open what the engine "zarr" would."""
    from xarray.backends import plugins
    from xarray.backends.common import BACKEND_ENTRYPOINTS

    _, zarr_engine = BACKEND_ENTRYPOINTS["zarr"]
    plugins.set_missing_parameters({"zarr": zarr_engine})
    BACKEND_ENTRYPOINTS["zarr"] = ("zarr", _swapped(zarr_engine))


def _swapped(zarr_engine):
    from headrace.xarray import HeadraceBackendEntrypoint

    class Swapped(HeadraceBackendEntrypoint):
        open_dataset_parameters = zarr_engine.open_dataset_parameters
        guess_can_open = zarr_engine.guess_can_open

        def open_dataset(self, store, *, mode="r", cache_members=True, **options):
            return super().open_dataset(on_disk(store), **options)

        def open_groups_as_dict(self, store, *, mode="r", **options):
            return super().open_groups_as_dict(on_disk(store), **options)

    return Swapped


def on_disk(store):
    """The store, or the folder that holds a copy of what is in memory."""
    from zarr.storage import MemoryStore

    inner = getattr(store, "_store", store)
    if not isinstance(inner, MemoryStore):
        return store
    folder = Path(tempfile.mkdtemp())
    for key, value in inner._store_dict.items():
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value.to_bytes())
    return str(folder)


def run(swapped):
    import xarray.tests

    tests = Path(xarray.tests.__file__).parent
    names = [f"{tests / file}::{name}" for file, classes in CLASSES.items() for name in classes]
    plug_in = ["-p", "ecosystem.xarray_suite"] if swapped else []
    with tempfile.TemporaryDirectory() as folder:
        return suites.run(
            Path(folder) / "report.xml",
            ["-c", "/dev/null", *plug_in, *names],
            Path(folder),
            harness.ENVIRONMENT,
            lambda case: f"{case.get('classname').rpartition('.')[2]}::{case.get('name')}",
        )


def main() -> bool:
    args = harness.parser(__doc__).parse_args()
    outcomes = {"zarr": run(swapped=False), "headrace": run(swapped=True)}
    report = {
        "versions": harness.versions("xarray", "zarr", "dask", "numpy"),
        "classes": CLASSES,
        **suites.compared("zarr", outcomes, REASONS),
    }
    harness.save(report, args.out)
    return "unexplained" in report["reasons"]


if __name__ == "__main__":
    sys.exit(main())
