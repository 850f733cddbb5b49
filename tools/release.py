"""Makes a release of the checkout: release.py VERSION

Sets the version, dates the changelog, runs .ci/run, builds dist/, commits and tags. Nothing is
pushed or uploaded, and where one of these fails the checkout is as it was. docs/versions.md says
what a person does besides.
"""

import argparse
import contextlib
import datetime
import re
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
NUMBER = re.compile(r'^version = "(.*)"$', re.MULTILINE)
UNRELEASED = "## [Unreleased]\n"


class Refused(Exception):
    """Why there is no release."""


def parts(version):
    found = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", version)
    if found is None:
        raise Refused(f"{version}: not three numbers")
    return tuple(map(int, found.groups()))


def with_version(project, version):
    """pyproject.toml with the version, which has to be above the one in it."""
    old = NUMBER.search(project)[1]
    if parts(version) < parts(old):
        raise Refused(f"{version} is not above {old}")
    return NUMBER.sub(f'version = "{version}"', project, count=1)


def with_release(changelog, version, date):
    """The changelog whose entries without a release are those of this one."""
    if f"## [{version}]" in changelog:
        raise Refused(f"the changelog has {version} already")
    before, found, after = changelog.partition(UNRELEASED)
    entries = after.split("\n## [")[0]
    if not found or "\n- " not in entries:
        raise Refused("the changelog has no entries under [Unreleased]")
    return f"{before}{UNRELEASED}\n## [{version}] - {date}\n{after}"


def run(*command):
    print("release:", *command, flush=True)
    subprocess.run(command, cwd=TOP, check=True)


def output(*command):
    done = subprocess.run(command, cwd=TOP, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@contextlib.contextmanager
def prepared(version):
    """The checkout with its files changed; as it was where what is done with them fails."""
    if output("git", "status", "--porcelain"):
        raise Refused("the checkout has changes")
    if output("git", "tag", "--list", f"v{version}"):
        raise Refused(f"there is a tag v{version}")
    project, changelog = TOP / "pyproject.toml", TOP / "CHANGELOG.md"
    texts = {
        project: with_version(project.read_text(), version),
        changelog: with_release(changelog.read_text(), version, datetime.date.today()),
    }
    before = {path: path.read_text() for path in texts}
    try:
        for path, text in texts.items():
            path.write_text(text)
        yield
    except BaseException:
        for path, text in before.items():
            path.write_text(text)
        raise


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("version")
    version = parser.parse_args().version
    try:
        with prepared(version):
            run("env", "HEADRACE_CI_WHOLE=1", ".ci/run")
            run("make", "wheel")
            run("git", "commit", "-am", f"headrace {version}")
    except (Refused, subprocess.CalledProcessError) as why:
        print(f"release: {why}", file=sys.stderr)
        return 1
    run("git", "tag", "-a", f"v{version}", "-m", f"headrace {version}")
    print(f"release: v{version} is tagged; dist/ has what to upload")
    return 0


if __name__ == "__main__":
    sys.exit(main())
