"""A part of the matrix of tests/interop that needs no other environment: headrace and zarr-python,
each as writer and reader of the other's arrays. tests/interop/__main__.py runs all of it."""

import sys
import warnings

import pytest
from helpers import GOLDEN

sys.path.insert(0, str(GOLDEN.parent / "interop"))

from cases import Case, all_cases, digest
from libraries import Headrace, TensorStore, Zarr3
from report import UNEXPLAINED, reason

LIBRARIES = {"headrace": Headrace, "zarr3": Zarr3, "tensorstore": TensorStore}


def is_usual(case: Case) -> bool:
    """Every type, codec and layout once."""
    return case.codec in ("zlib", "zstd") or (case.type, case.layout_name) == ("int16", "plain")


def failures(writer: str, reader: str, folder) -> tuple[int, dict[str, str]]:
    """How many arrays came through, and what went wrong without a reason that is known."""
    wrong, same = {}, 0
    for case in filter(is_usual, all_cases()):
        action, where = "write", folder / case.id
        where.parent.mkdir(parents=True, exist_ok=True)
        try:
            LIBRARIES[writer]().write(where, case)
            action = "read"
            found = LIBRARIES[reader]().read(where)
            message = "" if digest(found) == digest(case.expected) else "differs"
        except Exception as error:
            message = " ".join(f"{type(error).__name__}: {error}".split())
        if not message:
            same += 1
            continue
        library = writer if action == "write" else reader
        if reason(library, action, f"{writer}/{case.id}: {message}") == UNEXPLAINED:
            wrong[case.id] = f"{action}: {message}"
    return same, wrong


@pytest.mark.parametrize(
    ("writer", "reader", "least"),
    [
        ("headrace", "headrace", 400),
        ("zarr3", "headrace", 350),
        ("headrace", "zarr3", 350),
        ("tensorstore", "headrace", 250),
        ("headrace", "tensorstore", 250),
    ],
)
def test_what_one_writes_the_other_reads(tmp_path, writer, reader, least):
    if "tensorstore" in (writer, reader):
        pytest.importorskip("tensorstore")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr-python's, about types and codecs
        same, wrong = failures(writer, reader, tmp_path)
    assert wrong == {}
    assert same >= least
