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


@pytest.fixture
def checkout(tmp_path, release, monkeypatch):
    """A small project whose .ci/run is a script that a test writes."""
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    (tmp_path / "Makefile").write_text("wheel:\n\ttrue\n")
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci/run").touch(mode=0o755)
    monkeypatch.setattr(release, "TOP", tmp_path)
    monkeypatch.setattr("sys.argv", ["release.py", "0.2.0"])
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "somebody")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "somebody@example.org")

    def with_ci(script):
        (tmp_path / ".ci/run").write_text("#!/bin/sh\n" + script)
        release.run("git", "init", "--quiet")
        release.run("git", "add", "--all")
        release.run("git", "commit", "--quiet", "--message", "all")
        return release

    return with_ci


def test_a_release_is_a_commit_and_a_tag(checkout):
    release = checkout("grep -q 0.2.0 pyproject.toml\n")
    assert release.main() == 0
    assert release.output("git", "describe") == "v0.2.0"
    assert release.output("git", "status", "--porcelain") == ""
    assert 'version = "0.2.0"' in (release.TOP / "pyproject.toml").read_text()


def test_what_fails_leaves_the_checkout_as_it_was(checkout, capsys):
    release = checkout("exit 3\n")
    assert release.main() == 1
    assert ".ci/run" in capsys.readouterr().err
    assert release.output("git", "status", "--porcelain") == ""
    assert release.output("git", "tag", "--list") == ""


def test_the_projects_own_files_are_ready(release):
    release.with_version((ROOT / "pyproject.toml").read_text(), "99.0.0")
    release.with_release((ROOT / "CHANGELOG.md").read_text(), "99.0.0", "2026-12-01")
