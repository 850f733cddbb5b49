"""The file store's ways of reading many small chunks: pread and io_uring, warm and cold.

    python bench/e2e/file_io.py --out bench/results/file-io.json

The whole array of 128 KiB chunks into existing memory, by headrace alone in this process, the ways
in turn. Cold: the files' pages are dropped from the page cache before each read, folders and inodes
stay. With O_DIRECT ("direct") the page cache plays no part.
"""

import argparse
import os
import resource
import statistics
import time
from pathlib import Path

import data
import headrace as hr
import machine
import numpy as np
from turns import in_turn

LAYOUT = "128KiB"
CODECS = ("none", "zstd", "blosc")
WAYS = {
    "pread": {},
    "uring": {"io": "uring"},
    "pread-direct": {"direct": True},
    "uring-direct": {"io": "uring", "direct": True},
}
STATES = {"warm": ("pread", "uring"), "cold": tuple(WAYS)}


def _drop(files: list[Path]) -> None:
    for file in files:
        fd = os.open(file, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _figures(rounds: list[tuple[float, float]], nbytes: int) -> dict:
    seconds = [s for s, _ in rounds]
    median = statistics.median(seconds)
    return {
        "median_s": round(median, 5),
        "min_s": round(min(seconds), 5),
        "max_s": round(max(seconds), 5),
        "mb_s": round(nbytes / median / 1e6, 1),
        "cpu_s": round(statistics.median(c for _, c in rounds), 5),
    }


def measure_row(folder: Path, codec: str, state: str, truth: np.ndarray, runs: int) -> dict:
    path = folder / data.array_name(LAYOUT, codec)
    files = [p for p in path.rglob("*") if p.is_file()]
    ways = STATES[state]
    arrays = {w: hr.open_array(str(path), mode="r", storage_options=WAYS[w]) for w in ways}
    out = np.zeros_like(truth)
    for file in files:
        file.read_bytes()
    os.sync()  # dirty pages cannot be dropped
    rounds = {way: [] for way in ways}
    for r in range(runs + 1):
        for way in in_turn(ways, r):
            if state == "cold":
                _drop(files)
            cpu, start = _cpu_s(), time.perf_counter()
            arrays[way].read(..., out=out)
            seconds = time.perf_counter() - start
            if r > 0:
                rounds[way].append((seconds, _cpu_s() - cpu))
            elif not np.array_equal(out.view(np.uint32), truth.view(np.uint32)):
                raise RuntimeError(f"{codec} by {way}: wrong result")
    figures = {way: _figures(rounds[way], truth.nbytes) for way in ways}
    base = "pread"
    for way in ways:
        pairs = zip(rounds[base], rounds[way], strict=True)
        ratio = statistics.median(b[0] / w[0] for b, w in pairs)
        figures[way]["speed_up_over_pread"] = round(ratio, 2)
    return {"layout": LAYOUT, "codec": codec, "cache": state, "ways": figures}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--data", type=Path, default=data.default_folder())
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    folder = data.prepare(args.data, args.steps, [(LAYOUT, codec) for codec in CODECS])
    truth = np.array(np.load(folder / "truth.npy", mmap_mode="r"))
    report = {
        **machine.head("file-io", folder),
        "versions": {"headrace": hr.__version__},
        "settings": {"runs": args.runs, "steps": args.steps},
        "rows": [],
    }
    for codec in CODECS:
        for state in STATES:
            row = measure_row(folder, codec, state, truth, args.runs)
            report["rows"].append(row)
            cells = [
                f"{way} {f['mb_s']:.0f} MB/s {f['speed_up_over_pread']:.2f}x"
                for way, f in row["ways"].items()
            ]
            print(f"{codec:5} {state}: {' | '.join(cells)}", flush=True)
    report["load_average_end"] = [round(x, 2) for x in os.getloadavg()]
    machine.save(report, args.out)


if __name__ == "__main__":
    main()
