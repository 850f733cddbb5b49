"""Checks that what locks guard is touched under them: check_locks.py [--all].

By the text, of all sources: no mutex, lock or condition variable of the standard library, of which
Clang knows nothing, in place of those of src/base/mutex.h, and no mutex without an annotation that
says what it guards.

By https://clang.llvm.org/docs/ThreadSafetyAnalysis.html: `clang++ -fsyntax-only -Wthread-safety`
over the sources that have annotations (src/base/thread_annotations.h) or include a header that has
them itself; with --all over every source. Without clang this half is left out, and it says so.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
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
CUDA = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "include")
OWN = {"base/thread_annotations.h", "base/mutex.h", "base/fork_mutex.h"}
ANNOTATED = re.compile(r"\b(GUARDED_BY|REQUIRES|EXCLUDES|ACQUIRE|MutexLock|ForkLock)\(?")
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)
FLAGS = ["-std=c++20", "-fsyntax-only", "-Iinclude", "-Isrc", "-DHEADRACE_HAVE_URING"]
FLAGS += ["-isystem", str(CUDA)]
FLAGS_OF = {"src/simt/shadow.cpp": ["-DHEADRACE_SIMT_SHADOW"]}  # else it is empty
# What most sources include: read once, it is half of the time.
STANDARD_HEADERS = (
    "algorithm array atomic chrono cstring filesystem functional limits map memory mutex numeric "
    "optional set span string string_view thread unordered_map utility vector"
)
WARNINGS = ["-Wno-everything", "-Wthread-safety", "-Werror=thread-safety"]

STANDARD = re.compile(
    r"\bstd::((recursive_|timed_|recursive_timed_|shared_|shared_timed_)?mutex|condition_variable"
    r"|condition_variable_any|lock_guard|unique_lock|scoped_lock|shared_lock)\b"
    r"|\bpthread_(mutex|rwlock|cond|spin)_t\b"
)
MUTEX = re.compile(r"^( *)(?:mutable |static |inline )*(?:Fork)?Mutex (\w+)(?: =|;|\{)")
GUARDS = r"\b(?:GUARDED_BY|REQUIRES)\((?:[^()]|\(\))*\b{}\)"
COMMENT = re.compile(r"//.*")
MAY_USE_STANDARD = {
    "src/base/mutex.h",
    # The bindings see the public headers only. A turn guards what the GIL guards as well.
    "python/src/future.h",
    "python/src/future.cpp",
}


def own_class(lines, at, indent):
    """What stands around line `at`, as deep as it or deeper."""

    def is_inside(line):
        depth = len(line) - len(line.lstrip())
        return not line.strip() or line[0] == "#" or line.rstrip()[-1] == ":" or depth >= indent

    begin, end = at, at
    while begin > 0 and is_inside(lines[begin - 1]):
        begin -= 1
    while end < len(lines) and is_inside(lines[end]):
        end += 1
    return "\n".join(lines[begin:end])


def check_text(root):
    """What is wrong with the sources by their text: "FILE:LINE: message"."""
    folders = (root / "src", root / "python" / "src", root / "cli")
    errors = []
    for path in sorted(path for folder in folders for path in folder.rglob("*")):
        if path.suffix not in {".h", ".cpp", ".cu", ".cuh"}:
            continue
        name = path.relative_to(root).as_posix()
        lines = [COMMENT.sub("", line) for line in path.read_text().splitlines()]
        for number, line in enumerate(lines, 1):
            standard = STANDARD.search(line)
            if standard and name not in MAY_USE_STANDARD:
                errors.append(
                    f"{name}:{number}: {standard[0]}: use src/base/mutex.h, which Clang can check"
                )
            mutex = MUTEX.match(line)
            if not mutex:
                continue
            around = own_class(lines, number - 1, len(mutex[1]))
            if not re.search(GUARDS.format(mutex[2]), around):
                errors.append(f"{name}:{number}: {mutex[2]}: no GUARDED_BY says what it guards")
    return errors


def has_annotations(source):
    """Of its own, or of a header that it includes."""
    text = source.read_text()
    headers = (ROOT / "src" / name for name in INCLUDE.findall(text) if name not in OWN)
    texts = [text, *(header.read_text() for header in headers if header.is_file())]
    return any(ANNOTATED.search(each) for each in texts)


def precompile(clang, folder):
    """Flags that take the standard library's headers from one file in `folder`."""
    header, compiled = folder / "standard.h", folder / "standard.h.pch"
    header.write_text("".join(f"#include <{name}>\n" for name in STANDARD_HEADERS.split()))
    command = [clang, *FLAGS, *WARNINGS, "-x", "c++-header", str(header), "-o", str(compiled)]
    command.remove("-fsyntax-only")
    subprocess.run(command, cwd=ROOT, check=True)
    return ["-include-pch", str(compiled)]


def check(clang, source, precompiled=()):
    own = FLAGS_OF.get(os.path.relpath(source, ROOT), precompiled)
    command = [clang, *FLAGS, *own, *WARNINGS, str(source)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.stderr if done.returncode != 0 else ""


def main(argv):
    errors = check_text(ROOT)
    if errors:
        print(*errors, sep="\n", file=sys.stderr)
        return 1
    clang = shutil.which(os.environ.get("CLANGXX", "clang++"))
    if clang is None:
        print(
            "locks: checked by their text only, there is no clang++ (tools/setup fuzz installs it)"
        )
        return 0
    folders = [*FOLDERS, "cuda"] if (CUDA / "cuda_runtime.h").is_file() else FOLDERS
    sources = [path for name in folders for path in sorted((ROOT / "src" / name).rglob("*.cpp"))]
    if "--all" not in argv:
        sources = [source for source in sources if has_annotations(source)]
    with (
        tempfile.TemporaryDirectory() as folder,
        ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool,
    ):
        precompiled = precompile(clang, Path(folder))
        texts = pool.map(lambda source: check(clang, source, precompiled), sources)
        failures = [text for text in texts if text]
    for text in failures:
        print(text, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
