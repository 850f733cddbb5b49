"""``python -m headrace``: the command, for those who have the package and not its folder of
programs on their path."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig


def _command() -> str | None:
    """The program that was installed with this package; else one that is on the path."""
    name = "headrace"
    for scheme in (None, f"{os.name}_user"):
        folder = sysconfig.get_path("scripts", scheme) if scheme else sysconfig.get_path("scripts")
        if os.access(os.path.join(folder, name), os.X_OK):
            return os.path.join(folder, name)
    beside = os.path.join(os.path.dirname(sys.executable), name)
    return beside if os.access(beside, os.X_OK) else shutil.which(name)


def main() -> int:
    command = _command()
    if command is None:
        print(
            "headrace: the command is not installed with this package; headrace.doctor() and the "
            "functions of the package do what it does",
            file=sys.stderr,
        )
        return 1
    os.environ.setdefault("HEADRACE_PYTHON", sys.executable)  # for "headrace cells"
    os.execv(command, [command, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
