"""Checks the arrows between folders that ARCHITECTURE.md draws: check_layers.py [ROOT].

Reads the #include lines of include/, src/, python/, cli/ and examples/. An arrow that is not in the
tables below is an error, and so is a circle of arrows.
"""

import re
import sys
from pathlib import Path

# Folder of src/ -> folders whose headers it may include, besides its own.
ARROWS = {
    "base": set(),
    "format": {"base"},
    "store": {"base"},
    "device": {"base", "kernels", "simt"},
    "simt": {"base"},
    "codec": {"base", "format", "device"},
    "kernels": {"simt"},
    "cuda": {"base", "format", "kernels", "simt", "codec", "device", "store"},
    "no_cuda": {"base", "format", "kernels", "simt", "codec", "device", "store"},
    "engine": {"base", "format", "codec", "store", "device", "kernels", "simt"},
    "loader": {"base", "device", "kernels", "simt"},  # the engine by its public headers
    "shm": {"base"},
}

# The rooms of a folder, by the same rule. Files of a folder with rooms lie in one of them.
ROOMS = {
    "engine": {
        "layout": set(),
        "request": {"layout"},
        "query": {"layout", "request"},
        "fetch": {"layout", "request", "query"},
        "read": {"layout", "request", "query", "fetch"},
        "write": {"layout", "request", "query", "fetch", "read"},
        "device": {"layout", "request", "query", "fetch", "read", "write"},
        "node": {"layout", "request", "query", "fetch", "read", "write", "device"},
        "rechunk": {"node"},
        "report": {"layout", "request", "device", "rechunk"},
    },
    "kernels": {
        "common": set(),
        "place": {"common"},
        "checksum": {"common", "place"},
        "filters": {"common", "place"},
        "ragged": {"common"},
        "lz": {"common"},
        "deflate": {"common", "checksum"},
        "zstd": {"common", "checksum"},
        "zstd/encode": {"common", "checksum", "zstd"},
        # Its streams are those of the others.
        "blosc": {"common", "place", "filters", "lz", "deflate", "zstd", "zstd/encode"},
    },
}

# What lies in front of the rooms: headers that see none of them and that all of them see, and
# bodies that see all of them and that nobody sees.
FRONT = {
    "kernels": {"kernels/kernels.h", "kernels/tuning.h", "kernels/table.cpp"},
}

# Of these folders others see the interface, not the bodies; of `codec`, `device` and `store` that
# goes for cuda and no_cuda only.
INTERFACES = {
    "kernels": {
        "kernels/kernels.h",
        "kernels/tuning.h",
        "kernels/common/fault.h",
        "kernels/common/log1p.h",  # one logarithm for both
    },
    "codec": {"codec/codec.h"},
    "device": {
        "device/backend.h",
        "device/cuda_names.h",
        "device/cufile.h",
        "device/decompress_engine.h",
        "device/gpu_limits.h",
        "device/kernel_probe.h",
        "device/kept_frees.h",
        "device/mapped_file.h",
        "device/user_memory.h",
    },
    "store": {"store/store.h"},
}

# Public headers that only some folders of src/ may include. The others are vocabulary.
PUBLIC_LIMITED = {
    "store.h": {"store", "engine", "loader"},
    "array.h": {"engine", "loader"},
    "headrace.h": set(),
}
ONLY_ERRORS = {"kernels"}  # of the public headers they see error.h

# The arrays' own are read together; shm.h, rechunk.h, loader.h and cells.h stand by themselves, for
# whoever wants just these.
MAX_PUBLIC_HEADERS = 20

# What a public header may include besides headrace/*.h: the C and C++ standard libraries.
STANDARD_HEADER = re.compile(r"[a-z_0-9]+(\.h)?")
C_HEADERS = {"assert.h", "errno.h", "limits.h", "stddef.h", "stdint.h", "string.h"}

CUDA_HEADER = re.compile(r"(^|/)(cuda|cufile|nvcomp|nvml|nvtx3/|driver_types|cub/|thrust/)")
HIP_HEADER = re.compile(r"^hip/")
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}


def includes(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match[1] == '"', match[2]


def check_public_header(quoted, target):
    if target.startswith("headrace/"):
        return None
    if quoted:
        return f"a public header includes only headrace/*.h, not {target}"
    if "/" in target or not STANDARD_HEADER.fullmatch(target):
        return f"a public header includes no third-party header: {target}"
    if target.endswith(".h") and target not in C_HEADERS:
        return f"a public header includes no system or third-party header: {target}"
    return None


def check_source(folder, target):
    """What is wrong with a file in src/<folder> that includes target, or None."""
    head, _, rest = target.partition("/")
    if folder != "cuda" and CUDA_HEADER.search(target) and head not in ARROWS:
        return f"only src/cuda includes {target}"
    if folder != "simt" and HIP_HEADER.search(target):
        return f"only src/simt includes {target}"
    if head == "headrace":
        if folder in ONLY_ERRORS and rest != "error.h":
            return f"{folder} includes no public header but error.h: {target}"
        allowed = PUBLIC_LIMITED.get(rest)
        if allowed is not None and folder not in allowed:
            return f"{folder} may not include {target}"
        return None
    if head not in ARROWS or head == folder:
        return None
    if head not in ARROWS[folder]:
        return f"no arrow {folder} -> {head}: {target}"
    narrow = head == "kernels" or folder in {"cuda", "no_cuda"}
    if narrow and target not in INTERFACES.get(head, {target}):
        return f"{folder} sees only {', '.join(sorted(INTERFACES[head]))} of {head}: {target}"
    return None


def check_room(name, target):
    """What is wrong with src/<name>, of a folder with rooms, that includes target, or None."""
    folder = name.partition("/")[0]
    if target is not None and (
        target.partition("/")[0] != folder or target in FRONT.get(folder, ())
    ):
        return None
    rooms, room = ROOMS[folder], name.rpartition("/")[0].partition("/")[2]
    if name in FRONT.get(folder, ()):
        if target is None or name.endswith(".cpp"):
            return None
        return f"{name} stands in front of the rooms and includes none of them: {target}"
    if target is None:
        return None if room in rooms else f"src/{name} is in no room of the architecture"
    there = target.rpartition("/")[0].partition("/")[2]
    if there == room or there in rooms.get(room, {there}):
        return None
    return f"no arrow {folder}/{room} -> {folder}/{there}: {target}"


def circle(arrows):
    """A circle of arrows as a list of folders, or None."""
    done = set()

    def visit(name, path):
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return None
        for other in sorted(arrows.get(name, ())):
            found = visit(other, [*path, name])
            if found:
                return found
        done.add(name)
        return None

    return next((found for name in arrows if (found := visit(name, []))), None)


def check_user(area, target):
    head = target.partition("/")[0]
    if head in ARROWS:
        return f"{area} includes only headrace/*: {target}"
    if CUDA_HEADER.search(target):
        return f"only src/cuda includes {target}"
    return None


def files(folder):
    return sorted(p for p in folder.rglob("*") if p.suffix in SUFFIXES) if folder.is_dir() else []


def check(root):
    errors = []
    for arrows in (ARROWS, *ROOMS.values()):
        found = circle(arrows)
        if found:
            errors.append("a circle of arrows: " + " -> ".join(found))

    def report(path, number, problem):
        if problem:
            errors.append(f"{path.relative_to(root)}:{number}: {problem}")

    public = files(root / "include")
    if len(public) > MAX_PUBLIC_HEADERS:
        errors.append(f"include: {len(public)} public headers, at most {MAX_PUBLIC_HEADERS}")
    for path in public:
        for number, quoted, target in includes(path):
            report(path, number, check_public_header(quoted, target))
    for path in files(root / "src"):
        folder = path.relative_to(root / "src").parts[0]
        if folder not in ARROWS:
            report(path, 1, f"src/{folder} is not a folder of the architecture")
            continue
        name = path.relative_to(root / "src").as_posix()
        if folder in ROOMS:
            report(path, 1, check_room(name, None))
        for number, _, target in includes(path):
            report(path, number, check_source(folder, target))
            if folder in ROOMS:
                report(path, number, check_room(name, target))
    for area in ("python", "cli", "examples"):
        for path in files(root / area):
            for number, _, target in includes(path):
                report(path, number, check_user(area, target))
    return errors


def main(argv):
    root = Path(argv[1] if len(argv) > 1 else Path(__file__).parent.parent).resolve()
    errors = check(root)
    print("\n".join(errors), end="\n" if errors else "")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
