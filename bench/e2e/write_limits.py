"""How near writes come to the codec's own library, on the same chunks in the same process.

    python bench/run.py write-limits -- --write-to /dev/shm/bench --codecs zstd

"codec": every chunk of what is written, compressed into reused buffers by as many threads, with the
library that headrace is linked to; nothing is stored. "files": the same, and each result written
to a file of its own (inner chunks of a shard: one after the other to a file a thread). They take
turns with headrace writing the same data to a new array.
"""

import os
import shutil
import statistics
import tempfile
from functools import partial
from pathlib import Path

import harness
import numpy as np
from e2e import data, limits, native, peers
from e2e.run import WRITE_PART

CODECS = ("zstd", "blosc", "gzip")


def _codec_alone(codec: str, layout: str, truth: np.ndarray, threads: int):
    """The library's name; a call that compresses all chunks on `threads` threads, into a folder."""
    outer, inner = data.LAYOUTS[layout]
    chunks = limits.split(truth, inner or outer)
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
                if file is None or not inner:
                    file = os.open(folder / str(i), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
                os.write(file, memoryview(target)[:n])
                if not inner:
                    os.close(file)
            if inner and file is not None:
                os.close(file)

        limits.on_threads(threads, list(enumerate(chunks)), encode)

    return workers[0].implementation, run_all


def measure_row(layout: str, codec: str, truth: np.ndarray, folder: Path, args) -> dict:
    peer, target = peers.load("headrace"), folder / "written.zarr"
    library, alone = _codec_alone(codec, layout, truth, args.threads)

    def codec_alone() -> harness.Took:
        return harness.took(partial(alone, None))

    def files() -> harness.Took:
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        return harness.took(partial(alone, target))

    def headrace() -> harness.Took:
        shutil.rmtree(target, ignore_errors=True)
        array = peer.create(str(target), data.spec(layout, codec, len(truth)))
        return harness.took(partial(peer.write, array, (Ellipsis,), truth))

    headrace()
    back = peer.read(peer.open_array(str(target)), (Ellipsis,))
    if not np.array_equal(back.view(np.uint32), truth.view(np.uint32)):
        raise RuntimeError(f"{layout} {codec}: wrong bytes")
    ways = {"codec": codec_alone, "files": files, "headrace": headrace}
    rounds = harness.in_turns(ways, args.runs)
    shutil.rmtree(target)

    def percent(of: str, i: int) -> float:
        pairs = zip(rounds[of], rounds["headrace"], strict=True)
        return round(100 * statistics.median(limit[i] / own[i] for limit, own in pairs), 1)

    def figures(name: str) -> dict:
        seconds, cpu_s = zip(*rounds[name], strict=True)
        return {
            "mb_s": round(truth.nbytes / statistics.median(seconds) / 1e6, 1),
            **harness.figures(seconds, "s", 5),
            "cpu_s": round(statistics.median(cpu_s), 5),
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
    args = harness.parser(
        __doc__,
        layouts=tuple(data.LAYOUTS),
        codecs=CODECS,
        runs=7,
        steps=64,
        threads=len(os.sched_getaffinity(0)),
        data=data.default_folder(),
        write_to=Path(tempfile.gettempdir()),
    ).parse_args()
    fields = np.load(data.prepare(args.data, args.steps, []) / "truth.npy", mmap_mode="r")
    truth = np.array(fields[: args.steps // WRITE_PART])
    args.write_to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.write_to) as folder:
        report = {
            **harness.head("write-limits", Path(folder), "headrace"),
            "settings": {"runs": args.runs, "steps": len(truth), "threads": args.threads},
            "rows": [],
        }
        for layout in args.layouts:
            for codec in args.codecs:
                row = measure_row(layout, codec, truth, Path(folder), args)
                report["rows"].append(row)
                speeds = [f"{name} {row[name]['mb_s']:.0f} MB/s" for name in ("codec", "headrace")]
                percents = [f"{k} {v:.0f}" for k, v in row.items() if k.startswith("percent")]
                print(layout, codec, row["library"], *speeds, *percents, sep=" | ", flush=True)
    report["load_average_end"] = harness.load_average()
    harness.save(report, args.out)


if __name__ == "__main__":
    main()
