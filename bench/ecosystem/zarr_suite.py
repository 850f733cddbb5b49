"""zarr-python's own tests with headrace's codec pipeline and without.

    pip download --no-deps --no-binary zarr zarr==3.1.6 && tar xf zarr-3.1.6.tar.gz
    ZARR=zarr-3.1.6 python bench/run.py zarr-suite

Runs the tests of an unpacked source distribution, of the version that is installed, and compares
the outcome of each test. Needs headrace installed (workers find it by its entry points),
its extra "suites" and what else the tests import. Takes a quarter of an hour a pipeline; pytest's
reports that are in the folder --reports are not made again.
"""

from __future__ import annotations

import re
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

import harness
from ecosystem import suites

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


def name_of(case: ElementTree.Element) -> str:
    return re.sub("0x[0-9a-f]+", "0x", f"{case.get('classname')}::{case.get('name')}")


def main() -> int:
    args = harness.parser(__doc__, source=Path("zarr"), reports=None).parse_args()
    options = ["-p", "headrace.zarr", "-o", "addopts="]
    options += [*(f"--ignore=tests/{name}" for name in LEFT_OUT), "tests"]
    with tempfile.TemporaryDirectory() as temporary:
        reports = (args.reports or Path(temporary)).resolve()
        outcomes = {
            name: suites.run(
                reports / f"{name}-{version('zarr')}.xml",
                options,
                args.source,
                {**harness.ENVIRONMENT, "ZARR_CODEC_PIPELINE__PATH": path},
                name_of,
            )
            for name, path in PIPELINES.items()
        }
    report = suites.result(
        "zarr",
        *("zarr", "numcodecs", "numpy"),
        left_out=LEFT_OUT,
        **suites.compared(outcomes, REASONS),
    )
    return suites.save(report, args.out)


if __name__ == "__main__":
    sys.exit(main())
