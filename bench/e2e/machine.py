"""Facts about the machine and the checkout that go into a result file."""

import datetime
import json
import os
import platform
import subprocess
from pathlib import Path


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def filesystem(path: Path) -> str:
    path = path.resolve()
    best = ("", "unknown")
    for line in Path("/proc/mounts").read_text().splitlines():
        mount, kind = line.split()[1:3]
        if path.is_relative_to(mount) and len(mount) >= len(best[0]):
            best = (mount, kind)
    return best[1]


def _git(*arguments: str) -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def describe(folder: Path) -> dict:
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "filesystem": filesystem(folder),
        "load_average": [round(x, 2) for x in os.getloadavg()],
    }


def commit() -> str | None:
    head = _git("rev-parse", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no")
    return f"{head}+changes" if head and changed else head


def now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def head(what: str, folder: Path) -> dict:
    """How a result begins; `folder` is that of the data."""
    return {
        "schema": 1,
        "what": what,
        "date": now(),
        "commit": commit(),
        "machine": describe(folder),
    }


def save(report: dict, path: Path | None) -> None:
    """Nowhere without a path."""
    if path is None:
        return
    path.write_text(json.dumps(report, indent=1) + "\n")
    print(f"wrote {path}")
