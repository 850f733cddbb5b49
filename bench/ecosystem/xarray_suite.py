"""xarray's own tests of its engine "zarr", run with headrace in its place.

    python bench/run.py xarray-suite

Each class runs twice: as it is, and with every ``engine="zarr"`` that opens something replaced by
headrace (writes stay zarr-python's). Needs xarray with its tests, zarr, dask and the extra
"suites": pytest runs the asynchronous ones with pytest-asyncio.
"""

import os
import sys
import tempfile
from pathlib import Path

import harness
import pytest
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
# A variable of the environment of the tests' process.
SWAPPED = "HEADRACE_SUITE_SWAPPED"
# Why a test fails with another engine, by a part of its name or of its message.
REASONS = {
    "Expected 'getitem' to have been called": "watches the calls of zarr-python's AsyncArray",
    "cannot be pickled": "pickles a store in memory: zarr-python's takes what it holds along, "
    "headrace's handle on it refuses",
    "No warnings of type": "expects a warning about slow opening without consolidated metadata",
    "test_non_existent_store": "FileNotFoundError in other words",
    "test_zarr_fill_value_setting": "use_zarr_fill_value_as_mask=False: xarray's engine takes it "
    "and does not look at it, headrace does",
}


def pytest_configure(config):
    """As a plug-in of pytest: let headrace open what the engine "zarr" would."""
    config.addinivalue_line("markers", "skip_if_param: as xarray's conftest.py has it")
    if os.environ.get(SWAPPED):
        _swap()


def pytest_runtest_setup(item):
    """Skips what xarray skips: the conftest.py that knows this mark is not installed with it."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    for mark in item.iter_markers("skip_if_param"):
        given = dict(mark.kwargs)
        reason, condition = given.pop("reason"), given.pop("condition", True)
        if condition and given.items() <= parameters.items():
            pytest.skip(reason)


def _swap():
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
            return super().open_dataset(store, **options)

        def open_groups_as_dict(self, store, *, mode="r", **options):
            return super().open_groups_as_dict(store, **options)

    return Swapped


def run(swapped):
    import xarray.tests

    tests = Path(xarray.tests.__file__).parent
    names = [f"{tests / file}::{name}" for file, classes in CLASSES.items() for name in classes]
    with tempfile.TemporaryDirectory() as folder:
        return suites.run(
            Path(folder) / "report.xml",
            ["-c", "/dev/null", "-p", "ecosystem.xarray_suite", *names],
            Path(folder),
            {**harness.ENVIRONMENT, SWAPPED: "yes" if swapped else ""},
            lambda case: f"{case.get('classname').rpartition('.')[2]}::{case.get('name')}",
        )


def main() -> int:
    args = harness.parser(__doc__).parse_args()
    outcomes = {"default": run(swapped=False), "headrace": run(swapped=True)}
    report = suites.result(
        "xarray",
        *("xarray", "zarr", "dask", "numpy", "pytest", "pytest-asyncio"),
        classes=CLASSES,
        **suites.compared(outcomes, REASONS),
    )
    return suites.save(report, args.out)


if __name__ == "__main__":
    sys.exit(main())
