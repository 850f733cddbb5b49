"""What tools/release.py makes of the version and the changelog."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = 'name = "headrace"\nversion = "0.1.0"\nversion_of_others = "0.1.0"\n'
CHANGELOG = """# Changelog

## [Unreleased]

### Added

- Something.

## [0.0.9] - 2026-01-01

- The first.
"""


@pytest.fixture(scope="module")
def release():
    spec = importlib.util.spec_from_file_location("release", ROOT / "tools" / "release.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_version_goes_up(release):
    changed = release.with_version(PROJECT, "0.2.0")
    assert changed == PROJECT.replace('version = "0.1.0"', 'version = "0.2.0"', 1)
    assert release.with_version(PROJECT, "0.1.0") == PROJECT  # the first release
    for wrong in ("0.0.9", "1.0", "0.2.0rc1", "v0.2.0", ""):
        with pytest.raises(release.Refused):
            release.with_version(PROJECT, wrong)


def test_entries_are_those_of_the_release(release):
    changed = release.with_release(CHANGELOG, "0.1.0", "2026-12-01")
    assert changed == CHANGELOG.replace(
        "## [Unreleased]\n", "## [Unreleased]\n\n## [0.1.0] - 2026-12-01\n"
    )
    with pytest.raises(release.Refused, match="no entries"):
        release.with_release(changed, "0.2.0", "2026-12-02")
    with pytest.raises(release.Refused, match=r"has 0\.1\.0"):
        release.with_release(changed, "0.1.0", "2026-12-02")


def test_the_projects_own_files_are_ready(release):
    release.with_version((ROOT / "pyproject.toml").read_text(), "99.0.0")
    release.with_release((ROOT / "CHANGELOG.md").read_text(), "99.0.0", "2026-12-01")
