"""How near writes come to the codec's own library, on the same chunks in the same process.

    python bench/e2e/write_limits.py --write-to /dev/shm/bench --out bench/results/write-limits.json

"codec": every chunk of what is written, compressed into reused buffers by as many threads, with the
library that headrace is linked to; nothing is stored. "files": the same, and each result written
to a file of its own (inner chunks of a shard: one after the other to a file a thread). They take
turns with headrace writing the same data to a new array.
"""

import argparse
import os
import resource
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import data
import headrace as hr
import limits
import machine
import native
import numpy as np
import peers
from run import _spec

CODECS = ("zstd", "blosc", "gzip")
STEPS = 32


def _timed(work) -> tuple[float, float]:
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    work()
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _codec_alone(codec: str, layout: str, truth: np.ndarray, threads: int):
    """The library's name; a call that compresses all chunks on `threads` threads, into a folder."""
    chunks = limits._split(truth, data.LAYOUTS[layout][1] or data.LAYOUTS[layout][0])
    sharded = data.LAYOUTS[layout][1] is not None
    size = chunks[0].nbytes
    room = size + size // 8 + 4096
    out = [np.ones(room, np.uint8) for _ in range(threads)]
    workers = [native.candidates(codec)[0]() for _ in range(threads)]

    def run_all(folder: Path | None) -> None:
        def encode(items, thread):
            run, target = workers[thread].encode, out[thread]
            file = None
            for i, piece in items:
                n = run(piece.ctypes.data, size, target.ctypes.data, room)
                if n <= 0:
                    raise RuntimeError(f"{codec}: the library failed")
                if folder is None:
                    continue
                if file is None or not sharded:
                    file = os.open(folder / str(i), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
                os.write(file, memoryview(target)[:n])
                if not sharded:
                    os.close(file)
            if sharded and file is not None:
                os.close(file)

        limits._on_threads(threads, list(enumerate(chunks)), encode)

    return workers[0].implementation, run_all


def measure_row(layout: str, codec: str, truth: np.ndarray, folder: Path, args) -> dict:
    peer, target = peers.load("headrace"), folder / "written.zarr"
    library, alone = _codec_alone(codec, layout, truth, args.threads)
    rounds = {"codec": [], "files": [], "headrace": []}
    for r in range(args.runs + 1):
        for name in list(rounds)[:: 1 if r % 2 else -1]:
            shutil.rmtree(target, ignore_errors=True)
            if name == "codec":
                result = _timed(lambda: alone(None))
            elif name == "files":
                target.mkdir()
                result = _timed(lambda: alone(target))
            else:
                array = peer.create(str(target), _spec(layout, codec, STEPS))
                result = _timed(lambda a=array: peer.write(a, (Ellipsis,), truth))
            if r > 0:
                rounds[name].append(result)
    shutil.rmtree(target, ignore_errors=True)
    array = peer.create(str(target), _spec(layout, codec, STEPS))
    peer.write(array, (Ellipsis,), truth)
    back = peer.read(peer.open_array(str(target)), (Ellipsis,))
    if not np.array_equal(back.view(np.uint32), truth.view(np.uint32)):
        raise RuntimeError(f"{layout} {codec}: wrong bytes")
    shutil.rmtree(target)

    def percent(of: str, i: int) -> float:
        pairs = zip(rounds[of], rounds["headrace"], strict=True)
        return round(100 * statistics.median(limit[i] / own[i] for limit, own in pairs), 1)

    def figures(name: str) -> dict:
        median = statistics.median(s for s, _ in rounds[name])
        return {
            "mb_s": round(truth.nbytes / median / 1e6, 1),
            "median_s": round(median, 5),
            "min_s": round(min(s for s, _ in rounds[name]), 5),
            "cpu_s": round(statistics.median(c for _, c in rounds[name]), 5),
        }

    return {
        "layout": layout,
        "codec": codec,
        "library": library,
        **{name: figures(name) for name in rounds},
        "percent_of_codec": percent("codec", 0),
        "percent_of_codec_by_cpu_time": percent("codec", 1),
        "percent_of_files": percent("files", 0),
        "percent_of_files_by_cpu_time": percent("files", 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layouts", type=lambda t: t.split(","), default=list(data.LAYOUTS))
    parser.add_argument("--codecs", type=lambda t: t.split(","), default=list(CODECS))
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--data", type=Path, default=data.default_folder())
    parser.add_argument("--write-to", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    truth_path = data.prepare(args.data, 64, []) / "truth.npy"
    truth = np.array(np.load(truth_path, mmap_mode="r")[:STEPS])
    args.write_to.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=args.write_to))
    report = {
        **machine.head("write-limits", folder),
        "versions": {"headrace": hr.__version__},
        "settings": {"runs": args.runs, "steps": STEPS, "threads": args.threads},
        "rows": [],
    }
    try:
        for layout in args.layouts:
            for codec in args.codecs:
                row = measure_row(layout, codec, truth, folder, args)
                report["rows"].append(row)
                print(
                    f"{layout:6} {codec:5} {row['library']}: {row['codec']['mb_s']:.0f} MB/s"
                    f" | headrace {row['headrace']['mb_s']:.0f} MB/s"
                    f" | {row['percent_of_codec']:.0f} % of the codec,"
                    f" {row['percent_of_codec_by_cpu_time']:.0f} % by CPU time"
                    f" | {row['percent_of_files']:.0f} % of codec and files,"
                    f" {row['percent_of_files_by_cpu_time']:.0f} % by CPU time",
                    flush=True,
                )
    finally:
        shutil.rmtree(folder)
    report["load_average_end"] = [round(x, 2) for x in os.getloadavg()]
    machine.save(report, args.out)


if __name__ == "__main__":
    main()
