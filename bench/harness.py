"""What benchmarks share: arguments, turns, the time of calls, a result's head and file."""

import argparse
import datetime
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple, TypeVar

Result = TypeVar("Result")
BENCH = Path(__file__).resolve().parent
# Where a child finds these modules.
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(filter(None, [str(BENCH), os.environ.get("PYTHONPATH")])),
}


def parser(doc: str, **options) -> argparse.ArgumentParser:
    """With --out, and an option for each of `options` that has its default and type.

    None stands for a path, False for a flag, a tuple for a list with commas between.
    """
    made = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in {**options, "out": None}.items():
        flag = "--" + name.replace("_", "-")
        shown = None if default in (None, False, "") else "default: %(default)s"
        if default is False:
            made.add_argument(flag, action="store_true")
        elif isinstance(default, tuple):
            kind = type(default[0])
            made.add_argument(
                flag,
                type=lambda text, kind=kind: tuple(map(kind, text.split(","))),
                default=default,
                help=f"default: {','.join(map(str, default))}",
            )
        else:
            kind = Path if default is None else type(default)
            made.add_argument(flag, type=kind, default=default, help=shown)
    return made


def in_turn(peers: Sequence, number: int) -> list:
    """The peers of that round: a different one first each time."""
    first = number % max(len(peers), 1)
    return [*peers[first:], *peers[:first]]


def in_turns(
    ways: Mapping[str, Callable[[], Result]], runs: int, warm_ups: int = 1
) -> dict[str, list[Result]]:
    """What each way returned, round by round, so that all of them see the same machine."""
    found: dict[str, list[Result]] = {name: [] for name in ways}
    for number in range(-warm_ups, runs):
        for name in in_turn(list(ways), number):
            result = ways[name]()
            if number >= 0:
                found[name].append(result)
    return found


class Took(NamedTuple):
    seconds: float
    cpu_s: float


def took(work: Callable[[], object]) -> Took:
    """The time of a call, and of all threads of this process meanwhile."""
    gc.collect()
    cpu, start = time.process_time(), time.perf_counter()
    work()
    return Took(time.perf_counter() - start, time.process_time() - cpu)


def seconds(work: Callable[[], object]) -> float:
    return took(work).seconds


def median_seconds(work: Callable[[], object], runs: int) -> float:
    return statistics.median(in_turns({"": lambda: seconds(work)}, runs)[""])


def figures(values: Sequence[float], unit: str, digits: int) -> dict:
    """Median, least and most of seconds, in the unit."""
    scale = {"s": 1, "ms": 1e3, "us": 1e6}[unit]
    of = {"median": statistics.median, "min": min, "max": max}
    return {f"{name}_{unit}": round(scale * of[name](values), digits) for name in of}


def rows_on_cores(script: str, cores: int, *told: object) -> list[dict]:
    """The rows that a script prints as JSON when it is told --child, on the first `cores` cores."""
    done = subprocess.run(
        ["taskset", "-c", f"0-{cores - 1}", sys.executable, script, "--child", *map(str, told)],
        env={**ENVIRONMENT, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [{"processors": cores, **row} for row in json.loads(done.stdout)]


def nbytes_of(path: Path) -> int:
    """Of the files below a folder."""
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file())


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


def load_average() -> list[float]:
    return [round(x, 2) for x in os.getloadavg()]


def machine(folder: Path) -> dict:
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "filesystem": filesystem(folder),
        "load_average": load_average(),
    }


def git(folder: Path, *arguments: str) -> str | None:
    """What git says there, nothing where it fails."""
    command = ["git", "-C", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def commit() -> str | None:
    head = git(BENCH, "rev-parse", "HEAD")
    changed = git(BENCH, "status", "--porcelain", "--untracked-files=no")
    return f"{head}+changes" if head and changed else head


def versions(*packages: str) -> dict[str, str]:
    """Of those that are installed."""
    found = {}
    for package in packages:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def head(what: str, folder: Path, *packages: str) -> dict:
    """How a result begins; `folder` is that of the data."""
    return {
        "schema": 1,
        "what": what,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": machine(folder),
        **({"versions": versions(*packages)} if packages else {}),
    }


def save(report: dict, path: Path | None) -> None:
    """Printed without a path."""
    text = json.dumps(report, indent=1)
    if path is None:
        print(text)
    else:
        path.write_text(text + "\n")


def bytes_read(path: Path) -> int:
    """By the disk that a path lies on, since the system began."""
    disk = path.stat().st_dev
    for line in Path("/proc/diskstats").read_text().splitlines():
        major, minor, _, _, _, sectors, *_ = line.split()
        if (int(major), int(minor)) == (os.major(disk), os.minor(disk)):
            return 512 * int(sectors)
    return 0


def drop_pages(files: Iterable[Path]) -> None:
    """What is written already of the files leaves the page cache, where the file system can."""
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
