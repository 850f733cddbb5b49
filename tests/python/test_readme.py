"""What the README shows a user runs as it stands there."""

import re
from pathlib import Path

from helpers import python

ROOT = Path(__file__).parents[2]


def quick_start() -> str:
    text = (ROOT / "README.md").read_text()
    found = re.search(
        r"<!-- quickstart:begin -->\n```python\n(.*?)```\n<!-- quickstart:end -->", text, re.S
    )
    assert found, "README.md has no quick start between its markers"
    return found[1]


def test_quick_start_runs():
    assert "(48, 181, 360) float32 (1, 181, 360) m/s" in python(quick_start())


def test_quick_start_is_the_example():
    example = (ROOT / "examples" / "quickstart.py").read_text()
    assert example.partition('"""\n\n')[2] == quick_start()


def test_benchmark_table_names_its_file():
    text = (ROOT / "README.md").read_text()
    table = text.partition("<!-- bench:begin -->")[2].partition("<!-- bench:end -->")[0]
    for name in re.findall(r"bench/results/[\w.-]+", table):
        assert (ROOT / name).is_file(), name
    assert "bench/results/" in table
