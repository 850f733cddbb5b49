"""zarr-python's own tests with headrace's codec pipeline and without.

    pip download --no-deps --no-binary zarr zarr==3.1.6 && tar xf zarr-3.1.6.tar.gz
    python bench/ecosystem/zarr_suite.py zarr-3.1.6

Runs the tests of an unpacked source distribution, of the version that is installed, and compares
the outcome of each test; the result is bench/results/zarr-suite-<version>.json. Needs headrace
installed (workers find it by its entry points), pytest-asyncio and what else the tests import.
Takes a quarter of an hour a pipeline.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from importlib.metadata import version
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results"
PIPELINES = {
    "default": "zarr.core.codec_pipeline.BatchedCodecPipeline",
    "headrace": "headrace.zarr.CodecPipeline",
}
# Nothing of these goes through a codec pipeline, or they want the sources' repository around them.
LEFT_OUT = (
    "benchmarks",
    "test_cli",
    "test_docs.py",
    "test_examples.py",
    "test_version_derivation.py",
)
# Why a test fails with another pipeline, by a part of its name.
REASONS = {
    "test_config_codec_pipeline_class": "asserts that zarr-python's pipeline is the one configured",
    "test_create_array_with_data_num_gets": "counts requests: zarr-python asks for shards that it "
    "writes whole, headrace does not",
    "index_chunk_slice_fails": "replaces a method of zarr-python's sharding codec",
}


def outcome(case: ElementTree.Element) -> tuple[str, str]:
    for kind in ("failure", "error", "skipped"):
        found = case.find(kind)
        if found is not None:
            name = "skipped" if kind == "skipped" else "failed"
            return name, (found.get("message") or "").partition("\n")[0][:200]
    return "passed", ""


def name_of(case: ElementTree.Element) -> str:
    return re.sub("0x[0-9a-f]+", "0x", f"{case.get('classname')}::{case.get('name')}")


def run(folder: Path, report: Path, pipeline: str) -> dict[str, tuple[str, str]]:
    """Outcome and message of each test."""
    if not report.exists():
        command = [sys.executable, "-m", "pytest", "-q", "-p", "headrace.zarr"]
        command += ["-p", "no:cacheprovider", "-o", "addopts=", f"--junitxml={report}"]
        command += [f"--ignore=tests/{name}" for name in LEFT_OUT]
        environment = {**os.environ, "ZARR_CODEC_PIPELINE__PATH": pipeline}
        subprocess.run([*command, "tests"], cwd=folder, env=environment)
    return {name_of(case): outcome(case) for case in ElementTree.parse(report).iter("testcase")}


def reason_for(test: str) -> str:
    found = [reason for part, reason in REASONS.items() if part in test]
    return found[0] if found else "unexplained"


def main() -> bool:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="unpacked source distribution of zarr")
    parser.add_argument(
        "--reports",
        type=Path,
        help="where pytest's reports are kept; those found are not made again",
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        reports = (arguments.reports or Path(temporary)).resolve()
        default, headrace = (
            run(arguments.folder, reports / f"{name}-{version('zarr')}.xml", path)
            for name, path in PIPELINES.items()
        )
    failed = {
        test: {"message": message, "reason": reason_for(test)}
        for test, (found, message) in sorted(headrace.items())
        if found == "failed" and default.get(test, ("absent",))[0] != "failed"
    }
    report = {
        "command": f"python bench/ecosystem/zarr_suite.py zarr-{version('zarr')}",
        "versions": {name: version(name) for name in ("headrace", "zarr", "numcodecs", "numpy")},
        "left_out": LEFT_OUT,
        "default": Counter(found for found, _ in default.values()),
        "headrace": Counter(found for found, _ in headrace.values()),
        "not_run_by_both": sorted(default.keys() ^ headrace.keys()),
        "failed_with_headrace_only": failed,
        "reasons": Counter(row["reason"] for row in failed.values()),
    }
    text = json.dumps(report, indent=1)
    (RESULTS / f"zarr-suite-{version('zarr')}.json").write_text(text + "\n")
    print(text)
    return any(row["reason"] == "unexplained" for row in failed.values())


if __name__ == "__main__":
    sys.exit(main())
