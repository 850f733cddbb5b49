"""Tests of libraries on zarr-python, with headrace's codec pipeline and without it.

    pip download --no-deps --no-binary annbatch annbatch==0.3.1 && tar xf annbatch-0.3.1.tar.gz
    ANNBATCH=annbatch-0.3.1 python bench/run.py annbatch-suite

Runs the tests of unpacked sources, of the version that is installed, and compares the outcome of
each test. Needs headrace installed and what the tests import; for anndata without zarrs, which it
would take in place of the default, for annbatch and zarrs with it. Batches that headrace left to
zarr-python are counted in pytest's processes, not in those that tests start. pytest's reports that
are in the folder --reports are not made again.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

import harness
from ecosystem import suites

PIPELINES = {
    "default": "zarr.core.codec_pipeline.BatchedCodecPipeline",
    "headrace": "headrace.zarr.CodecPipeline",
}
# Variables of the environment of the tests' process.
FALLBACKS, SET_BY_TESTS = "HEADRACE_SUITE_FALLBACKS", "HEADRACE_SUITE_SET_BY_TESTS"


@dataclass(frozen=True)
class Suite:
    """One library's tests."""

    arguments: tuple[str, ...]  # of pytest, in the sources' folder
    beside: tuple[str, ...] = ()  # packages whose versions matter, too
    left_out: dict[str, str] = field(default_factory=dict)  # files, and why
    # Why a test fails with another pipeline, by a part of its name or of its message.
    reasons: dict[str, str] = field(default_factory=dict)
    # A pipeline that the tests name; the one under test stands in its place.
    set_by_tests: str = ""


SUITES = {
    "anndata": Suite(
        ("--randomly-seed=1", "-n", "2", "tests"),
        beside=("scipy", "pandas", "h5py", "dask", "xarray", "scanpy"),
        reasons={
            "zarr_context": "asserts that one of zarr-python's pipelines is the one configured",
        },
    ),
    "annbatch": Suite(
        ("-p", "no:asyncio", "tests"),
        beside=("anndata", "scipy", "torch", "jax", "zarrs"),
        set_by_tests="zarrs.ZarrsCodecPipeline",
    ),
    "zarrs": Suite(
        ("-o", "addopts=--import-mode=importlib", "tests"),
        set_by_tests="zarrs.ZarrsCodecPipeline",
        reasons={
            "Regex pattern did not match": "expects the words of zarrs's own error",
            "TestStrictMode": "expects errors of zarrs's strict mode, which other pipelines lack",
            "XPASS(strict)": "is marked as one that zarrs fails",
        },
    ),
    "ome-zarr": Suite(("tests",), beside=("dask", "ome-zarr-models", "fsspec")),
    "virtualizarr": Suite(
        ("virtualizarr/tests",),
        beside=("xarray", "icechunk", "kerchunk", "obstore", "obspec-utils", "hdf5plugin"),
    ),
}


def pytest_configure(config):
    """As a plug-in of pytest: let the pipeline that is configured be the one that tests name."""
    if name := os.environ.get(SET_BY_TESTS):
        from zarr import registry

        module, _, attribute = name.rpartition(".")
        stand_in = type(attribute, (registry.get_pipeline_class(),), {"__module__": module})
        setattr(importlib.import_module(module), attribute, stand_in)
        registry.register_pipeline(stand_in)


def pytest_sessionfinish(session):
    """As a plug-in of pytest: say what this process left to zarr-python."""
    if folder := os.environ.get(FALLBACKS):
        import headrace.zarr

        Path(folder, f"{os.getpid()}.json").write_text(json.dumps(headrace.zarr.fallbacks()))


def name_of(case: ElementTree.Element) -> str:
    return re.sub("0x[0-9a-f]+", "0x", f"{case.get('classname')}::{case.get('name')}")


def run(suite: Suite, source: Path, reports: Path) -> tuple[dict[str, suites.Outcomes], dict]:
    """Outcomes by pipeline, and the batches that headrace left to zarr-python."""
    ignored = [f"--ignore={name}" for name in suite.left_out]
    fallbacks = reports / "fallbacks"  # a file of each process
    if not (reports / "headrace.xml").exists():
        shutil.rmtree(fallbacks, ignore_errors=True)
    fallbacks.mkdir(parents=True, exist_ok=True)
    outcomes = {}
    for name, path in PIPELINES.items():
        environment = {**harness.ENVIRONMENT, "ZARR_CODEC_PIPELINE__PATH": path}
        if suite.set_by_tests:
            environment[SET_BY_TESTS] = suite.set_by_tests
        if name == "headrace":
            environment[FALLBACKS] = str(fallbacks)
        outcomes[name] = suites.run(
            reports / f"{name}.xml",
            ["-p", "ecosystem.downstream_suite", *ignored, *suite.arguments],
            source,
            environment,
            name_of,
        )
    left = Counter()
    for path in fallbacks.iterdir():
        left.update(json.loads(path.read_text()))
    return outcomes, dict(sorted(left.items()))


def main() -> int:
    made = harness.parser(__doc__, source=Path(), reports=None)
    made.add_argument("suite", choices=SUITES)
    args = made.parse_args()
    suite = SUITES[args.suite]
    with tempfile.TemporaryDirectory() as temporary:
        reports = (args.reports or Path(temporary)).resolve()
        outcomes, fallbacks = run(suite, args.source, reports)
    report = suites.result(
        args.suite,
        args.suite,
        *("zarr", "numcodecs", "numpy", *suite.beside),
        arguments=suite.arguments,
        left_out=suite.left_out,
        **suites.compared(outcomes, suite.reasons),
        fallbacks=fallbacks,
    )
    return suites.save(report, args.out)


if __name__ == "__main__":
    sys.exit(main())
