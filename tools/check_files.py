"""Checks what every source file must hold to: check_files.py [ROOT].

At most 800 lines (over 500 is said, not refused), ASCII, no trailing blanks, one newline at the
end, no open note without an issue, no absolute path of somebody's machine.
"""

import re
import subprocess
import sys
from pathlib import Path

REFUSE_LINES = 800
REPORT_LINES = 500

SOURCES = {".h", ".cpp", ".cu", ".cuh", ".py", ".pyi", ".cmake", ".toml", ".sh"}
SOURCE_NAMES = {"CMakeLists.txt", "Makefile"}
SOURCE_FOLDERS = ("tools/", ".ci/")
DOCUMENTS = {".md", ".yml", ".yaml", ".json"}
# Data, and files written by a tool.
EXEMPT = re.compile(r"^tests/(golden/data|fuzz/corpus)/|^bench/results/|/_core\.pyi$")

# Written in halves: this file is checked too.
OPEN_NOTE = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b(?!.*#\d+)")
MACHINE_PATH = re.compile(r"(?<![\w.])/(home|root|Users|work|mnt|scratch)/\w|/tmp/\w")


def kind(name):
    path = Path(name)
    if EXEMPT.search(name):
        return None
    if path.suffix in SOURCES or path.name in SOURCE_NAMES or name.startswith(SOURCE_FOLDERS):
        return "source"
    return "document" if path.suffix in DOCUMENTS else None


def check_text(name, text, file_kind):
    """The errors and the remarks about one file."""
    errors, remarks = [], []
    lines = text.splitlines()
    if file_kind == "source" and len(lines) > REFUSE_LINES:
        errors.append(f"{name}: {len(lines)} lines, at most {REFUSE_LINES}: split it by noun")
    elif file_kind == "source" and len(lines) > REPORT_LINES:
        remarks.append(f"{name}: {len(lines)} lines: think of splitting it")
    if text and (not text.endswith("\n") or text.endswith("\n\n")):
        errors.append(f"{name}: must end with one newline")
    for number, line in enumerate(lines, 1):
        where = f"{name}:{number}"
        if file_kind == "source" and not line.isascii():
            errors.append(f"{where}: not ASCII")
        if file_kind == "source" and line != line.rstrip():
            errors.append(f"{where}: blanks at the end of the line")
        if file_kind == "source" and OPEN_NOTE.search(line):
            errors.append(f"{where}: an open note needs an issue: #number")
        if MACHINE_PATH.search(line):
            errors.append(f"{where}: path of one machine")
    return errors, remarks


def tracked(root):
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    return sorted({name for name in listing.split("\0") if name and (root / name).is_file()})


def main(argv):
    root = Path(argv[1] if len(argv) > 1 else Path(__file__).parent.parent).resolve()
    failed = False
    for name in tracked(root):
        file_kind = kind(name)
        if file_kind is None:
            continue
        try:
            text = (root / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            errors, remarks = [f"{name}: not UTF-8"], []
        else:
            errors, remarks = check_text(name, text, file_kind)
        for line in [*errors, *remarks]:
            print(line)
        failed = failed or bool(errors)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
