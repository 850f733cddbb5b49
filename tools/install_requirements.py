"""Installs what pyproject.toml asks for into the running Python: install_requirements.py [NAME...]

The build requirements, CMake, Ninja and the run-time dependencies always; each named extra on top.
headrace itself is not installed: tools/install_dev.py does that. Of a dependency group wheels are
installed as far as there are any, and what is left out is said: tests that want it are skipped.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# 3.25 is the oldest CMake that reads CMakeLists.txt; the distribution's may be older.
TOOLS = ["cmake>=3.25", "ninja>=1.11"]


def requirements(pyproject, extras):
    """The requirement strings of the extras, with headrace[...] replaced by what it names."""
    optional = pyproject["project"]["optional-dependencies"]
    found = [*pyproject["build-system"]["requires"], *TOOLS, *pyproject["project"]["dependencies"]]
    waiting = list(extras)
    seen = set()
    while waiting:
        extra = waiting.pop()
        if extra in seen:
            continue
        seen.add(extra)
        for requirement in optional[extra]:
            own = re.fullmatch(r"headrace\[([\w,-]+)\]", requirement)
            if own:
                waiting += own[1].split(",")
            else:
                found.append(requirement)
    return sorted(set(found))


def pip_install(*arguments):
    """The output of a pip that failed, else None."""
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    # Of 20,000 modules the tests import a part, and pip compiles by one process: left to who
    # imports them, where Python may write what it compiles.
    if not sys.dont_write_bytecode:
        command.append("--no-compile")
    done = subprocess.run(
        [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return done.stdout if done.returncode != 0 else None


def install_group(name, wanted):
    """In one go, or one by one where not all can be had."""
    if pip_install("--only-binary=:all:", *wanted) is None:
        return
    for requirement in wanted:
        failure = pip_install("--only-binary=:all:", requirement)
        if failure is not None:
            reason = failure.strip().splitlines()[-1]
            print(f"{name}: left out, with the tests that want it: {requirement} ({reason})")


def main(names):
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = pyproject.get("dependency-groups", {})
    extras = [name for name in names if name not in groups]
    if extras or not names:
        failure = pip_install(*requirements(pyproject, extras))
        if failure is not None:
            print(failure, file=sys.stderr)
            return 1
    for name in names:
        if name in groups:
            install_group(name, groups[name])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
