"""Installs what pyproject.toml asks for into the running Python: install_requirements.py [EXTRA...]

The build requirements, CMake, Ninja and the run-time dependencies always; each named extra on top.
headrace itself is not installed: tools/install_dev.py does that.
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


def main(extras):
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    command += requirements(pyproject, extras)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        print(done.stdout, file=sys.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
