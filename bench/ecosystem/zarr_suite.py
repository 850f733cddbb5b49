"""zarr-python's own tests with headrace's codec pipeline and without.

    pip download --no-deps --no-binary zarr zarr==3.1.6 && tar xf zarr-3.1.6.tar.gz
    python bench/ecosystem/zarr_suite.py zarr-3.1.6

Runs the tests of arrays, indexing and codecs of an unpacked source distribution, of the version
that is installed, and compares the outcome of each test. The result is put beside those of other
versions in bench/results/zarr-suite.json. Needs pytest-asyncio and what else the tests import.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from importlib.metadata import version
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results" / "zarr-suite.json"
PIPELINES = {
    "default": "zarr.core.codec_pipeline.BatchedCodecPipeline",
    "headrace": "headrace.zarr.CodecPipeline",
}
TESTS = (
    "tests/test_array.py",
    "tests/test_codec_pipeline.py",
    "tests/test_codecs",
    "tests/test_indexing.py",
    "tests/test_unified_chunk_grid.py",
    "tests/test_v2.py",
)


def outcomes(report: Path) -> dict[str, str]:
    """passed, failed, error or skipped, by test."""
    found = {}
    for case in ET.parse(report).iter("testcase"):
        kinds = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        outcome = {"failure": "failed"}.get(kinds[0], kinds[0]) if kinds else "passed"
        found[f"{case.get('classname')}::{case.get('name')}"] = outcome
    return found


def run(folder: Path, tests: list[str], pipeline: str, options: list[str]) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as temporary:
        report = Path(temporary) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "headrace.zarr", "-o", "addopts="]
        subprocess.run(
            [*command, f"--junitxml={report}", *options, *tests],
            cwd=folder,
            env={**os.environ, "ZARR_CODEC_PIPELINE__PATH": pipeline},
        )
        return outcomes(report)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="unpacked source distribution of zarr")
    parser.add_argument("options", nargs="*", help="further arguments of pytest")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="files or folders of tests")
    arguments = parser.parse_args()
    tests = [name for name in arguments.tests if (arguments.folder / name).exists()]

    by_pipeline = {
        name: run(arguments.folder, tests, path, arguments.options)
        for name, path in PIPELINES.items()
    }
    default, headrace = by_pipeline["default"], by_pipeline["headrace"]
    names = sorted(default.keys() | headrace.keys())
    different = {
        name: [default.get(name, "absent"), headrace.get(name, "absent")]
        for name in names
        if default.get(name) != headrace.get(name)
    }
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results[f"zarr {version('zarr')}"] = {
        "tests": tests,
        "counts": {name: dict(Counter(found.values())) for name, found in by_pipeline.items()},
        "different [default, headrace]": different,
    }
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    print(json.dumps(results[f"zarr {version('zarr')}"], indent=1))


if __name__ == "__main__":
    main()
