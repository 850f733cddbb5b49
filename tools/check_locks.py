"""Checks by Clang that what locks guard is touched under them: check_locks.py [--all].

https://clang.llvm.org/docs/ThreadSafetyAnalysis.html: `clang++ -fsyntax-only -Wthread-safety` over
the sources that have annotations (src/base/thread_annotations.h) or include a header that has them
itself; with --all over every source. Without clang there is nothing to check with, and it says so.
"""

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (
    "base",
    "format",
    "store",
    "codec",
    "device",
    "simt",
    "kernels",
    "engine",
    "loader",
    "shm",
)
OWN = {"base/thread_annotations.h", "base/mutex.h", "base/fork_mutex.h"}
ANNOTATED = re.compile(r"\b(GUARDED_BY|REQUIRES|EXCLUDES|ACQUIRE|MutexLock|ForkLock)\(?")
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)
FLAGS = ["-std=c++20", "-fsyntax-only", "-Iinclude", "-Isrc", "-DHEADRACE_HAVE_URING"]
WARNINGS = ["-Wno-everything", "-Wthread-safety", "-Werror=thread-safety"]


def has_annotations(source):
    """Of its own, or of a header that it includes."""
    text = source.read_text()
    headers = (ROOT / "src" / name for name in INCLUDE.findall(text) if name not in OWN)
    texts = [text, *(header.read_text() for header in headers if header.is_file())]
    return any(ANNOTATED.search(each) for each in texts)


def check(clang, source):
    command = [clang, *FLAGS, *WARNINGS, str(source)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.stderr if done.returncode != 0 else ""


def main(argv):
    clang = shutil.which(os.environ.get("CLANGXX", "clang++"))
    if clang is None:
        print("locks: not checked, there is no clang++ (tools/setup fuzz installs it)")
        return 0
    sources = [path for name in FOLDERS for path in sorted((ROOT / "src" / name).rglob("*.cpp"))]
    if "--all" not in argv:
        sources = [source for source in sources if has_annotations(source)]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        failures = [text for text in pool.map(lambda source: check(clang, source), sources) if text]
    for text in failures:
        print(text, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
