"""docs/object_stores.md names the options that the code takes, and no others."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STORE = ROOT / "src" / "store"
# The first cell of a table's head, and who takes what is in it.
TABLES = {
    "S3": ["cloud/s3_options.cpp"],
    "Google": ["cloud/gcs_options.cpp"],
    "Azure": ["cloud/azure_options.cpp"],
    "All of these, and web servers": ["http/open.cpp:take_http_options", "cloud/open.cpp"],
    "Web servers": ["http/open.cpp:take_headers", "http/open.cpp:http_parts"],
}
TAKES = re.compile(
    r"take(?:_any|_text|_flag|_bool|_number|_duration|_nested)?\("
    r"\s*(?P<whose>[\w*]+,\s*)?(?P<names>\{[^}]*\}|\"[^\"]*\")"
)
# In a dict that is an option itself.
NESTED = {"client", "config", "s3"}


def code_of(place):
    path, _, function = place.partition(":")
    code = (STORE / path).read_text()
    if not function:
        return code
    body = re.search(rf"^\S[^\n]* {function}\(.*?^}}", code, re.MULTILINE | re.DOTALL)
    assert body, f"{path} has no {function}()"
    return body[0]


def taken(places):
    found = set()
    for place in places:
        for match in TAKES.finditer(code_of(place)):
            whose = (match["whose"] or "").strip("*, ")
            if whose not in NESTED:
                found |= set(re.findall(r'"([^"]+)"', match["names"]))
    return found


def documented(head):
    page = (ROOT / "docs" / "object_stores.md").read_text()
    table = page.split(f"| {head} | |\n|---|---|\n")[1].split("\n\n")[0]
    return {
        name for row in table.splitlines() for name in re.findall(r"`([^`]+)`", row.split("|")[1])
    }


@pytest.mark.parametrize("head", TABLES)
def test_the_tables_are_those_of_the_code(head):
    names = taken(TABLES[head])
    assert len(names) >= 5
    assert documented(head) == names
