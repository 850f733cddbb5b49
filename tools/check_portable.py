"""Checks that the portable build has nothing of Linux: check_portable.py [COMMANDS FILE...]

COMMANDS is the build's compile_commands.json, FILEs are what it made. Three things are looked at:

- which functions of the C library the FILEs ask for: those of tools/portable_symbols.txt alone;
- which headers of the system the sources of that build include, and those of this project;
- which words of Linux, constants and places, stand in them outside of comments and of what a
  condition leaves out.

Without arguments no build is asked for, and the sources alone are looked at: all but those that are
called Linux's. On another system than Linux, the compiler has looked at all that.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("include", "src", "cli", "python/src")

POSIX_HEADERS = re.compile(
    r"(dirent|dlfcn|fcntl|limits|locale|poll|pthread|pwd|signal|spawn|stdlib|string|time|unistd"
    r"|arpa/inet|netinet/(in|tcp)|sys/(mman|resource|socket|stat|types|uio|un|wait))\.h"
)
MACOS_HEADERS = re.compile(r"sys/(file|random)\.h")
# Of libraries and compilers.
OTHER_HEADERS = re.compile(
    r"(blosc|bzlib|immintrin|libaec|libdeflate|lz4|lzma|snappy|snappy-c|zfp|zstd|zstd_errors|Python)"
    r"\.h|(curl|fmt|headrace|isa-l|nanobind|openssl|sanitizer|zfp)/.*"
)

WORDS = re.compile(
    r"\b(O_TMPFILE|O_DIRECT|O_PATH|O_NOATIME|AT_EMPTY_PATH|RTLD_DEEPBIND|RTLD_DL_LINKMAP|link_map"
    r"|MFD_\w+|F_(ADD|GET)_SEALS|F_SEAL_\w+|F_OFD_\w+|MADV_(NO)?HUGEPAGE|MADV_DONTFORK"
    r"|MADV_POPULATE_\w+|MAP_POPULATE|STATX_\w+|SYS_\w+|__NR_\w+|FUTEX_\w+|EFD_\w+|EPOLL\w*"
    r"|SOCK_CLOEXEC|SOCK_NONBLOCK|MSG_NOSIGNAL|MSG_CMSG_CLOEXEC|SO_PEERCRED|ucred|cpu_set_t|CPU_\w+"
    r"|GRND_\w+|PR_SET_\w+|RENAME_\w+|RWF_\w+|TMPFS_MAGIC|HUGETLBFS_MAGIC|statfs|st_[mac]tim)\b"
)
PLACES = re.compile(r"\"(/proc|/sys|/dev/shm)\b")
STRING = re.compile(r'"(\\.|[^"\\])*"')
# Not defined in the portable build, besides the words above.
UNDEFINED = re.compile(r"HEADRACE_HAVE_URING|HEADRACE_SIMT_SHADOW|__linux__|__HIP\w*|__CUDA\w*")
# Where the words above are named for what they are.
TIMES = "src/base/file_times.h"

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
CONDITION = re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif|else|endif)\b(.*)")
INCLUDE = re.compile(r"^\s*#\s*include\s*<([^>]+)>")


def is_undefined(name):
    return bool(UNDEFINED.fullmatch(name) or WORDS.fullmatch(name))


def truth(kind, text):
    """Of a condition: True, False, or None where it is not known."""
    if kind in ("ifdef", "ifndef"):
        return (kind == "ifndef") if is_undefined(text.strip()) else None
    parts = re.split(r"\|\|", text)
    known = [re.fullmatch(r"\s*(!?)\s*defined\s*\(?\s*(\w+)\s*\)?\s*", part) for part in parts]
    values = [bool(m[1]) if m and is_undefined(m[2]) else None for m in known]
    if True in values:
        return True
    return False if all(value is False for value in values) else None


def lines_built(text):
    """Numbers and texts of the lines that no condition leaves out."""
    text = COMMENT.sub(lambda m: "\n" * m[0].count("\n"), text)
    levels = []  # of each condition around: the value of this branch, and of those before it
    for number, line in enumerate(text.splitlines(), 1):
        match = CONDITION.match(line)
        if not match:
            if all(level[0] is not False for level in levels):
                yield number, line
        elif match[1] in ("if", "ifdef", "ifndef"):
            value = truth(match[1], match[2])
            levels.append((value, value))
        elif match[1] == "endif":
            levels.pop()
        else:
            before = levels.pop()[1]
            if before is True:
                levels.append((False, True))
            else:
                value = truth("if", match[2]) if match[1] == "elif" else None
                if match[1] == "else" and before is False:
                    value = True
                levels.append((value, value if before is False else None))


def check_text(path):
    name = path.relative_to(ROOT).as_posix()
    for number, line in lines_built(path.read_text(encoding="utf-8")):
        include = INCLUDE.match(line)
        if include and include[1].endswith(".h"):
            known = (POSIX_HEADERS, MACOS_HEADERS, OTHER_HEADERS)
            if not any(headers.fullmatch(include[1]) for headers in known):
                yield f"{name}:{number}: <{include[1]}> is no header of POSIX or macOS"
        word = PLACES.search(line) or WORDS.search(STRING.sub('""', line))
        if word and name != TIMES:
            yield f"{name}:{number}: {word[0]} is Linux's"


def built(commands):
    for entry in json.loads(Path(commands).read_text(encoding="utf-8")):
        path = Path(entry["directory"], entry["file"]).resolve()
        if any(path.is_relative_to(ROOT / folder) for folder in FOLDERS):
            yield path


def built_by_name():
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.cpp"):
            if not path.stem.endswith("_linux") and not path.is_relative_to(ROOT / "src/cuda"):
                yield path


def headers():
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.h"):
            # What kernels are written against elsewhere, and the folder that sees CUDA.
            if not path.is_relative_to(ROOT / "src/cuda") and path.name not in ("hip.h", "cuda.h"):
                yield path


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def names_of(listing):
    """Names in what nm writes, without their versions."""
    words = (line.split() for line in listing.splitlines())
    return {parts[-1].split("@")[0] for parts in words if len(parts) > 1}


def allowed_symbols():
    text = (ROOT / "tools/portable_symbols.txt").read_text(encoding="utf-8")
    lines = (line for line in text.splitlines() if line[:1] not in ("#", "["))
    return {name for line in lines for name in line.split()}


def check_symbols(files):
    library = output("c++", "-print-file-name=libc.so.6").strip()
    of_libc = names_of(output("nm", "-D", "--defined-only", library))
    allowed = allowed_symbols()
    for file in files:
        wanted = names_of(output("nm", "-u", file)) & of_libc
        for name in sorted(wanted - allowed):
            yield f"{file}: asks for {name}(), which is not in tools/portable_symbols.txt"


def main():
    commands, *files = sys.argv[1:] or [None]
    paths = sorted({*(built(commands) if commands else built_by_name()), *headers()})
    faults = [fault for path in paths for fault in check_text(path)]
    if commands and sys.platform == "linux":
        faults += check_symbols(files)
    for fault in faults:
        print(fault)
    print(f"check_portable: {len(paths)} sources, {len(files)} files, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
