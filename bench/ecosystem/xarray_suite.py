"""xarray's own tests of its engine "zarr", run with headrace in its place.

    python bench/ecosystem/xarray_suite.py [--json bench/results/xarray-suite.json]

Each class runs twice: as it is, and with every ``engine="zarr"`` that opens something replaced by
headrace (writes stay zarr-python's). Stores in memory are copied to a folder first, since headrace
opens those of zarr-python by their path only. Needs xarray with its tests, zarr, dask and pytest.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from importlib.metadata import version
from pathlib import Path

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
    """Outcome and message of each test."""
    import xarray.tests

    tests = Path(xarray.tests.__file__).parent
    names = [f"{tests / file}::{name}" for file, classes in CLASSES.items() for name in classes]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += ["-c", "/dev/null", f"--junitxml={report}"]
        command += ["-p", Path(__file__).stem] if swapped else []
        path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            [*command, *names],
            capture_output=True,
            text=True,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path},
        )
        if not report.exists():
            raise RuntimeError(done.stdout + done.stderr)
        cases = ElementTree.parse(report).iter("testcase")
        return {
            f"{case.get('classname').rpartition('.')[2]}::{case.get('name')}": outcome(case)
            for case in cases
        }


def outcome(case):
    for kind in ("failure", "error", "skipped"):
        found = case.find(kind)
        if found is not None:
            name = "failed" if kind == "error" else kind.replace("failure", "failed")
            return name, (found.get("message") or "").splitlines()[0][:300]
    return "passed", ""


def reason_for(test, message):
    for part, reason in REASONS.items():
        if part in test or part in message:
            return reason
    return "unexplained"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    zarr_engine, headrace = run(swapped=False), run(swapped=True)
    only_headrace = [
        {"test": test, "message": message, "reason": reason_for(test, message)}
        for test, (result, message) in sorted(headrace.items())
        if result == "failed" and zarr_engine[test][0] != "failed"
    ]
    report = {
        "command": "python bench/ecosystem/xarray_suite.py",
        "versions": {name: version(name) for name in ("xarray", "zarr", "dask", "numpy")},
        "classes": CLASSES,
        "zarr": Counter(result for result, _ in zarr_engine.values()),
        "headrace": Counter(result for result, _ in headrace.values()),
        "failed_with_headrace_only": only_headrace,
        "reasons": Counter(row["reason"] for row in only_headrace),
    }
    text = json.dumps(report, indent=1)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n")
    return any(row["reason"] == "unexplained" for row in only_headrace)


if __name__ == "__main__":
    sys.exit(main())
