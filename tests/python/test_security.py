"""Every test that SECURITY.md names exists: a promise whose test went away is no promise."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMES = sorted(
    set(re.findall(r"`(test_\w+|[A-Z]\w+\.[A-Z]\w+|\w+_fuzz)`", (ROOT / "SECURITY.md").read_text()))
)


def all_tests():
    """Python's by function, gtest's as Suite.Name, fuzz targets by file."""
    for path in (ROOT / "tests").rglob("test_*.py"):
        yield from re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(), re.M)
    for path in (ROOT / "tests").rglob("*.cpp"):
        if path.stem.endswith("_fuzz"):
            yield path.stem
        found = re.findall(r"^TEST(?:_[FP])?\((\w+),\s*(\w+)\)", path.read_text(), re.M)
        yield from (f"{suite}.{name}" for suite, name in found)


def test_the_page_names_tests():
    assert len(NAMES) > 40


def test_all_tests_named_exist():
    assert not set(NAMES) - set(all_tests())


def test_every_promise_names_its_test():
    text = (ROOT / "SECURITY.md").read_text().partition("## What is promised")[2]
    promised = text.partition("## What is not promised")[0]
    rows = [line for line in promised.splitlines() if line.startswith("| ")]
    rows = [row for row in rows if not row.startswith(("| promise", "| ---"))]
    assert len(rows) > 20
    for row in rows:
        assert any(f"`{name}`" in row for name in NAMES), row
